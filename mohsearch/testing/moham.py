"""Synthetic applications for tests of the package search: random layers, mappings and genomes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from mohsearch.evaluators.mapper.table import MappingTable
from mohsearch.evaluators.package import largest_instance
from mohsearch.evaluators.package_space import NO_TEMPLATE, MohamSpace
from mohsearch.problems.moham import MohamProblem, load_architectures
from mohsearch.problems.moham_options import MohamOptions
from mohsearch.workloads.layer import LayerShape
from mohsearch.workloads.zoo import load_application


def random_dependencies(
    rng: np.random.Generator, n: int, *, networks: int = 2, width: float = 0.15
) -> list[list[int]]:
    """Return a random DAG of ``n`` layers: several chains with occasional skips and branches.

    Layer numbers are shuffled, so that they are no topological order.
    """
    network = rng.integers(networks, size=n)
    edges: list[list[int]] = [[] for _ in range(n)]
    for c in range(networks):
        chain = np.flatnonzero(network == c)
        for k in range(1, len(chain)):
            if rng.random() >= width:
                edges[chain[k]].append(int(chain[k - 1]))
            if rng.random() < width:
                edges[chain[k]].append(int(chain[rng.integers(k)]))
    names = rng.permutation(n)
    shuffled: list[list[int]] = [[] for _ in range(n)]
    for layer, before in enumerate(edges):
        shuffled[names[layer]] = sorted({int(names[p]) for p in before})
    return shuffled


def random_table(
    rng: np.random.Generator,
    *,
    unique: int = 5,
    templates: int = 3,
    most: int = 6,
    levels: int | Sequence[int] = 2,
    unmappable: float = 0.15,
) -> MappingTable:
    """Return a synthetic mapping table; every unique layer has a mapping on some template.

    Template ``t`` has ``levels[t]`` on-chip levels; for a number ``levels - t % 2``, so that
    padding columns occur.
    """
    if isinstance(levels, int):
        levels = [levels - t % 2 for t in range(templates)]
    depth = np.asarray(levels)
    columns = int(depth.max())
    counts = rng.integers(1, most + 1, size=(unique, templates))
    counts[rng.random((unique, templates)) < unmappable] = 0
    lost = counts.sum(axis=1) == 0
    counts[lost, rng.integers(templates, size=int(lost.sum()))] = 1
    offsets = np.concatenate([[0], np.cumsum(counts.ravel())]).astype(np.int64)
    rows = int(offsets[-1])
    template = np.repeat(np.tile(np.arange(templates), unique), counts.ravel())
    present = np.arange(columns)[None, :] < depth[template][:, None]
    fanout = 2 ** rng.integers(0, 4, size=(rows, columns + 1))
    fanout[:, 1:][~present] = 1
    return MappingTable(
        templates=tuple(f"t{t}" for t in range(templates)),
        layers=tuple(LayerShape(K=u + 1) for u in range(unique)),
        offsets=offsets,
        cycles=rng.integers(50, 5000, size=rows),
        dram_read_bytes=rng.integers(1, 20_000, size=rows),
        dram_write_bytes=rng.integers(1, 5_000, size=rows),
        fixed_energy_pj=rng.uniform(1e3, 1e5, size=rows),
        reads=np.where(present, rng.integers(1, 10_000, size=(rows, columns)), 0).astype(float),
        writes=np.where(present, rng.integers(1, 10_000, size=(rows, columns)), 0).astype(float),
        size_words=np.where(present, 16 * rng.integers(1, 12, size=(rows, columns)), 0),
        fanout=fanout.astype(np.int64),
        notation=tuple(f"mapping {r}" for r in range(rows)),
        certificates=tuple({"complete": True} for _ in range(unique * templates)),
    )


def synthetic_problem(
    rng: np.random.Generator,
    workload: str = "tiny",
    options: MohamOptions | None = None,
    *,
    most: int = 6,
    fitting: bool = False,
) -> MohamProblem:
    """Return the moham problem of a real workload and real templates with made-up mappings.

    Needs no mapper; the numbers mean nothing. Under ``fitting`` every mapping stays within the
    largest instance of its template and every layer has one on each.
    """
    options = options or MohamOptions()
    application = load_application(workload)
    architectures = load_architectures(options)
    table = random_table(
        rng,
        unique=application.n_unique,
        templates=len(architectures),
        most=most,
        levels=[len(a.levels) - 1 for a in architectures],
        unmappable=0.0 if fitting else 0.15,
    )
    names = tuple(a.name for a in architectures)
    table = replace(table, templates=names, layers=application.unique_layers)
    if fitting:
        for t, architecture in enumerate(architectures):
            largest = largest_instance(architecture, t, table)
            for u in range(application.n_unique):
                rows = table.rows(u, t)
                np.minimum(table.size_words[rows], largest.size_words, out=table.size_words[rows])
                np.minimum(table.fanout[rows], largest.fanout, out=table.fanout[rows])
    return MohamProblem(application, architectures, table, options)


def random_space(
    rng: np.random.Generator,
    *,
    layers: int = 12,
    unique: int = 5,
    templates: int = 3,
    most: int = 6,
    max_instances: int = 4,
    networks: int = 2,
    fixed: bool = False,
) -> MohamSpace:
    """Return a synthetic space; its mapping features are those of :func:`random_table`.

    Under ``fixed`` every slot holds a template and every layer can be mapped on some slot.
    """
    unique = min(unique, layers)
    table = random_table(
        rng, unique=unique, templates=templates, most=most, unmappable=0 if fixed else 0.15
    )
    of_layer = np.concatenate([np.arange(unique), rng.integers(unique, size=layers - unique)])
    features = np.column_stack(
        [table.cycles, table.fixed_energy_pj, table.size_words.sum(axis=1)]
    ).astype(float)
    return MohamSpace.from_arrays(
        rng.permutation(of_layer),
        random_dependencies(rng, layers, networks=networks),
        table.offsets,
        features,
        templates=templates,
        max_instances=max_instances,
        fixed_templates=rng.integers(templates, size=max_instances) if fixed else None,
    )


def random_genomes(space: MohamSpace, rng: np.random.Generator, count: int) -> NDArray[np.int64]:
    """Return ``count`` random valid genomes, shape (count, n_var), by plain slow Python."""
    genomes = np.empty((count, space.n_var), dtype=np.int64)
    for genome in genomes:
        blocks = space.view(genome)
        blocks.order[:] = _random_order(space, rng)
        blocks.tile[:] = rng.permutation(space.max_instances)
        if space.fixed_templates is None:
            blocks.template[:] = rng.integers(space.n_templates, size=space.max_instances)
            _cover(space, rng, blocks.template)
        else:
            blocks.template[:] = space.fixed_templates
        for layer in range(space.n_layers):
            choices = [
                s
                for s, t in enumerate(blocks.template)
                if t != NO_TEMPLATE and space.candidates[layer, t] > 0
            ]
            slot = int(rng.choice(choices))
            blocks.slot[layer] = slot
            count_here = space.candidates[layer, blocks.template[slot]]
            blocks.mapping[layer] = rng.integers(count_here)
        if space.fixed_templates is None:
            idle = ~np.isin(np.arange(space.max_instances), blocks.slot)
            blocks.template[idle] = NO_TEMPLATE
    return genomes


def _random_order(space: MohamSpace, rng: np.random.Generator) -> list[int]:
    waiting = np.diff(space.predecessor_offsets).copy()
    ready = [int(layer) for layer in np.flatnonzero(waiting == 0)]
    order: list[int] = []
    while ready:
        layer = ready.pop(int(rng.integers(len(ready))))
        order.append(layer)
        low, high = space.successor_offsets[layer : layer + 2]
        for s in space.successors[low:high]:
            waiting[s] -= 1
            if waiting[s] == 0:
                ready.append(int(s))
    return order


def _cover(space: MohamSpace, rng: np.random.Generator, template: NDArray[np.int64]) -> None:
    """Change slots at random until every layer has a candidate somewhere."""
    for _ in range(10_000):
        lost = np.flatnonzero(space.candidates[:, template].max(axis=1) == 0)
        if not lost.size:
            return
        useful = np.flatnonzero(space.candidates[lost[0]] > 0)
        template[rng.integers(len(template))] = rng.choice(useful)
    raise ValueError(f"no {len(template)} templates hold all layers")
