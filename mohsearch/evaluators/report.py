"""What an evaluator hands back when it is called alone on a file of cases."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal


@dataclass(frozen=True)
class EvaluationReport:
    """Result of ``mohsearch evaluate NAME INPUT``.

    Attributes
    ----------
    rows
        Flat records for a table or CSV, one or more per case; units are suffixes of the keys.
    document
        The whole result as plain JSON types: by case id, or with a list ``cases`` or ``runs``.
    natural_format
        The format in which this evaluator's users exchange cases.
    summary
        Records about all cases together (accuracy per class, say), printed beside the rows.
    """

    rows: tuple[Mapping[str, Any], ...]
    document: Any
    natural_format: Literal["json", "csv"]
    summary: tuple[Mapping[str, Any], ...] = ()

    @property
    def cases(self) -> int:
        """Number of cases.

        Examples
        --------
        >>> layers = ({"case": "a", "layer": 1}, {"case": "a", "layer": 2})
        >>> EvaluationReport(layers, {"a": {}}, "json").cases
        1
        """
        for name in ("cases", "runs"):
            if isinstance(self.document.get(name), list):
                return len(self.document[name])
        return len(self.document)
