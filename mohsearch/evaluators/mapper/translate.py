"""From an architecture and a mapping space to the arrays of the kernels, and back to text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from mohsearch.core.errors import InputError
from mohsearch.evaluators.mapper import walk as wk
from mohsearch.evaluators.mapper.counts import CountRules
from mohsearch.evaluators.mapper.kernel_layout import (
    CLASS,
    MAX_OPTIONS,
    MAX_PRICES,
    STATE,
    TABLES,
    I,
    P,
    Q,
    R,
    S,
)
from mohsearch.evaluators.mapper.memo import new_memo
from mohsearch.evaluators.mapper.notation import Loop, Mapping, MappingLevel
from mohsearch.evaluators.mapper.space import MappingSpace
from mohsearch.hardware.architecture import Architecture
from mohsearch.workloads.layer import DIMS, TENSORS, LayerShape

UNLIMITED = int(np.iinfo(np.int64).max)

COARSE_TOLERANCES = (1.0, 0.5, 0.25, 0.12, 0.06, 0.03)
"""Tolerances of the passes over a space that is too large, coarse ones first."""

Objective = Literal["pareto", "edp", "energy", "cycles"]


@dataclass(frozen=True)
class MapperOptions:
    """How to search.

    Attributes
    ----------
    objective
        ``pareto`` over cycles, energy and area, or one scalar.
    padding
        Whether bounds with a prime factor above 16 are also tried padded.
    zero_fill
        Counting rule 7, see :class:`mohsearch.evaluators.mapper.counts.CountRules`.
    double_buffered
        Whether every on-chip level must hold two tiles.
    sizing
        ``minimal``: energy and area at the least hardware of each mapping; ``full``: at the
        capacity of every level, as for a chip that exists.
    prune
        Whether lower bounds cut the walk (off only to test them).
    max_evaluations
        Most mappings to cost in full, None for no limit.
    effort
        Most lower bounds to work out, None for no limit (then the set is complete). Where a space
        needs more, half of them is spent on a complete walk and the rest on passes that each cut
        what is at most a given factor better than the front; the certificate's ``tolerance`` is
        that of the last pass that ended.
    """

    objective: Objective = "pareto"
    padding: bool = True
    zero_fill: bool = True
    double_buffered: bool = False
    sizing: Literal["minimal", "full"] = "minimal"
    prune: bool = True
    max_evaluations: int | None = None
    effort: int | None = None

    def passes(self) -> tuple[int, int, tuple[float, ...]]:
        """Return the bounds of a complete walk, of the coarse ones, and their tolerances."""
        if self.effort is None or self.objective != "pareto" or not self.prune:
            return UNLIMITED, 0, ()
        return self.effort // 2, self.effort - self.effort // 2, COARSE_TOLERANCES

    @property
    def rules(self) -> CountRules:
        """The counting rules that reproduce the mapper's counts."""
        return CountRules(halos="innermost", zero_fill=self.zero_fill)


def tables_of(space: MappingSpace, options: MapperOptions) -> Any:
    """Translate an architecture and a space into the arrays of the kernels."""
    arch, layer = space.architecture, space.layer
    depth = len(arch.levels)
    t = np.zeros(1, dtype=TABLES)[0]
    t["depth"] = depth
    bounds = np.array(layer.bounds())
    active = np.flatnonzero(bounds > 1)
    t["active"][: len(active)] = active
    t["actives"] = len(active)
    t["stride"] = (layer.stride_h, layer.stride_w, layer.dilation_h, layer.dilation_w)
    t["bounds"] = bounds
    widest = space.divisors.shape[1]
    t["divisors"][:, :widest] = space.divisors
    t["option_start"][:depth, :, :widest] = space.option_start
    t["option_count"][:depth, :, :widest] = space.option_count
    t["chains"][: depth + 1, :, :widest] = space.chains
    keeps = np.array([[tensor in level.keeps for tensor in TENSORS] for level in arch.levels])
    t["keeps"][:depth] = keeps
    t["matters"][:depth] = [keeps[level + 1 :].any(axis=0) for level in range(depth)]
    t["parent"] = -1
    for child in range(1, depth + 1):
        for x in range(3):
            if child == depth or keeps[child, x]:
                t["parent"][child, x] = np.flatnonzero(keeps[:child, x])[-1]
    for index, level in enumerate(arch.levels):
        t["per_access"][index] = level.words_per_access
        t["read_bandwidth"][index] = level.read_words_per_cycle or np.inf
        t["write_bandwidth"][index] = level.write_words_per_cycle or np.inf
        t["hop_price"][index] = level.hop_energy_pj_per_word
        t["free_order"][index] = level.temporal.order is None
        inward = [DIMS.index(dim) for dim in reversed(level.temporal.order or ())]
        inward += [d for d in range(8) if d not in inward]
        t["order"][index, : len(active)] = [d for d in inward if bounds[d] > 1]
        seen = keeps[index + 1 :, I].any()
        t["halo"][index] = [seen and bounds[a] > 1 and bounds[b] > 1 for a, b in ((P, R), (Q, S))]
    t["mac_price"] = arch.mac_energy_pj
    t["mac_area"] = arch.mac_area_um2
    t["zero_fill"] = options.zero_fill
    if len(space.option_next) > MAX_OPTIONS:
        raise InputError(f"{layer}: bounds with too many divisors")
    t["option_next"][: len(space.option_next)] = space.option_next
    _fill_prices(t, arch, options)
    return t


