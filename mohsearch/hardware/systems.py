"""System cards: real devices, with measured figures and, where known, a CrossFlow allocation.

``evaluators/systems/<name>.yaml``; every figure carries its source.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from mohsearch.core.cards import read_card
from mohsearch.core.catalog import Catalog
from mohsearch.core.errors import UnknownNameError
from mohsearch.hardware.figures import SourcedCard

Positive = Annotated[float, Field(gt=0)]


class SystemCard(SourcedCard):
    """One device type.

    ``peak_flop_per_s`` maps a number format and engine (``fp32``, ``fp16``, ``fp16_tensor`` ...)
    to the rate of the data sheet. ``aliases`` are other names that measurements use for it.
    """

    name: str
    vendor: str
    family: str
    """Devices of one family share calibrated constants."""
    aliases: tuple[str, ...] = ()
    node_nm: Positive
    multiprocessors: Annotated[int, Field(gt=0)]
    frequency_hz: Positive
    peak_flop_per_s: dict[str, Positive]
    l1_bytes_per_multiprocessor: Positive
    l2_bytes: Positive
    memory_bytes: Positive
    memory_bandwidth_bytes_per_s: Positive
    power_w: Positive
    die_area_mm2: Positive
    link_bandwidth_bytes_per_s: Positive | None = None
    die_area_by_component_mm2: dict[str, Positive] | None = None
    crossflow: dict[str, Any] | None = None


def system_names(catalog: Catalog | None = None) -> list[str]:
    """Return the names of all system cards."""
    return (catalog or Catalog()).names("evaluators", "systems")


def load_system(name: str, catalog: Catalog | None = None) -> SystemCard:
    """Return a system card by name or path.

    Examples
    --------
    >>> load_system("V100").multiprocessors
    80
    """
    path = (catalog or Catalog()).resolve("evaluators", name, folder="systems", kind="system")
    return read_card(SystemCard, path)


@lru_cache(maxsize=64)
def _card(path: Path, changed_ns: int) -> SystemCard:
    return read_card(SystemCard, path)


def _by_label(catalog: Catalog) -> dict[str, SystemCard]:
    """Return all cards by every name they answer to; a card's own name goes before aliases."""
    cards = []
    for name in system_names(catalog):
        path = catalog.find("evaluators", name, folder="systems", kind="system")
        cards.append(_card(path, path.stat().st_mtime_ns))
    table = {alias.strip().casefold(): card for card in cards for alias in card.aliases}
    return table | {card.name.strip().casefold(): card for card in cards}


def find_system(
    label: str,
    catalog: Catalog | None = None,
    *,
    base: Path | None = None,
    source: str | None = None,
    field: str | None = None,
) -> SystemCard:
    """Return the system that a measurement's device label means.

    Parameters
    ----------
    label
        A card's name or alias, in any case, or the path of a card's file.
    catalog
        Where cards are looked up (default: the built-in shelves).
    base
        Folder that a path starts from (default: the working directory).

    Raises
    ------
    InputError
        If no card answers to the label, or the file is missing or wrong.

    Examples
    --------
    >>> find_system("Tesla P4").name
    'P4'
    """
    shelves = catalog or Catalog()
    if label.strip().endswith(".yaml"):
        path = shelves.resolve(
            "evaluators", label.strip(), folder="systems", kind="system", base=base, source=source,
            field=field,
        )  # fmt: skip
        return _card(path, path.stat().st_mtime_ns)
    table = _by_label(shelves)
    card = table.get(label.strip().casefold())
    if card is None:
        raise UnknownNameError(
            "device", label, {c.name for c in table.values()}, source=source, field=field
        )
    return card
