"""mohsearch: multi-objective search of deep-learning hardware.

The functions of everyday use are here, imported on first use; :mod:`mohsearch.api` shows them at
work. Their types stand in the stub file beside this one.
"""

import importlib
from typing import Any

__version__ = "0.1.0"

_API = ("ablate", "compare", "open_results", "plot", "read_fronts", "run_study")


def __getattr__(name: str) -> Any:
    if name not in _API:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module("mohsearch.api"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_API])
