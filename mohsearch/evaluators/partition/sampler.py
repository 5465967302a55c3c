"""Valid partitions by sampling and by repair: SAMPLE and FIX of Xie et al. (algorithms 1 and 2)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import networkx as nx
import numpy as np
from numpy.typing import ArrayLike, NDArray

from mohsearch.core.errors import InputError
from mohsearch.evaluators.partition import chain_kernels, general_kernels
from mohsearch.evaluators.partition.bounds import relations_of
from mohsearch.evaluators.partition.costs import Labels
from mohsearch.evaluators.partition.streams import row_seeds
from mohsearch.evaluators.partition.task import PartitionTask
from mohsearch.evaluators.partition.validity import are_valid
from mohsearch.workloads.op_graph import Floats

Mode = Literal["ladder", "general", "chain"]
MODES = ("ladder", "general", "chain")
Order = Literal["random", "topological"]

UNCHANGED, GENERAL, CHAIN, NONE = 2, 0, 1, -1
"""Rungs: input already valid, all constraints in full, chain of chips, nothing found."""


LATER_JUMPS = (3, 2)
"""Chips an edge may reach at most in the second general attempt, and in those after it."""


@dataclass(frozen=True)
class Sampled:
    """Partitions and how they were found.

    Attributes
    ----------
    labels
        Chip of each op (S, n); a row whose rung is NONE is all zero.
    rung
        GENERAL (0), CHAIN (1), UNCHANGED (2, FIX of a valid row) or NONE (-1) of each row (S,).
    fails
        Dead ends of the propagator in each row (S,).
    """

    labels: Labels
    rung: NDArray[np.int8]
    fails: NDArray[np.int32]


class PartitionSampler:
    """SAMPLE and FIX over a task.

    Parameters
    ----------
    task
        Graph and chips.
    mode
        ``general`` propagates equations (2) to (4) in full and may end in nothing; ``chain`` lets
        an edge reach the next chip at most and always succeeds; ``ladder`` is general, with
        restarts, then chain.
    fails
        Dead ends after which a general attempt is given up.
    restarts
        General attempts, each with a new order. The first is free; in later ones no edge reaches
        further than three chips, then two, which leads into fewer dead ends.

    Raises
    ------
    InputError
        If the mode is unknown.

    Examples
    --------
    >>> from mohsearch.workloads.op_graph_files import load_graph
    >>> task = PartitionTask(load_graph("tv_resnet18"), chips=4)
    >>> sampler = PartitionSampler(task, "chain")
    >>> rows = sampler.sample(100, np.random.default_rng(1)).labels
    >>> bool(are_valid(task.graph, rows, 4).all())
    True
    >>> bool((sampler.fix(rows, np.random.default_rng(2)).labels == rows).all())
    True
    """

    def __init__(
        self, task: PartitionTask, mode: Mode = "ladder", *, fails: int = 60, restarts: int = 3
    ) -> None:
        if mode not in MODES:
            raise InputError(f"unknown mode {mode!r}; available: {', '.join(MODES)}")
        self.task = task
        self.mode = mode
        self.fails = fails
        self.restarts = restarts

    @cached_property
    def _components(self) -> NDArray[np.int64]:
        return connected_components(self.task)

    @cached_property
    def _network(self) -> general_kernels.Network:
        return network_of(self.task)

    @cached_property
    def _slack(self) -> NDArray[np.int64]:
        return self._network.slack.copy()

    def sample(
        self,
        count: int,
        rng: np.random.Generator,
        probabilities: ArrayLike | None = None,
        order: Order | ArrayLike = "random",
    ) -> Sampled:
        """Return ``count`` valid partitions, ops placed one after the other (algorithm 1).

        Parameters
        ----------
        count
            Rows.
        rng
            Draws one seed a row; a row depends on nothing else that is random.
        probabilities
            Weights of the chips of each op, (n, C), or one such table a row (count, n, C); uniform
            by default. A domain whose weights are all zero is drawn from uniformly.
        order
            In which ops are placed: ``random`` (anew each row), ``topological``, or op numbers,
            (n,) or (count, n).

        Raises
        ------
        InputError
            If shapes are wrong, a weight is negative or an order is no permutation.
        """
        if count < 0:
            raise InputError(f"count must not be negative, got {count}")
        tables = self._tables(probabilities, count)
        rows = np.zeros((count, self.task.n), np.int16)
        return self._run(rows, rows, False, tables, order, rng)

    def fix(
        self,
        labels: ArrayLike,
        rng: np.random.Generator,
        order: Order | ArrayLike = "random",
    ) -> Sampled:
        """Return valid partitions that keep as many of the given labels as the order allows.

        Ops keep their label where it is still possible when their turn comes; the others are then
        drawn uniformly from what is left (algorithm 2). A valid row comes back unchanged; labels
        that are no chips are just not kept.

        Raises
        ------
        InputError
            If the shape is wrong.
        """
        wanted = np.atleast_2d(np.asarray(labels))
        if wanted.ndim != 2 or wanted.shape[1] != self.task.n or wanted.dtype.kind not in "iu":
            problem = f"labels must be integers of shape (S, {self.task.n})"
            raise InputError(f"{problem}, got {wanted.dtype} {wanted.shape}")
        wanted = np.ascontiguousarray(np.clip(wanted, -1, self.task.chips), dtype=np.int16)
        return self._run(wanted.copy(), wanted, True, np.ones((1, 1, self.task.chips)), order, rng)

    def _run(
        self,
        rows: Labels,
        wanted: Labels,
        fix: bool,
        tables: Floats,
        order: Order | ArrayLike,
        rng: np.random.Generator,
    ) -> Sampled:
        orders = self._orders(order, len(rows))
        seeds = row_seeds(rng, len(rows))
        rung = np.full(len(rows), NONE, np.int8)
        fails = np.zeros(len(rows), np.int32)
        if fix:
            rung[are_valid(self.task.graph, wanted, self.task.chips)] = UNCHANGED
        if self.mode != "chain":
            self._general(rows, rung, fails, wanted, fix, tables, orders, seeds)
        if self.mode != "general":
            self._chain(rows, np.flatnonzero(rung == NONE), wanted, fix, tables, orders, seeds)
            rung[rung == NONE] = CHAIN
        return Sampled(rows, rung, fails)

    def _chain(
        self,
        rows: Labels,
        chosen: NDArray[np.int64],
        wanted: Labels,
        fix: bool,
        tables: Floats,
        orders: NDArray[np.int64],
        seeds: NDArray[np.uint64],
    ) -> None:
        graph = self.task.graph
        component = self._components
        chain_kernels.chain_rows(
            rows, chosen, wanted, fix, tables, orders, seeds, self.task.chips, component,
            int(component.max()) + 1, graph.succ_starts, graph.edge_dst, graph.pred_starts,
            graph.pred_edges, graph.edge_src,
        )  # fmt: skip

    def _general(
        self,
        rows: Labels,
        rung: NDArray[np.int8],
        fails: NDArray[np.int32],
        wanted: Labels,
        fix: bool,
        tables: Floats,
        orders: NDArray[np.int64],
        seeds: NDArray[np.uint64],
    ) -> None:
        """Fill the rows whose rung is NONE by the general propagator, where it finds something."""
        jumps = np.array([self.task.chips, *LATER_JUMPS, *[LATER_JUMPS[-1]] * self.restarts])
        general_kernels.general_rows(
            rows, rung, fails, np.flatnonzero(rung == NONE), wanted, fix, tables, orders, seeds,
            self.fails, jumps[: self.restarts],
            general_kernels.new_search(self.task.n, self.task.chips), self._network, self._slack,
        )  # fmt: skip

    def _tables(self, probabilities: ArrayLike | None, count: int) -> Floats:
        chips, n = self.task.chips, self.task.n
        if probabilities is None:
            return np.ones((1, 1, chips))
        table = np.ascontiguousarray(probabilities, dtype=np.float64)
        if table.ndim == 2:
            table = table[None]
        if table.ndim != 3 or table.shape[1:] != (n, chips) or len(table) not in (1, count):
            raise InputError(f"probabilities must have shape ({n}, {chips}), got {table.shape}")
        if not (np.isfinite(table).all() and (table >= 0).all()):
            raise InputError("probabilities must be finite and not negative")
        return table

    def _orders(self, order: Order | ArrayLike, count: int) -> NDArray[np.int64]:
        n = self.task.n
        if isinstance(order, str):
            if order not in ("random", "topological"):
                raise InputError(f"unknown order {order!r}; available: random, topological")
            return np.empty((0, n), np.int64) if order == "random" else np.arange(n)[None]
        rows = np.atleast_2d(np.asarray(order))
        good = rows.ndim == 2 and rows.shape[1] == n and len(rows) in (1, count)
        if not good or not (np.sort(rows, axis=1) == np.arange(n)).all():
            raise InputError(f"an order must be a permutation of the {n} ops, one or one a row")
        return np.ascontiguousarray(rows, dtype=np.int64)


def network_of(task: PartitionTask) -> general_kernels.Network:
    """Return the arrays of the general propagator."""
    graph, relations = task.graph, relations_of(task)
    return general_kernels.Network(
        succ_starts=graph.succ_starts,
        pred_starts=graph.pred_starts,
        pred_edges=graph.pred_edges,
        edge_src=graph.edge_src,
        edge_dst=graph.edge_dst,
        slack=relations.beside + 1,
        between_starts=relations.starts,
        between=relations.between,
        sources=np.flatnonzero(np.diff(graph.pred_starts) == 0),
    )


def connected_components(task: PartitionTask) -> NDArray[np.int64]:
    """Return the number of each op's weakly connected component (n,)."""
    graph = nx.Graph()
    graph.add_nodes_from(range(task.n))
    graph.add_edges_from(
        zip(task.graph.edge_src.tolist(), task.graph.edge_dst.tolist(), strict=True)
    )
    numbers = np.empty(task.n, np.int64)
    for number, members in enumerate(nx.connected_components(graph)):
        numbers[list(members)] = number
    return numbers


