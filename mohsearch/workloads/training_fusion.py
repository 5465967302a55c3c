"""Fusion of operators whose result only the next one reads, so that it never leaves the chip."""

from __future__ import annotations

from itertools import pairwise

from mohsearch.workloads.training_ops import ROW_OPS, TrainingGraph, TrainingOp

_WHOLE_ROWS = ROW_OPS | {f"{name}_gradient" for name in ROW_OPS}


def fuse(graph: TrainingGraph) -> TrainingGraph:
    """Return the graph with chains of ops fused (Chen et al., TVM, 2018; PHAZE, section 4).

    A matrix product takes in the element-wise ops that follow it, as long as each result has one
    reader: together they run on a tensor core and the vector core paired with it. A vector op takes
    in the vector ops that follow it, on a vector core. Ops on whole rows (softmax, norms) are not
    fused behind a product, because a tile holds only parts of rows. What the backward pass needs is
    still written.

    Examples
    --------
    >>> from mohsearch.workloads.hf_config import load_model
    >>> from mohsearch.workloads.training import build_training
    >>> layer = build_training(load_model("gpt3-175b")).layers[1]
    >>> [op.name for op in fuse(layer.forward).ops][3:5]
    ['softmax+attention_dropout', 'context']
    """
    group = list(range(len(graph)))
    chains = {i: [i] for i in range(len(graph))}
    for i in range(len(graph)):
        if group[i] != i:
            continue
        while (follower := _follower(graph, chains[i])) is not None and group[follower] == follower:
            if len(chains[follower]) > 1:
                break
            chains[i].append(follower)
            group[follower] = i
            del chains[follower]
    return _contract(graph, group, chains)


def _follower(graph: TrainingGraph, chain: list[int]) -> int | None:
    """Return the op that the chain may take in next."""
    last, first = graph.ops[chain[-1]], graph.ops[chain[0]]
    after = graph.successors[chain[-1]]
    if len(after) != 1 or first.engine not in {"tensor", "vector"}:
        return None
    op = graph.ops[after[0]]
    fits = op.engine == "vector" and op.elements == last.elements and op.phase == last.phase
    if not fits or op.phase == "weight_gradient":
        return None
    if first.engine == "tensor" and op.op_type in _WHOLE_ROWS:
        return None
    return after[0]


def _contract(
    graph: TrainingGraph, group: list[int], chains: dict[int, list[int]]
) -> TrainingGraph:
    """Return the graph of the groups, in a topological order."""
    sizes = dict(zip(graph.edges, graph.edge_bytes, strict=True))
    outer: dict[tuple[int, int], int] = {}
    for (i, j), size in sizes.items():
        a, b = group[i], group[j]
        if a != b:
            outer[a, b] = outer.get((a, b), 0) + size
    order = _order(list(chains), outer)
    place = {head: number for number, head in enumerate(order)}
    ops = tuple(_merged(graph, chains[head], sizes) for head in order)
    edges = sorted((place[a], place[b]) for a, b in outer)
    back = {(place[a], place[b]): size for (a, b), size in outer.items()}
    kept = frozenset(place[head] for head in order if chains[head][-1] in graph.kept)
    return TrainingGraph(ops, tuple(edges), tuple(back[edge] for edge in edges), kept)


def _order(heads: list[int], edges: dict[tuple[int, int], int]) -> list[int]:
    """Return a topological order that stays close to the given one."""
    waiting = dict.fromkeys(heads, 0)
    after: dict[int, list[int]] = {head: [] for head in heads}
    for a, b in edges:
        waiting[b] += 1
        after[a].append(b)
    ready = sorted(head for head in heads if not waiting[head])
    order = []
    while ready:
        head = ready.pop(0)
        order.append(head)
        for other in after[head]:
            waiting[other] -= 1
            if not waiting[other]:
                ready.append(other)
        ready.sort()
    return order


def _merged(
    graph: TrainingGraph, chain: list[int], sizes: dict[tuple[int, int], int]
) -> TrainingOp:
    """Return one op for a chain."""
    parts = [graph.ops[i] for i in chain]
    first = parts[0]
    if len(parts) == 1:
        return first
    read = sum(op.read_bytes for op in parts)
    written = sum(op.write_bytes for op in parts)
    for i, j in pairwise(chain):
        read -= sizes[i, j]
        if i not in graph.kept:
            written -= min(sizes[i, j], graph.ops[i].write_bytes)
    counts = tuple(sum(column) for column in zip(*(op.counts for op in parts), strict=True))
    tensor = first.engine == "tensor"
    return TrainingOp(
        "+".join(op.name for op in parts),
        "+".join(op.op_type for op in parts),
        first.phase,
        "fused" if tensor else "vector",
        batch=first.batch,
        m=first.m,
        n=first.n,
        k=first.k,
        elements=first.elements,
        counts=counts,
        read_bytes=read,
        write_bytes=written,
        row_bytes=max(op.row_bytes for op in parts),
        passes=max(op.passes for op in parts),
        parts=tuple(op.name for op in parts),
    )
