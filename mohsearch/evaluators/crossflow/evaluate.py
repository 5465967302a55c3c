"""CrossFlow as functions over arrays of design points."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np

from mohsearch.core.errors import InputError
from mohsearch.evaluators.crossflow.config import (
    CrossflowConfig,
    GemmShape,
    allocation_row,
    technology_row,
)
from mohsearch.evaluators.crossflow.kernels import LOG_COLUMNS, LOG_ROWS, OPTION_COLUMNS
from mohsearch.evaluators.crossflow.layout import CHIP_COLUMNS, FloatArray
from mohsearch.evaluators.crossflow.lstm import CR, DURATIONS, NONE, RC
from mohsearch.evaluators.crossflow.operations import OPERATION_COLUMNS
from mohsearch.evaluators.crossflow.placement import Sharing
from mohsearch.evaluators.crossflow.point_rows import (
    GEMM,
    HIERARCHY_COLUMNS,
    LSTM,
    OPS,
    RESULT_COLUMNS,
    X_BACKWARD,
    X_BUNDLES,
    X_CAPACITY,
    X_ENERGY,
    X_FLOPS,
    X_FORWARD,
    X_MEMORY,
    X_POWER,
    X_REASON,
    X_TIME,
)
from mohsearch.evaluators.crossflow.points import addresses, evaluate_all
from mohsearch.evaluators.crossflow.random_tiling import drawn_exponents
from mohsearch.evaluators.crossflow.timeline import backward_graph, forward_graph

HOST_BANDWIDTH = 12.4 * 2**30
"""Bytes per second from host memory to a device (PCIe 3.0 x16), as the authors' program has it."""
NO_OVERRIDE = -np.ones(5)


@dataclass(frozen=True)
class Model:
    """Which of the authors' choices hold; the default is the corrected model.

    Attributes
    ----------
    exact_tiling
        Best of all power-of-two and divisor tiles, instead of random candidates.
    pass_level
        Memory level that element-wise passes are charged to; -1 is every level.
    links_kept
        A link stays busy until its own transfer ends.
    mended
        The remaining corrections: leakage from a reserve, softmax counted in pipelines' memory,
        updates by their own layer's kernel type, hard feasibility.
    candidates, gap_clipping
        The authors' random tiling: tiles per level, and whether clipped tiles grow elsewhere.
    choose_bundles
        Build as many MCU bundles as make the time smallest (needed for "more is never slower"),
        instead of all that fit; takes several times longer.
    """

    exact_tiling: bool = True
    pass_level: int = -1
    links_kept: bool = True
    mended: bool = True
    candidates: int = 20
    gap_clipping: bool = True
    choose_bundles: bool = True


CORRECTED = Model()
AUTHORS = Model(exact_tiling=False, pass_level=0, links_kept=False, mended=False)


@dataclass(frozen=True)
class Lstm:
    """The LSTM language model, in samples, tokens and features."""

    batch_size: int
    vocab_size: int
    num_layers: int
    layer_size: int
    seq_len: int
    num_gates: int = 4

    @property
    def row(self) -> FloatArray:
        """Model row (:mod:`~mohsearch.evaluators.crossflow.lstm`)."""
        values = (
            self.batch_size, self.vocab_size, self.num_layers, self.layer_size, self.seq_len,
            self.num_gates,
        )  # fmt: skip
        return np.array(values, dtype=np.float64)


@dataclass(frozen=True)
class Gemm:
    """Product of an m x k by a k x n matrix."""

    m: int
    k: int
    n: int

    @property
    def row(self) -> FloatArray:
        """Dimensions, padded to the length of a model row."""
        return np.array([self.m, self.k, self.n, 1, 1, 1], dtype=np.float64)


