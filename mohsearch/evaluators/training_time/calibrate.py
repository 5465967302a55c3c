"""Fit the constants of the training-time model to measured runs.

    python -m mohsearch.evaluators.training_time.calibrate [RUNS.csv SET [SET ...]]

prints ``training_constants.yaml`` and the all-reduce figures of the clusters' cards. Default: the
sets :data:`CALIBRATION_SETS` of the shipped runs. Sets (column ``set``) count alike, however many
rows each has; every constant is shared by all rows it applies to.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from mohsearch.core.catalog import builtin_root
from mohsearch.core.errors import InputError
from mohsearch.evaluators.training_time.cards import load_constants
from mohsearch.evaluators.training_time.cases import (
    ClusterRates,
    Floats,
    TrainingRuns,
    cluster_rates,
)
from mohsearch.evaluators.training_time.predict import predict_with_rates
from mohsearch.evaluators.training_time.reading import read_training_cases

RUNS = "evaluators/reference/phaze/training_runs.csv"
CALIBRATION_SETS = ("vtrain_one_node", "vtrain_many_nodes")
LINK_BYTES_PER_S = 3e11
"""NVLink 3 in one direction: no all-reduce is faster."""
SHARED = {
    "fill_k": (16.0, 512.0),
    "memory_efficiency": (0.5, 0.87),
    "network_efficiency": (0.4, 1.0),
    "kernel_gap_s": (5e-7, 6e-6),
    "host_s": (5e-6, 1e-4),
    "logit_bytes": (40.0, 250.0),
}
"""Constants and the range that is physically plausible.

No streaming kernel reaches more of the HBM bandwidth of an A100, and kernels follow each other
within microseconds. ``optimizer_bytes`` is counted, not fitted.
"""
NODE = {"tensor": (0.4, 0.95)}
NODE |= {"bus2": (2e10, LINK_BYTES_PER_S), "bus4": (2e10, LINK_BYTES_PER_S)}
NODE |= {"bus8": (2e10, LINK_BYTES_PER_S), "latency": (1e-5, 3e-4)}
"""Of each cluster: sustained tensor rate, all-reduce bandwidth among 2, 4, 8 devices, latency."""
SOFTNESS = 0.01
"""Errors below this are noise: the loss is flat there."""


@dataclass(frozen=True)
class FittedCluster:
    """Rows of one cluster with their rates."""

    name: str
    runs: TrainingRuns
    measured_s: Floats
    rates: ClusterRates


def load_sets(path: Path, names: Sequence[str]) -> list[FittedCluster]:
    """Return rows of these sets; each must be of one cluster, with microbatches stated."""
    constants = load_constants()
    cases = read_training_cases(path)
    if len(cases.row) > len(cases.ids):
        stated = np.bincount(cases.row)[cases.row] == 1
    else:
        stated = np.ones(len(cases.row), dtype=bool)
    groups = np.array(cases.groups)[cases.row]
    sets = []
    for name in names:
        chosen = np.flatnonzero((groups == name) & stated)
        clusters = [cases.clusters[k] for k in chosen]
        if len({c.card.name for c in clusters}) != 1:
            raise InputError("rows of one cluster are needed", source=path, field=name)
        sets.append(
            FittedCluster(
                name=clusters[0].card.name,
                runs=cases.runs.take(chosen),
                measured_s=cases.measured_s[cases.row[chosen]],
                rates=cluster_rates(clusters, constants),
            )
        )
    return sets


def _bounds(sets: Sequence[FittedCluster]) -> dict[str, tuple[float, float]]:
    bounds = dict(SHARED)
    for part in sets:
        bounds |= {f"{part.name}.{key}": limits for key, limits in NODE.items()}
    return bounds


def start_values(sets: Sequence[FittedCluster]) -> dict[str, float]:
    """Return the present constants."""
    constants = load_constants().model_dump(exclude={"source"})
    values = {key: float(constants[key]) for key in SHARED}
    for part in sets:
        bus = part.rates.node_all_reduce[:, 0]
        values |= {f"{part.name}.bus{2**k}": float(bus[k]) for k in (1, 2, 3)}
        tensor = part.rates.device.tensor_flop_per_s[0] / part.rates.peak_flop_per_s[0]
        values[f"{part.name}.tensor"] = float(tensor)
        values[f"{part.name}.latency"] = float(part.rates.all_reduce_latency_s[0])
    return values


def log_errors(part: FittedCluster, values: dict[str, float]) -> Floats:
    """Return log(predicted / measured) of each row under these constants."""
    shared = {key: values[key] for key in SHARED}
    constants = load_constants().model_copy(update=shared)
    device = part.rates.device
    scale = constants.memory_efficiency / load_constants().memory_efficiency
    bus = np.array([values[f"{part.name}.bus{n}"] for n in (2, 2, 4, 8)])
    rates = replace(
        part.rates,
        device=replace(
            device,
            memory_bytes_per_s=device.memory_bytes_per_s * scale,
            tensor_flop_per_s=part.rates.peak_flop_per_s * values[f"{part.name}.tensor"],
        ),
        node_all_reduce=np.repeat(bus[:, None], len(part.measured_s), axis=1),
        all_reduce_latency_s=np.full(len(part.measured_s), values[f"{part.name}.latency"]),
    )
    predicted = predict_with_rates(part.runs, rates, constants).iteration_s
    return np.asarray(np.log(predicted / part.measured_s))


def loss(sets: Sequence[FittedCluster], values: dict[str, float]) -> float:
    """Return the mean absolute log error, each set counting alike."""
    parts = [np.sqrt(log_errors(s, values) ** 2 + SOFTNESS**2).mean() for s in sets]
    return float(np.mean(parts))


def fit(sets: Sequence[FittedCluster], rounds: int = 60) -> dict[str, float]:
    """Return constants by pattern search: each in turn, larger and smaller, halving the step.

    Needs no derivative, keeps to the physical ranges, and starts from the present constants.
    """
    bounds = _bounds(sets)
    start = start_values(sets)
    values = {key: float(np.clip(start[key], *bounds[key])) for key in bounds}
    best = loss(sets, values)
    step = dict.fromkeys(bounds, 0.2)
    for _ in range(rounds):
        for key, (low, high) in bounds.items():
            improved = False
            for sign in (1, -1):
                trial = float(np.clip(values[key] * np.exp(sign * step[key]), low, high))
                candidate = {**values, key: trial}
                result = loss(sets, candidate)
                if result < best - 1e-7:
                    values, best, improved = candidate, result, True
                    break
            step[key] = min(step[key] * 1.5, 0.3) if improved else step[key] / 2
        if max(step.values()) < 1e-3:
            break
    return values


def main(arguments: Sequence[str]) -> None:
    """Fit and print."""
    path = Path(arguments[0]) if arguments else builtin_root() / RUNS
    sets = load_sets(path, arguments[1:] or CALIBRATION_SETS)
    values = fit(sets)
    for key, value in values.items():
        print(f"{key}: {value:.4g}")
    for part in sets:
        errors = np.abs(np.expm1(log_errors(part, values)))
        print(f"# {part.name}: mean error {errors.mean():.2%}, greatest {errors.max():.2%}")


if __name__ == "__main__":
    main(sys.argv[1:])
