"""The genome of a multi-accelerator package: its layout and the arrays that operators share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from mohsearch.core.errors import InfeasibleError

NO_TEMPLATE = -1
"""Template gene of a slot that holds no instance."""


class GenomeView(NamedTuple):
    """Named views (not copies) of the blocks of one genome or of a population.

    For genomes of shape ``(..., n_var)``: ``order``, ``mapping`` and ``slot`` have shape
    ``(..., n)``, ``template`` and ``tile`` ``(..., m)``.
    """

    order: NDArray[Any]
    mapping: NDArray[Any]
    slot: NDArray[Any]
    template: NDArray[Any]
    tile: NDArray[Any]


@dataclass(frozen=True)
class MohamSpace:
    """Genomes of ``n`` layers on up to ``m`` instances of ``T`` templates.

    A genome is one integer row of ``3 n + 2 m`` genes: ``order`` (layer ids in execution order),
    ``mapping`` (by layer: index among the candidates of the layer on its slot's template),
    ``slot`` (by layer), ``template`` (by slot, -1 = none) and ``tile`` (by slot, a permutation).
    Use :meth:`from_arrays` to build one.

    Attributes
    ----------
    unique_of_layer
        int64, shape (n,): the unique layer that each layer is an occurrence of.
    predecessor_offsets, predecessors
        Transitively reduced dependencies: the direct predecessors of layer ``l`` are
        ``predecessors[predecessor_offsets[l]:predecessor_offsets[l + 1]]``.
    successor_offsets, successors
        The same edges, from the other end.
    offsets
        int64, shape (U * T + 1,): the candidates of unique layer ``u`` on template ``t`` are the
        mapping rows ``offsets[u * T + t]`` up to ``offsets[u * T + t + 1]``.
    candidates
        int64, shape (n, T): number of candidate mappings, 0 where the layer cannot be mapped.
    transform
        int64, shape (M, T): for each mapping row, the index of the most similar candidate of the
        same layer on each template (-1 where there is none). On the row's own template it is the
        row's own index.
    fastest, least_energy, smallest
        int64, shape (n, T): index of the best candidate in one feature, -1 where there is none.
    max_instances
        Number of slots ``m``.
    fixed_templates
        int64, shape (m,), the constant template block under fixed hardware; None when free.
    """

    unique_of_layer: NDArray[np.int64]
    predecessor_offsets: NDArray[np.int64]
    predecessors: NDArray[np.int64]
    successor_offsets: NDArray[np.int64]
    successors: NDArray[np.int64]
    offsets: NDArray[np.int64]
    candidates: NDArray[np.int64]
    transform: NDArray[np.int64]
    fastest: NDArray[np.int64]
    least_energy: NDArray[np.int64]
    smallest: NDArray[np.int64]
    max_instances: int
    fixed_templates: NDArray[np.int64] | None = None
    features: NDArray[np.float64] = field(default_factory=lambda: np.empty((0, 3)), repr=False)

    @classmethod
    def from_arrays(
        cls,
        unique_of_layer: Sequence[int] | NDArray[Any],
        predecessors: Sequence[Sequence[int]],
        offsets: NDArray[Any],
        features: NDArray[np.float64],
        *,
        templates: int,
        max_instances: int = 16,
        fixed_templates: Sequence[int] | NDArray[Any] | None = None,
    ) -> MohamSpace:
        """Build a space from plain arrays.

        Parameters
        ----------
        unique_of_layer
            Shape (n,).
        predecessors
            For each layer the layers it depends on; transitive edges are dropped here.
        offsets
            Shape (U * T + 1,), as in :class:`mohsearch.evaluators.mapper.table.MappingTable`.
        features
            Shape (M, 3), positive: latency, energy and area of each mapping on hardware of its own
            minimal size. They decide which mappings are similar, fastest and so on.
        templates
            Number of templates T.
        max_instances
            Number of slots.
        fixed_templates
            The template of every slot, where the hardware is given.

        Raises
        ------
        ValueError
            If the arrays do not fit together or the dependencies have a cycle.
        InfeasibleError
            If a layer has no candidate on any (allowed) template.

        Examples
        --------
        >>> space = MohamSpace.from_arrays(
        ...     [0, 0, 0], [[], [0], [0, 1]], [0, 2], np.array([[1.0, 9, 1], [2, 3, 1]]),
        ...     templates=1, max_instances=2)
        >>> space.n_var, space.predecessors.tolist(), space.least_energy.tolist()
        (13, [0, 1], [[1], [1], [1]])
        """
        # Copies: a read-only array would be another type to the compiled kernels.
        unique = np.array(unique_of_layer, dtype=np.int64)
        rows = np.array(offsets, dtype=np.int64)
        values = np.array(features, dtype=np.float64)
        _check_arrays(unique, predecessors, rows, values, templates, max_instances)
        fixed = _check_fixed(fixed_templates, templates, max_instances)
        counts = np.diff(rows).reshape(-1, templates)[unique]
        _check_mappable(counts, fixed)
        reduced = reduce_dependencies(predecessors)
        into, before = _csr(reduced)
        outof, after = _csr(_reverse(reduced))
        best = _best_rows(rows, values).reshape(3, -1, templates)[:, unique]
        return cls(
            unique_of_layer=unique,
            predecessor_offsets=into,
            predecessors=before,
            successor_offsets=outof,
            successors=after,
            offsets=rows,
            candidates=np.ascontiguousarray(counts),
            transform=transform_table(rows, templates, values),
            fastest=np.ascontiguousarray(best[0]),
            least_energy=np.ascontiguousarray(best[1]),
            smallest=np.ascontiguousarray(best[2]),
            max_instances=max_instances,
            fixed_templates=fixed,
            features=values,
        )

    @property
    def n_layers(self) -> int:
        """Number of layers n."""
        return len(self.unique_of_layer)

    @property
    def n_templates(self) -> int:
        """Number of templates T."""
        return int(self.candidates.shape[1])

    @property
    def n_var(self) -> int:
        """Genes of one genome."""
        return 3 * self.n_layers + 2 * self.max_instances

    @property
    def lower(self) -> NDArray[np.int64]:
        """Inclusive lower bound of each gene, shape (n_var,)."""
        bounds = np.zeros(self.n_var, dtype=np.int64)
        self.view(bounds).template[:] = NO_TEMPLATE
        if self.fixed_templates is not None:
            self.view(bounds).template[:] = self.fixed_templates
        return bounds

    @property
    def upper(self) -> NDArray[np.int64]:
        """Inclusive upper bound of each gene, shape (n_var,)."""
        bounds = np.zeros(self.n_var, dtype=np.int64)
        blocks = self.view(bounds)
        blocks.order[:] = self.n_layers - 1
        blocks.mapping[:] = self.candidates.max(axis=1) - 1
        blocks.slot[:] = self.max_instances - 1
        blocks.template[:] = self.n_templates - 1
        if self.fixed_templates is not None:
            blocks.template[:] = self.fixed_templates
        blocks.tile[:] = self.max_instances - 1
        return bounds

    def view(self, X: NDArray[Any]) -> GenomeView:
        """Return named views of genomes of shape ``(..., n_var)``; writing to them writes to X.

        Raises
        ------
        ValueError
            If the last axis has another length.
        """
        n, m = self.n_layers, self.max_instances
        if X.shape[-1] != self.n_var:
            raise ValueError(f"a genome has {self.n_var} genes, got {X.shape[-1]}")
        ends = (n, 2 * n, 3 * n, 3 * n + m, 3 * n + 2 * m)
        starts = (0, *ends[:-1])
        return GenomeView(*(X[..., a:b] for a, b in zip(starts, ends, strict=True)))

    def rows_of(self, X: NDArray[Any]) -> NDArray[np.int64]:
        """Return the mapping row of every layer, by layer id: shape ``(..., n)``; X valid."""
        blocks = self.view(np.asarray(X))
        template = np.take_along_axis(blocks.template, blocks.slot, axis=-1)
        cell = self.unique_of_layer * self.n_templates + template
        rows: NDArray[np.int64] = self.offsets[cell] + blocks.mapping
        return rows

    def is_valid(self, X: NDArray[Any]) -> NDArray[np.bool_]:
        """Say of each genome whether it stands for a package: X (k, n_var) -> bool (k,).

        Valid means: the order is a permutation that respects all dependencies; every layer's slot
        has a template on which the layer has candidates; every mapping index is in range; a slot
        has a template if and only if a layer is assigned to it (under fixed hardware: the template
        block is the given one, the tiles are free); the tile block is a permutation.
        """
        genomes = np.ascontiguousarray(np.atleast_2d(X), dtype=np.int64)
        self.view(genomes)
        fixed = self.fixed_templates
        verdicts: NDArray[np.bool_] = _valid(
            genomes,
            self.predecessor_offsets,
            self.predecessors,
            self.candidates,
            self.max_instances,
            np.empty(0, dtype=np.int64) if fixed is None else fixed,
        )
        return verdicts


def _check_arrays(
    unique: NDArray[np.int64],
    predecessors: Sequence[Sequence[int]],
    offsets: NDArray[np.int64],
    features: NDArray[np.float64],
    templates: int,
    max_instances: int,
) -> None:
    """Raise ValueError where the arrays disagree."""
    n = len(unique)
    if n == 0 or unique.ndim != 1 or unique.min() < 0:
        raise ValueError("unique_of_layer must be a non-empty row of unique layer numbers")
    if len(predecessors) != n:
        raise ValueError(f"{len(predecessors)} predecessor lists for {n} layers")
    if max_instances < 1 or templates < 1:
        raise ValueError("max_instances and templates must be positive")
    if offsets[0] != 0 or (np.diff(offsets) < 0).any() or offsets[-1] != len(features):
        raise ValueError("offsets must rise from 0 to the number of mappings")
    if features.shape[1:] != (3,) or not (features > 0).all() or not np.isfinite(features).all():
        raise ValueError("features must be positive, of shape (mappings, 3)")
    known, rest = divmod(len(offsets) - 1, templates)
    if rest or unique.max() >= known:
        raise ValueError(f"{len(offsets) - 1} cells are no {unique.max() + 1} layers x {templates}")


def _check_fixed(
    fixed_templates: Sequence[int] | NDArray[Any] | None, templates: int, max_instances: int
) -> NDArray[np.int64] | None:
    """Return the given template of every slot as an array, or raise ValueError."""
    if fixed_templates is None:
        return None
    fixed = np.array(fixed_templates, dtype=np.int64)
    if fixed.shape != (max_instances,) or fixed.min() < -1 or fixed.max() >= templates:
        raise ValueError(f"fixed_templates must hold {max_instances} template numbers")
    return fixed


def _check_mappable(counts: NDArray[np.int64], fixed: NDArray[np.int64] | None) -> None:
    """Raise InfeasibleError where a layer has no candidate on any allowed template."""
    allowed = np.ones(counts.shape[1], dtype=bool)
    if fixed is not None:
        allowed = np.isin(np.arange(counts.shape[1]), fixed)
    lost = np.flatnonzero(~(counts[:, allowed] > 0).any(axis=1))
    if lost.size:
        more = f" (nor have {lost.size - 1} more layers)" if lost.size > 1 else ""
        raise InfeasibleError(f"layer {int(lost[0])} has no mapping on any template{more}")


def reduce_dependencies(predecessors: Sequence[Sequence[int]]) -> list[list[int]]:
    """Return the transitive reduction of a dependency list, predecessors ascending.

    Raises
    ------
    ValueError
        If an edge leads outside or the dependencies have a cycle.

    Examples
    --------
    >>> reduce_dependencies([[], [0], [0, 1]])
    [[], [0], [1]]
    """
    n = len(predecessors)
    if any(not 0 <= p < n for before in predecessors for p in before):
        raise ValueError(f"a predecessor is not one of the {n} layers")
    sets = [set(before) for before in predecessors]
    position = _topological_positions(sets)
    ancestors = [0] * n  # one bit per layer
    reduced: list[list[int]] = [[] for _ in range(n)]
    for layer in sorted(range(n), key=position.__getitem__):
        reached = 0
        for p in sorted(sets[layer], key=position.__getitem__, reverse=True):
            if not reached >> p & 1:
                reduced[layer].append(p)
                reached |= ancestors[p] | 1 << p
        ancestors[layer] = reached
        reduced[layer].sort()
    return reduced


def _topological_positions(predecessors: Sequence[set[int]]) -> list[int]:
    waiting = [len(before) for before in predecessors]
    after = _reverse([sorted(before) for before in predecessors])
    ready = [layer for layer, count in enumerate(waiting) if count == 0]
    position = [-1] * len(predecessors)
    for place, layer in enumerate(ready):  # `ready` grows while it is walked
        position[layer] = place
        for s in after[layer]:
            waiting[s] -= 1
            if waiting[s] == 0:
                ready.append(s)
    if len(ready) < len(predecessors):
        raise ValueError(f"the dependencies have a cycle through layer {position.index(-1)}")
    return position


def _reverse(edges: Sequence[Sequence[int]]) -> list[list[int]]:
    reverse: list[list[int]] = [[] for _ in edges]
    for layer, before in enumerate(edges):
        for p in before:
            reverse[p].append(layer)
    return reverse


def _csr(lists: Sequence[Sequence[int]]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    offsets = np.zeros(len(lists) + 1, dtype=np.int64)
    np.cumsum([len(entry) for entry in lists], out=offsets[1:])
    flat = np.array([value for entry in lists for value in entry], dtype=np.int64)
    return offsets, flat


def _best_rows(offsets: NDArray[np.int64], features: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return for each feature and cell the index of the least candidate: shape (3, cells).

    Ties go to the candidate that is least in the product of the other two, then the first.
    """
    best = np.full((3, len(offsets) - 1), -1, dtype=np.int64)
    logs = np.log(features)
    for cell in range(len(offsets) - 1):
        rows = logs[offsets[cell] : offsets[cell + 1]]
        if len(rows):
            total = rows.sum(axis=1)
            for f in range(3):
                best[f, cell] = np.lexsort((total - rows[:, f], rows[:, f]))[0]
    return best


def transform_table(
    offsets: NDArray[np.int64], templates: int, features: NDArray[np.float64]
) -> NDArray[np.int64]:
    """Return for each mapping the nearest candidate of its layer on every template.

    Distance is Euclidean in (log latency, log energy, log area), each scaled to 0..1 over all
    mappings of the layer on all templates (a feature that does not vary counts nothing); ties go
    to the first candidate. The paper asks for "the most similar" mapping (section V-B2, Mapping
    Transform) and leaves the measure open.

    Parameters
    ----------
    offsets
        Shape (U * T + 1,).
    templates
        T.
    features
        Shape (M, 3), positive.

    Returns
    -------
    ndarray
        int64, shape (M, T): index within the target cell, -1 where the cell is empty.
    """
    logs = np.log(features)
    table = np.full((len(features), templates), -1, dtype=np.int64)
    for layer in range((len(offsets) - 1) // templates):
        edges = offsets[layer * templates : (layer + 1) * templates + 1]
        low, high = edges[0], edges[-1]
        if low == high:
            continue
        block = logs[low:high]
        spread = np.ptp(block, axis=0)
        unit = (block - block.min(axis=0)) / np.where(spread > 0, spread, 1.0)
        for t in range(templates):
            target = unit[edges[t] - low : edges[t + 1] - low]
            if len(target):
                squares = ((unit[:, None, :] - target[None, :, :]) ** 2).sum(axis=2)
                table[low:high, t] = squares.argmin(axis=1)
                own = np.arange(len(target))  # a twin in all features must not take its place
                table[edges[t] : edges[t + 1], t] = own
    return table


@njit(cache=True, nogil=True)
def _valid(X, into, before, candidates, m, fixed):  # type: ignore[no-untyped-def]
    n, templates = candidates.shape
    verdicts = np.zeros(len(X), dtype=np.bool_)
    place = np.empty(n, dtype=np.int64)
    used = np.empty(m, dtype=np.bool_)
    seen = np.empty(m, dtype=np.bool_)
    for i in range(len(X)):
        x = X[i]
        place[:] = -1
        used[:] = False
        seen[:] = False
        good = True
        for k in range(n):
            layer = x[k]
            if layer < 0 or layer >= n or place[layer] >= 0:
                good = False
                break
            place[layer] = k
        if not good:
            continue
        for layer in range(n):
            for e in range(into[layer], into[layer + 1]):
                good &= place[before[e]] < place[layer]
            slot = x[2 * n + layer]
            if slot < 0 or slot >= m:
                good = False
                break
            used[slot] = True
            t = x[3 * n + slot]
            if t < 0 or t >= templates:
                good = False
                break
            index = x[n + layer]
            good &= 0 <= index < candidates[layer, t]
        for s in range(m):
            t = x[3 * n + s]
            if len(fixed) > 0:
                good &= t == fixed[s]
            else:
                good &= -1 <= t < templates and (t >= 0) == used[s]
            tile = x[3 * n + m + s]
            if tile < 0 or tile >= m or seen[tile]:
                good = False
                break
            seen[tile] = True
        verdicts[i] = good
    return verdicts
