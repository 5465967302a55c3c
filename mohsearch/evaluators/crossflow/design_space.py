"""Genome of the DeepFlow search: fractions, technology, budgets, strategy and mapping order.

One row of 25 numbers stands for a design. The fractions of area, power and perimeter come first, in
the order of the allocation row; each of the three *classes* sums to at most one. Whole-number
genes index tables: logic node, main memory, network, parallelism strategy and the order in which
the parallel dimensions are nested onto the devices; one counts memory stacks. A gene whose bounds
coincide is fixed.

Source: DeepFlow paper, section 7 (variables and constraints) and section 3.3 (strategies).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import prod

import numpy as np
from numpy.typing import NDArray

from mohsearch.core.errors import InputError
from mohsearch.evaluators.crossflow.evaluate import Strategy
from mohsearch.evaluators.crossflow.layout import COMPONENTS, EDGE_USERS, FloatArray

FRACTION_NAMES: tuple[str, ...] = (
    *(f"area.{name}" for name in COMPONENTS),
    *(f"power.{name}" for name in COMPONENTS),
    *(f"perimeter.{name}" for name in EDGE_USERS),
)
"""Names of the 17 fractions, in the order of the genome."""
FRACTIONS = len(FRACTION_NAMES)
G_LOGIC, G_MEMORY, G_NETWORK, G_TDP, G_NODE_AREA, G_STRATEGY, G_ORDER, G_STACKS = range(
    FRACTIONS, FRACTIONS + 8
)
GENES = FRACTIONS + 8
GENE_NAMES: tuple[str, ...] = (
    *FRACTION_NAMES, "logic", "memory", "network", "tdp_w", "node_area_mm2", "strategy",
    "mapping_order", "extra_stacks",
)  # fmt: skip
WHOLE = np.array([G_LOGIC, G_MEMORY, G_NETWORK, G_STRATEGY, G_ORDER, G_STACKS])
"""Genes that are whole numbers."""
CLASS_NAMES = ("area", "power", "perimeter")
CLASS_GENES = (slice(0, 7), slice(7, 14), slice(14, 17))
TOLERANCE = 1e-9
"""What a class may exceed its total by, for rounding."""


@dataclass(frozen=True)
class FractionClass:
    """The fractions of one budget that are searched.

    Attributes
    ----------
    name
        ``area``, ``power`` or ``perimeter``.
    genes : (k,) int
        Their genes.
    total
        What they may sum to: one less the fractions of the class that are fixed.
    """

    name: str
    genes: NDArray[np.int64]
    total: float


@dataclass(frozen=True)
class DeepflowSpace:
    """Bounds of the genes and what ties them together.

    Attributes
    ----------
    lower, upper : (GENES,)
        Inclusive bounds; equal ones fix a gene.
    strategies
        What the strategy gene counts through.
    reference : (FRACTIONS,), optional
        Fractions of a known chip, for sampling near it; default equal shares.
    """

    lower: FloatArray
    upper: FloatArray
    strategies: tuple[Strategy, ...]
    reference: FloatArray | None = None
    classes: tuple[FractionClass, ...] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "classes", tuple(self._classes()))

    def _classes(self) -> Iterator[FractionClass]:
        fixed = self.lower == self.upper
        for name, genes in zip(CLASS_NAMES, CLASS_GENES, strict=True):
            mine = np.arange(genes.start, genes.stop)
            spent = float(self.lower[mine[fixed[mine]]].sum())
            free = mine[~fixed[mine]]
            if spent > 1.0 + TOLERANCE:
                raise InputError(f"the fixed fractions of {name} sum to {spent:.6g}, more than 1")
            if len(free):
                yield FractionClass(name, free, max(1.0 - spent, 0.0))

    @property
    def remedies(self) -> tuple[tuple[str, int], ...]:
        """Constraints that a larger share mends, with its gene: DRAM controllers for memory."""
        gene = FRACTION_NAMES.index("area.DRAM")
        return (("memory_excess", gene),) if self.free[gene] else ()

    @property
    def n_var(self) -> int:
        """Length of a genome."""
        return GENES

    @cached_property
    def free(self) -> NDArray[np.bool_]:
        """Which genes vary, shape (GENES,)."""
        return np.asarray(self.lower < self.upper)

    @cached_property
    def known(self) -> FloatArray:
        """Return a valid set of fractions near the reference, all budgets given out: (FRACTIONS,).

        A fraction without a share in the reference gets a hundredth of its class.
        """
        row = self.lower[:FRACTIONS].copy()
        for part in self.classes:
            share = np.full(len(part.genes), 1.0 / len(part.genes))
            if self.reference is not None:
                share = np.maximum(self.reference[part.genes], 0.0)
                share = np.maximum(share, 0.01 * max(share.sum(), 1e-12))
            row[part.genes] = part.total * share / share.sum()
        return row

    @cached_property
    def codes(self) -> NDArray[np.int64]:
        """Strategies as (kind, kp1, kp2, dp, lp), kind 0 none, 1 CR, 2 RC; shape (count, 5)."""
        kinds = {"none": 0, "CR": 1, "RC": 2}
        return np.array(
            [(kinds[s.kind], s.kp1, s.kp2, s.dp, s.lp) for s in self.strategies], dtype=np.int64
        )

    @cached_property
    def neighbours(self) -> tuple[NDArray[np.int64], ...]:
        """For each strategy those one move away: a factor to another dimension, or CR for RC."""
        return strategy_neighbours(self.strategies)

    def is_valid(self, X: FloatArray) -> NDArray[np.bool_]:
        """Tell which genomes (n, GENES) lie in the bounds, are whole where need be and add up."""
        X = np.asarray(X, dtype=np.float64)
        inside = (X >= self.lower - TOLERANCE) & (X <= self.upper + TOLERANCE)
        whole = X[:, WHOLE] == np.round(X[:, WHOLE])
        good = inside.all(axis=1) & whole.all(axis=1)
        for part in self.classes:
            good &= X[:, part.genes].sum(axis=1) <= part.total + TOLERANCE
        return np.asarray(good)

    def repair(self, X: FloatArray) -> FloatArray:
        """Return valid genomes near ``X``: clipped, rounded, and scaled where a class overspends.

        Valid genomes come back unchanged.
        """
        out = np.clip(np.asarray(X, dtype=np.float64), self.lower, self.upper)
        out[:, WHOLE] = np.round(out[:, WHOLE])
        for part in self.classes:
            sums = out[:, part.genes].sum(axis=1)
            over = sums > part.total + TOLERANCE
            if over.any():
                scale = part.total / sums[over]
                out[np.ix_(over, part.genes)] *= scale[:, None]
        return out

    def spent(self, X: FloatArray) -> FloatArray:
        """Return the sums of area, power and perimeter fractions, fixed ones included: (n, 3)."""
        return np.stack([X[:, genes].sum(axis=1) for genes in CLASS_GENES], axis=1)


def enumerate_strategies(
    devices: int, pipeline_stages: Sequence[int] = (1, 4)
) -> tuple[Strategy, ...]:
    """Return every strategy that takes exactly ``devices``, without repetition.

    RC and CR with one shard are no kernel parallelism and stand once, as ``d..-p..``.

    Examples
    --------
    >>> len(enumerate_strategies(512))
    107
    >>> [str(s) for s in enumerate_strategies(2)]
    ['d2-p1', 'CR-2-d1-p1', 'RC-1-2-d1-p1', 'RC-2-1-d1-p1']
    """
    found: list[Strategy] = []
    for lp in sorted(set(pipeline_stages)):
        if devices % lp:
            continue
        rest = devices // lp
        found.append(Strategy("none", dp=rest, lp=lp))
        sizes = _divisors(rest)
        found += [Strategy("CR", kp1=a, dp=rest // a, lp=lp) for a in sizes if a > 1]
        for a in sizes:
            found += [
                Strategy("RC", kp1=a, kp2=c, dp=rest // a // c, lp=lp)
                for c in _divisors(rest // a)
                if a * c > 1
            ]
    if not found:
        raise InputError(f"no strategy takes {devices} devices with these pipeline stages")
    return tuple(found)


def _divisors(n: int) -> list[int]:
    return [d for d in range(1, n + 1) if n % d == 0]


def strategy_neighbours(strategies: Sequence[Strategy]) -> tuple[NDArray[np.int64], ...]:
    """Return, for each strategy, the indices of those one move away (never empty if there are two).

    A move takes the smallest possible factor from one dimension to another, or exchanges CR for RC.
    Strategies that no move reaches count every other one as a neighbour.
    """
    place = {(s.kind, s.kp1, s.kp2, s.dp, s.lp): i for i, s in enumerate(strategies)}
    result = []
    for i, strategy in enumerate(strategies):
        near = {place[key] for key in _moves(strategy) if key in place} - {i}
        if not near:
            near = set(range(len(strategies))) - {i}
        result.append(np.array(sorted(near), dtype=np.int64))
    return tuple(result)


def _moves(strategy: Strategy) -> Iterator[tuple[str, int, int, int, int]]:
    sizes = (strategy.kp1, strategy.kp2, strategy.dp, strategy.lp)
    for giver in range(4):
        for taker in range(4):
            if giver == taker:
                continue
            for factor in _divisors(sizes[giver])[1:]:
                moved = list(sizes)
                moved[giver] //= factor
                moved[taker] *= factor
                yield from _named(strategy.kind, moved)
                if factor >= 4:
                    break
    yield from _named("RC" if strategy.kind == "CR" else "CR", list(sizes))


def _named(kind: str, sizes: Sequence[int]) -> Iterator[tuple[str, int, int, int, int]]:
    kp1, kp2, dp, lp = sizes
    if kp1 * kp2 == 1:
        yield "none", 1, 1, dp, lp
        return
    for name in ("CR", "RC") if kind == "none" else (kind,):
        if name == "RC" or kp2 == 1:
            yield name, kp1, kp2, dp, lp


def gene_bounds(ranges: Mapping[str, tuple[float, float]]) -> tuple[FloatArray, FloatArray]:
    """Return the bounds of all genes from those of some; fractions default to 0..1.

    Raises
    ------
    InputError
        If a name is no gene, a range is empty, or an index has no range.
    """
    lower, upper = np.zeros(GENES), np.zeros(GENES)
    upper[:FRACTIONS] = 1.0
    for name, (low, high) in ranges.items():
        if name not in GENE_NAMES:
            raise InputError(f"no gene {name!r}; genes: {', '.join(GENE_NAMES)}")
        if low > high:
            raise InputError(f"the range of {name} is empty: {low:g} to {high:g}")
        at = GENE_NAMES.index(name)
        lower[at], upper[at] = low, high
    return lower, upper


def devices_of(strategies: Sequence[Strategy]) -> int:
    """Return the number of devices that all strategies take.

    Raises
    ------
    InputError
        If they differ.
    """
    counts = {prod((s.kp1, s.kp2, s.dp, s.lp)) for s in strategies}
    if len(counts) != 1:
        names = ", ".join(map(str, strategies[:4]))
        raise InputError(f"strategies of one search take equally many devices; got {names}")
    return counts.pop()
