"""The best partition that we know how to find, with what is proven about it."""

from __future__ import annotations

import time
import weakref
from dataclasses import dataclass
from typing import Literal

import numpy as np

from mohsearch.core.errors import InfeasibleError, InputError
from mohsearch.core.seeds import generator
from mohsearch.evaluators.partition.bounds import IntervalBounds, interval_bounds
from mohsearch.evaluators.partition.contiguous import order_from_keys, split_orders
from mohsearch.evaluators.partition.costs import Labels, evaluate_partitions
from mohsearch.evaluators.partition.cut_bound import cut_bounds
from mohsearch.evaluators.partition.downsets import DownsetSolution, solve_downsets
from mohsearch.evaluators.partition.general_program import MAX_DOWNSETS, solve_general
from mohsearch.evaluators.partition.local_search import anneal_chain
from mohsearch.evaluators.partition.task import PartitionTask
from mohsearch.evaluators.partition.validity import check_partition

Status = Literal["optimal", "chain-optimal", "feasible"]

ORDERS = 32
MOVES = 4_000_000
CLOSE = 1e-6
"""Relative distance from a bound that counts as reaching it."""

FEW_DOWNSETS = 1_000
"""Up to this many, the program for all partitions takes half a second at most."""

ROUNDING = 1e-9
"""Relative distance that keeps a proven bound below what another order of sums gives."""

_proven: weakref.WeakKeyDictionary[PartitionTask, float] = weakref.WeakKeyDictionary()


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
    chain_bound_s
        No partition whose chips form a chain is below.
    status
        ``optimal``: the interval reaches the bound to one in a million, or a complete search proved
        it; ``chain-optimal``: no partition whose chips form a chain is better; ``feasible``:
        neither.
    method
        What found it.
    seconds
        CPU time taken.
    """

    labels: Labels
    interval_s: float
    bound_s: float
    chain_bound_s: float
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
    bound_s: float = 0.0,
    chain_bound_s: float = 0.0,
) -> BestPartition:
    """Return a record of a partition, checked and evaluated from its labels alone.

    ``bound_s`` and ``chain_bound_s`` are what is proven besides :func:`interval_bounds`.

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
    bound = max(proven.bound_s, bound_s)
    if interval < bound * (1 - 1e-6):
        raise InfeasibleError(f"{method} returned {interval:g} s, below the bound {bound:g} s")
    bound = min(bound, interval)  # above it by rounding at most
    chain_bound = max(bound, chain_bound_s)
    if interval <= bound * (1 + CLOSE):
        status = "optimal"
    elif status == "feasible" and interval <= chain_bound * (1 + CLOSE):
        status = "chain-optimal"
    return BestPartition(np.asarray(labels), interval, bound, chain_bound, status, method, seconds)


def proven_interval_s(task: PartitionTask) -> float:
    """Return the best lower bound on the analytic interval that takes less than a second, in s.

    The largest of :func:`interval_bounds`, :func:`cut_bounds` (transfers counted) and, up to 1000
    downsets, :func:`solve_general`. Worked out once a task.

    Examples
    --------
    >>> from mohsearch.workloads.op_graph_files import load_graph
    >>> task = PartitionTask(load_graph("timm_dla34"), chips=36)
    >>> round(interval_bounds(task).bound_s * 1e6, 1), round(proven_interval_s(task) * 1e6, 1)
    (123.3, 154.4)
    """
    if task not in _proven:
        bounds = [interval_bounds(task).bound_s, cut_bounds(task).general_s]
        try:
            chains = solve_downsets(task, FEW_DOWNSETS)
        except InfeasibleError:
            pass  # too many downsets
        else:
            bounds.append(solve_general(task, float(chains.interval_s.min())).bound_s)
        _proven[task] = max(bounds) * (1.0 - ROUNDING)
    return _proven[task]


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

    Where the graph has few downsets: the exact program over them, for chains, and the one for all
    partitions. Else the best split of several orders, annealed, beside a bound by cuts.

    Parameters
    ----------
    task
        Graph, package and chips.
    seed
        Of the random orders and of the annealing.
    max_downsets
        Up to this many downsets the chain optimum is worked out; up to 4000, partitions that are no
        chains are searched as well.
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
    ('optimal', 247.8, 0.0)
    """
    if min(max_downsets, moves, orders, starts) < 0 or starts < 1:
        raise InputError("efforts must not be negative, and one start is needed")
    begun = time.process_time()
    try:
        exact = solve_downsets(task, max(max_downsets, 1))
    except InfeasibleError:
        bounds = cut_bounds(task)
        goal = max(interval_bounds(task).bound_s, bounds.chain_s)
        labels = _searched(task, seed, moves, orders, starts, goal)
        seconds = time.process_time() - begun
        return certify(
            task, labels, "feasible", "orders and annealing", seconds, bounds.general_s,
            bounds.chain_s,
        )  # fmt: skip
    return _complete(task, exact, begun)


def _complete(task: PartitionTask, exact: DownsetSolution, begun: float) -> BestPartition:
    """Return the best chain, or a partition that is better and no chain."""
    chain_s = float(exact.interval_s[exact.best])
    labels, method, bound = exact.labels[exact.best], "downsets", 0.0
    if exact.downsets > MAX_DOWNSETS:
        bound = cut_bounds(task).general_s
    else:
        general = solve_general(task, chain_s)
        bound = general.bound_s
        if len(general.labels):
            labels, method = general.labels[-1], "downsets, chips in parallel"
    status: Status = "chain-optimal" if method == "downsets" else "feasible"
    seconds = time.process_time() - begun
    return certify(task, labels, status, method, seconds, bound, chain_s)


def _searched(
    task: PartitionTask, seed: int, moves: int, orders: int, starts: int, goal_s: float
) -> Labels:
    """Return the best of the splits of several orders, and of what annealing makes of them.

    ``goal_s`` is where no chain can be better.
    """
    rng = generator(seed, "best-partition", task.graph.name, task.chips)
    keys = np.concatenate([np.arange(task.n)[None] / task.n, rng.random((orders, task.n))])
    labels, intervals = split_orders(task, order_from_keys(task.graph, keys))
    best_s = float(intervals.min())
    best: Labels = labels[int(intervals.argmin())]
    for start in np.argsort(intervals, kind="stable")[:starts]:
        if best_s <= goal_s * (1 + CLOSE):
            break
        row, _ = anneal_chain(task, labels[start], rng, moves)
        order = np.lexsort((np.arange(task.n), row))
        again, _ = split_orders(task, order)
        for found in (row, again[0]):
            interval = float(evaluate_partitions(task, found)["interval_s"][0])
            if interval < best_s:
                best_s, best = interval, found
    return best
