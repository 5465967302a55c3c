"""How CrossFlow's kernels are compiled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba as nb
import numpy as np


def entry(function: Callable[..., Any]) -> Any:
    """Compile a function that Python calls."""
    return nb.njit(cache=True, nogil=True)(function)


def inner(function: Callable[..., Any]) -> Any:
    """Compile a function that only compiled ones call: no wrappers, which take time to compile."""
    options: dict[str, bool] = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}
    return nb.njit(cache=True, nogil=True, **options)(function)  # type: ignore[call-overload]


def codes(count: int) -> Any:
    """Return 0 to count - 1 as NumPy integers.

    The compiler specialises a function on every plain integer constant among its arguments.
    """
    return np.arange(count)
