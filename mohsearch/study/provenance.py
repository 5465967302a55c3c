"""Where a result comes from: versions, command, machine, memory."""

from __future__ import annotations

import platform
import resource
import sys
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import mohsearch

LIBRARIES = ("numpy", "numba", "pymoo", "moocore", "zarr", "xarray")


def provenance() -> dict[str, Any]:
    """Return what is known about the running program and machine, as plain JSON types.

    ``peak_memory_bytes`` is the largest resident size of this process so far.
    """
    return {
        "versions": {"mohsearch": mohsearch.__version__, **_versions()},
        "python": platform.python_version(),
        "platform": platform.platform(),
        "machine": platform.machine(),
        "command": " ".join(sys.argv),
        "peak_memory_bytes": _peak_memory_bytes(),
    }


def _versions() -> dict[str, str]:
    found = {}
    for name in LIBRARIES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def _peak_memory_bytes() -> int:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return int(peak if sys.platform == "darwin" else peak * 1024)
