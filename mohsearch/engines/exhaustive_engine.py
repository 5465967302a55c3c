"""Every design, except those that a bound shows to be no better: a proof instead of a search.

A problem takes part by two optional methods. ``designs()`` returns all valid genomes; without it
the whole box of integer genes is taken. ``optimistic_tiers()`` returns pairs (name, function),
cheap ones first: ``function(X)`` returns for genomes X (n, n_var) a value of every objective that
the genome cannot beat, in natural sign, and for constraints one that it cannot go below. A genome
is left out when a design already evaluated is at least as good in every objective as the genome can
be, or when a constraint cannot be met; when all are evaluated or left out, the front found is the
front of the whole space. ``gaps(X)`` may say by what share the values of evaluated genomes may
still improve where an optimisation inside was not proven optimal, shape (n,) or, by objective, (n,
n_obj): then, as while genomes are open, only a bound is proven, and the report states how far it is
from what was found.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from numba import njit
from numpy.typing import NDArray
from pydantic import Field

from mohsearch.core.cards import Card
from mohsearch.core.errors import InputError
from mohsearch.engines.engine import Capabilities, Engine, FloatArray, IntArray

Optimistic = Callable[[NDArray[Any]], Mapping[str, FloatArray]]

CHUNK = 4096
"""Most genomes that the later tiers look at together; the first looks are at few, so that good
designs are known early."""

ROUNDING = 1e-12
"""Inner gaps up to this share are rounding, not an open optimisation."""


class ExhaustiveOptions(Card):
    """Options of the exhaustive engine."""

    max_designs: int = Field(
        default=5_000_000, ge=1, description="Larger spaces are refused before anything is done."
    )
    tolerance: float = Field(
        default=0.0,
        ge=0,
        lt=1,
        description=(
            "Leave out designs that some evaluated design comes as near as this share in every "
            "objective: what is proven then is a front within that factor."
        ),
    )


class ExhaustiveEngine(Engine):
    """Best-first enumeration with pruning by the problem's bounds."""

    algorithms: ClassVar = {
        "bounds": Capabilities(
            "all designs but those a bound shows to be no better; proves the front", operators=()
        ),
        "plain": Capabilities("all designs, one after the other", operators=()),
    }
    default_algorithm = "bounds"
    seeded = False
    options_card = ExhaustiveOptions

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._X = _all_designs(self.problem, self.options.max_designs)
        tiers = getattr(self.problem, "optimistic_tiers", None)
        self._tiers: Sequence[tuple[str, Optimistic]] = ()
        if self.algorithm == "bounds" and tiers is not None:
            self._tiers = tuple(tiers())
        self._best = np.empty((0, self.problem.n_obj))
        self._improvable = np.empty((0, self.problem.n_obj))
        self._evaluated = self._cursor = 0
        self._chunk = self.population_size
        self._largest_gap = 0.0
        self._left_out_floor = np.full(self.problem.n_obj, np.inf)
        self._left_within_tolerance = 0
        self._open = 0
        self._pruned = {name: 0 for name, _ in self._tiers}
        self._impossible = dict(self._pruned)
        self._asked_lower = np.empty((0, self.problem.n_obj))
        self._order, self._lower = self._first_bounds()
        self._ready: list[tuple[IntArray, FloatArray]] = []
        self._batch = np.empty((0, self.problem.n_var), dtype=self.seen.dtype)

    def ask(self, k: int) -> NDArray[Any]:
        """Return the ``k`` most promising genomes that are still open."""
        self._look_ahead()
        chosen: list[IntArray] = []
        bounds = [np.empty((0, self.problem.n_obj))]
        missing = k
        while missing and (self._ready or self._refill()):
            ids, lower = self._ready.pop(0)
            open_ids, open_lower = self._still_open(ids, lower, self._last_name)
            chosen.append(open_ids[:missing])
            bounds.append(open_lower[:missing])
            if len(open_ids) > missing:
                self._ready.insert(0, (open_ids[missing:], open_lower[missing:]))
            missing -= len(chosen[-1])
        ids = np.concatenate(chosen) if chosen else np.empty(0, dtype=np.int64)
        self._batch, self._asked_lower = self._X[ids], np.concatenate(bounds)
        return self._batch

    def tell(self, X: NDArray[Any], F: FloatArray, G: FloatArray) -> None:
        """Let feasible values prune what is left."""
        self._evaluated += len(X)
        self._asked_lower = self._asked_lower[:0]
        fits = (G <= 0).all(axis=1)
        if fits.any():
            self._best = _front(np.concatenate([self._best, F[fits]]))
        gaps = getattr(self.problem, "gaps", None)
        shares = np.zeros((len(X), 1)) if gaps is None else np.asarray(gaps(X)).reshape(len(X), -1)
        values = shares.max(axis=1, initial=0.0)
        inexact = values > ROUNDING
        self._open += int(inexact.sum())
        self._largest_gap = max(self._largest_gap, float(values.max(initial=0.0)))
        within = F - np.abs(F) * (shares / (1.0 - shares))
        improvable = np.concatenate([self._improvable, within[fits & inexact]])
        self._improvable = improvable[~_covered(improvable, self._best)]

    def population(self) -> NDArray[Any]:
        """Return the last batch."""
        return self._batch

    def report(self) -> dict[str, Any]:
        """Return the proof: how many designs there are, were evaluated and left out, and why."""
        left_out = sum(self._pruned.values()) + sum(self._impossible.values())
        complete = self._evaluated + left_out == len(self._X)
        improvable = int((~_covered(self._improvable, self._best)).sum())
        exact = complete and not improvable and not self._left_within_tolerance
        return {
            "designs": len(self._X),
            "evaluated": self._evaluated,
            "no_better_by": dict(self._pruned),
            "infeasible_by": dict(self._impossible),
            "complete": complete,
            "tolerance": self.options.tolerance,
            "status": self._status(exact),
            **self._proof(),
            "evaluated_with_inner_gap": self._open,
            "largest_inner_gap": self._largest_gap,
            "may_still_improve": improvable,
        }

    def _status(self, exact: bool) -> str:
        """Return optimal or infeasible where that is proven, feasible or unknown elsewhere."""
        if exact:
            return "optimal" if len(self._best) else "infeasible"
        return "feasible" if len(self._best) else "unknown"

    def _proof(self) -> dict[str, dict[str, float | None]]:
        """Return by objective the best value, what none can beat, and their distance.

        The distance is a share of the value found. A value is missing where nothing is known.
        """
        found = self._best.min(axis=0, initial=np.inf)
        waiting = [lower for _, lower in self._ready]
        parts = [self._best, self._improvable, self._asked_lower, self._lower[self._cursor :]]
        bounds = np.concatenate([*parts, *waiting])
        reach = np.minimum(bounds.min(axis=0, initial=np.inf), self._left_out_floor)
        values: dict[str, dict[str, float | None]] = {"found": {}, "proven_value": {}, "gap": {}}
        for j, card in enumerate(self.problem.objective_cards):
            sign, best, least = self.problem.signs[j], float(found[j]), float(reach[j])
            known = math.isfinite(least)
            values["found"][card.name] = float(sign * best) if math.isfinite(best) else None
            values["proven_value"][card.name] = float(sign * least) if known else None
            gap = (best - least) / abs(best) if best and known else math.inf
            gap = 0.0 if known and best == least else gap
            values["gap"][card.name] = gap if math.isfinite(gap) else None
        return values

    @property
    def _last_name(self) -> str:
        return self._tiers[-1][0] if self._tiers else ""

    def _first_bounds(self) -> tuple[IntArray, FloatArray]:
        """Return the order of exploration and the bounds in that order, by the first tier."""
        if not self._tiers:
            return np.arange(len(self._X)), np.full((len(self._X), self.problem.n_obj), -np.inf)
        lower, possible = self._bounds(0, self._X)
        self._impossible[self._tiers[0][0]] += int((~possible).sum())
        ids = np.flatnonzero(possible)
        lower = lower[ids]
        order = np.argsort(_promise(lower), kind="stable")
        return ids[order], lower[order]

    def _look_ahead(self) -> None:
        """Bound on until no genome left could stand before the best one that is ready.

        Then only designs are evaluated that no proof can do without, but for the rest of a batch:
        with a weak first tier, its order says little. For one objective, once a value is known.
        """
        if self.problem.n_obj > 1 or not self._tiers or not len(self._best):
            return
        while self._cursor < len(self._order):
            front = min((float(lower[0, 0]) for _, lower in self._ready), default=math.inf)
            if front <= self._lower[self._cursor, 0] or not self._refill():
                break
        if len(self._ready) > 1:
            ids, lower = (np.concatenate(part) for part in zip(*self._ready, strict=True))
            order = np.argsort(lower[:, 0], kind="stable")
            self._ready = [(ids[order], lower[order])]

    def _refill(self) -> bool:
        """Take the next genomes through all tiers; False when none is left."""
        while self._cursor < len(self._order):
            part = slice(self._cursor, self._cursor + self._chunk)
            self._cursor += self._chunk
            self._chunk = min(2 * self._chunk, max(CHUNK, self.population_size))
            ids, lower = self._order[part], self._lower[part]
            if not self._tiers:
                self._ready.append((ids, lower))
                return True
            ids, lower = self._still_open(ids, lower, self._tiers[0][0])
            for tier in range(1, len(self._tiers)):
                if not len(ids):
                    break
                name = self._tiers[tier][0]
                better, possible = self._bounds(tier, self._X[ids])
                self._impossible[name] += int((~possible).sum())
                lower = np.maximum(lower, better)[possible]
                ids, lower = self._still_open(ids[possible], lower, name)
            if len(ids):
                order = np.argsort(_promise(lower), kind="stable")
                self._ready.append((ids[order], lower[order]))
                return True
        return False

    def _still_open(
        self, ids: IntArray, lower: FloatArray, name: str
    ) -> tuple[IntArray, FloatArray]:
        if not self._tiers or not len(ids):
            return ids, lower
        beaten = _covered(lower + self.options.tolerance * np.abs(lower), self._best)
        self._pruned[name] += int(beaten.sum())
        if self.options.tolerance and beaten.any():
            near = lower[beaten]
            near = near[~_covered(near, self._best)]
            self._left_within_tolerance += len(near)
            floor = near.min(axis=0, initial=np.inf)
            self._left_out_floor = np.minimum(self._left_out_floor, floor)
        return ids[~beaten], lower[~beaten]

    def _bounds(self, tier: int, X: NDArray[Any]) -> tuple[FloatArray, NDArray[np.bool_]]:
        """Return minimised bounds (n, n_obj), and which genomes may be feasible."""
        values = self._tiers[tier][1](X)
        columns = [np.asarray(values[m.name], dtype=float) for m in self.problem.objective_cards]
        possible = np.ones(len(X), dtype=np.bool_)
        for constraint in self.problem.card.constraints:
            if constraint.name in values:
                possible &= np.asarray(values[constraint.name]) <= 0
        return np.column_stack(columns) * self.problem.signs, possible


