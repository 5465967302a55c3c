"""Exact layer mapper: the complete Pareto set over a layer's mapping space, with its proof."""

from __future__ import annotations

import time
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mohsearch.core.errors import InfeasibleError, InputError
from mohsearch.evaluators.mapper import kernels as kn
from mohsearch.evaluators.mapper import walk as wk
from mohsearch.evaluators.mapper.front import (
    CYCLES,
    EDP,
    ENERGY,
    PARETO,
    ROOM,
    begin_pass,
    new_front,
)
from mohsearch.evaluators.mapper.hull import HOPES, HULL
from mohsearch.evaluators.mapper.kernel_layout import MAX_LEVELS
from mohsearch.evaluators.mapper.memo import new_memo
from mohsearch.evaluators.mapper.notation import format_mapping
from mohsearch.evaluators.mapper.space import MappingSpace, build_space, padded_layers
from mohsearch.evaluators.mapper.translate import (
    UNLIMITED,
    MapperOptions,
    memo_of,
    new_state,
    padding_note,
    slots_of,
    tables_of,
    write_mapping,
)
from mohsearch.hardware.architecture import Architecture
from mohsearch.workloads.layer import LayerShape

MOST_CYCLES = 2.0**62

_KIND = {"pareto": PARETO, "edp": EDP, "energy": ENERGY, "cycles": CYCLES}


@dataclass(frozen=True)
class MappingFront:
    """Pareto-optimal mappings of one layer on one architecture, fastest first.

    ``n`` mappings, ``L`` on-chip levels, outermost first.

    Attributes
    ----------
    architecture
        Name of the architecture.
    layer
        The layer as asked for; mappings of padded variants say so in their notation.
    cycles, energy_pj, area_um2
        Shape (n,): the objectives, each at the mapping's own least hardware.
    fixed_energy_pj
        Shape (n,): energy of MACs, networks and memory.
    dram_read_bytes, dram_write_bytes
        Shape (n,).
    reads, writes
        Shape (n, L): row accesses of all instances of a level.
    size_words
        Shape (n, L): least size of one instance.
    fanout
        Shape (n, L + 1): instances below each instance of the level outside.
    notation
        The mappings, see :func:`mohsearch.evaluators.mapper.notation.parse_mapping`.
    certificate
        What was enumerated and pruned, whether the set is complete, and what is proven otherwise.
    """

    architecture: str
    layer: LayerShape
    cycles: NDArray[np.int64]
    energy_pj: NDArray[np.float64]
    area_um2: NDArray[np.float64]
    fixed_energy_pj: NDArray[np.float64]
    dram_read_bytes: NDArray[np.int64]
    dram_write_bytes: NDArray[np.int64]
    reads: NDArray[np.float64]
    writes: NDArray[np.float64]
    size_words: NDArray[np.int64]
    fanout: NDArray[np.int64]
    notation: tuple[str, ...]
    certificate: dict[str, Any]

    def __len__(self) -> int:
        return len(self.cycles)

    @property
    def objectives(self) -> NDArray[np.float64]:
        """Cycles, energy and area, shape (n, 3)."""
        return np.column_stack([self.cycles, self.energy_pj, self.area_um2])

    def take(self, rows: NDArray[np.int64]) -> MappingFront:
        """Return the front cut to the given rows."""
        cut = {
            f.name: getattr(self, f.name)[rows]
            for f in fields(self)
            if isinstance(getattr(self, f.name), np.ndarray)
        }
        return replace(self, notation=tuple(self.notation[i] for i in rows), **cut)


def search_layer(
    layer: LayerShape, architecture: Architecture, options: MapperOptions | None = None
) -> MappingFront:
    """Return every Pareto-optimal mapping of a layer on an architecture.

    The whole admissible space is walked: all spatial choices, all factorisations of the bounds over
    the levels, and of the loop orders those that can differ in cost (Timeloop's exhaustive mapper
    walks the same space unpruned). Sub-trees are cut only where a lower bound on all their mappings
    is beaten by one already found, so of mappings with equal objectives one is returned.

    Raises
    ------
    InfeasibleError
        If there is no admissible mapping, naming the constraint that empties the space.

    Examples
    --------
    >>> from mohsearch.hardware.templates import load_template
    >>> front = search_layer(LayerShape(N=8, K=16, C=8), load_template("eyeriss"))
    >>> front.certificate["complete"], int(front.cycles[0])
    (True, 20)
    """
    options = options or MapperOptions()
    return _Search(layer, architecture, options).run()


