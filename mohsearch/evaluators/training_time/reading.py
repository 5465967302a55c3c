"""Reading training runs from CSV: columns by any of their usual names, defaults where missing."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from mohsearch.core.catalog import Catalog
from mohsearch.core.errors import InputError
from mohsearch.core.tables import read_records
from mohsearch.evaluators.training_time.cards import (
    TrainingCluster,
    choose_cluster,
    cluster_names,
    load_cluster,
)
from mohsearch.evaluators.training_time.cases import RECOMPUTE, TrainingRuns
from mohsearch.workloads.hf_config import ModelConfig, load_model

MICROBATCH_CHOICES = (1, 2, 4, 8)
"""Tried where a row does not state its microbatch."""

_NAMES: dict[str, tuple[str, ...]] = {
    "hidden": ("hidden", "hidden_size", "h"),
    "layers": ("layers", "num_layers", "num_hidden_layers"),
    "heads": ("heads", "num_attention_heads", "attention_heads"),
    "kv_heads": ("kv_heads", "num_key_value_heads"),
    "intermediate": ("intermediate", "ffn", "intermediate_size"),
    "ffn_mult": ("ffn_mult",),
    "vocabulary": ("vocab", "vocabulary", "vocab_size"),
    "sequence": ("seq", "sequence", "sequence_length", "seq_length"),
    "tensor": ("tp", "tensor_parallel", "t"),
    "pipeline": ("pp", "pipeline_parallel", "p"),
    "data": ("dp", "data_parallel", "d"),
    "virtual_stages": ("vp_interleave", "virtual_stages", "vp"),
    "microbatch": ("mbs", "micro_batch", "microbatch", "micro_batch_size"),
    "batch": ("gbs", "global_batch", "global_batch_size", "batch"),
    "devices": ("gpus", "n_gpus", "devices", "num_gpus"),
    "devices_per_node": ("gpus_per_node", "devices_per_node"),
    "network_gbps": ("inter_node_gbps_per_node",),
    "measured_s": ("measured_iter_s", "derived_iter_s", "measured_s"),
    "measured_ms": ("measured_iter_ms", "measured_ms"),
    "peer_s": ("peer_s",),
}
_WHOLE = frozenset(_NAMES) - {"network_gbps", "measured_s", "measured_ms", "peer_s", "ffn_mult"}
_MOST = 1e9
_SHARDINGS = {
    "none": "none", "ptd": "none", "ddp": "none", "no_shard": "none", "optimizer": "optimizer",
    "zero1": "optimizer", "full_shard": "full_shard",
}  # fmt: skip


@dataclass(frozen=True)
class TrainingCases:
    """Rows of a file.

    Attributes
    ----------
    ids
        Column ``id``, or the number of the row.
    runs
        With several candidates for a row that leaves its microbatch open.
    clusters
        Cluster of each candidate.
    row
        Row of each candidate, shape (candidates,).
    measured_s
        Measured iteration time by row; not a number where there is none.
    peer_s
        What another tool predicts, by row; not a number where it is not given.
    groups
        Column ``set`` by row, else the name of the cluster: what accuracy is summed up by.
    """

    ids: tuple[str, ...]
    groups: tuple[str, ...]
    runs: TrainingRuns
    clusters: tuple[TrainingCluster, ...]
    row: np.ndarray[tuple[int, ...], np.dtype[np.int64]]
    measured_s: np.ndarray[tuple[int, ...], np.dtype[np.float64]]
    peer_s: np.ndarray[tuple[int, ...], np.dtype[np.float64]]


def read_training_cases(path: Path) -> TrainingCases:
    """Read training runs from a CSV file.

    Raises
    ------
    InputError
        Naming row and column of what is wrong.
    """
    return training_cases(read_records(path), path)


def training_cases(
    records: Sequence[Mapping[str, str]], source: Path, catalog: Catalog | None = None
) -> TrainingCases:
    """Return the cases of some records.

    Parameters
    ----------
    records
        Rows by column, as :func:`mohsearch.core.tables.read_records` returns them.
    source
        Where they stand, for messages.
    catalog
        Where models and clusters are looked up (default: around the source).

    Raises
    ------
    InputError
        Naming row and column of what is wrong.
    """
    return _Reader(source, catalog or Catalog.around(source)).cases(records)


class _Reader:
    """Turns rows into runs, one error at a time."""

    def __init__(self, path: Path, catalog: Catalog) -> None:
        self.path = path
        self.models: dict[str, ModelConfig] = {}
        self.catalog = catalog
        self.known = {n: load_cluster(n, self.catalog) for n in cluster_names(self.catalog)}
        self.clusters = dict(self.known)

    def cases(self, table: Sequence[Mapping[str, str]]) -> TrainingCases:
        """Return the cases of all rows."""
        ids: list[str] = []
        groups: list[str] = []
        columns: list[dict[str, float]] = []
        clusters: list[TrainingCluster] = []
        row: list[int] = []
        measured: list[float] = []
        peer: list[float] = []
        for number, record in enumerate(table, start=1):
            entry = _Row(record, f"{self.path}: row {number}")
            name = (record.get("id") or str(number)).strip()
            ids.append(name)
            measured.append(entry.measured())
            peer.append(entry.number("peer_s") or math.nan)
            cluster = self._cluster(entry)
            groups.append(entry.text("set") or cluster.card.name)
            for run in self._candidates(entry, cluster):
                columns.append(run)
                clusters.append(cluster)
                row.append(number - 1)
        switches = {
            "gated",
            "untied",
            "sequence_parallel",
            "flash_attention",
            "gpipe",
            "full_shard",
        }
        switches.add("shard_optimizer")
        switches |= {"overlap_sync", "overlap_tensor"}
        arrays = {
            key: np.array([c[key] for c in columns], dtype=bool if key in switches else float)
            for key in columns[0]
        }
        return TrainingCases(
            ids=tuple(ids),
            groups=tuple(groups),
            runs=TrainingRuns(**arrays),
            clusters=tuple(clusters),
            row=np.array(row, dtype=np.int64),
            measured_s=np.array(measured, dtype=np.float64),
            peer_s=np.array(peer, dtype=np.float64),
        )

    def _cluster(self, row: _Row) -> TrainingCluster:
        name = row.text("cluster")
        if name is not None:
            if name not in self.clusters:
                self.clusters[name] = load_cluster(
                    name, self.catalog, source=row.where, field="cluster"
                )
            return self.clusters[name]
        gbps = row.number("network_gbps")
        found = choose_cluster(
            self.known,
            row.text("gpu", "device", "accel"),
            None if gbps is None else gbps * 1e9 / 8,
            int(_devices(row)),
            source=row.where,
        )
        return self.known[found]

    def _model(self, row: _Row) -> ModelConfig | None:
        """Return the model that a row names, where the row does not give its sizes."""
        if all(row.has(key) for key in ("hidden", "layers", "heads")):
            return None
        name = row.text("model")
        if name is None:
            missing = next(k for k in ("hidden", "layers", "heads") if not row.has(k))
            raise InputError(
                "missing; a row needs hidden, layers and heads, or a model (a name or a file)",
                source=row.where,
                field=missing,
            )
        if name not in self.models:
            self.models[name] = _load(name, row, self.catalog)
        return self.models[name]

    def _candidates(self, row: _Row, cluster: TrainingCluster) -> list[dict[str, float]]:
        run = {**_model_sizes(row, self._model(row)), **_degrees(row), **_switches(row)}
        run["devices_per_node"] = row.number("devices_per_node") or cluster.card.devices_per_node
        gbps = row.number("network_gbps")
        card = cluster.card.network_bytes_per_s_per_node
        run["network_bytes_per_s"] = card if gbps is None else gbps * 1e9 / 8
        _check_shape(row, run)
        given = row.number("microbatch", blank=_is_open)
        batch = row.number("batch")
        if batch is None:
            raise InputError("missing: the global batch", source=row.where, field="gbs")
        choices = [given] if given is not None else [float(b) for b in MICROBATCH_CHOICES]
        fitting = [b for b in choices if batch % (b * run["data"]) == 0]
        if not fitting:
            wanted = f"microbatch {choices[0]:g} x {run['data']:g} replicas"
            message = f"a batch of {batch:g} cannot be cut into {wanted}"
            raise InputError(message, source=row.where, field=row.name("batch"))
        runs = [{**run, "batch": batch, "microbatch": b} for b in fitting]
        for entry in runs:
            _check_interleaving(row, entry)
        return runs


class _Row:
    """One record, read by field."""

    def __init__(self, record: Mapping[str, str], where: str) -> None:
        self.record, self.where = record, where

    def name(self, field: str) -> str:
        """Return the column that holds a field, or its usual name."""
        return next(
            (n for n in _NAMES[field] if (self.record.get(n) or "").strip()), _NAMES[field][0]
        )

    def has(self, field: str) -> bool:
        """Whether a field is there."""
        return bool((self.record.get(self.name(field)) or "").strip())

    def text(self, *names: str) -> str | None:
        """Return a word in lower case, or nothing."""
        for name in names:
            value = (self.record.get(name) or "").strip()
            if value:
                return value
        return None

    def number(self, field: str, blank: Callable[[str], bool] | None = None) -> float | None:
        """Return a positive number, or nothing where the column is missing or empty."""
        name = self.name(field)
        text = (self.record.get(name) or "").strip()
        if not text or (blank is not None and blank(text)):
            return None
        try:
            value = float(text)
        except ValueError:
            raise InputError(f"not a number: {text!r}", source=self.where, field=name) from None
        if not math.isfinite(value) or value <= 0 or value > _MOST:
            raise InputError(f"must be positive, up to 1e9: {text}", source=self.where, field=name)
        if field in _WHOLE and value != int(value):
            raise InputError(f"must be a whole number: {text}", source=self.where, field=name)
        return value

    def flag(self, name: str) -> bool:
        """Return a switch; a remark may follow the word."""
        text = (self.record.get(name) or "").strip().lower()
        word = text.split()[0] if text else "no"
        if word in {"yes", "true", "1", "on"}:
            return True
        if word in {"no", "false", "0", "off"}:
            return False
        raise InputError(f"must be yes or no: {text!r}", source=self.where, field=name)

    def measured(self) -> float:
        """Return the measured iteration time in seconds, not a number where there is none."""
        seconds = self.number("measured_s")
        if seconds is not None:
            return seconds
        milliseconds = self.number("measured_ms")
        return math.nan if milliseconds is None else milliseconds / 1e3


def _is_open(text: str) -> bool:
    return text.lower().startswith(("not stated", "best"))


def _load(name: str, row: _Row, catalog: Catalog) -> ModelConfig:
    try:
        model = load_model(name, catalog)
    except InputError as error:
        message = f"{name}: {error.field}: {error.message}" if error.field else error.message
        raise InputError(message, source=row.where, field="model") from error
    problem = None
    if model.kind == "encoder-decoder":
        problem = "is an encoder-decoder"
    elif model.experts:
        problem = "is a mixture of experts"
    elif model.head_size * model.heads != model.hidden or model.embedding != model.hidden:
        problem = "has heads or an embedding of another width than its hidden size"
    if problem:
        message = f"{name} {problem}; only dense stacks of equal layers are predicted"
        raise InputError(message, source=row.where, field="model")
    return model


def _model_sizes(row: _Row, model: ModelConfig | None) -> dict[str, float]:
    """Return the sizes of the model; what a row gives comes before what its model says."""

    def value(field: str, otherwise: float) -> float:
        return row.number(field) or otherwise

    if model is None:
        hidden, heads = row.number("hidden") or 0.0, row.number("heads") or 0.0
        inner = hidden * value("ffn_mult", 4.0)
        base = {"layers": 0.0, "kv_heads": heads, "intermediate": inner}
        base |= {"vocabulary": 51200.0, "sequence": 2048.0}
        gated, untied = row.flag("gated_mlp"), row.flag("untied_head")
    else:
        for column in ("ffn_mult", "gated_mlp", "untied_head"):
            if row.text(column) is not None:
                message = f"the model {model.name} says that already; give hidden, layers and heads"
                raise InputError(message, source=row.where, field=column)
        hidden = value("hidden", model.hidden)
        heads = value("heads", model.heads)
        base = {"layers": model.layers, "kv_heads": model.kv_heads}
        base |= {"intermediate": model.intermediate, "vocabulary": model.vocabulary}
        base |= {"sequence": model.sequence}
        gated, untied = bool(model.gated), not model.tied
    sizes = {key: value(key, otherwise) for key, otherwise in base.items()}
    if model is not None and model.position == "learned" and sizes["sequence"] > model.positions:
        message = f"{model.name} takes up to {model.positions} tokens"
        raise InputError(message, source=row.where, field=row.name("sequence"))
    return {"hidden": hidden, "heads": heads, "gated": gated, "untied": untied, **sizes}


def _degrees(row: _Row) -> dict[str, float]:
    """Return the parallel degrees; two of devices, tensor, pipeline and data imply the last."""
    tensor, pipeline = row.number("tensor") or 1.0, row.number("pipeline") or 1.0
    data, devices = row.number("data"), row.number("devices")
    if data is None:
        data = 1.0 if devices is None else devices / (tensor * pipeline)
        if data != int(data):
            message = f"{devices:g} devices are no multiple of tp x pp = {tensor * pipeline:g}"
            raise InputError(message, source=row.where, field=row.name("devices"))
    elif devices is not None and tensor * pipeline * data != devices:
        message = f"{devices:g} devices, but tp x pp x dp = {tensor * pipeline * data:g}"
        raise InputError(message, source=row.where, field=row.name("devices"))
    virtual = row.number("virtual_stages") or 1.0
    return {"tensor": tensor, "pipeline": pipeline, "data": data, "virtual_stages": virtual}


def _devices(row: _Row) -> float:
    degrees = _degrees(row)
    return degrees["tensor"] * degrees["pipeline"] * degrees["data"]


def _switches(row: _Row) -> dict[str, float]:
    """Return what kind of run it is."""
    sharding = _sharding(row)
    return {
        "recompute": float(_one_of(row, "recompute", RECOMPUTE, "full")),
        "sequence_parallel": row.flag("sequence_parallel"),
        "flash_attention": _is_flash(row),
        "overlap_sync": row.flag("overlap_dp"),
        "overlap_tensor": _overlaps_collectives(row),
        "gpipe": _one_of(row, "schedule", ("1f1b", "gpipe"), "1f1b") == 1,
        "shard_optimizer": sharding == "optimizer",
        "full_shard": sharding == "full_shard",
    }


def _is_flash(row: _Row) -> bool:
    text = (row.text("attention") or "").lower()
    if text.startswith("flash") or _is_open(text):
        return text.startswith("flash")
    return _one_of(row, "attention", ("fused", "flash"), "fused") == 1


def _overlaps_collectives(row: _Row) -> bool:
    """Return whether collectives run beside weight gradients: stated, or known from the software.

    A row that states ``sequence_parallel``, yes or no, is of a Megatron-LM that knows it (2022 on);
    the same version overlaps.
    """
    if row.text("overlap_tp") is not None:
        return row.flag("overlap_tp")
    return row.text("sequence_parallel") is not None


def _one_of(row: _Row, column: str, known: Sequence[str], default: str) -> int:
    """Return the position of a word among the known ones; a remark may follow it."""
    text = (row.text(column) or default).lower()
    for position, word in enumerate(known):
        if text == word or text.startswith((word + "(", word + " ")):
            return position
    message = f"{text!r} is none of: {', '.join(known)}"
    raise InputError(message, source=row.where, field=column)


def _sharding(row: _Row) -> str:
    """Return what is spread over the replicas: ``none``, ``optimizer`` or ``full_shard``."""
    column = "sharding" if row.text("sharding") else "scheme"
    text = (row.text(column) or "none").lower()
    if text.startswith(("zero2", "zero3", "shard_grad_op", "hybrid_shard")):
        known = ", ".join(_SHARDINGS)
        message = f"{row.text(column)!r} is not modelled; what is: {known}"
        raise InputError(message, source=row.where, field=column)
    return tuple(_SHARDINGS.values())[_one_of(row, column, tuple(_SHARDINGS), "none")]


def _check_shape(row: _Row, run: Mapping[str, float]) -> None:
    """Refuse models and degrees that do not divide."""
    pairs = (
        ("heads", "tensor", "tp"),
        ("hidden", "heads", "heads"),
        ("heads", "kv_heads", "kv_heads"),
        ("intermediate", "tensor", "tp"),
    )
    for whole, part, column in pairs:
        if run[whole] % run[part]:
            message = f"{whole} ({run[whole]:g}) is no multiple of {part} ({run[part]:g})"
            raise InputError(message, source=row.where, field=column)
    if run["kv_heads"] % run["tensor"] and run["tensor"] % run["kv_heads"]:
        message = f"does not match {run['kv_heads']:g} key-value heads ({run['tensor']:g} devices)"
        raise InputError(message, source=row.where, field=row.name("tensor"))
    if run["sequence_parallel"] and run["sequence"] % run["tensor"]:
        message = f"{run['tensor']:g} devices do not divide {run['sequence']:g} tokens"
        raise InputError(message, source=row.where, field="sequence_parallel")
    if run["pipeline"] > run["layers"]:
        message = f"more stages ({run['pipeline']:g}) than layers ({run['layers']:g})"
        raise InputError(message, source=row.where, field=row.name("pipeline"))
    if run["full_shard"] and (run["tensor"] > 1 or run["pipeline"] > 1):
        message = "fully sharded runs with tensor or pipeline parallelism are not modelled"
        raise InputError(message, source=row.where, field="sharding")


def _check_interleaving(row: _Row, run: Mapping[str, float]) -> None:
    """Refuse interleaving that Megatron refuses."""
    if run["virtual_stages"] == 1:
        return
    field = row.name("virtual_stages")
    if run["gpipe"]:
        raise InputError("interleaving needs the 1F1B schedule", source=row.where, field=field)
    if run["pipeline"] == 1:
        raise InputError("interleaving needs pipeline stages", source=row.where, field=field)
    if run["layers"] % (run["pipeline"] * run["virtual_stages"]):
        message = f"{run['layers']:g} layers do not make equal virtual stages"
        raise InputError(message, source=row.where, field=field)
    count = run["batch"] / (run["microbatch"] * run["data"])
    if count % run["pipeline"]:
        message = f"interleaving needs microbatches ({count:g}) in multiples of the stages"
        raise InputError(message, source=row.where, field=field)