def balanced_probabilities(task: PartitionTask, sigma: float, chips: int | None = None) -> Floats:
    """Return weights (n, C) around the chip on which each op would run in an even split.

    A normal density of standard deviation ``sigma`` chips about ``chips`` times the share of work
    that stands before the op.

    Raises
    ------
    InputError
        If ``sigma`` is not positive or ``chips`` exceeds the task's.
    """
    used = task.chips if chips is None else chips
    if not sigma > 0:
        raise InputError(f"sigma must be positive, got {sigma}")
    if not 1 <= used <= task.chips:
        raise InputError(f"chips must be 1 to {task.chips}, got {used}")
    centre = np.minimum(used * task.share_before - 0.5, used - 1.0)
    distance = (np.arange(task.chips)[None] - centre[:, None]) / sigma
    weights = np.exp(-0.5 * np.minimum(distance**2, 1400.0))
    weights[:, used:] = 0.0
    return np.asarray(weights / weights.sum(axis=1, keepdims=True))


def project(task: PartitionTask, positions: ArrayLike) -> Labels:
    """Return the chain partitions nearest to real positions (S, n), by the largest distance.

    The midpoint of the lower and upper envelopes of the positions under ``0 <= f(v) - f(u) <= 1``
    is the projection in the maximum norm, and rounding keeps differences within whole bounds. The
    labels of a chain partition project to themselves.

    Raises
    ------
    InputError
        If the shape is wrong or a position is not a number.

    Examples
    --------
    >>> from mohsearch.workloads.op_graph_files import load_graph
    >>> task = PartitionTask(load_graph("own_ae"), chips=4)
    >>> project(task, np.linspace(0, 3, 16)).tolist()
    [[0, 0, 0, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 3, 3, 3]]
    """
    points = np.atleast_2d(np.ascontiguousarray(positions, dtype=np.float64))
    if points.ndim != 2 or points.shape[1] != task.n:
        raise InputError(f"positions must have shape (S, {task.n}), got {points.shape}")
    if np.isnan(points).any():
        raise InputError("positions must be numbers")
    rows = np.empty(points.shape, np.int16)
    component = connected_components(task)
    chain_kernels.project_rows(
        rows, points, task.chips, component, int(component.max()) + 1, task.graph.edge_src,
        task.graph.edge_dst,
    )  # fmt: skip
    return rows
