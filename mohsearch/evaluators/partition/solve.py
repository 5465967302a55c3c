"""The best partition that we know how to find, with what is proven about it."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Literal

import numpy as np

from mohsearch.core.errors import InfeasibleError, InputError
from mohsearch.core.seeds import generator
from mohsearch.evaluators.partition.bounds import IntervalBounds, interval_bounds
from mohsearch.evaluators.partition.contiguous import order_from_keys, split_orders
from mohsearch.evaluators.partition.costs import Labels, evaluate_partitions
from mohsearch.evaluators.partition.downsets import solve_downsets
from mohsearch.evaluators.partition.local_search import anneal_chain
from mohsearch.evaluators.partition.task import PartitionTask
from mohsearch.evaluators.partition.validity import check_partition

Status = Literal["optimal", "chain-optimal", "feasible"]

ORDERS = 32
MOVES = 4_000_000
CLOSE = 1e-9


@dataclass(frozen=True)
class BestPartition:
    """A valid partition and its certificate.

    Attributes
    ----------
    labels
        Chip of each op (n,).
    interval_s
        Its analytic interval, worked out from the labels.
    bound_s
        No valid partition is below.
    status
        ``optimal``: the interval equals the bound, or a complete search proved it;
        ``chain-optimal``: no partition whose chips form a chain is better; ``feasible``: neither.
    method
        What found it.
    seconds
        CPU time taken.
    """

    labels: Labels
    interval_s: float
    bound_s: float
    status: Status
    method: str
    seconds: float

    @property
    def gap(self) -> float:
        """Relative distance from the bound; infinite where that is 0."""
        if self.interval_s <= self.bound_s:
            return 0.0
        return self.interval_s / self.bound_s - 1.0 if self.bound_s > 0 else np.inf


def certify(
    task: PartitionTask,
    labels: Labels,
    status: Status,
    method: str,
    seconds: float,
    bound_s: float | None = None,
) -> BestPartition:
    """Return a record of a partition, checked and evaluated from its labels alone.

    Raises
    ------
    InfeasibleError
        If the partition is not valid, or better than the bound: then one of the two is wrong.
    """
    verdict = check_partition(task.graph, labels, task.chips)
    if not verdict.valid:
        raise InfeasibleError(f"{method} returned an invalid partition: {verdict.message}")
    interval = float(evaluate_partitions(task, labels)["interval_s"][0])
    proven: IntervalBounds = interval_bounds(task)
    bound = max(proven.bound_s, 0.0 if bound_s is None else bound_s)
    if interval < bound * (1 - 1e-6):
        raise InfeasibleError(f"{method} returned {interval:g} s, below the bound {bound:g} s")
    if interval <= bound * (1 + CLOSE):
        status = "optimal"
    return BestPartition(np.asarray(labels), interval, bound, status, method, seconds)


def best_partition(
    task: PartitionTask,
    seed: int = 0,
    *,
    max_downsets: int = 8_000,
    moves: int = MOVES,
    orders: int = ORDERS,
    starts: int = 3,
) -> BestPartition:
    """Return the best partition found, by interval.

    The exact program over downsets where the graph has few; else the best split of several orders,
    annealed.

    Parameters
    ----------
    task
        Graph, package and chips.
    seed
        Of the random orders and of the annealing.
    max_downsets
        Up to this many downsets the chain optimum is worked out.
    moves, orders, starts
        Annealing moves from each of the best ``starts`` splits of ``orders`` random orders.

    Raises
    ------
    InputError
        If a number is negative.

    Examples
    --------
    >>> from mohsearch.workloads.op_graph_files import load_graph
    >>> best = best_partition(PartitionTask(load_graph("timm_dla34"), chips=8))
    >>> best.status, round(best.interval_s * 1e6, 1), round(best.gap, 3)
    ('chain-optimal', 247.8, 0.193)
    """
    if min(max_downsets, moves, orders, starts) < 0 or starts < 1:
        raise InputError("efforts must not be negative, and one start is needed")
    begun = time.process_time()
    try:
        exact = solve_downsets(task, max(max_downsets, 1))
    except InfeasibleError:
        labels = _searched(task, seed, moves, orders, starts)
        seconds = time.process_time() - begun
        return certify(task, labels, "feasible", "orders and annealing", seconds)
    seconds = time.process_time() - begun
    return certify(task, exact.labels[exact.best], "chain-optimal", "downsets", seconds)


def _searched(task: PartitionTask, seed: int, moves: int, orders: int, starts: int) -> Labels:
    rng = generator(seed, "best-partition", task.graph.name, task.chips)
    keys = np.concatenate([np.arange(task.n)[None] / task.n, rng.random((orders, task.n))])
    labels, intervals = split_orders(task, order_from_keys(task.graph, keys))
    found: list[tuple[float, Labels]] = [(float(intervals.min()), labels[int(intervals.argmin())])]
    for start in np.argsort(intervals, kind="stable")[:starts]:
        row, interval = anneal_chain(task, labels[start], rng, moves)
        found.append((interval, row))
        order = np.lexsort((np.arange(task.n), row))
        again, intervals_again = split_orders(task, order)
        found.append((float(intervals_again[0]), again[0]))
    return min(found, key=lambda entry: entry[0])[1]
