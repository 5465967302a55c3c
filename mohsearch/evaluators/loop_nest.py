"""Evaluator ``loop-nest``: access counts of explicit mappings of any affine loop nest.

Reads cases that state everything themselves: dimensions, how each tensor is addressed, storage
levels with energies, loops per level and bypassed tensors.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from math import prod
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from mohsearch.core.cards import read_json, validate
from mohsearch.core.errors import InputError
from mohsearch.evaluators.mapper.counts import Coordinate, NestCounts, Tensor, count_accesses
from mohsearch.evaluators.mapper.notation import Loop, Mapping, MappingLevel
from mohsearch.evaluators.report import EvaluationReport

_ARRAY = re.compile(r"(?:.*?\b(\d+)\s*x\s+)?([A-Za-z_]\w*)\s*(?:\((.*)\))?")
_INSTANCES = re.compile(r"(?<![\w.,^])(\d+)\s+instances?")
_WORDS = re.compile(r"(?<![\w.,^])(\d+(?:\.\d*)?(?:[eE][+-]?\d{1,2})?)\s+words?")
_UNREAD = re.compile(
    r"[\w.,^]*\d[\w.,^]*\s*(?:words?|instances?|(?:[KkMG]i?)?[Bb]|(?:bytes?|bits?))\b"
)
_MAPPED = re.compile(
    r"\s*([A-Za-z_]\w*)\s*(?:->\s*([A-Za-z_]\w*)\s*)?(?:\((temporal|spatial)\))?\s*"
)
_TERM = re.compile(r"(?:(\d+)\s*\*?\s*)?([A-Za-z_]\w*)(?:\s*\*\s*(\d+))?")

Count = Annotated[int, Field(ge=1, lt=2**31)]
Energy = Annotated[float, Field(ge=0, le=1e30)]
MAX_MACS = 2**63


class _Record(BaseModel):
    """A part of a case; figures of other tools beside it are let through unread."""

    model_config = ConfigDict(
        extra="ignore", frozen=True, allow_inf_nan=False, coerce_numbers_to_str=True
    )


class _AccessEnergy(_Record):
    read: Energy
    write: Energy


class _Hardware(_Record):
    levels: Annotated[tuple[str, ...], Field(min_length=1)]
    energy_pJ: dict[str, _AccessEnergy | Energy]  # a key of the format
    n_pe: Count | None = None


class _MappingPart(_Record):
    level: str
    loops_outer_to_inner: tuple[tuple[str, Count], ...]


class _Case(_Record):
    id: str
    dims: Annotated[dict[str, Count], Field(min_length=1)]
    dataspaces: Annotated[dict[str, tuple[str, ...]], Field(min_length=1)]
    arch: _Hardware
    mapping: tuple[_MappingPart, ...]
    bypass: dict[str, tuple[str, ...]]


class _File(_Record):
    cases: tuple[_Case, ...]


class _Storage(BaseModel):
    """A storage level as a line of text declares it."""

    name: str
    instances: int | None
    capacity_words: float | None


def evaluate(path: Path) -> EvaluationReport:
    """Count the accesses of every case of a JSON file.

    Parameters
    ----------
    path
        JSON with a list ``cases`` (or the bare list). A case holds ``id``; ``dims``; ``dataspaces``
        (name to a list of coordinates such as ``"C"``, ``"R+P"``, ``"2*P+R"``; those whose name
        starts with "out" are accumulated into and have one dimension per coordinate; all others
        are read); ``arch`` with ``levels`` outermost first (such as ``"PE array 8 x Spad (64
        words)"``; the last line names the MAC), ``energy_pJ`` per access and ``n_pe``;
        ``mapping`` as a list of ``level`` (``NAME(temporal)`` or ``NAME->BELOW(spatial)``) and
        ``loops_outer_to_inner``; ``bypass`` by level.

    Returns
    -------
    EvaluationReport
        The document holds, by case id, ``cycles``, ``energy_pJ``, ``macs``, ``utilization`` and
        per level and tensor ``reads``, ``updates`` and ``fills`` in words per instance.
        ``utilization`` is null where neither ``n_pe`` nor an array says how many MACs there are.

    Raises
    ------
    InputError
        With the file and the path of the wrong field.
    """
    document: dict[str, Any] = {}
    rows: list[dict[str, Any]] = []
    for index, case in enumerate(_read_cases(path)):
        reader = _CaseReader(case, path, f"cases[{index}]")
        if case.id in document:
            raise reader.error(f"a second case with id {case.id!r}", "id")
        document[case.id] = result = _evaluate_case(reader)
        rows.extend(_flat(case.id, result))
    return EvaluationReport(rows=tuple(rows), document=document, natural_format="json")


def _read_cases(path: Path) -> tuple[_Case, ...]:
    data = read_json(path)
    if isinstance(data, list):
        data = {"cases": data}
    return validate(_File, data, source=path).cases


class _CaseReader:
    """Turns the text parts of one case into a mapping and tensors, with field paths in errors."""

    def __init__(self, case: _Case, path: Path, where: str) -> None:
        self.case = case
        self.path = path
        self.where = where
        self.storage = self._storage()
        self.tensors = self._tensors()
        self.mapping = self._mapping()

    def error(self, message: str, field: str) -> InputError:
        return InputError(message, source=self.path, field=f"{self.where}.{field}")

    def _known(self, name: str, known: Iterator[str] | list[str], what: str, field: str) -> str:
        names = list(known)
        if name not in names:
            raise self.error(f"no {what} {name!r}; there are: {', '.join(names)}", field)
        return name

    def _storage(self) -> list[_Storage]:
        lines = self.case.arch.levels
        if not self._mac_name().upper().startswith("MAC"):
            message = f"the last level must be the MAC, such as 'MAC per PE', not {lines[-1]!r}"
            raise self.error(message, f"arch.levels[{len(lines) - 1}]")
        result: list[_Storage] = []
        for index, line in enumerate(lines[:-1]):
            match = _ARRAY.fullmatch(line.strip())
            field = f"arch.levels[{index}]"
            if match is None:
                raise self.error(f"no level: {line!r} ('[... N x ]NAME [(figures)]')", field)
            array, name, figures = match.groups()
            instances = _INSTANCES.search(figures or "")
            words = _WORDS.search(figures or "")
            rest = _INSTANCES.sub("", _WORDS.sub("", figures or ""))
            if unread := _UNREAD.search(rest):
                message = f"cannot read {unread[0]!r}; write '4 instances', '1e6 words'"
                raise self.error(message, field)
            if name in [level.name for level in result]:
                raise self.error(f"a second level {name!r}", field)
            result.append(
                _Storage(
                    name=name,
                    instances=int(array or (instances[1] if instances else 0)) or None,
                    capacity_words=float(words[1]) if words else None,
                )
            )
        if not result:
            raise self.error("there is no storage level", "arch.levels")
        return result

    def _mac_name(self) -> str:
        line = self.case.arch.levels[-1].strip()
        match = _ARRAY.fullmatch(line)
        return match[2] if match else line.partition(" ")[0]

    def _tensors(self) -> tuple[Tensor, ...]:
        tensors = []
        for name, coordinates in self.case.dataspaces.items():
            parsed = tuple(
                self._coordinate(text, f"dataspaces.{name}[{i}]")
                for i, text in enumerate(coordinates)
            )
            tensors.append(Tensor(name, parsed, written=name.lower().startswith("out")))
            if tensors[-1].written:
                self._check_output(name, parsed)
        if not any(tensor.written for tensor in tensors):
            raise self.error(
                "none is an output (name it so that it starts with 'out')", "dataspaces"
            )
        return tuple(tensors)

    def _check_output(self, name: str, coordinates: tuple[Coordinate, ...]) -> None:
        """Raise unless each element has its own indices: only then are first touches known."""
        seen: set[str] = set()
        for index, coordinate in enumerate(coordinates):
            ((dim, coefficient), *more) = coordinate
            if more or coefficient != 1 or dim in seen:
                message = "an output has one dimension per coordinate, each once, without a factor"
                raise self.error(message, f"dataspaces.{name}[{index}]")
            seen.add(dim)

    def _coordinate(self, text: str, field: str) -> Coordinate:
        terms = []
        for term in text.split("+"):
            match = _TERM.fullmatch(term.strip())
            if match is None:
                raise self.error(
                    f"no sum of dimensions: {text!r} (such as 'R+P' or '2*P+R')", field
                )
            before, dim, after = match.groups()
            self._known(dim, list(self.case.dims), "dimension", field)
            terms.append((dim, int(before or 1) * int(after or 1)))
        return tuple(terms)

    def _mapping(self) -> Mapping:
        names = [level.name for level in self.storage]
        loops: dict[tuple[str, bool], list[Loop]] = {}
        for index, part in enumerate(self.case.mapping):
            field = f"mapping[{index}]"
            match = _MAPPED.fullmatch(part.level)
            if match is None:
                raise self.error(f"no level: {part.level!r}", f"{field}.level")
            name, below, kind = match.groups()
            self._known(name, names, "level", f"{field}.level")
            key = (name, kind == "spatial" or (kind is None and below is not None))
            for i, (dim, _) in enumerate(part.loops_outer_to_inner):
                self._known(
                    dim, list(self.case.dims), "dimension", f"{field}.loops_outer_to_inner[{i}]"
                )
            loops.setdefault(key, []).extend(Loop(d, n) for d, n in part.loops_outer_to_inner)
        bypassed = self._bypassed(names)
        mapping = Mapping(
            tuple(
                MappingLevel(
                    name,
                    tuple(t for t in self.case.dataspaces if t not in bypassed.get(name, ())),
                    tuple(loops.get((name, False), ())),
                    tuple(loops.get((name, True), ())),
                )
                for name in names
            )
        )
        self._check_bounds(mapping)
        return mapping

    def _bypassed(self, names: list[str]) -> dict[str, tuple[str, ...]]:
        for name, tensors in self.case.bypass.items():
            self._known(name, names, "level", f"bypass.{name}")
            for i, tensor in enumerate(tensors):
                self._known(tensor, list(self.case.dataspaces), "dataspace", f"bypass.{name}[{i}]")
            if tensors and name == names[0]:
                raise self.error("the outermost level keeps every tensor", f"bypass.{name}")
        return self.case.bypass

    def _check_bounds(self, mapping: Mapping) -> None:
        bounds = mapping.bounds()
        for dim, bound in self.case.dims.items():
            if bounds.get(dim, 1) != bound:
                message = f"the loops over {dim} multiply to {bounds.get(dim, 1)}, not to {bound}"
                raise self.error(message, "mapping")
        if prod(bounds.values()) >= MAX_MACS:
            raise self.error("2^63 multiply-accumulates or more", "dims")

    def check_capacity(self, counts: NestCounts) -> None:
        """Raise where a level needs more words than it has."""
        for index, level in enumerate(self.storage):
            field = f"arch.levels[{index}]"
            used = counts.used_words(index)
            if level.capacity_words is not None and used > level.capacity_words:
                raise self.error(f"{used} words in use, {level.capacity_words:g} exist", field)

    def check_units(self) -> None:
        """Raise where the mapping spreads over more instances or MACs than the case declares."""
        for index, (level, used) in enumerate(
            zip(self.storage, self.mapping.instances(), strict=True)
        ):
            if level.instances is not None and used > level.instances:
                message = f"{used} instances in use, {level.instances} exist"
                raise self.error(message, f"arch.levels[{index}]")
        units = self.case.arch.n_pe
        if units is not None and self.mapping.macs_used > units:
            raise self.error(f"{self.mapping.macs_used} MACs in use, {units} exist", "arch.n_pe")

    def utilization(self) -> float | None:
        """Return the share of MACs at work, None where the case does not say how many there are.

        Without ``n_pe`` the largest array counts.
        """
        units = self.case.arch.n_pe or max(level.instances or 0 for level in self.storage)
        return self.mapping.macs_used / units if units >= self.mapping.macs_used else None

    def energy(self, name: str) -> _AccessEnergy:
        """Return the access energies of a level."""
        energy = self.case.arch.energy_pJ.get(name)
        if not isinstance(energy, _AccessEnergy):
            raise self.error(f"no read and write energy for {name}", f"arch.energy_pJ.{name}")
        return energy

    def mac_energy(self) -> float:
        """Return the energy of one multiply-accumulate."""
        name = self._mac_name()
        for key in (name, "MAC", "MACC"):
            energy = self.case.arch.energy_pJ.get(key)
            if isinstance(energy, (int, float)):
                return float(energy)
        raise self.error(f"no energy for {name}", f"arch.energy_pJ.{name}")


def _evaluate_case(reader: _CaseReader) -> dict[str, Any]:
    reader.check_units()
    try:
        counts = count_accesses(reader.mapping, reader.tensors)
    except InputError as error:
        raise reader.error(error.message, "mapping") from error
    reader.check_capacity(counts)
    total = reader.mac_energy() * counts.macs
    levels: dict[str, Any] = {}
    for index, level in enumerate(reader.mapping.levels):
        energy = reader.energy(level.name)
        instances = counts.instances[index]
        levels[level.name] = {}
        for tensor, access in counts.accesses[index].items():
            energy_pj = instances * (
                access.reads * energy.read + (access.fills + access.updates) * energy.write
            )
            total += energy_pj
            levels[level.name][tensor] = {
                "reads": access.reads,
                "updates": access.updates,
                "fills": access.fills,
                "utilized_instances": instances,
                "utilized_capacity": access.tile,
                "partition_size": access.partition,
                "energy_pJ": energy_pj,
            }
    return {
        "cycles": counts.compute_cycles,
        "energy_pJ": total,
        "macs": counts.macs,
        "utilized_macs": reader.mapping.macs_used,
        "utilization": reader.utilization(),
        "levels": levels,
    }


def _flat(case_id: str, result: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for level, tensors in result["levels"].items():
        for tensor, figures in tensors.items():
            yield {
                "case": case_id,
                "cycles": result["cycles"],
                "energy_pJ": result["energy_pJ"],
                "level": level,
                "tensor": tensor,
                "reads": figures["reads"],
                "updates": figures["updates"],
                "fills": figures["fills"],
                "utilized_instances": figures["utilized_instances"],
                "level_energy_pJ": figures["energy_pJ"],
            }