class _Search:
    """One search over all executed variants of a layer."""

    def __init__(self, layer: LayerShape, architecture: Architecture, options: MapperOptions):
        self.layer, self.architecture, self.options = layer, architecture, options
        depth = len(architecture.levels)
        if depth > MAX_LEVELS:
            raise InputError(f"{architecture.name}: more than {MAX_LEVELS} levels")
        self.started = time.process_time()
        self.spaces: list[MappingSpace] = []
        self.reasons: list[InfeasibleError] = []
        for executed in padded_layers(layer, architecture, padding=options.padding):
            try:
                self.spaces.append(build_space(executed, architecture))
            except InfeasibleError as error:
                self.reasons.append(error)
        if not self.spaces:
            raise self.reasons[0]
        self.tally = np.zeros(1, dtype=wk.TALLY)[0]
        self.tally["limit"] = options.max_evaluations or UNLIMITED
        self.translated = [tables_of(space, options) for space in self.spaces]
        self.state = new_state()
        self.hull = np.zeros(1, dtype=HULL)[0]
        self.hopes = np.zeros(1, dtype=HOPES)[0]
        self.tolerance: float | None = None
        self.bounds = 0
        self.unfinished: list[tuple[int, int]] = []

    def run(self) -> MappingFront:
        """Walk everything and return the front."""
        front = self._walk_all()
        if not front["size"]:
            raise InfeasibleError(self._why_empty())
        return self._extract(front)

    def _walk_all(self) -> Any:
        kind = _KIND[self.options.objective]
        parallel = [space.spatial.prod(axis=(1, 2)) for space in self.spaces]
        cycles = np.concatenate(
            [s.layer.macs / p for s, p in zip(self.spaces, parallel, strict=True)]
        )
        self.variant = np.repeat(np.arange(len(self.spaces)), [len(p) for p in parallel])
        self.offsets = np.cumsum([0, *(len(p) for p in parallel)])
        least = self.spaces[0].layer.macs * float(self.translated[0]["mac_price"])
        front = new_front(cycles, least, kind)
        order = np.argsort(cycles, kind="stable")
        exact, rest, coarse = self.options.passes()
        if self._pass(front, order, 0.0, exact) == wk.LIMIT:
            for tolerance in coarse:
                if self._pass(front, order, tolerance, rest) == wk.LIMIT:
                    break
                rest -= int(self.tally["bounded"].sum())
        return front

    def _pass(self, front: Any, order: NDArray[np.int64], tolerance: float, bounds: int) -> int:
        """Walk everything with at most ``bounds`` lower bounds; note what is proven."""
        for name in ("bounded", "covered", "over_capacity", "beaten", "dominated"):
            self.tally[name] = 0
        self.tally["allowed"] = bounds
        begin_pass(front, tolerance)
        ended = self._walk_once(front, order)
        self.bounds += int(self.tally["bounded"].sum())
        if ended == wk.DONE:
            self.tolerance, self.unfinished = tolerance, []
        return ended

    def _walk_once(self, front: Any, order: NDArray[np.int64]) -> int:
        """Walk the spatial choices in order until all are covered or a limit is met."""
        slots = [
            slots_of(space, t, self.options.prune)
            for space, t in zip(self.spaces, self.translated, strict=True)
        ]
        memos = [memo_of(space, s) for space, s in zip(self.spaces, slots, strict=True)]
        for done, index in enumerate(order):
            which = int(self.variant[index])
            self._enter(which, int(index - self.offsets[which]))
            ended = self._walk(which, slots[which], front, memos[which], int(index))
            if ended == wk.FULL:
                raise InputError(f"{self.layer}: more than {ROOM} Pareto-optimal mappings")
            if ended == wk.LIMIT:
                if self.tolerance is None:
                    self.unfinished = [
                        (int(self.variant[i]), int(i - self.offsets[self.variant[i]]))
                        for i in order[done:]
                    ]
                return ended
        return int(wk.DONE)

    def _walk(self, which: int, slots: Any, front: Any, memo: Any, index: int) -> int:
        """Walk the spatial choice just entered; return how it ended."""
        t, state, tally = self.translated[which], self.state, self.tally
        tight = kn.enter_spatial(t, state)
        if tight:
            tally["over_capacity"][tight] += wk.weight_below(t, state, 0)
            return wk.TOO_LARGE
        before = tally.copy()
        ended = self._walk_open(t, slots, front, memo, index)
        if ended == wk.NO_ROOM:
            # more splits than the memory holds: the same choice again, without it
            for name in ("bounded", "covered", "over_capacity", "beaten", "dominated"):
                tally[name] = before[name]
            nothing = new_memo(-1, np.zeros(8, dtype=np.int64))
            ended = self._walk_open(t, slots, front, nothing, index)
        return ended

    def _walk_open(self, t: Any, slots: Any, front: Any, memo: Any, index: int) -> int:
        bounds = (self.hull, self.hopes, memo)
        if not wk.open_choice(t, self.state, slots, front, self.tally, *bounds):
            return int(wk.DONE)
        return int(wk.walk(t, self.state, slots, front, self.tally, *bounds, index))

    def _enter(self, which: int, choice: int) -> None:
        spatial = self.spaces[which].spatial[choice]
        self.state["sigma"][: len(spatial)] = spatial

    def _extract(self, front: Any) -> MappingFront:
        """Turn the rows of the compiled front into arrays and text."""
        count = int(front["size"])
        rows = np.lexsort(front["objectives"][:count].T[::-1])
        depth = len(self.architecture.levels)
        detail = [self._detail(front, int(row)) for row in rows]
        columns = {
            key: np.array([d[key] for d in detail]) for key in detail[0] if key != "notation"
        }
        self._size(columns["size_words"])
        objectives = front["objectives"][rows]
        if not (objectives[:, 0] < MOST_CYCLES).all():
            raise InputError(
                f"a layer takes more than 2**62 cycles on {self.architecture.name}: "
                "its memory bandwidth is too small"
            )
        return MappingFront(
            architecture=self.architecture.name,
            layer=self.layer,
            cycles=objectives[:, 0].astype(np.int64),
            energy_pj=objectives[:, 1].copy(),
            area_um2=objectives[:, 2].copy(),
            notation=tuple(d["notation"] for d in detail),
            certificate=self._certificate(front, depth),
            **columns,
        )

    def _size(self, words: NDArray[np.int64]) -> None:
        """Turn words used by the levels of each mapping into sizes, in place."""
        copies = 2 if self.options.double_buffered else 1
        for column, level in enumerate(self.architecture.levels[1:]):
            if level.keeps and self.options.sizing == "minimal":
                words[:, column] = level.granular_words(words[:, column] * copies)
            else:
                words[:, column] = level.capacity_words or 0

    def _detail(self, front: Any, row: int) -> dict[str, Any]:
        index = int(front["choice"][row])
        which = int(self.variant[index])
        choice = index - int(self.offsets[which])
        space, t, arch = self.spaces[which], self.translated[which], self.architecture
        depth = len(arch.levels)
        self._enter(which, choice)
        kn.enter_spatial(t, self.state)
        rows, used, memory = np.zeros((2, depth)), np.zeros(depth), np.zeros(2)
        network = wk.describe(t, self.state, front, row, rows, used, memory)
        fixed = space.layer.macs * arch.mac_energy_pj + network
        fixed += rows[0, 0] * t["price_read"][0] + rows[1, 0] * t["price_write"][0]
        word_bytes = arch.levels[0].word_bits / 8
        mapping = write_mapping(space, choice, front["left"][row][:depth], front["head"][row])
        return {
            "fixed_energy_pj": float(fixed),
            "dram_read_bytes": int(np.ceil(memory[0] * word_bytes)),
            "dram_write_bytes": int(np.ceil(memory[1] * word_bytes)),
            "reads": rows[0, 1:],
            "writes": rows[1, 1:],
            "size_words": used[1:].astype(np.int64),
            "fanout": space.spatial[choice].prod(axis=1),
            "notation": format_mapping(mapping) + padding_note(self.layer, space.layer),
        }

    def _certificate(self, front: Any, depth: int) -> dict[str, Any]:
        names = [level.name for level in self.architecture.levels] + ["MAC"]
        tally = self.tally
        certificate: dict[str, Any] = {
            "objective": self.options.objective,
            "complete": self.tolerance == 0.0,
            "tolerance": self.tolerance,
            "mappings": float(sum(space.size for space in self.spaces)),
            "costed": float(tally["covered"]),
            "pruned_by_capacity": _by_name(names, tally["over_capacity"]),
            "pruned_by_bound": _by_name(names, tally["beaten"]),
            "pruned_by_dominance": _by_name(names, tally["dominated"]),
            "evaluations": int(tally["evaluated"]),
            "lower_bounds": self.bounds,
            "executed_bounds": [list(space.layer.bounds()) for space in self.spaces],
            "front": int(front["size"]),
            "cpu_s": time.process_time() - self.started,
        }
        if self.unfinished:
            certificate.update(self._proven(front))
        return certificate

    def _proven(self, front: Any) -> dict[str, Any]:
        """Return what no mapping can go below, and how far the best found is from it."""
        best = front["objectives"][: front["size"]].min(axis=0)
        bound = best.copy()
        for which, choice in self.unfinished:
            t = self.translated[which]
            self._enter(which, choice)
            if kn.enter_spatial(t, self.state):
                continue
            low = (
                kn.least_cycles(t, self.state, 0),
                kn.least_energy(t, self.state, 0, len(self.architecture.levels)),
                self.state["inner_area"][1],
            )
            bound = np.minimum(bound, low)
        names = ("cycles", "energy_pj", "area_um2")
        return {
            "proven_least": dict(zip(names, map(float, bound), strict=True)),
            "gap": dict(zip(names, map(float, best / bound - 1), strict=True)),
        }

    def _why_empty(self) -> str:
        level = int(np.argmax(self.tally["over_capacity"]))
        part = self.architecture.levels[level]
        return (
            f"{self.architecture.name}: {part.name}: its capacity of {part.capacity_words} words "
            f"cannot hold even the least tiles of {', '.join(part.keeps)} that the other rules "
            f"allow for {self.layer}"
        )


def _by_name(names: list[str], counts: NDArray[np.float64]) -> dict[str, float]:
    return {name: float(c) for name, c in zip(names, counts, strict=False) if c > 0}
