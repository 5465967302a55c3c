"""Telling damaged results from sound ones, and saving what is left of them.

Four things together make every damaged byte show: each chunk ends in a CRC-32C (Zarr's codec), each
generation has a digest of its content in the ledger, the attributes of a run hold a digest of
themselves, and a manifest beside the tree has the SHA-256 of every other file of a run: of the
array metadata from the start, of all chunks once the run is complete.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import zarr
from numpy.typing import NDArray

from mohsearch.core.cards import read_json
from mohsearch.core.digest import content_digest
from mohsearch.core.errors import InputError
from mohsearch.study.files import OutputFolder, write_json

ATTRIBUTES_DIGEST = "attributes_digest"
FORMAT = 1
_METADATA = "zarr.json"
_GROUP = {"zarr_format": 3, "node_type": "group"}
_COUNTS = ("evaluations", "distinct")
_PROBLEM = "problem.json"
_ASIDE = "-damaged-"
READING = (OSError, ValueError, KeyError, TypeError, RuntimeError, AttributeError)
"""What reading a damaged array raises; CRC failures are ValueErrors."""


class DamagedRunError(InputError):
    """Stored results are not what was written."""

    def __init__(self, run_id: str, what: str, folder: OutputFolder) -> None:
        self.run_id = run_id
        self.what = what
        super().__init__(
            f"run {run_id} is damaged: {what}; mend it with: mohsearch study resume {folder.root}",
            source=folder.results,
        )


class DamagedStudyError(InputError):
    """The card of a study's output folder is not what was written."""

    def __init__(self, what: str, folder: OutputFolder) -> None:
        super().__init__(
            f"is damaged: {what}; mend it with: mohsearch study resume {folder.root}",
            source=folder.root,
        )


