"""Template cards: sub-accelerator architectures declared in YAML, found by name."""

from __future__ import annotations

from collections.abc import Collection
from math import prod
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, model_validator

from mohsearch.core.cards import Card, read_card
from mohsearch.core.catalog import Catalog
from mohsearch.core.errors import InputError, UnknownNameError
from mohsearch.hardware.architecture import (
    Architecture,
    Axis,
    Level,
    Memory,
    MemoryKind,
    TemporalRule,
)
from mohsearch.hardware.technology import RegisterFileArea, TechnologyCard, load_technology

Dim = Literal["N", "G", "K", "C", "P", "Q", "R", "S"]
Tensor = Literal["W", "I", "O"]
Count = Annotated[int, Field(ge=1)]
Rate = Annotated[float, Field(gt=0)]

FOLDER = "templates"


class MemoryCard(Card):
    """What a level is built of."""

    kind: MemoryKind
    width_bits: Count
    ports: Count = 1
    generates_addresses: bool = False
    dram_type: str = ""


class TemporalCard(Card):
    """Loops over time a level may hold; ``dims: any`` allows every dimension."""

    dims: tuple[Dim, ...] | Literal["any"] = ()
    whole: tuple[Dim, ...] = ()
    order: tuple[Dim, ...] | None = None

    @model_validator(mode="after")
    def _consistent(self) -> TemporalCard:
        allowed: set[str] = set(self.all_dims())
        if foreign := set(self.whole) - allowed:
            raise ValueError(f"whole: {sorted(foreign)} not among dims")
        if self.order is not None and (lacking := allowed - set(self.order)):
            raise ValueError(f"order: lacks {sorted(lacking)}")
        return self

    def all_dims(self) -> tuple[str, ...]:
        """Return the allowed dimensions."""
        return ("N", "G", "K", "C", "P", "Q", "R", "S") if self.dims == "any" else self.dims


class AxisCard(Card):
    """One axis of a fan-out; ``exact`` fixes the factors of the wiring."""

    axis: Literal["X", "Y"]
    limit: Count | None = None
    dims: tuple[Dim, ...] = ()
    whole: tuple[Dim, ...] = ()
    exact: dict[Dim, Count] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _consistent(self) -> AxisCard:
        if bool(self.exact) == (self.limit is not None):
            raise ValueError("an axis has either a limit or exact factors")
        if self.exact and (self.dims or self.whole):
            raise ValueError("an axis with exact factors names its dimensions there only")
        if missing := set(self.whole) - set(self.dims):
            raise ValueError(f"whole: {sorted(missing)} not among dims")
        return self


