"""Deferred import of optional dependencies."""

from __future__ import annotations

import importlib
from types import ModuleType

from mohsearch.core.errors import MissingExtraError


def require(module: str, extra: str) -> ModuleType:
    """Import ``module``, or say which extra of mohsearch brings it.

    Parameters
    ----------
    module
        Dotted module name.
    extra
        Name of the extra that installs it.

    Raises
    ------
    MissingExtraError
        If the package that holds the module is not installed.

    Examples
    --------
    >>> require("json", "none").loads("[1]")
    [1]
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        package = module.partition(".")[0]
        if error.name is not None and error.name.partition(".")[0] != package:
            raise
        raise MissingExtraError(package, extra) from error
