"""Measured figures beside what is predicted for them: kernels on real devices, areas of real dies.

A *set* is named: the kernels that come with the package by where they were measured
(``evaluators/reference/deepflow/measured_kernels.csv``), ``die-NAME`` for a system card with
measured areas and an allocation, or the CSV file of one's own kernels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mohsearch.core.catalog import Catalog, builtin_root
from mohsearch.core.errors import InputError, UnknownNameError
from mohsearch.core.tables import read_records
from mohsearch.evaluators.crossflow.age import generate
from mohsearch.evaluators.crossflow.config import allocation_row, technology_row
from mohsearch.evaluators.crossflow.device_kernels import load_constants
from mohsearch.evaluators.crossflow.kernel_door import (
    Case,
    accuracy_of,
    case_of,
    measured_ms,
    predict,
)
from mohsearch.evaluators.crossflow.metrics import area_by_component_mm2
from mohsearch.evaluators.crossflow.reading import config_from
from mohsearch.hardware.systems import SystemCard, load_system, system_names

FloatArray = NDArray[np.float64]
_DIE = "die-"
_PARTS = {
    "cores, registers, L1": (("cores", "registers", "l1"), ("cores",)),
    "L2 and on-chip network": (("l2", "crossbar"), ("global_buffer", "on_chip_interconnect")),
    "memory controllers and PHY": (("memory_controllers",), ("memory_phy", "memory_control")),
    "off-chip links": (("links",), ("off_chip_phy", "off_chip_control")),
}
"""Parts that the generator and the die shots both tell: ours, theirs."""


@dataclass(frozen=True)
class MeasuredPoints:
    """n measured figures and their predictions.

    Attributes
    ----------
    name, unit
        Of the set, and of its figures.
    what
        What was measured, a record per point.
    device, kind
        Of each point; kernels of one kind were calibrated together.
    measured, predicted : (n,)
    plain : (n,)
        Prediction of a plain roofline (largest of operations over the data sheet's rate and bytes
        over its bandwidth); 0 where there is none.
    """

    name: str
    unit: str
    what: tuple[Mapping[str, Any], ...]
    device: tuple[str, ...]
    kind: tuple[str, ...]
    measured: FloatArray
    predicted: FloatArray
    plain: FloatArray

    def take(self, keep: NDArray[np.int64]) -> MeasuredPoints:
        """Return some of the points."""
        chosen = [int(i) for i in keep]
        return MeasuredPoints(
            self.name,
            self.unit,
            tuple(self.what[i] for i in chosen),
            tuple(self.device[i] for i in chosen),
            tuple(self.kind[i] for i in chosen),
            self.measured[chosen],
            self.predicted[chosen],
            self.plain[chosen],
        )

    def accuracy(self) -> list[dict[str, Any]]:
        """Return mean error and log-correlation, ours and the plain roofline's, per group.

        Groups are device and kind, and all points.
        """
        pairs = list(zip(self.device, self.kind, strict=True))
        values = np.stack([self.measured, self.predicted, self.plain], axis=1)
        groups = [(key, [pair == key for pair in pairs]) for key in sorted(set(pairs))]
        groups.append((("all", "all"), [True] * len(pairs)))
        return [
            {
                "device": device,
                "kind": kind,
                "points": sum(mine),
                **accuracy_of(values[np.array(mine)]),
            }
            for (device, kind), mine in groups
        ]


def kernels_file() -> Path:
    """Return the measured kernels that come with the package."""
    return builtin_root() / "evaluators" / "reference" / "deepflow" / "measured_kernels.csv"


@lru_cache(maxsize=1)
def _shipped() -> dict[str, list[dict[str, str]]]:
    sets: dict[str, list[dict[str, str]]] = {}
    for row in read_records(kernels_file()):
        sets.setdefault(row["set"], []).append(row)
    return sets


def set_names(catalog: Catalog | None = None) -> list[str]:
    """Return the names of all sets of measured figures.

    Examples
    --------
    >>> "vidur-products" in set_names(), "die-A100" in set_names()
    (True, True)
    """
    cards = (load_system(name, catalog) for name in system_names(catalog))
    dies = [_DIE + card.name for card in cards if card.die_area_by_component_mm2 and card.crossflow]
    return [*_shipped(), *dies]


def load_points(
    name: str,
    catalog: Catalog | None = None,
    *,
    base: Path | None = None,
    source: str | Path | None = None,
    field: str | None = None,
) -> MeasuredPoints:
    """Return a set of measured figures with their predictions.

    Parameters
    ----------
    name
        A set (:func:`set_names`), or a CSV file as ``mohsearch evaluate kernel`` reads it; rows
        without ``measured_ms`` are left out.
    catalog
        Where system cards are looked up.
    base, source, field
        For relative paths and messages.

    Raises
    ------
    InputError
        If nothing answers to the name, or the file is wrong or has no measured kernel.

    Examples
    --------
    >>> points = load_points("die-A100")
    >>> points.kind[0], round(float(points.predicted[0] / points.measured[0]), 2)
    ('cores, registers, L1', 0.96)
    """
    if name in _shipped():
        return _kernels(name, _shipped()[name], kernels_file())
    if name.endswith(".csv"):
        path = Path(base or Path.cwd()) / Path(name).expanduser()
        if not path.is_file():
            raise InputError(f"no such file: {name}", source=source, field=field)
        return _kernels(path.stem, read_records(path), path)
    names = set_names(catalog)
    if name in names:
        return _die(load_system(name.removeprefix(_DIE), catalog), catalog)
    raise UnknownNameError("set of measured figures", name, names, source=source, field=field)


def _kernels(name: str, rows: Sequence[Mapping[str, str]], path: Path) -> MeasuredPoints:
    devices: dict[str, SystemCard] = {}
    cases: list[Case] = []
    times: list[float] = []
    for i, row in enumerate(rows):
        case, time = case_of(row, i, path, devices), measured_ms(row, i, path)
        if case is not None and time is not None:
            cases.append(case)
            times.append(time)
    if not cases:
        raise InputError("no measured kernel in it (column measured_ms)", source=path)
    predicted, plain = predict(cases, load_constants())
    return MeasuredPoints(
        name,
        "ms",
        tuple(_description(case) for case in cases),
        tuple(case.card.name for case in cases),
        tuple(f"{case.number} {case.kind}" for case in cases),
        np.array(times),
        np.array([predicted[case.index] for case in cases]),
        np.array([plain[case.index] for case in cases]),
    )


def _description(case: Case) -> dict[str, Any]:
    if case.is_gemm:
        return dict(zip(("batch", "m", "n", "k"), (int(x) for x in case.sizes), strict=True))
    return {"bytes": int(case.sizes[0])}


def _die(card: SystemCard, catalog: Catalog | None) -> MeasuredPoints:
    """Return the parts of a die: areas of the generator's chip beside those of the die shots."""
    config = config_from({"system": card.name}, catalog=catalog)
    tech = technology_row(config)
    areas = area_by_component_mm2(tech[None], generate(tech, allocation_row(config)))
    shots = card.die_area_by_component_mm2 or {}
    ours = {name: float(area[0]) for name, area in areas.items()}
    pairs = [
        (sum(ours[x] for x in mine), sum(shots.get(x, 0.0) for x in theirs))
        for mine, theirs in _PARTS.values()
    ]
    pairs.append((sum(ours.values()), sum(shots.values())))
    parts = (*_PARTS, "whole die")
    return MeasuredPoints(
        _DIE + card.name,
        "mm2",
        tuple({"part": part} for part in parts),
        (card.name,) * len(parts),
        parts,
        np.array([theirs for _, theirs in pairs]),
        np.array([mine for mine, _ in pairs]),
        np.zeros(len(parts)),
    )