def _all_designs(problem: Any, most: int) -> NDArray[Any]:
    """Return all genomes of a problem, its own list or the whole box of integers."""
    own = getattr(problem, "designs", None)
    if own is not None:
        X = np.asarray(own())
        size = len(X)
    else:
        if problem.vtype is not int or getattr(problem, "space", None) is not None:
            raise InputError("the exhaustive engine needs a problem that lists its designs")
        sizes = [int(high) - int(low) + 1 for low, high in zip(problem.xl, problem.xu, strict=True)]
        size = math.prod(sizes)
        if size <= most:
            box = np.indices(sizes).reshape(len(sizes), -1).T
            return np.asarray(box + np.asarray(problem.xl, dtype=int))
    if size > most:
        raise InputError(
            f"the problem has {size:,} designs, more than the option max_designs {most:,}"
        )
    return X


def _promise(lower: FloatArray) -> FloatArray:
    """Return a key that is small where all bounds are good, the mean rank by objective."""
    if lower.shape[1] == 1:
        return np.asarray(lower[:, 0])
    keys = np.zeros(len(lower))
    for column in lower.T:
        _, place = np.unique(column, return_inverse=True)
        keys += place / max(1, place.max())
    return keys


def _front(F: FloatArray) -> FloatArray:
    import moocore

    if F.shape[1] == 1:
        return F[[int(F[:, 0].argmin())]]
    return np.asarray(F[moocore.is_nondominated(F, keep_weakly=False)])


@njit(cache=True, nogil=True)
def _covered(lower, best):  # type: ignore[no-untyped-def]
    """Return for each bound whether some value found is no worse in every objective."""
    n, m = lower.shape
    result = np.zeros(n, dtype=np.bool_)
    last = 0
    for i in range(n):
        for step in range(len(best)):
            j = (last + step) % len(best)  # what covered the one before often covers this one
            inside = True
            for k in range(m):
                if best[j, k] > lower[i, k]:
                    inside = False
                    break
            if inside:
                result[i] = True
                last = j
                break
    return result
