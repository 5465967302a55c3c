"""Annealing of chain partitions by moving one op to a neighbouring chip.

For wide graphs, whose orders are too many for a program over one of them: the loads of the few
chips that a move touches are updated, not worked out anew.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import ArrayLike

from mohsearch.core.errors import InputError
from mohsearch.evaluators.partition.costs import Labels, as_labels, evaluate_partitions
from mohsearch.evaluators.partition.streams import row_seeds, uniform
from mohsearch.evaluators.partition.task import PartitionTask

HOT, COLD = 0.3, 1e-3
"""First and last temperature, relative to the sum of the eighth powers of the loads."""

DRAGS = 0.05
"""Share of the impossible moves of one op that are made possible by dragging others along."""

MOST_DRAGGED = 200


inner = njit(  # type: ignore[call-overload]
    cache=True, nogil=True, no_cpython_wrapper=True, no_cfunc_wrapper=True, _nrt=False
)
"""Called from compiled code alone: no wrapper for calls from Python, and no reference counts."""


@inner
def _send(u, row, sign, load, per_byte, succ_starts, edge_dst, edge_bytes):  # type: ignore[no-untyped-def]
    """Add (or take off) what sending an op's output to the next chip costs both chips."""
    a = row[u]
    size = 0.0
    for e in range(succ_starts[u], succ_starts[u + 1]):
        if row[edge_dst[e]] > a:
            size = max(size, edge_bytes[e])
    if size > 0.0:
        load[a] += sign * size * per_byte
        load[a + 1] += sign * size * per_byte


@inner
def _may_move(  # type: ignore[no-untyped-def]
    u, b, row, chips, ops_on, succ_starts, edge_dst, pred_starts, pred_edges, edge_src
):
    """Whether an op may go to chip ``b`` beside its own, all edges and chips in order."""
    a = row[u]
    if b < 0 or b >= chips or (ops_on[a] == 1 and a + 1 < chips and ops_on[a + 1] > 0):
        return False
    if b > a and ops_on[b] == 0 and ops_on[a] == 1:
        return False
    for e in range(succ_starts[u], succ_starts[u + 1]):
        if not b <= row[edge_dst[e]] <= b + 1:
            return False
    for i in range(pred_starts[u], pred_starts[u + 1]):
        if not b - 1 <= row[edge_src[pred_edges[i]]] <= b:
            return False
    return True


@inner
def _eighth(x):  # type: ignore[no-untyped-def]
    x *= x
    x *= x
    return x * x


@inner
def _shift(  # type: ignore[no-untyped-def]
    u, b, row, load, time_s, per_byte, succ_starts, edge_dst, edge_bytes, pred_starts, pred_edges,
    edge_src,
):  # fmt: skip
    """Move an op and update the loads."""
    for i in range(pred_starts[u], pred_starts[u + 1]):
        p = edge_src[pred_edges[i]]
        _send(p, row, -1.0, load, per_byte, succ_starts, edge_dst, edge_bytes)
    _send(u, row, -1.0, load, per_byte, succ_starts, edge_dst, edge_bytes)
    load[row[u]] -= time_s[u]
    row[u] = b
    load[b] += time_s[u]
    _send(u, row, 1.0, load, per_byte, succ_starts, edge_dst, edge_bytes)
    for i in range(pred_starts[u], pred_starts[u + 1]):
        p = edge_src[pred_edges[i]]
        _send(p, row, 1.0, load, per_byte, succ_starts, edge_dst, edge_bytes)


@inner
def _drag(  # type: ignore[no-untyped-def]
    u, step, row, load, ops_on, moved, time_s, per_byte, succ_starts, edge_dst, edge_bytes,
    pred_starts, pred_edges, edge_src,
):  # fmt: skip
    """Move an op by one chip, and with it all ops that would no longer be in reach of each other.

    Returns how many moved, 0 if they are too many; ``moved`` lists them.
    """
    chips = len(ops_on)
    count = 1
    moved[0] = u
    at = 0
    while at < count:
        x = moved[at]
        b = row[x] + step
        if b < 0 or b >= chips:
            break
        ops_on[row[x]] -= 1
        ops_on[b] += 1
        _shift(
            x, b, row, load, time_s, per_byte, succ_starts, edge_dst, edge_bytes, pred_starts,
            pred_edges, edge_src,
        )  # fmt: skip
        at += 1
        for e in range(succ_starts[x], succ_starts[x + 1]):
            v = edge_dst[e]
            if row[v] < b or row[v] > b + 1:
                count = _list_once(v, moved, at, count)
        for i in range(pred_starts[x], pred_starts[x + 1]):
            v = edge_src[pred_edges[i]]
            if row[v] > b or row[v] < b - 1:
                count = _list_once(v, moved, at, count)
        if count >= len(moved):
            break
    if at == count and not _has_gap(ops_on):
        return count
    _drag_back(
        at, step, row, load, ops_on, moved, time_s, per_byte, succ_starts, edge_dst, edge_bytes,
        pred_starts, pred_edges, edge_src,
    )  # fmt: skip
    return 0


@inner
def _list_once(v, moved, start, count):  # type: ignore[no-untyped-def]
    """Append an op to those that wait to be moved, unless it waits already or they are too many."""
    for i in range(start, count):
        if moved[i] == v:
            return count
    if count < len(moved):
        moved[count] = v
        return count + 1
    return count


