"""Fronts of mappings on disk, by content hash of everything that decides them."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
import warnings
import zipfile
import zlib
from dataclasses import fields
from functools import lru_cache
from pathlib import Path

import numpy as np

from mohsearch.core.digest import content_digest
from mohsearch.core.errors import InfeasibleError
from mohsearch.evaluators.mapper.exact import MappingFront, search_layer
from mohsearch.evaluators.mapper.translate import MapperOptions
from mohsearch.hardware.architecture import Architecture
from mohsearch.workloads.layer import LayerShape

ENVIRONMENT = "MOHSEARCH_CACHE"
"""Variable that moves the user's cache folder."""

_CODE = (
    "evaluators/mapper/*.py",
    "hardware/architecture.py",
    "hardware/technology.py",
    "workloads/layer.py",
)
"""What decides the fronts, below the package."""


def user_cache() -> Path:
    """Return the user's cache folder: ``$MOHSEARCH_CACHE``, else ``~/.cache/mohsearch``."""
    named = os.environ.get(ENVIRONMENT)
    if named:
        return Path(named)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "mohsearch"


@lru_cache(maxsize=1)
def _code_digest() -> str:
    """Return a hash of the source that decides fronts: a changed mapper finds no old results."""
    package = Path(__file__).parents[2]
    digest = hashlib.sha256()
    for pattern in _CODE:
        for file in sorted(package.glob(pattern)):
            digest.update(file.read_bytes())
    return digest.hexdigest()


def front_key(layer: LayerShape, architecture: Architecture, options: MapperOptions) -> str:
    """Return the content hash under which a front is kept."""
    parts = {
        "layer": layer,
        "name": architecture.name,
        "levels": architecture.levels,
        "mac_bits": architecture.mac_bits,
        "technology": architecture.technology.model_dump(mode="json"),
        "register_file_area": architecture.register_file_area,
        "options": options,
    }
    return content_digest(parts, _code_digest())


def cached_front(
    layer: LayerShape,
    architecture: Architecture,
    options: MapperOptions,
    folder: Path | None,
) -> MappingFront | InfeasibleError:
    """Return the front from ``folder``, else search and keep it there.

    A layer without mappings gives the error itself, which is kept too. An unreadable or foreign
    file counts as missing and is replaced. A folder that cannot be written costs time later, not
    the result: it is warned of.
    """
    if folder is None:
        return _search(layer, architecture, options)
    found = stored_front(layer, architecture, options, folder)
    if found is None:
        found = _search(layer, architecture, options)
        key = front_key(layer, architecture, options)
        try:
            write_front(_path(folder, key), key, found)
        except OSError as error:
            problem = f"mappings are not kept for later: {error}"
            remedy = f"name a folder that can be written by {ENVIRONMENT}"
            warnings.warn(f"{problem}; {remedy}", RuntimeWarning, stacklevel=2)
    return found


def stored_front(
    layer: LayerShape, architecture: Architecture, options: MapperOptions, folder: Path
) -> MappingFront | InfeasibleError | None:
    """Return the front kept in ``folder``, None where there is none that can be trusted."""
    key = front_key(layer, architecture, options)
    return read_front(_path(folder, key), key, layer, architecture)


def _path(folder: Path, key: str) -> Path:
    return folder / "mappings" / key[:2] / f"{key}.npz"


def _search(
    layer: LayerShape, architecture: Architecture, options: MapperOptions
) -> MappingFront | InfeasibleError:
    try:
        return search_layer(layer, architecture, options)
    except InfeasibleError as error:
        return error


def _array_names() -> list[str]:
    kept_apart = {"architecture", "layer", "notation", "certificate"}
    return [f.name for f in fields(MappingFront) if f.name not in kept_apart]


def write_front(path: Path, key: str, front: MappingFront | InfeasibleError) -> None:
    """Write a front so that readers see all of it or nothing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(front, InfeasibleError):
        content = {"head": np.array(json.dumps({"key": key, "infeasible": str(front)}))}
    else:
        head = {"key": key, "certificate": front.certificate}
        content = {name: getattr(front, name) for name in _array_names()}
        content["notation"] = np.array(front.notation, dtype=np.str_)
        content["head"] = np.array(json.dumps(head))
    handle, temporary = tempfile.mkstemp(dir=path.parent, suffix=".tmp")
    try:
        with os.fdopen(handle, "wb") as stream:
            np.savez_compressed(stream, **content)  # type: ignore[arg-type]
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def read_front(
    path: Path, key: str, layer: LayerShape, architecture: Architecture
) -> MappingFront | InfeasibleError | None:
    """Read a front; None where there is none that can be trusted."""
    try:
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as stored:
            head = json.loads(str(stored["head"]))
            if head["key"] != key:
                return None
            if "infeasible" in head:
                return InfeasibleError(head["infeasible"])
            arrays = {name: stored[name] for name in _array_names()}
            notation = tuple(str(text) for text in stored["notation"])
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile, zlib.error):
        return None
    rows = len(notation)
    if rows == 0 or any(len(array) != rows for array in arrays.values()):
        return None
    return MappingFront(
        architecture=architecture.name,
        layer=layer,
        notation=notation,
        certificate=head["certificate"],
        **arrays,
    )
