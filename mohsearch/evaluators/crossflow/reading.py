"""Reading configurations, with the cards that they name."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mohsearch.core.cards import read_yaml, validate
from mohsearch.core.catalog import Catalog
from mohsearch.core.errors import InputError
from mohsearch.evaluators.crossflow.cards import with_cards
from mohsearch.evaluators.crossflow.config import CrossflowConfig


def load_config(path: Path) -> CrossflowConfig:
    """Read a configuration; ``system`` and ``technology`` names are looked up as cards.

    Raises
    ------
    InputError
        If the file is not a valid configuration; the message names the field.
    """
    data = read_yaml(path)
    if not isinstance(data, dict):
        raise InputError("a configuration is a mapping of sections", source=path)
    return config_from(data, source=path, catalog=Catalog.around(path))


def config_from(
    data: Mapping[str, Any], *, source: Path | None = None, catalog: Catalog | None = None
) -> CrossflowConfig:
    """Validate a configuration given as a mapping, with card names resolved."""
    return validate(CrossflowConfig, with_cards(data, catalog or Catalog(), source), source=source)