def sealed(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Return attributes with a digest of themselves.

    Examples
    --------
    >>> is_sealed(sealed({"status": "running"}))
    True
    >>> is_sealed(sealed({"status": "running"}) | {"status": "complete"})
    False
    """
    content = {k: v for k, v in attributes.items() if k != ATTRIBUTES_DIGEST}
    return {**content, ATTRIBUTES_DIGEST: content_digest(content)}


def is_sealed(attributes: Mapping[str, Any]) -> bool:
    """Tell whether attributes are as :func:`sealed` left them."""
    content = {k: v for k, v in attributes.items() if k != ATTRIBUTES_DIGEST}
    return attributes.get(ATTRIBUTES_DIGEST) == content_digest(content)


def generation_checksum(
    genomes: NDArray[Any],
    metrics: Mapping[str, NDArray[Any]],
    population: NDArray[Any],
    counts: tuple[int, int],
) -> int:
    """Return the digest of one generation, a positive integer below 2**63.

    Parameters
    ----------
    genomes, metrics
        What the generation added to the archive: (n, n_var), and each metric of shape (n,).
    population
        Archive numbers of its population.
    counts
        Evaluations and distinct genomes since the start.
    """
    hashed = hashlib.blake2b(digest_size=8)
    for values in (genomes, *(metrics[name] for name in sorted(metrics)), population):
        array = np.ascontiguousarray(values)
        hashed.update(f"{array.dtype.str}{array.shape}".encode())
        hashed.update(array.tobytes())
    hashed.update(repr(tuple(int(count) for count in counts)).encode())
    return (int.from_bytes(hashed.digest(), "little") >> 1) or 1


def _files(folder: Path) -> Iterator[Path]:
    return (path for path in sorted(folder.rglob("*")) if path.is_file())


def _sha256(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def write_manifest(
    folder: OutputFolder, run_id: str, problem_digest: str, *, complete: bool
) -> None:
    """Note the files of a run: its array metadata, or all of them once it is complete.

    The run's own attributes are left out; they change, and are sealed.
    """
    root = folder.run(run_id)
    found = (p for p in _files(root) if p != root / _METADATA)
    files = {
        path.relative_to(root).as_posix(): [path.stat().st_size, _sha256(path)]
        for path in found
        if complete or path.name == _METADATA
    }
    content = {
        "format": FORMAT,
        "run": run_id,
        "problem_digest": problem_digest,
        "complete": complete,
        "files": files,
    }
    write_json(folder.manifest(run_id), sealed(content))


def damage(
    folder: OutputFolder, run_id: str, *, thorough: bool = True, only: str = ""
) -> str | None:
    """Return what is wrong with a stored run, None if nothing is.

    Parameters
    ----------
    thorough
        Compare the content of all files of a complete run, and read all generations of another.
        Without, metadata are compared, and presence and size of all other files.
    only
        Be thorough with this group of a complete run alone (``front``), which is all that is read.
    """
    thorough = thorough and not only
    root = folder.run(run_id)
    if not root.exists():
        return None
    try:
        group: Any = zarr.open_group(root, mode="r", zarr_format=3)
        attributes = dict(group.attrs)
    except READING:
        return f"{_METADATA} cannot be read"
    if ATTRIBUTES_DIGEST not in attributes and not folder.manifest(run_id).exists():
        # an early version wrote it, without digests; what it left unfinished begins anew
        finished = attributes.get("status") == "complete"
        return None if finished or not thorough else "an early version wrote it, without digests"
    if not is_sealed(attributes) or not _is_plain_group(root):
        return f"{_METADATA} has changed"
    if not (root / "archive").exists() and attributes.get("status") == "failed":
        return None  # it failed before it had arrays
    try:
        manifest = read_json(folder.manifest(run_id))
        sound = is_sealed(manifest)
    except (InputError, AttributeError):
        sound = False
    if not sound:
        return "its manifest is missing or has changed"
    if attributes.get("status") == "complete" and not manifest["complete"]:
        return "its manifest is not that of a complete run"
    for name, (size, digest) in manifest["files"].items():
        path = root / name
        if not path.is_file() or path.stat().st_size != size:
            return f"{name} is missing or has another size"
        read = thorough or path.name == _METADATA or bool(only and name.startswith(f"{only}/"))
        if read and _sha256(path) != digest:
            return f"{name} has changed"
    if thorough and attributes.get("status") != "complete":
        return _damaged_generation(group, root)
    return None


def _damaged_generation(group: Any, root: Path) -> str | None:
    """Read what an unfinished run has, and compare each generation with its digest.

    Chunks of generations that were not complete are read too: what comes next is written into them.
    """
    history, archive = group["history"], group["archive"]
    try:
        done = np.asarray(history["done"][:])
        count = len(done) if done.all() else int(done.argmin())
        if done[count:].any():
            return "a generation before the last complete one is missing"
        ledger = {
            name: np.asarray(history[name][:count])
            for name in (*_COUNTS, "checksum", "largest_crowding", "wall_s", "cpu_s")
        }
        stop = int(ledger["distinct"][-1]) if count else 0
        if not np.isfinite(ledger["wall_s"]).all() or not np.isfinite(ledger["cpu_s"]).all():
            return "the ledger has gaps"
        wrong = _wrong_generation(history, archive, ledger)
        if wrong is not None:
            return wrong
        for name in archive.array_keys():
            if name != "genome" and not _repeated_rightly(
                archive[name][:stop], history, name, count
            ):
                return f"history/{name} is not what was written"
        _read_beyond(history, root / "history", count)
        _read_beyond(archive, root / "archive", stop)
    except READING as error:
        return str(error).splitlines()[0][:200] if str(error) else type(error).__name__
    return None


def _read_beyond(group: Any, path: Path, rows: int) -> None:
    """Read the chunks there are of the arrays of a group, those of its first rows alone left out.

    Raises what reading a damaged array does (:data:`READING`).
    """
    for name in group.array_keys():
        array, chunks = group[name], path / name / "c"
        step = int(array.chunks[0])
        for chunk in chunks.iterdir() if chunks.is_dir() else ():
            if chunk.name.isdecimal() and int(chunk.name) >= rows // step:
                start = int(chunk.name) * step
                array[start : start + step]


_BLOCK_ROWS = 2**16
"""Individuals of so many generations are read at once."""


def _generation_blocks(history: Any, count: int) -> Iterator[slice]:
    array = history["archive_index"]
    chunk = int(array.chunks[0])
    step = chunk * max(1, _BLOCK_ROWS // (chunk * int(array.shape[1])))
    return (slice(g, min(g + step, count)) for g in range(0, count, step))


def _is_plain_group(root: Path) -> bool:
    """Tell whether a group's metadata, besides its attributes, are all there."""
    try:
        content = read_json(root / _METADATA)
    except InputError:
        return False
    if content.get("consolidated_metadata", 0) is None:  # some versions of Zarr write so
        del content["consolidated_metadata"]
    return {**content, "attributes": {}} == {**_GROUP, "attributes": {}}


def _wrong_generation(history: Any, archive: Any, ledger: Mapping[str, Any]) -> str | None:
    """Compare the generations with their digests, some at a time; return what is wrong."""
    names = [name for name in archive.array_keys() if name != "genome"]
    start = 0
    for block in _generation_blocks(history, len(ledger["distinct"])):
        population = np.asarray(history["archive_index"][block])
        first, last = start, int(ledger["distinct"][block.stop - 1])
        genomes = np.asarray(archive["genome"][first:last])
        columns = {name: np.asarray(archive[name][first:last]) for name in names}
        for row, g in zip(population, range(block.start, block.stop), strict=True):
            end = int(ledger["distinct"][g])
            own = slice(start - first, end - first)
            fresh = {name: column[own] for name, column in columns.items()}
            counts = (int(ledger["evaluations"][g]), end)
            if generation_checksum(genomes[own], fresh, row, counts) != int(ledger["checksum"][g]):
                return f"generation {g} is not what was written"
            start = end
    return None


def _repeated_rightly(stored: Any, history: Any, name: str, count: int) -> bool:
    """Tell whether the history of a metric has the archive's values of its populations."""
    column = np.asarray(stored)
    for block in _generation_blocks(history, count):
        ids = np.asarray(history["archive_index"][block])
        values = column[np.maximum(ids, 0)] if len(column) else np.nan
        expected = np.where(ids >= 0, values, np.nan)
        if not np.array_equal(np.asarray(history[name][block]), expected, equal_nan=True):
            return False
    return True


def problem_of(folder: OutputFolder, run_id: str) -> str | None:
    """Return the digest of the problem whose values a stored run holds; None if that is lost."""
    try:
        attributes = dict(zarr.open_group(folder.run(run_id), mode="r", zarr_format=3).attrs)
        if is_sealed(attributes) or ATTRIBUTES_DIGEST not in attributes:
            return str(attributes["problem_digest"])
    except READING:
        pass
    try:
        manifest = read_json(folder.manifest(run_id))
        return str(manifest["problem_digest"]) if is_sealed(manifest) else None
    except (InputError, *READING):
        return None


def has_chunks(run: Path) -> bool:
    """Tell whether the folder of a run holds a genome, or a front."""
    return any(True for _ in run.glob("archive/*/c")) or (run / "front").exists()


def set_aside(folder: OutputFolder, run_id: str, problem_digest: str | None) -> None:
    """Put a damaged run away until what it still holds is written anew.

    Without the digest of its problem, nothing of it can be trusted: it is removed.
    """
    run = folder.run(run_id)
    if problem_digest is None:
        if run.exists():
            shutil.rmtree(run)
        return
    write_json(run / _PROBLEM, sealed({"problem_digest": problem_digest}))
    folder.staging.mkdir(parents=True, exist_ok=True)
    run.rename(folder.staging / f"{run_id}{_ASIDE}{len(_parts(folder, run_id))}")


def drop_set_aside(folder: OutputFolder, run_id: str) -> None:
    """Remove what was set aside: the run is complete without it."""
    for part in _parts(folder, run_id):
        shutil.rmtree(part, ignore_errors=True)


def _parts(folder: OutputFolder, run_id: str) -> list[Path]:
    if not folder.staging.is_dir():
        return []
    start = f"{run_id}{_ASIDE}"
    return sorted(p for p in folder.staging.iterdir() if p.name.startswith(start))


def salvaged(
    folder: OutputFolder, run_id: str, problem_digest: str
) -> tuple[NDArray[Any], dict[str, NDArray[np.float64]]]:
    """Return the genomes and metrics that can still be read of what was set aside.

    The chunks of the archives are read through the metadata of the run made anew, chunk by chunk;
    those with a wrong CRC, and values of another problem, are left out.

    Returns
    -------
    genomes, metrics
        Shape (n, n_var), and each metric of shape (n,).
    """
    new: Any = zarr.open_group(folder.run(run_id), mode="r", zarr_format=3)["archive"]
    names = list(new.array_keys())
    found: dict[str, list[NDArray[Any]]] = {n: [np.asarray(new[n][:0])] for n in names}
    for part in _parts(folder, run_id):
        if _is_of(part, problem_digest):
            for name, values in _sound_rows(part, folder.run(run_id), names).items():
                found[name].append(values)
    result = {name: np.concatenate(values) for name, values in found.items()}
    return result.pop("genome"), result


def _is_of(part: Path, problem_digest: str) -> bool:
    try:
        content = read_json(part / _PROBLEM)
    except InputError:
        return False
    return is_sealed(content) and content["problem_digest"] == problem_digest


def _sound_rows(part: Path, run: Path, names: list[str]) -> dict[str, NDArray[Any]]:
    """Return the rows of an archive that can be read in all its arrays and have values."""
    shutil.copyfile(run / "archive" / _METADATA, _made(part / "archive"))
    for name in names:
        shutil.copyfile(run / "archive" / name / _METADATA, _made(part / "archive" / name))
    old: Any = zarr.open_group(part / "archive", mode="r", zarr_format=3)
    columns = {name: _read_sound(old[name]) for name in names}
    good = np.ones(old["genome"].shape[0], dtype=bool)
    for values, readable in columns.values():
        good &= readable
        if values.ndim == 1:
            good &= np.isfinite(values)
    return {name: values[good] for name, (values, _) in columns.items()}


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder / _METADATA


def _read_sound(array: Any) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    """Read an array chunk by chunk; return it and which of its rows could be read."""
    values = np.full(array.shape, array.fill_value, dtype=array.dtype)
    readable = np.zeros(array.shape[0], dtype=bool)
    step = array.chunks[0]
    for start in range(0, array.shape[0], step):
        try:
            values[start : start + step] = array[start : start + step]
        except READING:
            continue
        readable[start : start + step] = True
    return values, readable