class LevelCard(Card):
    """One storage level; see :class:`mohsearch.hardware.architecture.Level`."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9_]*$")]
    keeps: tuple[Tensor, ...]
    optional: bool = False
    size_words: Count | None = None
    word_bits: Count = 8
    words_per_access: Count
    read_words_per_cycle: Rate | None = None
    write_words_per_cycle: Rate | None = None
    granularity_rows: Count = 16
    memory: MemoryCard
    temporal: TemporalCard = TemporalCard()
    fanout: Annotated[tuple[AxisCard, ...], Field(max_length=2)] = ()
    gemm_fanout: Annotated[tuple[AxisCard, ...] | None, Field(max_length=2)] = None
    network: bool = False

    @model_validator(mode="after")
    def _consistent(self) -> LevelCard:
        if len(set(self.keeps)) < len(self.keeps):
            raise ValueError("keeps names a tensor twice")
        for axes in (self.fanout, self.gemm_fanout or ()):
            if len({axis.axis for axis in axes}) < len(axes):
                raise ValueError("two axes of a fan-out have the same name")
        return self


class VariantCard(Card):
    """One set of figures for a template."""

    description: str
    mac_bits: Count
    levels: Annotated[tuple[LevelCard, ...], Field(min_length=2)]

    @model_validator(mode="after")
    def _consistent(self) -> VariantCard:
        names = [level.name for level in self.levels]
        if len(set(names)) != len(names):
            raise ValueError("two levels have the same name")
        if self.levels[0].memory.kind != "dram" or self.levels[0].size_words is not None:
            raise ValueError("levels[0] is the memory: kind dram, no size_words")
        if set(self.levels[0].keeps) != {"W", "I", "O"}:
            raise ValueError("levels[0] is the memory: it keeps W, I and O")
        for level in self.levels[1:]:
            if level.size_words is None or level.memory.kind == "dram":
                raise ValueError(f"{level.name}: an on-chip level has size_words and is no dram")
        return self


class TemplateCard(Card):
    """A sub-accelerator template, ``evaluators/templates/<name>.yaml``."""

    name: str
    title: str
    dataflow: str
    description: str
    source: str
    technology: str
    default: str
    variants: Annotated[dict[str, VariantCard], Field(min_length=1)]

    @model_validator(mode="after")
    def _default_exists(self) -> TemplateCard:
        if self.default not in self.variants:
            raise ValueError(f"default: no variant {self.default!r}")
        return self


def template_names(catalog: Catalog | None = None) -> list[str]:
    """Return the names of all templates in reach."""
    return (catalog or Catalog.around()).names("evaluators", FOLDER)


def read_template(name_or_path: str, catalog: Catalog | None = None) -> TemplateCard:
    """Read a template card by name or path.

    Raises
    ------
    UnknownNameError
        If no shelf holds it.
    InputError
        If the card is wrong; the message holds the field path.
    """
    return read_card(TemplateCard, _card_path(name_or_path, catalog))


def load_template(
    name_or_path: str,
    variant: str | None = None,
    *,
    register_file_area: RegisterFileArea = "physical",
    omit: Collection[str] = (),
    catalog: Catalog | None = None,
) -> Architecture:
    """Build the architecture of a template.

    Parameters
    ----------
    name_or_path
        Template name, or path of a card.
    variant
        Variant of the card (default: the card's own default).
    register_file_area
        ``physical`` counts every stored bit of register files, ``accelergy`` those of one row.
    omit
        Levels to leave out; only those the card calls optional may be.

    Raises
    ------
    UnknownNameError
        If there is no such template, variant, technology or optional level.
    InputError
        If the card is wrong; the message holds the field path.

    Examples
    --------
    >>> [level.name for level in load_template("shidiannao", omit=["RegisterOut"]).levels]
    ['MainMemory', 'NeuronsBuffer', 'SynapsesBuffer', 'RegisterIn']
    """
    path = _card_path(name_or_path, catalog)
    card = read_card(TemplateCard, path)
    chosen = variant or card.default
    if chosen not in card.variants:
        raise UnknownNameError(f"variant of template {card.name!r}:", chosen, card.variants)
    figures = card.variants[chosen]
    optional = {level.name for level in figures.levels if level.optional}
    for level_name in omit:
        if level_name not in optional:
            raise UnknownNameError(f"optional level of {card.name!r}:", level_name, optional)
    technology = load_technology(card.technology, catalog, source=path, field="technology")
    where = f"variants.{chosen}.levels"
    levels = tuple(
        _level(level, technology, path, f"{where}[{index}]")
        for index, level in enumerate(figures.levels)
        if level.name not in omit
    )
    return Architecture(
        name=card.name,
        variant=chosen,
        levels=levels,
        mac_bits=figures.mac_bits,
        technology=technology,
        register_file_area=register_file_area,
    )


def _card_path(name_or_path: str, catalog: Catalog | None) -> Path:
    shelf = catalog or Catalog.around()
    return shelf.resolve("evaluators", name_or_path, folder=FOLDER, kind="template")


def _level(card: LevelCard, technology: TechnologyCard, path: Path, where: str) -> Level:
    memory = Memory(**card.memory.model_dump())
    if memory.kind == "dram" and memory.dram_type not in technology.dram_energy_pj_per_bit:
        known = technology.dram_energy_pj_per_bit
        field = f"{where}.memory.dram_type"
        kind = f"DRAM type of technology {technology.name}"
        raise UnknownNameError(kind, memory.dram_type, known, source=path, field=field)
    if memory.kind == "sram":
        try:
            technology.sram(memory.width_bits, memory.ports)
        except KeyError as error:
            raise InputError(error.args[0], source=path, field=f"{where}.memory") from error
    rule = card.temporal
    return Level(
        name=card.name,
        keeps=card.keeps,
        capacity_words=card.size_words,
        word_bits=card.word_bits,
        words_per_access=card.words_per_access,
        memory=memory,
        temporal=TemporalRule(rule.all_dims(), rule.whole, rule.order),
        read_words_per_cycle=card.read_words_per_cycle,
        write_words_per_cycle=card.write_words_per_cycle,
        fanout=tuple(_axis(a) for a in card.fanout),
        gemm_fanout=None if card.gemm_fanout is None else tuple(_axis(a) for a in card.gemm_fanout),
        hop_energy_pj_per_word=technology.network_hop_energy_pj_per_word if card.network else 0.0,
        granularity_rows=card.granularity_rows,
    )


def _axis(card: AxisCard) -> Axis:
    if card.exact:
        dims: tuple[str, ...] = tuple(card.exact)
        return Axis(card.axis, prod(card.exact.values()), dims, exact=tuple(card.exact.items()))
    return Axis(card.axis, card.limit or 1, card.dims, card.whole)
