"""Cycles of vector ops on lanes: counted from their formulas, or as the published code has them."""

from __future__ import annotations

import numpy as np

from mohsearch.evaluators.op_cost_options import CostOptions
from mohsearch.workloads.training_ops import TrainingOp


def lane_cycles(op: TrainingOp, options: CostOptions) -> float:
    """Return the cycles that one lane would need for the whole op.

    Examples
    --------
    >>> from mohsearch.workloads.training_ops import vector_counts
    >>> counts = vector_counts("silu", 100)
    >>> op = TrainingOp("silu", "silu", "forward", "vector", elements=100, counts=counts)
    >>> lane_cycles(op, CostOptions())
    2600.0
    """
    return float(np.dot(np.array(op.counts, dtype=np.float64), options.technology.cycles))


def paper_lane_cycles(op: TrainingOp, options: CostOptions, *, constant: bool = False) -> float:
    """Return the same by the published code's cycles per element.

    The head of a chain of vector ops costs nothing there, and neither does the product at the head
    of a fused op here; ``constant`` returns the sum for one element.
    """
    kinds = op.op_type.split("+")
    counted = kinds[1:] if len(kinds) > 1 else kinds
    table = options.technology.paper_cycles
    total = 0.0
    for kind in counted:
        backward = "_gradient" in kind
        name = kind.removesuffix("_gradient").removesuffix("_weight")
        total += table["backward" if backward else "forward"].get(name, 1.0)
    return total if constant else total * op.elements
