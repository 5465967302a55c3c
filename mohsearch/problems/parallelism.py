"""The parallelism problem: how a training run is cut over the devices of a measured cluster."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mohsearch.core.cards import read_card, validate
from mohsearch.core.catalog import Catalog
from mohsearch.core.digest import content_digest
from mohsearch.core.errors import InputError
from mohsearch.evaluators.training_time.cards import TrainingCluster, load_cluster, load_constants
from mohsearch.evaluators.training_time.cases import RECOMPUTE, TrainingRuns
from mohsearch.evaluators.training_time.parallel_grid import GENES, ParallelGrid
from mohsearch.evaluators.training_time.predict import (
    TrainingPrediction,
    model_flop,
    predict_training,
)
from mohsearch.evaluators.training_time.reading import TrainingCases, training_cases
from mohsearch.problems.base import ProblemCard, SearchProblem
from mohsearch.problems.parallelism_options import ParallelismOptions
from mohsearch.problems.parallelism_runs import RunRecord, load_run

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

DEFAULT_CLUSTER = "selene"
NOT_RUN = 1e12
"""Stands for the values of a configuration whose sizes do not divide; it violates a constraint."""

_OF_WHAT_DOES_NOT_RUN = {"throughput_samples_per_s": 0.0, "flop_utilization": 0.0, "indivisible": 1}


def load_card(catalog: Catalog | None = None) -> ProblemCard:
    """Return the declaration of the problem, ``problems/parallelism.yaml``."""
    shelves = catalog or Catalog()
    return read_card(ProblemCard, shelves.find("problems", "parallelism", kind="problem"))


class ParallelismProblem(SearchProblem):
    """Search for the parallelisation of one training run.

    Genomes are rows of indices into :attr:`grid`.

    Parameters
    ----------
    run
        What is trained, and perhaps how it was.
    options
        What is searched.
    objectives
        Metrics to optimise (default: the card's).
    catalog
        Where names are looked up.

    Raises
    ------
    InputError
        If the run is wrong or incomplete, or no configuration exists.
    """

    def __init__(
        self,
        run: RunRecord,
        options: ParallelismOptions | None = None,
        *,
        objectives: Sequence[str] | None = None,
        catalog: Catalog | None = None,
    ) -> None:
        self.run = run
        self.options = options or ParallelismOptions()
        self.cases = _cases(run, self.options, catalog)
        self.cluster: TrainingCluster = self.cases.clusters[0]
        own = self.cases.runs
        run_devices = int(own.tensor[0] * own.pipeline[0] * own.data[0])
        self.devices = self.options.devices or run_devices
        self._check_measured(run_devices)
        values = _axes(own, self.options, int(self.cluster.card.devices_per_node))
        self.grid = ParallelGrid.build(own.take(np.zeros(1, dtype=np.int64)), self.devices, values)
        self.measured_rows = self._measured_rows()
        upper = np.array(self.grid.shape) - 1
        super().__init__(load_card(catalog), np.zeros_like(upper), upper, objectives)

    def _check_measured(self, devices: int) -> None:
        """Refuse to keep what a model does not have, or what holds for other devices only."""
        for field in ("degrees", "techniques"):
            if getattr(self.options, field) == "measured" and not self.run.measured:
                message = f"{self.run.name} is a model, not a measured run; it has none to keep"
                raise InputError(message, field=field)
        if self.options.degrees == "measured" and self.devices != devices:
            message = f"the measured run has {devices} devices; its degrees fit no other number"
            raise InputError(message, field="devices")

    def _measured_rows(self) -> Integers:
        """Return the rows of the measured run, several where its microbatch was not stated."""
        if not self.run.measured:
            return np.empty((0, len(GENES)), dtype=np.int64)
        found = []
        for k in range(len(self.cases.runs.tensor)):
            values = {name: int(getattr(self.cases.runs, name)[k]) for name in GENES}
            try:
                found.append(self.grid.find(values))
            except InputError:  # other devices or another batch by option
                continue
        rows = np.array(found, dtype=np.int64).reshape(-1, len(GENES))
        return np.asarray(rows[self.grid.replicas(rows) == int(self.cases.runs.data[0])])

    @cached_property
    def predictions(self) -> TrainingPrediction:
        """Everything that is predicted, of all configurations in the order of the grid's rows.

        All at once, because rounding may depend on how many are computed together.
        """
        rows = self.grid.rows
        return predict_training(self.grid.runs(rows), [self.cluster] * len(rows))

    @cached_property
    def _columns(self) -> dict[str, Floats]:
        """Metrics and constraints of all configurations that run."""
        found = self.predictions
        memory = found.memory.total_bytes
        return {
            "iteration_s": found.iteration_s,
            "memory_bytes": memory,
            "throughput_samples_per_s": self.grid.run.batch[0] / found.iteration_s,
            "flop_utilization": found.flop_utilization,
            "bubble_s": found.bubble_s,
            "sync_s": found.sync_s,
            "memory_excess_bytes": np.maximum(0.0, memory - self.cluster.device.memory_bytes),
            "indivisible": np.zeros(len(memory)),
        }

    def metrics(self, X: NDArray[Any]) -> dict[str, Floats]:
        """Return every metric and constraint for genomes (n, 6), in natural sign."""
        place = self.grid.place(np.asarray(X).astype(np.int64))
        values = {}
        for name, column in self._columns.items():
            missing = _OF_WHAT_DOES_NOT_RUN.get(name, NOT_RUN)
            values[name] = np.where(place < 0, missing, column[place])
        return values

    def designs(self) -> Integers:
        """Return all configurations that run."""
        return self.grid.rows

    def is_measured(self, x: NDArray[Any]) -> bool:
        """Return whether a row is the configuration that was measured."""
        row = np.asarray(x).astype(np.int64)
        return bool((self.measured_rows == row).all(axis=1).any())

    def decode(self, x: NDArray[Any]) -> Mapping[str, Any]:
        """Return the configuration of one row, its prediction, and what was measured."""
        row = np.asarray(x).astype(np.int64).reshape(1, -1)
        values = {name: int(self.grid.values(row, gene)[0]) for gene, name in enumerate(GENES)}
        k = int(self.grid.place(row)[0])
        if k < 0:
            return {**values, "data": 0, "prediction": None, "run": self._run(None)}
        found = self.predictions
        seconds = float(found.iteration_s[k])
        along = "sequence parallel, " if values["sequence_parallel"] else ""
        return {
            "tensor": values["tensor"],
            "pipeline": values["pipeline"],
            "data": int(self.grid.replicas(row)[0]),
            "microbatch": values["microbatch"],
            "interleaving": values["virtual_stages"],
            "technique": f"{along}recompute {RECOMPUTE[values['recompute']]}",
            "remark": "as measured" if self.is_measured(row[0]) else "not measured",
            "prediction": {"iteration_s": seconds, **found.parts(k)},
            "run": self._run(seconds if self.is_measured(row[0]) else None),
        }

    def _run(self, predicted_s: float | None) -> dict[str, Any]:
        """Return what is trained and what was measured; the error where that was predicted."""
        run, measured, peer = self.grid.run, self.cases.measured_s[0], self.cases.peer_s[0]
        known = self.run.measured and math.isfinite(measured)
        return {
            "name": self.run.name,
            "set": self.cases.groups[0],
            "cluster": self.cluster.card.name,
            "devices": self.devices,
            "global_batch": int(run.batch[0]),
            "layers": int(run.layers[0]),
            "hidden": int(run.hidden[0]),
            "measured_s": float(measured) if known else None,
            "peer_s": float(peer) if known and math.isfinite(peer) else None,
            "error": predicted_s / float(measured) - 1 if known and predicted_s else None,
        }

    def ideal_point(self) -> dict[str, float]:
        """Return proven best values: every device multiplies at its sustained rate all the time.

        With the flash kernel, which skips what the causal mask hides, attention counts nothing.
        """
        run = self.grid.run
        flop = float(model_flop(run)[0])
        if run.flash_attention[0]:
            tokens = run.batch[0] * run.sequence[0]
            flop -= float(3 * tokens * run.layers[0] * 4 * run.sequence[0] * run.hidden[0])
        device = self.cluster.device
        rate = device.peak_flop_per_s["fp16_tensor"] * self.cluster.card.tensor_efficiency
        least = flop / (self.devices * rate)
        return {
            "iteration_s": least,
            "throughput_samples_per_s": float(run.batch[0]) / least,
            "bubble_s": 0.0,
            "sync_s": 0.0,
        }

    def certificate(self) -> dict[str, Any]:
        """Return what is known of every point."""
        return {
            "configurations": len(self.grid.rows),
            "measured_configurations": len(self.measured_rows),
            "prediction": "a calibrated model, see the evaluator training; no bound on its error",
            "ideal_point": "all products at the sustained rate, nothing else",
        }

    def digest(self) -> str:
        """Return a content hash of everything that :meth:`metrics` depends on."""
        run = {name: np.asarray(column).tolist() for name, column in vars(self.grid.run).items()}
        return content_digest(
            self.card.slug,
            run,
            self.devices,
            [list(axis) for axis in self.grid.axes],
            self.cluster.model_dump(mode="json"),
            load_constants().model_dump(mode="json"),
        )


def _cases(run: RunRecord, options: ParallelismOptions, catalog: Catalog | None) -> TrainingCases:
    """Return the run with what the options say otherwise."""
    given = {
        "cluster": options.cluster,
        "gbs": options.global_batch,
        "seq": options.sequence_length,
        "attention": options.attention,
        "sharding": options.sharding,
    }
    record = {**run.record, **{k: str(v) for k, v in given.items() if v is not None}}
    if options.cluster is not None:  # raises with the field of the option
        load_cluster(options.cluster, catalog, field="cluster")
    if not run.measured:
        for field in ("devices", "global_batch"):
            if getattr(options, field) is None:
                raise InputError(f"missing: {run.name} is a model, so say how many", field=field)
        record.setdefault("cluster", DEFAULT_CLUSTER)
        record["mbs"] = "1"
    return training_cases([record], run.source, catalog)


def _axes(
    own: TrainingRuns, options: ParallelismOptions, devices_per_node: int
) -> dict[str, list[int]]:
    """Return the values of every gene; by default the measured ones stand among them."""
    layers = int(own.layers[0])
    doubles = [2**k for k in range(devices_per_node.bit_length()) if 2**k <= devices_per_node]
    searched: dict[str, list[int]] = {
        "tensor": list(options.tensor or doubles),
        "pipeline": list(options.pipeline or [p for p in range(1, layers + 1) if layers % p == 0]),
        "microbatch": list(options.microbatches),
        "virtual_stages": list(options.virtual_stages),
        "recompute": [RECOMPUTE.index(mode) for mode in options.recompute],
        "sequence_parallel": [int(value) for value in options.sequence_parallel],
    }
    kept = {name: sorted({int(value) for value in getattr(own, name)}) for name in searched}
    for k, name in enumerate(GENES):
        if getattr(options, "degrees" if k < 4 else "techniques") == "measured":
            searched[name] = kept[name]
        elif _OPTION.get(name, name) not in options.model_fields_set:
            searched[name] = sorted({*searched[name], *kept[name]})
    return searched


_OPTION = {"microbatch": "microbatches"}
"""Options that are not called as the gene."""


def build(
    options: Mapping[str, Any] | ParallelismOptions | None,
    workload: str,
    *,
    objectives: Sequence[str] | None = None,
    catalog: Catalog | None = None,
    cache_dir: Path | None = None,
    progress: Callable[[int, int, str], None] | None = None,
    workers: int | None = None,
) -> ParallelismProblem:
    """Build the problem for a measured run, or for a model.

    Parameters
    ----------
    options
        Fields of :class:`mohsearch.problems.parallelism_options.ParallelismOptions`.
    workload
        As :func:`mohsearch.problems.parallelism_runs.load_run` takes it.
    objectives
        Metrics to optimise (default: the card's).
    catalog
        Where names are looked up.
    cache_dir, progress, workers
        Not needed: nothing is prepared.

    Raises
    ------
    InputError
        If an option or a name is wrong.

    Examples
    --------
    >>> problem = build({"degrees": "measured", "techniques": "measured"}, "korth_t5_3")
    >>> round(float(problem.metrics(problem.designs())["iteration_s"][0]), 2)
    18.55
    """
    if not isinstance(options, ParallelismOptions):
        options = validate(ParallelismOptions, dict(options or {}))
    run = load_run(workload, catalog)
    return ParallelismProblem(run, options, objectives=objectives, catalog=catalog)
