"""mohsearch: multi-objective search of deep-learning hardware.

The functions of everyday use are here, imported on first use; :mod:`mohsearch.api` shows them at
work.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mohsearch.api import ablate, compare, open_results, plot, read_fronts, run_study

__version__ = "0.1.0"

__all__ = ["ablate", "compare", "open_results", "plot", "read_fronts", "run_study"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module("mohsearch.api"), name)
