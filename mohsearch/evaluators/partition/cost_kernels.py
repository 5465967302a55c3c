"""The compiled cost of partitions: one pass over edges and one over ops per partition.

Nothing is checked here: labels must be valid. The same kernel serves both fidelities, which differ
in their parameters (:mod:`mohsearch.evaluators.partition.costs`).
"""

from __future__ import annotations

import numpy as np
from numba import njit

INTERVAL, LATENCY, HOP_BYTES, CHIPS, PEAK_MEMORY, TRANSFERS = range(6)
"""Columns: s, s, bytes times links, 1, bytes, 1."""

COLUMNS = 6

COMPUTE, SENT, RECEIVED, LOAD, WEIGHTS, MEMORY = range(6)
"""Columns of one partition's chips: s, bytes, bytes, s, bytes, bytes."""

CHIP_COLUMNS = 6

(
    CHIP_LINK,  # bytes per s between a chip and its links
    LINK,  # bytes per s of a link
    HOP,  # s a hop
    MESSAGE,  # s a transfer, at both ends
    STAGE,  # s a chip
    OVERLAP,  # share of the shorter of computing and transferring that is hidden
    SRAM,  # bytes
    SPILL,  # bytes per s between chip and off-package memory; 0: nothing is spilt
    FRAGMENTS,  # memory taken over memory needed
    DOUBLE,  # 1: buffers of received and sent tensors are held twice, for the whole interval
) = range(10)
PARAMETERS = 10

compiled = njit(cache=True, nogil=True, error_model="numpy")
inner = njit(  # type: ignore[call-overload]
    cache=True,
    nogil=True,
    error_model="numpy",
    no_cpython_wrapper=True,
    no_cfunc_wrapper=True,
    _nrt=False,
)
"""Called from compiled code alone: no wrapper for calls from Python, and no reference counts."""


@inner
def spread_op(  # type: ignore[no-untyped-def]
    u, row, mark, succ_starts, edge_dst, edge_bytes, fused_s, stamp, best, reached, last_edge,
    freed, chip_out,
):  # fmt: skip
    """Find the chips that read op ``u``, the bytes each is sent and the last edge to it.

    Returns their number; they stand in ``reached``. ``mark`` is new for each op of each partition.
    """
    count = 0
    a = row[u]
    for e in range(succ_starts[u], succ_starts[u + 1]):
        b = row[edge_dst[e]]
        if b == a:
            chip_out[a, COMPUTE] -= fused_s[e]
        if stamp[b] != mark:
            stamp[b] = mark
            best[b] = edge_bytes[e]
            reached[count] = b
            count += 1
        else:
            best[b] = max(best[b], edge_bytes[e])
        freed[e] = 0.0
        last_edge[b] = e
    return count


@inner
def send(  # type: ignore[no-untyped-def]
    u, a, count, reached, best, last_edge, out_bytes, parameters, freed, live, sender, chip_out,
    link_out,
):  # fmt: skip
    """Send op ``u``'s output from chip ``a`` to the chips in ``reached``.

    Returns bytes times links, and transfers. ``link_out`` holds differences between links.
    """
    hop_bytes = 0.0
    transfers = 0
    for i in range(count):
        b = reached[i]
        if b == a:
            continue
        size = best[b]
        chip_out[a, SENT] += size
        chip_out[b, RECEIVED] += size
        chip_out[a, LOAD] += parameters[MESSAGE]
        chip_out[b, LOAD] += parameters[MESSAGE]
        link_out[a] += size
        link_out[b] -= size
        hop_bytes += size * (b - a)
        transfers += 1
        sender[a, b] = True
        live[b] += size
        if parameters[DOUBLE] == 0.0:
            freed[last_edge[b]] = size
    if transfers == 0 and count > 0:
        freed[last_edge[a]] = out_bytes[u]
    return hop_bytes, transfers


@inner
def sweep_memory(  # type: ignore[no-untyped-def]
    row, k, out_bytes, pred_starts, pred_edges, freed, live, parameters, chip_out
):
    """Fill the memory each chip needs, its ops run in the order of their numbers.

    Weights stay; received tensors are there from the start to their last use; an output stays to
    its last use, and to the end where it is sent or is an output of the network.
    """
    for a in range(k):
        if parameters[DOUBLE] > 0.0:
            live[a] += chip_out[a, RECEIVED] + chip_out[a, SENT]
        chip_out[a, MEMORY] = live[a]
    for u in range(len(row)):
        a = row[u]
        live[a] += out_bytes[u]
        chip_out[a, MEMORY] = max(chip_out[a, MEMORY], live[a])
        for i in range(pred_starts[u], pred_starts[u + 1]):
            live[a] -= freed[pred_edges[i]]
    for a in range(k):
        chip_out[a, MEMORY] = parameters[FRAGMENTS] * (chip_out[a, MEMORY] + chip_out[a, WEIGHTS])


