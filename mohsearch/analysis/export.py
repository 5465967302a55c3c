"""Fronts as flat records, as one JSON document, and as NetCDF."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mohsearch.analysis.designs import describe
from mohsearch.analysis.fronts import Front, distance_to_ideal, highlights, order
from mohsearch.core.errors import InputError
from mohsearch.core.optional import require

IDENTITY = ("problem", "workload", "engine", "algorithm", "portfolio", "seed")
"""Attributes of a run that every record repeats."""


def rows(front: Front, sort: str | None = None, limit: int | None = None) -> NDArray[np.intp]:
    """Return the indices of the solutions to show: sorted by a metric, the first ``limit``."""
    return order(front, sort)[:limit]


def records(
    fronts: Sequence[Front], sort: str | None = None, limit: int | None = None
) -> list[dict[str, Any]]:
    """Return one flat record per solution: run, identity, metrics, distances, design in words.

    ``solution`` is the index by which other commands know the solution. A distance is relative to
    the proven bound: 0.25 is 25 % worse than the best that is possible.
    """
    found = []
    for front in fronts:
        distances = distance_to_ideal(front)
        notes = highlights(front, 0)
        for index in rows(front, sort, limit):
            i = int(index)
            record: dict[str, Any] = {"run": front.run, "solution": i}
            record |= {key: front.attrs.get(key) for key in IDENTITY}
            record |= {name: float(column[i]) for name, column in front.values.items()}
            record |= {f"{name}_over_bound": float(d[i]) for name, d in distances.items()}
            record["note"] = notes.get(i, "")
            record["design"] = describe(front.designs[i]) if front.designs else ""
            found.append(record)
    return found


def document(
    fronts: Sequence[Front], sort: str | None = None, limit: int | None = None
) -> dict[str, Any]:
    """Return everything about the fronts as plain JSON types, whole designs included."""
    return {"runs": [_run_document(front, sort, limit) for front in fronts]}


def _run_document(front: Front, sort: str | None, limit: int | None) -> dict[str, Any]:
    return {
        "run": front.run,
        **{key: front.attrs.get(key) for key in (*IDENTITY, "status", "certificate")},
        "objectives": list(front.objectives),
        "metrics": {
            m.name: {"unit": m.unit, "sense": m.sense, "description": m.long_name}
            for m in front.metrics
        },
        "ideal_point": dict(front.ideal_point),
        "solutions": [
            {
                "solution": int(i),
                "metrics": {name: float(column[i]) for name, column in front.values.items()},
                "design": front.designs[int(i)] if front.designs else None,
            }
            for i in rows(front, sort, limit)
        ],
    }


def write_netcdf(
    fronts: Sequence[Front], path: Path, sort: str | None = None, limit: int | None = None
) -> None:
    """Write fronts as NetCDF-4, one group per run, designs as JSON text.

    Raises
    ------
    MissingExtraError
        If h5netcdf or h5py is not installed.
    InputError
        If the file cannot be written.
    """
    require("h5py", "netcdf")
    require("h5netcdf", "netcdf")
    import xarray as xr

    tree = xr.DataTree.from_dict(
        {front.run: _dataset(front, rows(front, sort, limit)) for front in fronts}
    )
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        tree.to_netcdf(path, engine="h5netcdf")
    except OSError as error:
        raise InputError(error.strerror or str(error), source=path) from error


def _dataset(front: Front, chosen: NDArray[np.intp]) -> Any:
    import xarray as xr

    variables: dict[str, Any] = {
        m.name: (
            "solution",
            front.values[m.name][chosen],
            {"units": m.unit, "sense": m.sense, "long_name": m.long_name},
        )
        for m in front.metrics
    }
    if front.designs:
        texts = [json.dumps(front.designs[int(i)]) for i in chosen]
        variables["design"] = ("solution", np.array(texts, dtype=object))
    attrs = {
        key: value if isinstance(value, (str, int, float)) else json.dumps(value)
        for key, value in front.attrs.items()
        if value is not None
    }
    return xr.Dataset(variables, coords={"solution": chosen}, attrs=attrs)
