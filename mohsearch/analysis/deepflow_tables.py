"""Tables over everything that deepflow runs evaluated: best design per technology."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mohsearch.analysis.results import open_tree, read_histories
from mohsearch.core.cards import validate
from mohsearch.core.errors import InputError
from mohsearch.evaluators.crossflow.design_space import G_STRATEGY
from mohsearch.evaluators.crossflow.point_kernels import kernel_records
from mohsearch.problems.deepflow import DeepflowProblem
from mohsearch.problems.deepflow_options import DeepflowOptions
from mohsearch.problems.deepflow_setup import Setup, build_setup
from mohsearch.problems.deepflow_workloads import load_iteration


@dataclass(frozen=True)
class Evaluated:
    """All designs that one run evaluated.

    Attributes
    ----------
    label
        The problem's label in the study.
    genomes : (n, genes)
    values
        Metrics and constraints by name, each of shape (n,).
    """

    run: str
    label: str
    workload: str
    setup: Setup
    genomes: NDArray[np.float64]
    values: Mapping[str, NDArray[np.float64]]

    @property
    def feasible(self) -> NDArray[np.bool_]:
        """Which designs violate no constraint, shape (n,)."""
        names = ("missing_parts", "memory_excess", "budget_excess")
        good = [self.values[name] <= 0.0 for name in names]
        return np.asarray(np.logical_and.reduce(good))


def read_evaluated(folder: Path, patterns: Sequence[str] = ()) -> tuple[Evaluated, ...]:
    """Return what the deepflow runs of a study evaluated.

    Raises
    ------
    InputError
        If a run is of another problem, or there is none.
    """
    tree = open_tree(folder)
    found = []
    for history in read_histories(folder, patterns):
        attrs = history.front.attrs
        if attrs.get("problem") != "deepflow":
            raise InputError(f"run {history.front.run} is of the problem {attrs.get('problem')}")
        options = validate(DeepflowOptions, dict(attrs.get("options") or {}))
        count = int(history.distinct[-1])
        data = tree[history.front.run]["archive"].to_dataset()
        genomes = np.asarray(data["genome"].values[:count], dtype=np.float64)
        found.append(
            Evaluated(
                history.front.run,
                str(attrs.get("problem_label") or "deepflow"),
                str(attrs.get("workload", "")),
                build_setup(options),
                genomes,
                {name: values[:count] for name, values in history.values.items()},
            )
        )
    if not found:
        raise InputError("holds no run with a generation", source=folder)
    return tuple(found)


def by_technology(run: Evaluated, metric: str = "time_s") -> list[dict[str, Any]]:
    """Return one row per technology: its best feasible design and the best data-parallel one.

    Keys: ``label``, ``logic``, ``memory``, ``network``, ``best``, ``strategy``, ``data_parallel``
    (best among strategies without kernel or pipeline parallelism, NaN where there is none),
    ``gain`` (their ratio), ``evaluated`` and ``feasible``.
    """
    setup, X = run.setup, run.genomes
    which = setup.technology_index(X)
    value = np.where(run.feasible, run.values[metric], np.nan)
    strategy = X[:, G_STRATEGY].astype(np.int64)
    plain = np.array([s.kind == "none" and s.lp == 1 for s in setup.space.strategies])[strategy]
    rows = []
    for index, names in enumerate(product(setup.logic, setup.memory, setup.network)):
        mine = np.flatnonzero(which == index)
        usable = mine[np.isfinite(value[mine])]
        flat = usable[plain[usable]]
        best = usable[np.argmin(value[usable])] if len(usable) else None
        data_parallel = float(value[flat].min()) if len(flat) else float("nan")
        rows.append(
            {
                "label": run.label,
                **dict(zip(("logic", "memory", "network"), names, strict=True)),
                "best": float(value[best]) if best is not None else float("nan"),
                "strategy": str(setup.space.strategies[strategy[best]]) if best is not None else "",
                "data_parallel": data_parallel,
                "gain": data_parallel / float(value[best]) if best is not None else float("nan"),
                "evaluated": len(mine),
                "feasible": len(usable),
            }
        )
    return [row for row in rows if row["evaluated"]]


def compute_intensity(run: Evaluated) -> list[dict[str, Any]]:
    """Return one row per design that can run: operations per byte of main memory of its products.

    Keys: ``label``, ``devices``, ``strategy``, ``flop_per_dram_byte``, ``time_s``. Element-wise
    kernels and communication are left out.
    """
    problem = DeepflowProblem(load_iteration(run.workload), run.setup)
    points = problem.points(run.genomes)
    found = problem.evaluated(points)
    rows = []
    for i, strategy in enumerate(run.genomes[:, G_STRATEGY].astype(np.int64)):
        kernels = kernel_records(points, found, i, problem.workload, problem.point_options)
        products = [k for k in kernels if k["kind"] == "gemm"]
        moved = sum(k["dram_bytes"] for k in products)
        if moved > 0.0:
            rows.append(
                {
                    "label": run.label,
                    "devices": run.setup.options.devices,
                    "strategy": str(run.setup.space.strategies[strategy]),
                    "flop_per_dram_byte": sum(k["flop"] for k in products) / moved,
                    "time_s": float(found.time_s[i]),
                }
            )
    return rows
