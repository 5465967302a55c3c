"""Reading of operator-schedule cases."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from math import isfinite
from pathlib import Path
from typing import Annotated, Any

from pydantic import AliasChoices, BaseModel, ConfigDict, Field

from mohsearch.core.cards import read_json, validate
from mohsearch.core.errors import InputError, UnknownNameError
from mohsearch.evaluators.op_schedule.instance import FUSED, TENSOR, VECTOR, ScheduleInstance

_KINDS = {
    "tensor": TENSOR,
    "vector": VECTOR,
    "fused": FUSED,
    "TC": TENSOR,
    "VC": VECTOR,
    "TCandVC": FUSED,
}
_MOST_DECIMALS = 9
_MOST_TOTAL = 2**52

Latency = Annotated[float | int, Field(ge=0)]
Cores = Annotated[int, Field(ge=0, le=2**20)]


class _Record(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True, allow_inf_nan=False)


class _Op(_Record):
    id: int | str | None = None
    type: str
    lat: Latency = Field(validation_alias=AliasChoices("lat", "latency"))
    lat_intra: Latency = Field(validation_alias=AliasChoices("lat_intra", "intra_op_latency"))


class _Case(_Record):
    num_tc: Cores
    num_vc: Cores
    ops: tuple[_Op, ...]
    edges: tuple[tuple[int | str, int | str], ...] = ()
    time_limit_s: Annotated[float, Field(gt=0)] = 10.0


@dataclass(frozen=True)
class NamedInstance:
    """An instance with its name and the factor by which its latencies were multiplied."""

    name: str
    instance: ScheduleInstance
    scale: int
    time_limit_s: float

    def unscaled(self, value: int) -> int | float:
        """Return a time in the unit of the file."""
        return value if self.scale == 1 else value / self.scale


def read_instances(path: Path) -> Iterator[NamedInstance]:
    """Read all cases of a JSON file.

    Parameters
    ----------
    path
        JSON: one case, a list of cases, or an object with a list ``cases``.

    Raises
    ------
    InputError
        With the file and the path of the wrong field.
    """
    data = read_json(path)
    if isinstance(data, dict) and "cases" in data:
        data = data["cases"]
    several = isinstance(data, list)
    cases = data if several else [data]
    if not cases:
        raise InputError("there is no case", source=path)
    seen = set()
    for index, case in enumerate(cases):
        where = f"cases[{index}]" if several else ""
        name = str(case.get("id", where or path.stem)) if isinstance(case, dict) else where
        if name in seen:
            raise InputError(f"a second case with id {name!r}", source=path, field=where or None)
        seen.add(name)
        try:
            yield _named(name, case)
        except InputError as error:
            field = ".".join(part for part in (where, error.field) if part) or None
            raise InputError(error.message, source=path, field=field) from error


def _named(name: str, data: Any) -> NamedInstance:
    case = validate(_Case, data)
    kinds = []
    for k, op in enumerate(case.ops):
        if op.type not in _KINDS:
            known = UnknownNameError("operator type", op.type, _KINDS)
            raise InputError(known.message, field=f"ops[{k}].type")
        kinds.append(_KINDS[op.type])
        for what, cores, other in (
            ("num_tc", case.num_tc, VECTOR),
            ("num_vc", case.num_vc, TENSOR),
        ):
            if kinds[-1] != other and cores == 0:
                raise InputError(f"operator {k} needs such a core", field=what)
    scale = _scale([value for op in case.ops for value in (op.lat, op.lat_intra)])
    instance = ScheduleInstance.build(
        kinds,
        [round(op.lat * scale) for op in case.ops],
        [round(op.lat_intra * scale) for op in case.ops],
        list(_edges(case)),
        case.num_tc,
        case.num_vc,
    )
    try:
        instance.order  # noqa: B018
    except ValueError as error:
        raise InputError(str(error), field="edges") from error
    return NamedInstance(name, instance, scale, case.time_limit_s)


def _edges(case: _Case) -> Iterator[tuple[int, int]]:
    numbered = all(op.id is not None for op in case.ops)
    ids = [op.id if numbered else k for k, op in enumerate(case.ops)]
    position = {op: k for k, op in enumerate(ids)}
    if len(position) < len(ids):
        raise InputError("two operators have the same id", field="ops")
    for k, (i, j) in enumerate(case.edges):
        for op in (i, j):
            if op not in position:
                raise InputError(f"no operator {op!r}", field=f"edges[{k}]")
        yield position[i], position[j]


def _scale(latencies: list[float | int]) -> int:
    """Return the power of ten that makes all latencies integers."""
    decimals = 0
    for value in latencies:
        if isinstance(value, float) and isfinite(value):
            exponent = Decimal(repr(value)).normalize().as_tuple().exponent
            decimals = max(decimals, -int(exponent))
    scale: int = 10**decimals
    if decimals > _MOST_DECIMALS or sum(latencies) * scale > _MOST_TOTAL:
        raise InputError("latencies need too many digits; give them as cycles", field="ops")
    return scale
