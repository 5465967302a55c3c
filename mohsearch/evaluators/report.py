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
        One flat record per case, for a table or CSV; units are suffixes of the keys.
    document
        The whole result as plain JSON types, keyed by case id.
    natural_format
        The format in which this evaluator's users exchange cases.
    summary
        Records about all cases together (accuracy per class, say), printed beside the rows.
    """

    rows: tuple[Mapping[str, Any], ...]
    document: Any
    natural_format: Literal["json", "csv"]
    summary: tuple[Mapping[str, Any], ...] = ()
