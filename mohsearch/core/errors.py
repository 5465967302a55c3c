"""Errors a user can mend: each says what is wrong, where, and what exists instead.

Every exception raised on purpose derives from :class:`MohsearchError`; the command line prints its
message and leaves with exit code 2. Anything else that escapes is a defect of this package.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from pathlib import Path


class MohsearchError(Exception):
    """Base of all errors whose cause is the user's input or machine, not a defect here."""

    exit_code = 2


class InputError(MohsearchError):
    """A value that was read is wrong.

    Parameters
    ----------
    message
        What is wrong, in one sentence.
    source
        The file (or other origin) that holds the value.
    field
        Path of the value inside the source, such as ``runs[0].budget.generations``.

    Examples
    --------
    >>> str(InputError("must be positive", source="a.yaml", field="budget"))
    'a.yaml: budget: must be positive'
    """

    def __init__(
        self, message: str, *, source: str | Path | None = None, field: str | None = None
    ) -> None:
        self.message = message
        self.source = None if source is None else str(source)
        self.field = field
        super().__init__(": ".join(part for part in (self.source, field, message) if part))


class UnknownNameError(InputError):
    """A name that nothing answers to.

    Examples
    --------
    >>> str(UnknownNameError("template", "simbaa", ["eyeriss", "simba"]))
    "unknown template 'simbaa'; did you mean 'simba'? available: eyeriss, simba"
    """

    def __init__(
        self,
        kind: str,
        name: str,
        known: Iterable[str],
        *,
        source: str | Path | None = None,
        field: str | None = None,
    ) -> None:
        self.kind = kind
        self.name = name
        self.known = sorted(known)
        near = difflib.get_close_matches(name[:200], self.known, n=1, cutoff=0.5)
        hint = f"did you mean {near[0]!r}? " if near else ""
        available = ", ".join(self.known) if self.known else "(none)"
        given = repr(name if len(name) <= 80 else f"{name[:80]}...")
        super().__init__(
            f"unknown {kind} {given}; {hint}available: {available}", source=source, field=field
        )


class InfeasibleError(MohsearchError):
    """No solution exists; the message names the constraint that empties the space."""


class MissingExtraError(MohsearchError):
    """An optional dependency is not installed."""

    def __init__(self, package: str, extra: str) -> None:
        self.package = package
        self.extra = extra
        super().__init__(
            f"this needs the package {package!r}; install it with: pip install 'mohsearch[{extra}]'"
        )
