"""The writer of one run's results: a Zarr group that grows generation by generation.

All arrays are allocated for the whole budget at the start. The archive holds every distinct genome
once, in the order of evaluation; the history holds the population after each generation with
indices into the archive. ``done[g]`` is set after everything of generation ``g`` is on disk, so a
process may be killed at any moment: what is not marked done does not count. Zarr replaces each
chunk and each metadata file in one step. Each chunk ends in a CRC; :mod:`mohsearch.study.integrity`
says how other damage is noticed.
"""

from __future__ import annotations

import hashlib
import json
import math
import shutil
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import zarr
from numpy.typing import NDArray
from zarr.codecs import Crc32cCodec, ZstdCodec

from mohsearch.core.digest import content_digest
from mohsearch.core.errors import InputError
from mohsearch.engines.archive import Archive
from mohsearch.engines.driver import Budget, Generation, Recorded
from mohsearch.study.files import OutputFolder
from mohsearch.study.integrity import (
    damage,
    generation_checksum,
    is_sealed,
    sealed,
    write_manifest,
)

FLUSH_S = 1.0
"""Completed generations are written at most this often; 0 writes each one as it completes.

A generation that takes longer is on disk as soon as it is complete. Faster ones are written
several at a time, so that writing takes no more than :data:`FLUSH_SHARE` of the time.
"""

FLUSH_SHARE = 0.05

_CODECS = (ZstdCodec(), Crc32cCodec())

CHUNK_BYTES = 2**20
BLOCK_BYTES = 2**22
"""Stored arrays are read again in blocks of about this size."""

HISTORY_CHUNK = 64
DESIGN_CHUNK = 64

LEDGER = {
    "evaluations": ("int64", "1", "genomes asked for since the start"),
    "distinct": ("int64", "1", "distinct genomes evaluated since the start: rows of the archive"),
    "largest_crowding": (
        "float64",
        "1",
        "largest finite crowding distance of the population's non-dominated set",
    ),
    "checksum": ("int64", "1", "digest of what the generation wrote"),
    "wall_s": ("float64", "s", "wall time since the start, all sessions"),
    "cpu_s": ("float64", "s", "processor time since the start, all sessions"),
}


def metric_attributes(problem: Any) -> dict[str, dict[str, str]]:
    """Return ``units``, ``sense`` and ``long_name`` of every metric and constraint."""
    return {
        m.name: {"units": m.unit, "sense": m.sense, "long_name": m.description}
        for m in (*problem.card.metrics, *problem.card.constraints)
    }