def _fill_prices(t: Any, arch: Architecture, options: MapperOptions) -> None:
    """Set capacities and, for every size a level can have, its prices."""
    copies = 2 if options.double_buffered else 1
    at = 0
    for index, level in enumerate(arch.levels):
        t["capacity"][index] = np.inf
        t["size_unit"][index] = 1.0
        sizes = np.array([level.capacity_words or 0], dtype=np.int64)
        if index and level.keeps:
            if level.capacity_words is None:
                raise InputError(f"{arch.name}: on-chip level {level.name} needs a capacity")
            limit = level.capacity_words // copies
            unit = level.words_per_access * level.granularity_rows / copies
            t["capacity"][index], t["size_unit"][index] = limit, unit
            used = np.minimum(np.arange(int(np.ceil(limit / unit)) + 1) * unit, limit)
            sizes = level.granular_words(np.ceil(used * copies).astype(np.int64))
            if options.sizing == "full":
                sizes[:] = level.capacity_words
        t["price_start"][index] = at
        here = slice(at, at + len(sizes))
        at = here.stop
        if at > MAX_PRICES:
            raise InputError(f"{arch.name}: {level.name} has too many possible sizes")
        t["price_read"][here] = arch.read_energy_pj(index, sizes)
        t["price_write"][here] = arch.write_energy_pj(index, sizes)
        t["price_area"][here] = arch.area_um2(index, sizes)


def slots_of(space: MappingSpace, t: Any, prune: bool) -> Any:
    """List the decisions of a walk, outermost level first."""
    depth = int(t["depth"])
    branching = space.branching
    last = 0
    for level in range(depth - 1):
        orders = t["free_order"][level] and (
            t["matters"][level].sum() > 1 or t["matters"][level][I]
        )
        loops = space.architecture.levels[level].temporal.dims
        if branching[level].any() or (orders and loops):
            last = level
    slots = [
        (level, d)
        for level in range(last + 1)
        for d in (*np.flatnonzero(branching[level]).tolist(), -1)
    ]
    record = np.zeros(1, dtype=wk.SLOTS)[0]
    record["size"] = len(slots)
    record["level"][: len(slots)] = [level for level, _ in slots]
    record["dim"][: len(slots)] = [d for _, d in slots]
    record["prune"] = prune
    return record


def new_state() -> Any:
    """Allocate the working arrays of one walk."""
    state = np.zeros(1, dtype=STATE)[0]
    for name in ("rest", "factor", "step"):
        state[name] = 1.0
    return state


def write_mapping(
    space: MappingSpace, choice: int, left: NDArray[np.int16], head: NDArray[np.int8]
) -> Mapping:
    """Return the loop nest that a row of a front stands for."""
    levels = []
    bounds = [[int(space.divisors[d, i]) for d, i in enumerate(row)] for row in left]
    for index, level in enumerate(space.architecture.levels):
        last = index + 1 == len(space.architecture.levels)
        inner = [1] * 8 if last else bounds[index + 1]
        factors = [whole // part for whole, part in zip(bounds[index], inner, strict=True)]
        if level.temporal.order is not None:
            inward = [DIMS.index(dim) for dim in reversed(level.temporal.order)]
        else:
            first = int(head[index])
            of_class = CLASS[first] if first >= 0 else -1
            inward = sorted(range(8), key=lambda d: (d != first, CLASS[d] != of_class))
        temporal = tuple(Loop(DIMS[d], factors[d]) for d in reversed(inward) if factors[d] > 1)
        drawn = space.unrolled[choice][index]
        spatial = tuple(Loop(dim, factor, axis) for axis, dim, factor in drawn)
        levels.append(MappingLevel(level.name, level.keeps, temporal, spatial))
    return Mapping(tuple(levels))


def padding_note(asked: LayerShape, executed: LayerShape) -> str:
    """Return a comment that names the padded dimensions, empty where there is none."""
    pairs = zip(DIMS, asked.bounds(), executed.bounds(), strict=True)
    padded = [f"{dim}{before} padded to {after}" for dim, before, after in pairs if before != after]
    return f"  # {', '.join(padded)}" if padded else ""


def memo_of(space: MappingSpace, slots: Any) -> Any:
    """Allocate the memory of the last decision; not in use where it would rarely come back."""
    size = int(slots["size"])
    levels, dims = slots["level"][:size], slots["dim"][:size]
    splits = np.unique(levels[dims >= 0])
    useful = len(splits) > 2 and splits[-1] == levels[-1] and slots["prune"]
    return new_memo(int(splits[-1]) if useful else -1, space.whole_bound)
