"""The mapping table: every kept mapping of every unique layer on every template, as arrays.

:func:`build_table` searches the whole mapping space of each layer on each architecture, keeps a
diverse subset of each Pareto set and caches the sets on disk. A layer that has no mapping on an
architecture has an empty cell (no rows) whose certificate holds the reason under ``infeasible``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from mohsearch.core.errors import InfeasibleError, InputError
from mohsearch.core.processes import allowed_processes, follow_parent, worker_context
from mohsearch.evaluators.mapper.cache import cached_front, stored_front, user_cache
from mohsearch.evaluators.mapper.exact import MappingFront
from mohsearch.evaluators.mapper.translate import MapperOptions
from mohsearch.hardware.architecture import Architecture
from mohsearch.workloads.layer import DIMS, LayerShape

IntArray = NDArray[np.int64]
Rule = Literal["diverse", "paper"]
Progress = Callable[[int, int, str], None]


@dataclass(frozen=True)
class MappingTable:
    """Pareto-optimal mappings of ``U`` unique layers on ``T`` templates, ``M`` rows in all.

    Rows are grouped by layer, then by template: the mappings of layer ``u`` on template ``t`` are
    rows ``offsets[u * T + t]`` up to ``offsets[u * T + t + 1]``. ``L`` is the largest number of
    on-chip storage levels of any template, outermost first; columns a template does not have are 0
    in ``reads``, ``writes`` and ``size_words`` and 1 in ``fanout``.

    Attributes
    ----------
    templates
        Template names, length T.
    layers
        Unique layer shapes, length U.
    offsets
        int64, shape (U * T + 1,).
    cycles
        int64, shape (M,): latency with the template's own DRAM bandwidth, alone in the package.
    dram_read_bytes, dram_write_bytes
        int64, shape (M,): traffic to and from memory, the whole layer.
    fixed_energy_pj
        float64, shape (M,): energy that does not depend on buffer sizes (MACs, NoC, DRAM).
    reads, writes
        float64, shape (M, L): row accesses of each level, all instances; ``writes`` holds fills and
        updates.
    size_words
        int64, shape (M, L): capacity each instance of the level must have, rounded up to the
        template's granularity.
    fanout
        int64, shape (M, L + 1): ratio of instances below; ``fanout[m, 0]`` counts instances of the
        first on-chip level, ``fanout[m, L]`` the MACs below each instance of the innermost one.
    notation
        length M: the mapping in readable loop-nest notation.
    certificates
        length U * T: what was enumerated and pruned, and whether the set is complete.
    """

    templates: tuple[str, ...]
    layers: tuple[LayerShape, ...]
    offsets: NDArray[np.int64]
    cycles: NDArray[np.int64]
    dram_read_bytes: NDArray[np.int64]
    dram_write_bytes: NDArray[np.int64]
    fixed_energy_pj: NDArray[np.float64]
    reads: NDArray[np.float64]
    writes: NDArray[np.float64]
    size_words: NDArray[np.int64]
    fanout: NDArray[np.int64]
    notation: tuple[str, ...]
    certificates: tuple[dict[str, object], ...]

    def rows(self, layer: int, template: int) -> slice:
        """Return the slice of rows that hold layer ``layer`` on template ``template``."""
        cell = layer * len(self.templates) + template
        return slice(int(self.offsets[cell]), int(self.offsets[cell + 1]))


def build_table(
    layers: Sequence[LayerShape],
    architectures: Sequence[Architecture],
    *,
    limit: int | None = 32,
    rule: Rule = "diverse",
    options: MapperOptions | None = None,
    cache: Path | bool = True,
    workers: int | None = None,
    progress: Progress | None = None,
) -> MappingTable:
    """Search every layer on every architecture and return the kept mappings.

    Parameters
    ----------
    layers
        Unique layer shapes; table row groups follow their order.
    architectures
        Templates, with distinct names.
    limit
        Mappings kept of each Pareto set; None keeps all.
    rule
        How to choose them, see :func:`keep_rows`.
    options
        How to search (default: the complete Pareto set).
    cache
        A folder, True for the user's cache folder, False for none.
    workers
        Processes; None for as many as :func:`~mohsearch.core.processes.allowed_processes` says. The
        result does not depend on it.
    progress
        Called with (pairs done, pairs in all, label of the pair just done).

    Raises
    ------
    InputError
        If two architectures have the same name, or ``limit`` is below 1 (2 for ``paper``).

    Examples
    --------
    >>> from mohsearch.hardware.templates import load_template
    >>> eyeriss = load_template("eyeriss")
    >>> table = build_table([LayerShape(N=8, K=16, C=8)], [eyeriss], cache=False, workers=1)
    >>> table.rows(0, 0).stop == len(table.cycles), table.certificates[0]["complete"]
    (True, True)
    """
    names = [architecture.name for architecture in architectures]
    if len(set(names)) < len(names):
        raise InputError(f"architectures with the same name: {', '.join(names)}")
    if limit is not None and limit < (2 if rule == "paper" else 1):
        raise InputError(f"limit of mappings per layer: {limit} is too small for rule {rule!r}")
    folder = (user_cache() if cache else None) if isinstance(cache, bool) else Path(cache)
    pairs = [
        _Pair(layer, architecture, options or MapperOptions(), folder)
        for layer in layers
        for architecture in architectures
    ]
    found = _find_all(pairs, workers, progress)
    return _assemble(tuple(names), tuple(layers), architectures, found, limit, rule)


def keep_rows(front: MappingFront, limit: int | None, rule: Rule = "diverse") -> IntArray:
    """Return which mappings of a front to keep, in rising order.

    ``diverse``: the fastest, the one of least energy, the one of smallest area, then again and
    again the one farthest from all kept ones, where distance is Euclidean between the logarithms
    of cycles, energy and area, each scaled to the range that the front spans. ``paper``: the
    ``limit // 2`` fastest, then the others of least energy (MOHaM, section V-B).
    """
    count = len(front)
    if limit is None or count <= limit:
        return np.arange(count)
    objectives = front.objectives
    by_cycles = np.lexsort((objectives[:, 2], objectives[:, 1], objectives[:, 0]))
    by_energy = np.lexsort((objectives[:, 2], objectives[:, 0], objectives[:, 1]))
    by_area = np.lexsort((objectives[:, 0], objectives[:, 1], objectives[:, 2]))
    if rule == "paper":
        fastest = by_cycles[: limit // 2]
        frugal = by_energy[~np.isin(by_energy, fastest)]
        return np.sort(np.concatenate([fastest, frugal[: limit - len(fastest)]]))
    scaled = np.log(objectives)
    span = np.ptp(scaled, axis=0)
    scaled = (scaled - scaled.min(axis=0)) / np.where(span > 0, span, 1.0)
    kept = list(dict.fromkeys([int(by_cycles[0]), int(by_energy[0]), int(by_area[0])]))[:limit]
    distance = np.full(count, np.inf)
    for row in kept:
        distance = np.minimum(distance, np.linalg.norm(scaled - scaled[row], axis=1))
    while len(kept) < limit:
        row = int(np.argmax(distance))
        kept.append(row)
        distance = np.minimum(distance, np.linalg.norm(scaled - scaled[row], axis=1))
    return np.sort(np.array(kept))


@dataclass(frozen=True)
class _Pair:
    """One layer on one architecture: what a worker needs."""

    layer: LayerShape
    architecture: Architecture
    options: MapperOptions
    folder: Path | None

    @property
    def label(self) -> str:
        bounds = zip(DIMS, self.layer.bounds(), strict=True)
        text = " ".join(f"{dim}{bound}" for dim, bound in bounds if bound > 1)
        return f"{text or 'one multiplication'} on {self.architecture.name}"


def _find(pair: _Pair) -> MappingFront | InfeasibleError:
    return cached_front(pair.layer, pair.architecture, pair.options, pair.folder)


def _find_all(
    pairs: Sequence[_Pair], workers: int | None, progress: Progress | None
) -> list[MappingFront | InfeasibleError]:
    """Return the front of every pair, from processes where there are several cores."""
    found: dict[int, MappingFront | InfeasibleError] = {}

    def done(index: int, front: MappingFront | InfeasibleError) -> None:
        found[index] = front
        if progress is not None:
            progress(len(found), len(pairs), pairs[index].label)

    waiting = []
    for index, pair in enumerate(pairs):
        stored = None
        if pair.folder is not None:
            stored = stored_front(pair.layer, pair.architecture, pair.options, pair.folder)
        if stored is None:
            waiting.append(index)
        else:
            done(index, stored)
    # the largest first, so that no core is left alone with one at the end
    waiting.sort(key=lambda index: -pairs[index].layer.macs)
    processes = min(workers or allowed_processes(), len(waiting))
    if processes > 1:
        _find_in_processes(pairs, waiting, processes, done)
    for index in waiting:
        if index not in found:
            done(index, _find(pairs[index]))
    return [found[index] for index in range(len(pairs))]


def _find_in_processes(
    pairs: Sequence[_Pair],
    waiting: Sequence[int],
    processes: int,
    done: Callable[[int, MappingFront | InfeasibleError], None],
) -> None:
    """Search in processes; what a dying worker leaves undone is left to the caller."""
    with ProcessPoolExecutor(processes, worker_context(), follow_parent) as pool:
        futures = {pool.submit(_find, pairs[index]): index for index in waiting}
        try:
            for future in as_completed(futures):
                done(futures[future], future.result())
        except BrokenProcessPool:
            return
        except BaseException:
            # an interruption must not wait for searches of minutes
            searching = list((getattr(pool, "_processes", None) or {}).values())
            pool.shutdown(wait=False, cancel_futures=True)
            for process in searching:
                process.terminate()
            raise


def _assemble(
    names: tuple[str, ...],
    layers: tuple[LayerShape, ...],
    architectures: Sequence[Architecture],
    found: Sequence[MappingFront | InfeasibleError],
    limit: int | None,
    rule: Rule,
) -> MappingTable:
    """Put the kept mappings of all pairs into one table."""
    depth = max((len(a.levels) - 1 for a in architectures), default=0)
    fronts: list[MappingFront] = []
    counts: list[int] = []
    certificates: list[dict[str, object]] = []
    for front in found:
        if isinstance(front, InfeasibleError):
            counts.append(0)
            certificates.append({"complete": True, "infeasible": str(front)})
            continue
        rows = keep_rows(front, limit, rule)
        fronts.append(front.take(rows))
        counts.append(len(rows))
        certificates.append({**front.certificate, "kept": len(rows), "keep_rule": rule})

    def joined(name: str, width: int = 0, fill: int = 0) -> Any:
        parts = [getattr(front, name) for front in fronts]
        if width:
            parts = [
                np.pad(part, ((0, 0), (0, width - part.shape[1])), constant_values=fill)
                for part in parts
            ]
        shape = (0, width) if width else (0,)
        return np.concatenate(parts) if parts else np.zeros(shape)

    return MappingTable(
        templates=names,
        layers=layers,
        offsets=np.cumsum([0, *counts]),
        cycles=joined("cycles").astype(np.int64),
        dram_read_bytes=joined("dram_read_bytes").astype(np.int64),
        dram_write_bytes=joined("dram_write_bytes").astype(np.int64),
        fixed_energy_pj=joined("fixed_energy_pj"),
        reads=joined("reads", depth),
        writes=joined("writes", depth),
        size_words=joined("size_words", depth).astype(np.int64),
        fanout=joined("fanout", depth + 1, 1).astype(np.int64),
        notation=tuple(text for front in fronts for text in front.notation),
        certificates=tuple(certificates),
    )