class RunStore:
    """The group of one run, open for writing.

    Use :meth:`create` or :meth:`open`; one writer at a time.
    """

    def __init__(self, folder: OutputFolder, run_id: str) -> None:
        self.folder = folder
        self.run_id = run_id
        self.group: Any = zarr.open_group(folder.run(run_id), mode="r+", zarr_format=3)
        history: Any = self.group["history"]
        archive: Any = self.group["archive"]
        # opened once: opening costs as much as writing
        self._history: dict[str, Any] = dict(history.arrays())
        self._archive: dict[str, Any] = dict(archive.arrays())
        self.metric_names = tuple(sorted(self._archive.keys() - {"genome"}))
        self._pending: list[Generation] = []
        self._written = 0
        self._distinct = 0
        self._flushed_at = time.monotonic()
        self._flush_cost_s = 0.0

    @staticmethod
    def exists(folder: OutputFolder, run_id: str) -> bool:
        """Tell whether the run was created, with all its arrays."""
        return (folder.run(run_id) / "archive" / "zarr.json").is_file()

    @classmethod
    def create(
        cls,
        folder: OutputFolder,
        run_id: str,
        problem: Any,
        budget: Budget,
        attributes: Mapping[str, Any],
    ) -> RunStore:
        """Allocate a run's arrays; the run appears in the tree all at once."""
        with _staged(folder, run_id, folder.run(run_id)) as path:
            group = zarr.open_group(
                path,
                mode="w",
                zarr_format=3,
                attributes=sealed({**attributes, "status": "running"}),
            )
            metrics = metric_attributes(problem)
            _allocate_history(group.create_group("history"), budget, metrics)
            _allocate_archive(group.create_group("archive"), budget, problem, metrics)
        digest = str(attributes.get("problem_digest", ""))
        write_manifest(folder, run_id, digest, complete=False)
        return cls(folder, run_id)

    def recorded(self) -> Recorded | None:
        """Return the complete generations of earlier sessions and continue behind them."""
        done = np.asarray(self._history["done"][:])
        count = len(done) if done.all() else int(done.argmin())
        if not count:
            return None
        ledger = {name: np.asarray(self._history[name][:count]) for name in LEDGER}
        self._written, self._distinct = count, int(ledger["distinct"][-1])
        return Recorded(
            genomes=InBlocks(self._archive["genome"]),
            metrics={name: InBlocks(self._archive[name]) for name in self.metric_names},
            evaluations=ledger["evaluations"],
            distinct=ledger["distinct"],
            wall_s=float(ledger["wall_s"][-1]),
            cpu_s=float(ledger["cpu_s"][-1]),
        )

    def add(self, generation: Generation, archive: Archive) -> None:
        """Take one more generation; write what is pending if the last write is a while ago."""
        self._pending.append(generation)
        pause = max(FLUSH_S, self._flush_cost_s / FLUSH_SHARE) if FLUSH_S else 0.0
        if time.monotonic() - self._flushed_at >= pause:
            self.flush(archive)

    def flush(self, archive: Archive) -> None:
        """Write all pending generations: archive, history, ledger, and the done flags last."""
        if not self._pending:
            return
        began = time.monotonic()
        start, stop = self._written, self._written + len(self._pending)
        first, last = self._distinct, self._pending[-1].distinct
        if last > first:
            self._archive["genome"][first:last] = archive.genomes_of(slice(first, last))
            for name, values in archive.metrics_of(slice(first, last)).items():
                self._archive[name][first:last] = values
        self._write_history(start, stop, archive)
        self._history["done"][start:stop] = True
        self._written, self._distinct = stop, last
        self._pending.clear()
        self._flushed_at = time.monotonic()
        self._flush_cost_s = self._flushed_at - began

    def _write_history(self, start: int, stop: int, archive: Archive) -> None:
        width = self._history["archive_index"].shape[1]
        ids = np.full((stop - start, width), -1, dtype=np.int64)
        for row, generation in enumerate(self._pending):
            members = generation.population[:width]
            ids[row, : len(members)] = members
        self._history["archive_index"][start:stop] = ids
        for name, values in archive.metrics_of(np.maximum(ids, 0)).items():
            self._history[name][start:stop] = np.where(ids >= 0, values, np.nan)
        for name in LEDGER:
            if name == "checksum":
                column: list[float] = self._checksums(ids, archive)
            else:
                column = [getattr(generation, name) for generation in self._pending]
            self._history[name][start:stop] = np.array(column)

    def _checksums(self, ids: NDArray[np.int64], archive: Archive) -> list[float]:
        found: list[float] = []
        first = self._distinct
        for row, generation in zip(ids, self._pending, strict=True):
            last = generation.distinct
            counts = (generation.evaluations, last)
            genomes = archive.genomes_of(slice(first, last))
            fresh = archive.metrics_of(slice(first, last))
            found.append(generation_checksum(genomes, fresh, row, counts))
            first = last
        return found

    def write_front(
        self, problem: Any, archive: Archive, ids: NDArray[np.int64], final: NDArray[np.int64]
    ) -> None:
        """Write the front with its decoded designs; it appears in the tree all at once.

        Parameters
        ----------
        ids
            Archive numbers of the front's genomes.
        final
            Archive numbers of the final population.
        """
        genomes, metrics = archive.genomes_of(ids), archive.metrics_of(ids)
        designs = [
            json.dumps(problem.decode(genome), separators=(",", ":"), allow_nan=False)
            for genome in genomes
        ]
        target = self.folder.run(self.run_id) / "front"
        members = np.isin(ids, final)
        with _staged(self.folder, f"{self.run_id}-front", target) as path:
            group = zarr.open_group(path, mode="w", zarr_format=3)
            group.attrs["in_final_population"] = int(members.sum())
            group.attrs["note"] = "non-dominated among all evaluated genomes"
            for name, attributes in metric_attributes(problem).items():
                _put(group, name, metrics[name], ("solution",), attributes)
            _put(
                group,
                "genome",
                genomes.reshape(len(ids), problem.n_var),
                ("solution", "gene"),
                {"long_name": "decision variables"},
            )
            _put(group, "genome_id", ids, ("solution",), {"long_name": "row of the archive"})
            _put(
                group,
                "final",
                members,
                ("solution",),
                {"long_name": "1 where the genome is in the final population"},
            )
            _put_designs(group, designs)

    def digest(self, ids: NDArray[np.int64]) -> str:
        """Return the content hash of what was found: archive, history, ledger and front.

        Everything is read back from disk, in blocks.
        """
        genomes = _content(self._archive["genome"], self._distinct)
        metrics = {n: _content(self._archive[n], self._distinct) for n in self.metric_names}
        names = (*self.metric_names, "archive_index", "evaluations", "distinct")
        history = {name: _content(self._history[name]) for name in names}
        return content_digest(genomes, metrics, history, ids)

    def complete(self, attributes: Mapping[str, Any]) -> None:
        """Mark the run as complete; nothing is written after this."""
        digest = str(self.group.attrs.get("problem_digest", ""))
        write_manifest(self.folder, self.run_id, digest, complete=True)
        self._set({**attributes, "status": "complete", "failure": ""})

    def reopen(self) -> None:
        """Mark a run that failed before as running again."""
        self._set({"status": "running", "failure": ""})

    def _set(self, attributes: Mapping[str, Any]) -> None:
        """Change attributes, all in one step."""
        self.group.update_attributes(sealed({**self.group.attrs, **attributes}))


