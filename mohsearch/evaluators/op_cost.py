"""Latency and energy of training operators on many accelerators at once.

An op runs on one core of its kind (``alone``) or on all of them (``spread``); PHAZE, section 4. A
cost depends on few of an accelerator's parameters, so each distinct combination is computed once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mohsearch.core.errors import InputError
from mohsearch.evaluators.op_cost_options import WORD_BYTES, CostOptions
from mohsearch.evaluators.op_cost_tiling import search_products
from mohsearch.evaluators.op_cost_vector import lane_cycles, paper_lane_cycles
from mohsearch.evaluators.training_architecture import Architectures
from mohsearch.workloads.training_ops import TrainingOp

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Signature = tuple[object, ...]

_PICO = 1e-12
_MOST = 2**60


@dataclass(frozen=True)
class OpCosts:
    """Costs of ops on accelerators, each of shape (ops, accelerators).

    Attributes
    ----------
    alone_cycles, spread_cycles
        Latency on one core (a fused op: on a pair) and on all cores.
    alone_energy_j, spread_energy_j
        Dynamic energy.
    memory_words
        Memory traffic of the spread variant.
    """

    alone_cycles: Integers
    spread_cycles: Integers
    alone_energy_j: Floats
    spread_energy_j: Floats
    memory_words: Integers

    @property
    def shortest(self) -> Integers:
        """The shorter of the two latencies."""
        return np.minimum(self.alone_cycles, self.spread_cycles)


@dataclass(frozen=True)
class _Cost:
    """Cycles, energy and memory words of one op, each of shape (accelerators,)."""

    cycles: Integers
    energy_pj: Floats
    words: Integers


def signature(op: TrainingOp) -> Signature:
    """Return what the cost of an op depends on; equal signatures cost the same."""
    return (
        op.engine,
        (op.batch, op.m, op.n, op.k),
        op.elements,
        op.counts,
        (op.read_bytes, op.write_bytes, op.row_bytes, op.passes),
        (op.collective, op.collective_bytes, op.width),
        op.op_type if op.engine in {"vector", "fused"} else "",
    )


def cost_ops(
    ops: Sequence[TrainingOp],
    architectures: Architectures,
    options: CostOptions | None = None,
) -> OpCosts:
    """Return the costs of ops on accelerators.

    Parameters
    ----------
    ops
        Tensor, vector, fused and collective ops.
    architectures
        Accelerators, such as :func:`feasible_architectures` returns.
    options
        Clock, bandwidths and switches.

    Raises
    ------
    InputError
        If an op is too large for 64-bit counts of words and cycles.

    Returns
    -------
    OpCosts
        In the order of ``ops`` and ``architectures``.

    Examples
    --------
    >>> from mohsearch.evaluators.training_architecture import REFERENCE
    >>> op = TrainingOp("up", "linear", "forward", "tensor", 1, 2048, 4096, 1024, 2048 * 4096)
    >>> tpu = Architectures(*(np.array([value]) for value in REFERENCE))
    >>> costs = cost_ops([op], tpu)
    >>> int(costs.alone_cycles[0, 0]), int(costs.spread_cycles[0, 0])
    (573184, 71648)
    """
    chosen = options or CostOptions()
    book = _CostBook(architectures, chosen)
    found: dict[Signature, tuple[_Cost, _Cost]] = {}
    rows = []
    for op in ops:
        key = signature(op)
        if key not in found:
            _check_size(op, chosen)
            found[key] = (book.cost(op, spread=False), book.cost(op, spread=True))
        rows.append(found[key])
    shape = (len(rows), len(architectures))
    return OpCosts(
        _stacked([alone.cycles for alone, _ in rows], shape, np.int64),
        _stacked([spread.cycles for _, spread in rows], shape, np.int64),
        _stacked([alone.energy_pj for alone, _ in rows], shape, np.float64) * _PICO,
        _stacked([spread.energy_pj for _, spread in rows], shape, np.float64) * _PICO,
        _stacked([spread.words for _, spread in rows], shape, np.int64),
    )


def bound_ops(
    ops: Sequence[TrainingOp],
    architectures: Architectures,
    options: CostOptions | None = None,
) -> Floats:
    """Return lower bounds in cycles on both latencies of every op, shape (ops, accelerators).

    No tiling is searched: all elements of all cores are busy in every cycle, and every operand
    moves once, over the whole memory bandwidth.
    """
    chosen = options or CostOptions()
    elements = architectures.tensor_cores * architectures.width * architectures.depth
    lanes = architectures.vector_cores * architectures.width
    bounds = np.zeros((len(ops), len(architectures)))
    for row, op in enumerate(ops):
        if op.engine == "collective":
            bounds[row] = _collective_cycles(op, chosen)
            continue
        bounds[row] = op.macs / elements
        if op.engine == "vector" or chosen.fused_tiles:
            work = paper_lane_cycles(op, chosen) if chosen.paper_lanes else lane_cycles(op, chosen)
            bounds[row] = np.maximum(bounds[row], work / lanes)
        words = (op.read_bytes + op.write_bytes) / WORD_BYTES
        if op.engine != "vector":
            operands = op.batch * (op.m * op.k + op.k * op.n)
            words = max(float(operands + (op.engine == "tensor") * op.batch * op.m * op.n), 0.0)
        if op.engine != "vector" or chosen.vector_memory:
            bounds[row] = np.maximum(bounds[row], words / chosen.memory_words_per_cycle)
    return bounds


def _check_size(op: TrainingOp, options: CostOptions) -> None:
    """Refuse an op whose counts of words and cycles could leave 64 bits."""
    slowest = min(options.memory_words_per_cycle, options.glb_words or 1.0, 1.0)
    most = _MOST * slowest / options.sharing if slowest < 1.0 else _MOST
    largest = max(op.macs, 8 * (op.read_bytes + op.write_bytes), sum(op.counts), op.row_bytes)
    if largest > most:
        shape = f"{op.batch} x {op.m} x {op.n} x {op.k}" if op.macs else f"{op.elements} elements"
        raise InputError(
            f"the op {op.name} ({shape}) is too large to be costed at this clock and bandwidth"
        )


def _stacked(rows: list[NDArray[np.generic]], shape: tuple[int, int], kind: type) -> NDArray:  # type: ignore[type-arg]
    return np.array(rows, dtype=kind).reshape(shape)


def _collective_cycles(op: TrainingOp, options: CostOptions) -> float:
    """Return the cycles of a ring collective."""
    steps = (op.width - 1) * (2 if op.collective == "all_reduce" else 1)
    seconds = op.wire_bytes / options.link_bytes_per_s + steps * options.link_latency_s
    return seconds * options.frequency_hz


class _CostBook:
    """The accelerators' distinct combinations, and the cost of an op on them."""

    def __init__(self, architectures: Architectures, options: CostOptions) -> None:
        self.arch = architectures
        self.options = options
        self.halved = 2 if options.buffered else 1
        fixed = options.glb_words
        rate = architectures.global_buffer_words_per_cycle
        self.glb_rate = rate if fixed is None else np.full(len(architectures), fixed)
        self.rate_number = np.unique(self.glb_rate, return_inverse=True)[1].reshape(-1)
        cores = architectures.tensor_cores + architectures.vector_cores
        self.shared = np.minimum(options.sharing, cores)
        sizes = np.unique(architectures.global_buffer_mib)
        self.glb_place = np.searchsorted(sizes, architectures.global_buffer_mib)
        self.rooms = (sizes * 2**20 // WORD_BYTES // self.halved).astype(np.int64)
        technology = options.technology
        self.glb_pj = technology.sram_word_pj(architectures.global_buffer_mib * 1024)
        self.tensor_pj = technology.sram_word_pj(architectures.tensor_buffer_kib)
        self.vector_pj = technology.sram_word_pj(architectures.vector_buffer_kib)
        self._products: dict[tuple[object, ...], _Cost] = {}
        self._keys: dict[str, tuple[Integers, Integers]] = {}

    def cost(self, op: TrainingOp, *, spread: bool) -> _Cost:
        """Return what an op costs on all accelerators."""
        if op.engine == "collective":
            return self._collective(op, spread=spread)
        if op.engine == "vector":
            return self._vector(op, spread=spread)
        if op.engine == "tensor":
            return self._product(op, "tensor" if spread else "alone", self._extra(op))
        return self._fused(op, spread=spread)

    def _extra(self, op: TrainingOp) -> int:
        """Return the memory words of an op beyond the operands of its product."""
        operands = op.batch * (op.m * op.k + op.k * op.n + op.m * op.n)
        return max(0, (op.read_bytes + op.write_bytes) // WORD_BYTES - operands)

    def _fused(self, op: TrainingOp, *, spread: bool) -> _Cost:
        """Cost a product with element-wise followers.

        Each finished tile goes to the followers, which work on it while the next one is made; what
        they do to the last one comes after the product. On one pair of cores, or on all pairs, the
        tile goes straight to the paired core. With all cores it may instead go through the global
        buffer from all tensor to all vector cores: the faster way is taken.
        """
        if not self.options.fused_tiles:
            constant = paper_lane_cycles(op, self.options, constant=True)
            own = self._product(op, "tensor" if spread else "alone", self._extra(op))
            return _Cost(own.cycles + int(constant), own.energy_pj, own.words)
        arch = self.arch
        if not spread:
            one = np.ones(len(arch), dtype=np.int64)
            return self._overlapped(op, "alone", one, one, 0)
        pairs = _cores(arch, "fused")
        paired = self._overlapped(op, "fused", pairs, pairs, 0)
        through = 2 * op.batch * op.m * op.n
        streamed = self._overlapped(op, "tensor", arch.tensor_cores, arch.vector_cores, through)
        return _faster(paired, streamed)

    def _overlapped(
        self, op: TrainingOp, mode: str, tensor: Integers, vector: Integers, sent: int
    ) -> _Cost:
        """Cost a fused op on so many cores, with ``sent`` words more through the global buffer."""
        product = self._product(op, mode, self._extra(op), sent)
        followers = self._lanes(op, vector)
        outputs = op.batch * op.m * op.n
        tiles = np.maximum(1, outputs // (tensor * self.arch.width * self.arch.depth))
        drain = np.ceil(followers / tiles).astype(np.int64)
        cycles = np.maximum(product.cycles, followers) + drain
        energy = product.energy_pj + self._lane_energy(op) + 2 * outputs * self.vector_pj
        return _Cost(cycles, energy, product.words)

    def _product(self, op: TrainingOp, mode: str, extra: int, sent: int = 0) -> _Cost:
        """Search the tiling of a product on the distinct combinations."""
        name = (mode, op.batch, op.m, op.n, op.k, extra, sent)
        if name in self._products:
            return self._products[name]
        first, back = self._combinations(mode)
        arch = self.arch.take(first)
        cores = _cores(arch, mode)
        shared = self.shared[first] if mode == "alone" else np.ones(len(first))
        buffer = arch.tensor_buffer_kib * 1024 // WORD_BYTES // self.halved
        memory = self.options.memory_words_per_cycle / shared
        cycles = np.zeros(len(first), dtype=np.int64)
        traffic = np.zeros((len(first), 3), dtype=np.int64)
        search_products(
            op.batch, op.m, op.n, op.k, extra, sent, self.rooms, arch.depth, arch.width, cores,
            buffer, self.glb_place[first], self.glb_rate[first] / shared, memory,
            int(self.options.filled), cycles, traffic,
        )  # fmt: skip
        technology = self.options.technology
        memory_words, through, fed = traffic.T.astype(np.float64)
        energy = (
            op.macs * (technology.multiply_pj + technology.add_pj)
            + fed * self.tensor_pj[first]
            + through * (self.glb_pj[first] + self.tensor_pj[first])
            + memory_words * (technology.hbm_word_pj + self.glb_pj[first])
        )
        cost = _Cost(cycles[back], energy[back], traffic[back, 0])
        self._products[name] = cost
        return cost

    def _combinations(self, mode: str) -> tuple[Integers, Integers]:
        """Return the first accelerator of every distinct combination, and each one's number."""
        if mode not in self._keys:
            arch = self.arch
            shared = self.shared if mode == "alone" else np.ones_like(self.shared)
            columns = (
                _cores(arch, mode),
                arch.width,
                arch.depth,
                arch.global_buffer_mib,
                self.rate_number,
                shared,
            )
            _, first, back = np.unique(
                np.stack(columns, axis=1), axis=0, return_index=True, return_inverse=True
            )
            self._keys[mode] = (first.astype(np.int64), back.reshape(-1).astype(np.int64))
        return self._keys[mode]

    def _lanes(self, op: TrainingOp, cores: Integers) -> Integers:
        """Return the lane cycles of an op's elements on so many vector cores."""
        if not op.elements:
            return np.zeros(len(cores), dtype=np.int64)
        total = (
            paper_lane_cycles(op, self.options)
            if self.options.paper_lanes
            else lane_cycles(op, self.options)
        )
        turns = -(-op.elements // (cores * self.arch.width))
        return np.asarray(np.ceil(turns * (total / op.elements)), dtype=np.int64)

    def _lane_energy(self, op: TrainingOp) -> float:
        technology = self.options.technology
        return float(lane_cycles(op, self.options) * technology.add_pj)

    def _vector(self, op: TrainingOp, *, spread: bool) -> _Cost:
        cores = self.arch.vector_cores if spread else np.ones_like(self.arch.vector_cores)
        shared = np.ones_like(self.shared) if spread else self.shared
        cycles = self._lanes(op, cores)
        room = self.arch.vector_buffer_kib * 1024 // self.halved
        passes = np.where(op.row_bytes > room, op.passes, 1)
        words = (op.read_bytes + op.write_bytes) // WORD_BYTES
        sent = (op.read_bytes * passes + op.write_bytes) // WORD_BYTES
        if self.options.vector_memory:
            memory = np.ceil(words * shared / self.options.memory_words_per_cycle)
            buffer = np.ceil(sent * shared / self.glb_rate)
            cycles = np.maximum(cycles, np.maximum(memory, buffer).astype(np.int64))
        energy = (
            self._lane_energy(op)
            + sent * (self.glb_pj + 2 * self.vector_pj)
            + words * (self.options.technology.hbm_word_pj + self.glb_pj)
        )
        return _Cost(cycles, energy, np.full(len(self.arch), words, dtype=np.int64))

    def _collective(self, op: TrainingOp, *, spread: bool) -> _Cost:
        """Cost a collective: the links, or the sums and copies on this accelerator."""
        own = self._vector(op, spread=spread)
        cycles = _collective_cycles(op, self.options)
        if not cycles < _MOST:
            raise InputError(
                f"the op {op.name} ({op.wire_bytes:g} bytes over links) is too large to be costed "
                "at this clock and network bandwidth"
            )
        link = int(np.ceil(cycles))
        return _Cost(np.maximum(own.cycles, link), own.energy_pj, own.words)


def _cores(arch: Architectures, mode: str) -> Integers:
    if mode == "alone":
        return np.ones(len(arch), dtype=np.int64)
    if mode == "fused":
        return np.asarray(np.minimum(arch.tensor_cores, arch.vector_cores), dtype=np.int64)
    return arch.tensor_cores


def _faster(one: _Cost, other: _Cost) -> _Cost:
    first = one.cycles <= other.cycles
    return _Cost(
        np.where(first, one.cycles, other.cycles),
        np.where(first, one.energy_pj, other.energy_pj),
        np.where(first, one.words, other.words),
    )
