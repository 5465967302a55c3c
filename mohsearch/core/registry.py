"""Names to classes: lazy tables inside the package, entry points for plug-ins."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from importlib.metadata import entry_points
from typing import Any

from mohsearch.core.errors import UnknownNameError


class Registry:
    """A table from public names to ``"module:attribute"``, imported on first use.

    Plug-ins extend it by an entry point in the group ``mohsearch.<kind>``; a built-in name cannot
    be replaced by a plug-in.

    Parameters
    ----------
    kind
        What the names stand for, in the singular, as error messages print it.
    builtin
        Built-in names and where they live.

    Examples
    --------
    >>> Registry("decoder", {"json": "json:loads"}).load("json")("[1]")
    [1]
    """

    def __init__(self, kind: str, builtin: Mapping[str, str]) -> None:
        self.kind = kind
        self._builtin = dict(builtin)

    def _plugins(self) -> dict[str, Any]:
        group = f"mohsearch.{self.kind.replace(' ', '_')}"
        return {e.name: e for e in entry_points(group=group) if e.name not in self._builtin}

    def names(self) -> list[str]:
        """Return all names, built-in and plugged in, sorted."""
        return sorted({*self._builtin, *self._plugins()})

    def load(self, name: str, *, source: str | None = None, field: str | None = None) -> Any:
        """Import and return what ``name`` stands for.

        Raises
        ------
        UnknownNameError
            If nothing answers to ``name``; ``source`` and ``field`` say where it was written.
        """
        target = self._builtin.get(name)
        if target is not None:
            module, _, attribute = target.partition(":")
            return getattr(importlib.import_module(module), attribute)
        plugins = self._plugins()
        if name in plugins:
            return plugins[name].load()
        raise UnknownNameError(self.kind, name, self.names(), source=source, field=field)