class InBlocks:
    """Consecutive rows of a stored array, read many at a time and handed out a few at a time."""

    def __init__(self, array: Any) -> None:
        self._array = array
        self._step = _rows_per_block(array)
        self._start = 0
        self._block = np.empty((0, *array.shape[1:]), dtype=array.dtype)

    def __getitem__(self, rows: slice) -> NDArray[Any]:
        first, last = rows.start or 0, len(self._array) if rows.stop is None else rows.stop
        start = self._start
        if first < start or last > start + len(self._block):
            self._start = start = first
            self._block = np.asarray(self._array[first : max(last, first + self._step)])
        return self._block[first - start : last - start]


def _rows_per_block(array: Any) -> int:
    """Return how many rows of a stored array to read at once: some chunks, a few MiB."""
    chunk = int(array.chunks[0])
    row_bytes = max(1, int(array.dtype.itemsize) * math.prod(array.shape[1:]))
    return chunk * max(1, int(BLOCK_BYTES // (chunk * row_bytes)))


def _content(array: Any, count: int | None = None) -> dict[str, Any]:
    """Return what :func:`content_digest` makes of the first rows of an array, read in blocks."""
    count = array.shape[0] if count is None else count
    hashed = hashlib.sha256()
    step = _rows_per_block(array)
    for start in range(0, count, step):
        block = np.ascontiguousarray(array[start : min(start + step, count)])
        hashed.update(block.tobytes())
    shape = [count, *array.shape[1:]]
    return {"dtype": array.dtype.str, "shape": shape, "sha256": hashed.hexdigest()}


def record_failure(
    folder: OutputFolder, run_id: str, reason: str, attributes: Mapping[str, Any]
) -> None:
    """Mark a run as failed, with the reason, also one that has no arrays yet."""
    group = zarr.open_group(folder.run(run_id), mode="a", zarr_format=3)
    if group.attrs and not is_sealed(dict(group.attrs)):
        return  # damaged: a new digest would hide it
    changed = {**group.attrs, **attributes, "status": "failed", "failure": reason}
    group.update_attributes(sealed(changed))


def is_complete(folder: OutputFolder, run_id: str) -> bool:
    """Tell whether a run is complete and every byte of it as it was written."""
    return damage(folder, run_id) is None and (
        run_attributes(folder.run(run_id)).get("status") == "complete"
    )


class _staged:
    """Context that yields a scratch folder and moves it to its place when the block succeeds."""

    def __init__(self, folder: OutputFolder, name: str, target: Path) -> None:
        self.scratch = folder.staging / name
        self.target = target

    def __enter__(self) -> Path:
        shutil.rmtree(self.scratch, ignore_errors=True)
        self.scratch.parent.mkdir(parents=True, exist_ok=True)
        return self.scratch

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if kind is None:
            shutil.rmtree(self.target, ignore_errors=True)
            self.target.parent.mkdir(parents=True, exist_ok=True)
            self.scratch.rename(self.target)
        else:
            shutil.rmtree(self.scratch, ignore_errors=True)


def _allocate(
    group: Any,
    name: str,
    shape: tuple[int, ...],
    chunks: tuple[int, ...],
    dims: tuple[str, ...],
    dtype: Any,
    attributes: Mapping[str, Any],
) -> Any:
    dtype = np.dtype(dtype)
    fill: Any = np.nan if dtype.kind == "f" else False if dtype.kind == "b" else -1
    return group.create_array(
        name,
        shape=shape,
        chunks=tuple(max(1, min(c, s)) for c, s in zip(chunks, shape, strict=True)),
        dtype=dtype,
        fill_value=fill,
        compressors=_CODECS,
        dimension_names=dims,
        attributes=dict(attributes),
    )


def _allocate_history(group: Any, budget: Budget, metrics: Mapping[str, Mapping[str, str]]) -> None:
    shape = (budget.generations, budget.population)
    chunks = (max(1, min(HISTORY_CHUNK, CHUNK_BYTES // (8 * budget.population))), shape[1])
    dims = ("generation", "individual")
    for name, attributes in metrics.items():
        _allocate(group, name, shape, chunks, dims, "float64", attributes)
    note = {"long_name": "row of the archive, -1 where the population is smaller"}
    _allocate(group, "archive_index", shape, chunks, dims, "int64", note)
    ledger = (shape[:1], (4096,), dims[:1])
    for name, (dtype, unit, long_name) in LEDGER.items():
        _allocate(group, name, *ledger, dtype, {"units": unit, "long_name": long_name})
    _allocate(group, "done", *ledger, "bool", {"long_name": "generation is complete"})


def _allocate_archive(
    group: Any, budget: Budget, problem: Any, metrics: Mapping[str, Mapping[str, str]]
) -> None:
    rows = budget.evaluations
    dtype = Archive(problem).dtype
    per_chunk = max(64, CHUNK_BYTES // (problem.n_var * dtype.itemsize))
    _allocate(
        group,
        "genome",
        (rows, problem.n_var),
        (per_chunk, problem.n_var),
        ("genome_id", "gene"),
        dtype,
        {"long_name": "decision variables, in the order of evaluation"},
    )
    for name, attributes in metrics.items():
        _allocate(group, name, (rows,), (16384,), ("genome_id",), "float64", attributes)


def _put(
    group: Any, name: str, values: NDArray[Any], dims: Sequence[str], attributes: Mapping[str, Any]
) -> None:
    array = _allocate(
        group, name, values.shape, values.shape, tuple(dims), values.dtype, attributes
    )
    if values.size:
        array[...] = values


def _put_designs(group: Any, designs: Sequence[str]) -> None:
    array = group.create_array(
        "design",
        shape=(len(designs),),
        chunks=(max(1, min(DESIGN_CHUNK, len(designs))),),
        dtype=np.dtypes.StringDType(),
        compressors=_CODECS,
        dimension_names=("solution",),
        attributes={"long_name": "decoded design as JSON"},
    )
    if designs:
        array[:] = np.array(designs, dtype=np.dtypes.StringDType())


def run_attributes(group_path: Path) -> dict[str, Any]:
    """Return the attributes of a run's group; empty where it does not exist.

    Raises
    ------
    InputError
        If the group is damaged.
    """
    if not (group_path / "zarr.json").is_file():
        return {}
    try:
        return dict(zarr.open_group(group_path, mode="r", zarr_format=3).attrs)
    except (OSError, ValueError, KeyError) as error:
        raise InputError(f"not readable as results: {error}", source=group_path) from error