@inner
def _has_gap(ops_on):  # type: ignore[no-untyped-def]
    """Whether a chip is empty though a later one is not."""
    empty = False
    for count in ops_on:
        if count == 0:
            empty = True
        elif empty:
            return True
    return False


@inner
def _drag_back(  # type: ignore[no-untyped-def]
    count, step, row, load, ops_on, moved, time_s, per_byte, succ_starts, edge_dst, edge_bytes,
    pred_starts, pred_edges, edge_src,
):  # fmt: skip
    """Take back the last moves of :func:`_drag`."""
    for i in range(count - 1, -1, -1):
        x = moved[i]
        ops_on[row[x]] -= 1
        ops_on[row[x] - step] += 1
        _shift(
            x, row[x] - step, row, load, time_s, per_byte, succ_starts, edge_dst, edge_bytes,
            pred_starts, pred_edges, edge_src,
        )  # fmt: skip


@inner
def _energy(load, inverse):  # type: ignore[no-untyped-def]
    """Return the sum of the eighth powers of the loads."""
    total = 0.0
    for x in load:
        total += _eighth(x * inverse)
    return total


@njit(cache=True, nogil=True)
def _anneal(  # type: ignore[no-untyped-def]
    row, best, chips, moves, hot, cold, drags, seed, time_s, per_byte, succ_starts, edge_dst,
    edge_bytes, pred_starts, pred_edges, edge_src,
):  # fmt: skip
    """Anneal ``row`` in place; ``best`` keeps the least interval seen, which is returned.

    A share ``drags`` of the moves that are not possible alone drag other ops along.
    """
    n = len(row)
    state = np.empty(1, np.uint64)
    state[0] = seed
    load = np.zeros(chips + 1)
    ops_on = np.zeros(chips, np.int64)
    moved = np.empty(MOST_DRAGGED, np.int64)
    for u in range(n):
        load[row[u]] += time_s[u]
        ops_on[row[u]] += 1
        _send(u, row, 1.0, load, per_byte, succ_starts, edge_dst, edge_bytes)
    least = load.max()
    inverse = 1.0 / least
    best[:] = row
    energy = _energy(load, inverse)
    cooling = (cold / hot) ** (1.0 / max(moves, 1))
    temperature = hot
    for _ in range(moves):
        temperature *= cooling
        u = int(uniform(state) * n)
        step = 1 if uniform(state) < 0.5 else -1
        if (
            not _may_move(
                u, row[u] + step, row, chips, ops_on, succ_starts, edge_dst, pred_starts,
                pred_edges, edge_src,
            )
            and uniform(state) >= drags
        ):  # fmt: skip
            continue
        count = _drag(
            u, step, row, load, ops_on, moved, time_s, per_byte, succ_starts, edge_dst,
            edge_bytes, pred_starts, pred_edges, edge_src,
        )  # fmt: skip
        if count == 0:
            continue
        after = _energy(load, inverse)
        change = after - energy
        if change <= 0.0 or uniform(state) < np.exp(-change / (temperature * energy)):
            energy = after
            worst = load.max()
            if worst < least * (1.0 - 1e-12):
                least = worst
                best[:] = row
        else:
            _drag_back(
                count, step, row, load, ops_on, moved, time_s, per_byte, succ_starts, edge_dst,
                edge_bytes, pred_starts, pred_edges, edge_src,
            )  # fmt: skip
    return least


def anneal_chain(
    task: PartitionTask, labels: ArrayLike, rng: np.random.Generator, moves: int = 1_000_000
) -> tuple[Labels, float]:
    """Return the best chain partition met while annealing one (n,), and its interval in s.

    Every edge of the partition that is handed in must stay on its chip or reach the next, and every
    chip up to the last have an op. The result is never worse.

    Raises
    ------
    InputError
        If the partition is no chain, or ``moves`` is negative.

    Examples
    --------
    >>> from mohsearch.evaluators.partition.contiguous import split_orders
    >>> from mohsearch.workloads.op_graph_files import load_graph
    >>> task = PartitionTask(load_graph("own_lstm_l1_h256_t16"), chips=4)
    >>> labels, interval_s = split_orders(task)
    >>> _, better_s = anneal_chain(task, labels[0], np.random.default_rng(0), 20_000)
    >>> better_s < float(interval_s[0])
    True
    """
    row = as_labels(task, labels)[0].copy()
    graph = task.graph
    span = row[graph.edge_dst] - row[graph.edge_src]
    if ((span < 0) | (span > 1)).any() or len(np.unique(row)) != row.max() + 1:
        raise InputError("only a partition whose chips form a chain can be annealed")
    if moves < 0:
        raise InputError(f"moves must not be negative, got {moves}")
    best = row.copy()
    _anneal(
        row, best, task.chips, moves, HOT, COLD, DRAGS, row_seeds(rng, 1)[0], task.time_s,
        1.0 / task.package.link.bandwidth_bytes_per_s, graph.succ_starts, graph.edge_dst,
        graph.edge_bytes, graph.pred_starts, graph.pred_edges, graph.edge_src,
    )  # fmt: skip
    return best, float(evaluate_partitions(task, best)["interval_s"][0])
