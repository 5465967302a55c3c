"""What a partition costs: interval, latency, energy, traffic, chips, money, memory.

Two fidelities. ``analytic`` is the model a compiler would have: sums of op times and bytes. The
``hardware`` fidelity stands in for a measurement that a search does not know: efficiency by op
type, a fixed factor of each op, fusion of element-wise ops, message and stage overheads, transfers
partly hidden behind computing, and spilling where memory overflows. Its seed decides it.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mohsearch.core.errors import InputError
from mohsearch.core.seeds import generator
from mohsearch.evaluators.partition import cost_kernels as kernels
from mohsearch.evaluators.partition.task import PartitionTask
from mohsearch.workloads.op_graph import Floats

Labels = NDArray[np.int16]
Fidelity = Literal["analytic", "hardware"]

METRICS = (
    "interval_s",
    "latency_s",
    "energy_j",
    "hop_bytes",
    "chips",
    "cost_usd",
    "peak_memory_bytes",
)
"""What is minimised; :func:`evaluate_partitions` returns more that follows from these."""

PRODUCTS = frozenset(
    {
        "linear", "conv1d", "conv2d", "convolution", "conv", "gemm", "mm", "bmm", "matmul", "addmm",
        "einsum", "scaled_dot_product_attention", "conv_transpose2d", "dwconv",
    }
)  # fmt: skip
"""Op types that run on the MAC array."""

ELEMENTWISE = frozenset(
    {
        "add", "add_", "sub", "rsub", "mul", "mul_", "div", "neg", "relu", "relu_", "gelu", "silu",
        "silu_", "sigmoid", "tanh", "hardswish", "hardswish_", "hardtanh_", "hardsigmoid",
        "leaky_relu_", "exp", "erf", "pow", "sqrt", "rsqrt", "batch_norm", "masked_fill",
        "softplus", "clip", "elu",
    }
)  # fmt: skip
"""Op types that a compiler fuses with what produces their input."""


@dataclass(frozen=True)
class HardwareModel:
    """Figures of the ``hardware`` fidelity; shares and factors are assumptions, not measurements.

    Attributes
    ----------
    seed
        Of the factor of each op.
    spread
        Standard deviation of the logarithm of that factor.
    product_efficiency, other_efficiency
        Range of the share of peak that op types reach, each type its own.
    fusion
        Share of an element-wise op's time saved beside its only producer.
    message_s, stage_s
        Overhead of each transfer at both ends, and of each chip.
    link_efficiency, overlap
        Share of a link's bandwidth that is reached, and of a transfer that is hidden.
    fragmentation
        Memory taken over memory needed.
    spill_bytes_per_s
        Bandwidth to off-package memory.
    """

    seed: int = 0
    spread: float = 0.25
    product_efficiency: tuple[float, float] = (0.55, 0.9)
    other_efficiency: tuple[float, float] = (0.4, 1.0)
    fusion: float = 0.7
    message_s: float = 0.5e-6
    stage_s: float = 2e-6
    link_efficiency: float = 0.85
    overlap: float = 0.3
    fragmentation: float = 1.1
    spill_bytes_per_s: float = 16e9

    def op_times_s(self, task: PartitionTask) -> Floats:
        """Return the time of each op alone (n,).

        The efficiency of a type depends on seed and name, the factor of an op on seed and number.
        """
        low = {True: self.product_efficiency, False: self.other_efficiency}
        efficiency = [
            generator(self.seed, "efficiency", text).uniform(*low[text.lower() in PRODUCTS])
            for text in task.graph.op_types
        ]
        rng = generator(self.seed, "op", task.graph.name)
        factor = np.exp(self.spread * rng.standard_normal(task.n))
        return np.asarray(task.time_s * factor / np.array(efficiency)[task.graph.op_type])

    def fused_s(self, task: PartitionTask, times_s: Floats) -> Floats:
        """Return the time saved by each edge (E,) whose ends share a chip."""
        graph = task.graph
        cheap = np.array([t.lower() in ELEMENTWISE for t in graph.op_types])[graph.op_type]
        alone = np.bincount(graph.edge_src, minlength=graph.n) == 1
        inputs = np.bincount(graph.edge_dst, minlength=graph.n)
        fusable = cheap[graph.edge_dst] & alone[graph.edge_src]
        saved = self.fusion * times_s[graph.edge_dst] / np.maximum(inputs[graph.edge_dst], 1)
        return np.asarray(np.where(fusable, saved, 0.0))


@dataclass(frozen=True)
class _Tables:
    """Arrays of the kernel for one task and fidelity."""

    time_s: Floats
    fused_s: Floats
    parameters: Floats


_tables: weakref.WeakKeyDictionary[PartitionTask, dict[Any, _Tables]] = weakref.WeakKeyDictionary()


def _tables_of(task: PartitionTask, fidelity: Fidelity, hardware: HardwareModel) -> _Tables:
    known = _tables.setdefault(task, {})
    key = fidelity if fidelity == "analytic" else hardware
    if key not in known:
        known[key] = _build(task, fidelity, hardware)
    return known[key]


def _build(task: PartitionTask, fidelity: Fidelity, hardware: HardwareModel) -> _Tables:
    package = task.package
    parameters = np.zeros(kernels.PARAMETERS)
    parameters[kernels.CHIP_LINK] = package.link.bandwidth_bytes_per_s
    parameters[kernels.LINK] = package.link.bandwidth_bytes_per_s
    parameters[kernels.HOP] = package.link.hop_latency_s
    parameters[kernels.SRAM] = package.chip.sram_bytes
    parameters[kernels.FRAGMENTS] = 1.0
    parameters[kernels.DOUBLE] = float(package.chip.double_buffer)
    if fidelity == "analytic":
        return _Tables(task.time_s, np.zeros(task.graph.n_edges), parameters)
    if fidelity != "hardware":
        raise InputError(f"unknown fidelity {fidelity!r}; available: analytic, hardware")
    parameters[kernels.CHIP_LINK] *= hardware.link_efficiency
    parameters[kernels.LINK] *= hardware.link_efficiency
    parameters[kernels.MESSAGE] = hardware.message_s
    parameters[kernels.STAGE] = hardware.stage_s
    parameters[kernels.OVERLAP] = hardware.overlap
    parameters[kernels.FRAGMENTS] = hardware.fragmentation
    parameters[kernels.SPILL] = hardware.spill_bytes_per_s
    times = hardware.op_times_s(task)
    return _Tables(times, hardware.fused_s(task, times), parameters)


def as_labels(task: PartitionTask, labels: ArrayLike) -> Labels:
    """Return labels as an int16 array (S, n).

    Raises
    ------
    InputError
        If the shape is wrong or a label is no chip.
    """
    array = np.atleast_2d(np.asarray(labels))
    if array.ndim != 2 or array.shape[1] != task.n:
        raise InputError(f"labels must have shape (S, {task.n}), got {array.shape}")
    if array.dtype.kind not in "iu":
        raise InputError("labels must be integers")
    if array.size and (array.min() < 0 or array.max() >= task.chips):
        raise InputError(f"labels must be chips 0 to {task.chips - 1}")
    return np.ascontiguousarray(array, dtype=np.int16)


def _run(task: PartitionTask, labels: Labels, tables: _Tables) -> tuple[Floats, Floats, Floats]:
    graph = task.graph
    out = np.empty((len(labels), kernels.COLUMNS))
    chip = np.zeros((task.chips, kernels.CHIP_COLUMNS))
    link = np.zeros(task.chips)
    kernels.evaluate_labels(
        labels, task.chips, tables.time_s, tables.fused_s, graph.out_bytes, graph.weight_bytes,
        graph.weight_starts, graph.weight_ids, graph.succ_starts, graph.edge_dst, graph.edge_bytes,
        graph.pred_starts, graph.pred_edges, tables.parameters, out, chip, link,
    )  # fmt: skip
    return out, chip, link


def evaluate_partitions(
    task: PartitionTask,
    labels: ArrayLike,
    fidelity: Fidelity = "analytic",
    *,
    hardware: HardwareModel | None = None,
) -> dict[str, Floats]:
    """Return the metrics of valid partitions, each an array (S,).

    Parameters
    ----------
    task
        Graph, package and chips.
    labels
        Chip of each op, (S, n) or (n,); validity is not checked here
        (:func:`mohsearch.evaluators.partition.validity.are_valid`).
    fidelity
        ``analytic`` or ``hardware``.
    hardware
        Figures of the latter.

    Returns
    -------
    dict
        ``interval_s`` (1 / throughput: the busiest chip or link; Xie et al., section 5.1),
        ``latency_s`` (longest path through the chips), ``energy_j``, ``hop_bytes`` (bytes times
        links), ``chips``, ``cost_usd``, ``peak_memory_bytes`` (of the fullest chip),
        ``memory_excess_bytes`` (positive: does not fit, constraint H), ``throughput_per_s``,
        ``power_w``, ``area_mm2``, ``edp_js`` and ``transfers``.

    Raises
    ------
    InputError
        If labels have the wrong shape or are no chips, or the fidelity is unknown.

    Examples
    --------
    >>> from mohsearch.workloads.op_graph_files import load_graph
    >>> task = PartitionTask(load_graph("own_ae"), chips=2)
    >>> values = evaluate_partitions(task, [[0] * 16, [0] * 8 + [1] * 8])
    >>> values["chips"].tolist(), (values["interval_s"] * 1e6).round(1).tolist()
    ([1.0, 2.0], [99.8, 50.3])
    """
    rows = as_labels(task, labels)
    out, _, _ = _run(task, rows, _tables_of(task, fidelity, hardware or HardwareModel()))
    return _metrics(task, out)


def _metrics(task: PartitionTask, out: Floats) -> dict[str, Floats]:
    package = task.package
    interval, chips = out[:, kernels.INTERVAL], out[:, kernels.CHIPS]
    if not interval.all():
        raise InputError(f"a partition of {task.graph.name} takes no time: give its ops some")
    dynamic = task.op_energy_j + 8.0 * package.link.energy_j_per_bit * out[:, kernels.HOP_BYTES]
    energy = dynamic + package.chip.idle_power_w * chips * interval
    peak = out[:, kernels.PEAK_MEMORY]
    return {
        "interval_s": interval,
        "latency_s": out[:, kernels.LATENCY],
        "energy_j": energy,
        "hop_bytes": out[:, kernels.HOP_BYTES],
        "chips": chips,
        "cost_usd": task.cost_usd[chips.astype(np.int64)],
        "peak_memory_bytes": peak,
        "memory_excess_bytes": peak - package.chip.sram_bytes,
        "throughput_per_s": 1.0 / interval,
        "power_w": energy / interval,
        "area_mm2": chips * package.die_area_mm2,
        "edp_js": energy * out[:, kernels.LATENCY],
        "transfers": out[:, kernels.TRANSFERS],
    }


def describe_partition(
    task: PartitionTask,
    labels: ArrayLike,
    fidelity: Fidelity = "analytic",
    *,
    hardware: HardwareModel | None = None,
) -> dict[str, Any]:
    """Return one partition's metrics, its chips and links, and what binds, as plain JSON types.

    Raises
    ------
    InputError
        As :func:`evaluate_partitions`.
    """
    rows = as_labels(task, labels)
    if len(rows) != 1:
        raise InputError(f"one partition is described at a time, got {len(rows)}")
    tables = _tables_of(task, fidelity, hardware or HardwareModel())
    out, chip, link = _run(task, rows, tables)
    used = int(out[0, kernels.CHIPS])
    chips = [_chip(task, rows[0], chip, c) for c in range(used)]
    links = [
        {"from": c, "to": c + 1, "bytes": float(link[c]),
         "busy_s": float(link[c] / tables.parameters[kernels.LINK])}
        for c in range(used - 1)
    ]  # fmt: skip
    metrics = {name: float(column[0]) for name, column in _metrics(task, out).items()}
    return {
        "metrics": metrics,
        "binding": _binding(metrics["interval_s"], chips, links),
        "chips": chips,
        "links": links,
        "labels": rows[0].tolist(),
    }


def _chip(task: PartitionTask, row: Labels, chip: Floats, c: int) -> dict[str, Any]:
    names = {
        "compute_s": kernels.COMPUTE,
        "sent_bytes": kernels.SENT,
        "received_bytes": kernels.RECEIVED,
        "load_s": kernels.LOAD,
        "weight_bytes": kernels.WEIGHTS,
        "peak_memory_bytes": kernels.MEMORY,
    }
    figures = {name: float(chip[c, column]) for name, column in names.items()}
    return {"chip": c, "ops": int((row == c).sum()), **figures}


def _binding(
    interval_s: float, chips: list[dict[str, Any]], links: list[dict[str, Any]]
) -> Mapping[str, Any]:
    """Return which chip or link sets the interval, and what on that chip takes most of it."""
    busiest = max(chips, key=lambda entry: float(entry["load_s"]))
    if busiest["load_s"] >= interval_s:
        mostly = "compute" if busiest["compute_s"] >= interval_s / 2 else "transfer"
        return {"what": "chip", "number": busiest["chip"], "mostly": mostly}
    link = max(links, key=lambda entry: float(entry["busy_s"]))
    return {"what": "link", "number": link["from"], "mostly": "transfer"}