@inner
def load_chips(k, sender, parameters, finish, chip_out, link_out):  # type: ignore[no-untyped-def]
    """Fill load of chips and bytes of links; return interval, latency and largest memory."""
    interval = 0.0
    latency = 0.0
    peak = 0.0
    carried = 0.0
    for a in range(k):
        carried += link_out[a]
        link_out[a] = carried
        interval = max(interval, carried / parameters[LINK])
        moved = (chip_out[a, SENT] + chip_out[a, RECEIVED]) / parameters[CHIP_LINK]
        moved += chip_out[a, LOAD]
        compute = chip_out[a, COMPUTE]
        load = compute + moved - parameters[OVERLAP] * min(compute, moved) + parameters[STAGE]
        if parameters[SPILL] > 0.0 and chip_out[a, MEMORY] > parameters[SRAM]:
            load += 2.0 * (chip_out[a, MEMORY] - parameters[SRAM]) / parameters[SPILL]
        chip_out[a, LOAD] = load
        interval = max(interval, load)
        peak = max(peak, chip_out[a, MEMORY])
        start = 0.0
        for b in range(a):
            if sender[b, a]:
                start = max(start, finish[b] + (a - b) * parameters[HOP])
        finish[a] = start + load
        latency = max(latency, finish[a])
    return interval, latency, peak


@compiled
def evaluate_labels(  # type: ignore[no-untyped-def]
    labels, chips, time_s, fused_s, out_bytes, weight_bytes, weight_starts, weight_ids,
    succ_starts, edge_dst, edge_bytes, pred_starts, pred_edges, parameters, out, chip_out, link_out,
):  # fmt: skip
    """Fill ``out`` (S, COLUMNS); ``chip_out`` and ``link_out`` keep those of the last partition.

    ``fused_s`` (E,) is the time saved where both ends of an edge share a chip.
    """
    n = len(time_s)
    best = np.zeros(chips)
    last_edge = np.zeros(chips, np.int64)
    stamp = np.full(chips, -1, np.int64)
    reached = np.empty(chips, np.int64)
    freed = np.zeros(len(edge_dst))
    live = np.zeros(chips)
    sender = np.zeros((chips, chips), np.bool_)
    finish = np.zeros(chips)
    holder = np.full((len(weight_bytes), chips), -1, np.int64)
    for s in range(len(labels)):
        row = labels[s]
        k = 0
        chip_out[:] = 0.0
        link_out[:] = 0.0
        live[:] = 0.0
        sender[:] = False
        hop_bytes = 0.0
        transfers = 0
        for u in range(n):
            a = row[u]
            k = max(k, a + 1)
            chip_out[a, COMPUTE] += time_s[u]
            for j in range(weight_starts[u], weight_starts[u + 1]):
                if holder[weight_ids[j], a] != s:
                    holder[weight_ids[j], a] = s
                    chip_out[a, WEIGHTS] += weight_bytes[weight_ids[j]]
            count = spread_op(
                u, row, s * n + u, succ_starts, edge_dst, edge_bytes, fused_s, stamp, best,
                reached, last_edge, freed, chip_out,
            )  # fmt: skip
            if count > 0:
                moved, sent = send(
                    u, a, count, reached, best, last_edge, out_bytes, parameters, freed, live,
                    sender, chip_out, link_out,
                )  # fmt: skip
                hop_bytes += moved
                transfers += sent
        sweep_memory(row, k, out_bytes, pred_starts, pred_edges, freed, live, parameters, chip_out)
        interval, latency, peak = load_chips(k, sender, parameters, finish, chip_out, link_out)
        out[s, INTERVAL] = interval
        out[s, LATENCY] = latency
        out[s, HOP_BYTES] = hop_bytes
        out[s, CHIPS] = k
        out[s, PEAK_MEMORY] = peak
        out[s, TRANSFERS] = transfers