class StepOfOperations(Protocol):
    """A training step that can be written as a table of operations for any strategy."""

    @property
    def samples(self) -> float:
        """Samples per step."""

    def rows(self, plan: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return workload row and operations (:mod:`.operations`) under a strategy row."""


Workload = Lstm | Gemm | StepOfOperations
_NO_OPERATIONS = np.zeros((1, OPERATION_COLUMNS))


@dataclass(frozen=True)
class Strategy:
    """Parallelism ``RC-kp1-kp2-dD-pP`` or ``CR-kp1-dD-pP`` (paper, section 3.3).

    Examples
    --------
    >>> Strategy.parse("RC-2-4-d8-p1").devices
    64
    >>> str(Strategy.parse("CR-4-d16"))
    'CR-4-d16-p1'
    """

    kind: str = "none"
    kp1: int = 1
    kp2: int = 1
    dp: int = 1
    lp: int = 1

    @classmethod
    def parse(cls, text: str, *, source: str | None = None, field: str | None = None) -> Strategy:
        """Read a strategy's name; missing parts are 1."""
        pattern = r"(?:(RC|CR)(?:-(\d+))?(?:-(\d+))?)?-?(?:d(\d+))?-?(?:p(\d+))?"
        match = re.fullmatch(pattern, text.strip())
        numbers = [int(x) if x else 1 for x in match.groups()[1:]] if match else [0]
        if match is None or min(numbers) < 1 or not text.strip():
            raise InputError(
                f"{text!r} is no strategy such as RC-2-4-d8-p1, CR-8-d4 or d16",
                source=source,
                field=field,
            )
        kind = match[1] or "none"
        if kind == "CR" and numbers[1] != 1:
            raise InputError("CR splits one dimension only", source=source, field=field)
        if numbers[0] * numbers[1] == 1:
            kind = "none"
        return cls(kind, *numbers)

    def __str__(self) -> str:
        kernel = {"none": "", "CR": f"CR-{self.kp1}-", "RC": f"RC-{self.kp1}-{self.kp2}-"}
        return f"{kernel[self.kind]}d{self.dp}-p{self.lp}"

    @property
    def devices(self) -> int:
        """How many devices the strategy takes."""
        return self.kp1 * self.kp2 * self.dp * self.lp

    @property
    def code(self) -> tuple[int, int, int, int, int]:
        """Kind (0 none, 1 CR, 2 RC), kp1, kp2, dp, lp."""
        return ("none", "CR", "RC").index(self.kind), self.kp1, self.kp2, self.dp, self.lp

    @property
    def row(self) -> FloatArray:
        """Strategy row, the same kernel parallelism for all layers."""
        kind = {"none": NONE, "CR": CR, "RC": RC}[self.kind]
        layer = [kind, self.kp1, self.kp2]
        return np.array([*layer, *layer, *layer, self.dp, self.lp], dtype=np.float64)


def place_row(
    devices: int, *, nodes_per_package: int = 1, inter_derate: float = 1.0,
    intra_derate: float = 0.0, crosses: tuple[bool, bool, bool, bool] | None = None,
    scaled_links: bool = False,
) -> FloatArray:  # fmt: skip
    """Return a hierarchy row; by default every dimension that needs links leaves the package."""
    packages = math.ceil(devices / nodes_per_package)
    leaves = crosses if crosses is not None else (packages > 1,) * 4
    row = np.zeros(HIERARCHY_COLUMNS)
    row[:9] = [devices, packages, inter_derate, intra_derate, *leaves, scaled_links]
    row[9:] = [*(not x for x in leaves), *leaves]
    return row


def shared_row(devices: int, nodes_per_package: int, sharing: Sharing) -> FloatArray:
    """Return the hierarchy row of a placement."""
    row = place_row(
        devices, nodes_per_package=nodes_per_package, inter_derate=sharing.inter_derate,
        intra_derate=sharing.intra_derate,
        crosses=(*sharing.crosses[:3], sharing.crosses[3]),  # type: ignore[arg-type]
    )  # fmt: skip
    row[9:] = [*sharing.hops_intra, *sharing.hops_inter]
    return row


def option_row(
    model: Model, *, precision_bytes: float = 2.0, launch_overhead_s: float = 9e-6
) -> FloatArray:
    """Return the option row of the compiled kernels."""
    row = np.zeros(OPTION_COLUMNS)
    row[:] = (
        precision_bytes, launch_overhead_s, model.exact_tiling, model.candidates,
        model.gap_clipping, 0, model.pass_level, model.links_kept, HOST_BANDWIDTH, model.mended,
        model.choose_bundles and model.mended,
    )  # fmt: skip
    return row


@dataclass(frozen=True)
class Points:
    """Results of n design points.

    Attributes
    ----------
    time_s, forward_s, backward_s : (n,)
        Infinite where there is none.
    reason : (n,) int
        Why a point is infeasible, see :mod:`~mohsearch.evaluators.crossflow.reasons`; a time may
        be finite nevertheless (memory, budget).
    memory_bytes, capacity_bytes : (n,)
        Main memory needed and present per device.
    energy_j, power_w, flop : (n,)
        Energy and operations of one run on all devices, mean power per device (``energy=True``
        only).
    bundles : (n,)
        MCU bundles built.
    chips : (n, CHIP_COLUMNS)
    durations_s : (n, 11)
        Per ``lstm.DURATIONS``; zero for a product.
    """

    time_s: FloatArray
    forward_s: FloatArray
    backward_s: FloatArray
    reason: np.ndarray
    memory_bytes: FloatArray
    capacity_bytes: FloatArray
    energy_j: FloatArray
    power_w: FloatArray
    flop: FloatArray
    bundles: FloatArray
    chips: FloatArray
    durations_s: FloatArray
    log: FloatArray | None = field(default=None, repr=False)


def evaluate(
    technology: FloatArray, allocation: FloatArray, workload: Workload,
    strategy: Strategy | FloatArray | None = None, *, place: FloatArray | None = None,
    model: Model = CORRECTED, precision_bytes: float = 2.0, launch_overhead_s: float = 9e-6,
    overrides: FloatArray = NO_OVERRIDE, energy: bool = False,
) -> Points:  # fmt: skip
    """Predict the time of one workload and strategy on n chips.

    Parameters
    ----------
    technology : (TECHNOLOGY_COLUMNS,) or (n, TECHNOLOGY_COLUMNS)
    allocation : (n, ALLOCATION_COLUMNS)
    place : (HIERARCHY_COLUMNS,) or (n, HIERARCHY_COLUMNS), optional
        Packages and link sharing; default one device per package.
    overrides : (5,) or (n, 5)
        Figures that replace the generator's; negative means none.
    energy
        Also fill ``energy_j`` and ``power_w``.

    Examples
    --------
    >>> from mohsearch.evaluators.crossflow.reading import config_from
    >>> v100 = config_from({"system": "V100"})
    >>> points = evaluate(technology_row(v100), allocation_row(v100), Gemm(4096, 4096, 4096))
    >>> bool(0.0012 < points.time_s[0] < 0.0017)
    True
    """
    options = option_row(
        model, precision_bytes=precision_bytes, launch_overhead_s=launch_overhead_s
    )
    log = np.zeros((LOG_ROWS if energy else 1, LOG_COLUMNS))
    return _evaluated(
        technology, allocation, overrides, place, workload, strategy or Strategy(), options, log
    )


def evaluate_logged(
    technology: FloatArray, allocation: FloatArray, workload: Workload,
    strategy: Strategy | FloatArray, *, place: FloatArray, options: FloatArray,
    overrides: FloatArray = NO_OVERRIDE,
) -> Points:  # fmt: skip
    """Evaluate one chip with a log of its kernels.

    Parameters
    ----------
    technology : (TECHNOLOGY_COLUMNS,)
    allocation : (ALLOCATION_COLUMNS,)
    options
        :func:`option_row`.

    Returns
    -------
    Points
        Of one point; ``log`` has a row per kernel (``R_...`` of
        :mod:`~mohsearch.evaluators.crossflow.kernels`).
    """
    log = np.zeros((LOG_ROWS, LOG_COLUMNS))
    points = _evaluated(
        technology, allocation, overrides, place, workload, strategy, options, log
    )  # fmt: skip
    return replace(points, log=log[1 : int(log[0, 0]) + 1])


def _evaluated(
    technology: FloatArray, allocation: FloatArray, overrides: FloatArray,
    place: FloatArray | None, workload: Workload, strategy: Strategy | FloatArray,
    options: FloatArray, log: FloatArray,
) -> Points:  # fmt: skip
    plan = strategy if isinstance(strategy, np.ndarray) else strategy.row
    devices = int(plan[1] * plan[2] * plan[9] * plan[10])
    where = place_row(devices) if place is None else place
    kind, row, table = problem_rows(workload, plan)
    alloc = _table(allocation)
    count = alloc.shape[0]
    chips = np.zeros((count, CHIP_COLUMNS))
    durations = np.zeros((count, len(DURATIONS)))
    results = np.zeros((count, RESULT_COLUMNS))
    evaluate_all(
        _table(technology), alloc, _table(overrides), _table(where), row, plan, kind, table,
        options, drawn_exponents(), *graphs_of(workload, int(plan[10])), chips, durations, results,
        log, addresses(),
    )  # fmt: skip
    return _points(results, chips, durations)


def _table(rows: FloatArray) -> FloatArray:
    """Return rows as the compiled loop takes them: two-dimensional, contiguous, writable."""
    return np.require(np.atleast_2d(rows), np.float64, ["C", "W"])


def problem_rows(workload: Workload, plan: FloatArray) -> tuple[int, FloatArray, FloatArray]:
    """Return what the compiled loop needs of a workload: kind, workload row, operations."""
    if isinstance(workload, Lstm):
        return LSTM, workload.row, _NO_OPERATIONS
    if isinstance(workload, Gemm):
        return GEMM, workload.row, _NO_OPERATIONS
    return OPS, *workload.rows(plan)


def graphs_of(workload: Workload, stages: int) -> tuple[tuple, tuple]:  # type: ignore[type-arg]
    """Return the graphs of the forward and the backward pass over pipeline stages."""
    if isinstance(workload, Lstm):
        shape = (workload.seq_len, workload.num_layers, stages)
    else:
        shape = (1, 1, 1)
    return tuple(forward_graph(*shape)), tuple(backward_graph(*shape))


def _points(results: FloatArray, chips: FloatArray, durations: FloatArray) -> Points:
    return Points(
        time_s=results[:, X_TIME], forward_s=results[:, X_FORWARD],
        backward_s=results[:, X_BACKWARD], reason=results[:, X_REASON].astype(np.int64),
        memory_bytes=results[:, X_MEMORY], capacity_bytes=results[:, X_CAPACITY],
        energy_j=results[:, X_ENERGY], power_w=results[:, X_POWER],
        flop=results[:, X_FLOPS], bundles=results[:, X_BUNDLES], chips=chips,
        durations_s=durations,
    )  # fmt: skip


def config_model(config: CrossflowConfig) -> Model:
    """Return the model that a configuration asks for."""
    if config.compat == "deepflow":
        return Model(
            exact_tiling=False, pass_level=0, links_kept=False, mended=False,
            candidates=config.tile_candidates,
        )  # fmt: skip
    return CORRECTED


def config_plan(config: CrossflowConfig) -> FloatArray:
    """Return the strategy row of a configuration."""
    if config.strategy is not None:
        return Strategy.parse(config.strategy, field="strategy").row
    plan = config.scheduling_param
    layers = (
        (plan.kp_hidden_type, plan.kp_hidden_dim1, plan.kp_hidden_dim2),
        (plan.kp_softmax_type, plan.kp_softmax_dim1, plan.kp_softmax_dim2),
        (plan.kp_embedding_type, plan.kp_embedding_dim1, plan.kp_embedding_dim2),
    )
    row: list[float] = []
    for kind, d1, d2 in layers:
        row += [NONE if d1 == d2 == 1 else kind, d1, d2]
    return np.array([*row, plan.dp, plan.lp], dtype=np.float64)


def config_place(config: CrossflowConfig, *, scaled_links: bool = False) -> FloatArray:
    """Return the hierarchy row of a configuration."""
    system = config.system_hierarchy
    return place_row(
        system.num_workers, nodes_per_package=system.num_nodes_per_wafer,
        inter_derate=system.inter_derate, intra_derate=system.intra_derate,
        crosses=(system.kp1_inter, system.kp2_inter, system.dp_inter, system.lp_inter),
        scaled_links=scaled_links,
    )  # fmt: skip


def config_overrides(config: CrossflowConfig) -> FloatArray:
    """Return the override row of a configuration."""
    over = config.overrides
    values = (
        over.dram_bandwidth_bytes_per_s, over.dram_size_bytes, over.inter_bandwidth_bytes_per_s,
        over.intra_bandwidth_bytes_per_s, over.flop_per_s,
    )  # fmt: skip
    return np.array([-1.0 if v is None else v for v in values])


def evaluate_config(
    config: CrossflowConfig, workload: Workload | None = None, *,
    model: Model | None = None, plan: FloatArray | None = None, place: FloatArray | None = None,
    scaled_links: bool = False,
) -> Points:  # fmt: skip
    """Evaluate one configuration with a log of its kernels."""
    if workload is None:
        lm = config.model_param
        workload = Lstm(
            lm.batch_size, lm.vocab_size, lm.num_layers, lm.layer_size, lm.seq_len, lm.num_gates
        )
    row = config_plan(config) if plan is None else plan
    chosen = config_model(config) if model is None else model
    options = option_row(
        chosen, precision_bytes=config.sw_param.precision,
        launch_overhead_s=config.sw_param.kernel_launch_overhead,
    )  # fmt: skip
    return evaluate_logged(
        technology_row(config), allocation_row(config), workload, row,
        place=config_place(config, scaled_links=scaled_links) if place is None else place,
        options=options, overrides=config_overrides(config),
    )  # fmt: skip


def gemm_of(
    shape: GemmShape, otherwise: str | None = None, *, field: str = "gemm.strategy"
) -> tuple[Gemm, Strategy]:
    """Return the product and strategy that a configuration's ``gemm`` entry means.

    ``otherwise`` is the strategy of the whole configuration, for an entry without its own.
    """
    name = shape.strategy if shape.strategy is not None else otherwise
    strategy = Strategy() if name is None else Strategy.parse(name, field=field)
    return Gemm(shape.m, shape.k, shape.n), strategy
