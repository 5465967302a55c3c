"""The exhaustive engine proves fronts; the hysteresis engine stops where its rule says."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from mohsearch.core.errors import InputError
from mohsearch.engines import ENGINES
from mohsearch.engines.archive import Archive
from mohsearch.engines.driver import Budget, Search
from mohsearch.engines.engine import make_engine


def metric(name: str, sense: str) -> SimpleNamespace:
    return SimpleNamespace(name=name, sense=sense, unit="1")


class Lattice:
    """Random values on a grid of 9 x 9 x 9 integers, with noisy bounds and a constraint."""

    def __init__(self, seed: int, objectives: int, slack: float = 0.1) -> None:
        rng = np.random.default_rng(seed)
        self.n_var, self.n_obj, self.vtype = 3, objectives, int
        self.xl, self.xu = np.zeros(3, dtype=int), np.full(3, 8)
        senses = ["max", "min", "min"][:objectives]
        self.objective_cards = [metric(f"m{j}", s) for j, s in enumerate(senses)]
        self.signs = np.array([1.0 if s == "min" else -1.0 for s in senses])
        self.card = SimpleNamespace(
            metrics=self.objective_cards, constraints=[metric("g", "min")], objectives=()
        )
        self.table = rng.random((9, 9, 9, objectives)) + np.indices((9, 9, 9)).sum(0)[..., None] / 9
        self.g = rng.random((9, 9, 9)) - 0.8
        self.slack = slack * rng.random((9, 9, 9, objectives))

    def _at(self, table, X):
        return table[tuple(np.asarray(X, dtype=int).T)]

    def metrics(self, X):
        values = self._at(self.table, X)
        return {f"m{j}": values[:, j] for j in range(self.n_obj)} | {"g": self._at(self.g, X)}

    def optimistic_tiers(self):
        def tier(factor):
            def bound(X):
                best = self._at(self.table, X) - factor * self.signs * self._at(self.slack, X)
                known = {f"m{j}": best[:, j] for j in range(self.n_obj)}
                return known | {"g": self._at(self.g, X) - factor * 0.03}

            return bound

        return [("loose", tier(5.0)), ("tight", tier(1.0))]

    def true_front(self):
        X = np.indices((9, 9, 9)).reshape(3, -1).T
        values = self.metrics(X)
        X = X[values["g"] <= 0]
        F = np.column_stack([self.metrics(X)[f"m{j}"] for j in range(self.n_obj)]) * self.signs
        keep = [not ((F <= row).all(1) & (F < row).any(1)).any() for row in F]
        return np.unique(F[keep], axis=0)


def run(problem, engine, options=None, algorithm=None, population=16, generations=2000):
    archive = Archive(problem)
    made = make_engine(
        ENGINES.load(engine),
        problem,
        SimpleNamespace(),
        algorithm=algorithm,
        options=options,
        population=population,
        seed=1,
        seen=archive.index,
    )
    search = Search(problem, made, archive, Budget(population, generations))
    list(search.generations())
    return search


@pytest.mark.parametrize("objectives", [1, 2, 3])
@pytest.mark.parametrize("algorithm", ["bounds", "plain"])
def test_the_front_of_the_whole_space_is_found_with_a_complete_account(objectives, algorithm):
    used = set()
    for seed in range(3):
        problem = Lattice(seed, objectives)
        search = run(problem, "exhaustive", algorithm=algorithm)
        assert search.stopped == "exhausted"
        front = np.unique(search.archive.objectives(search.archive.front()), axis=0)
        assert np.array_equal(front, problem.true_front())
        report = search.engine.report()
        assert report["complete"]
        left_out = sum(report["no_better_by"].values()) + sum(report["infeasible_by"].values())
        assert report["evaluated"] + left_out == report["designs"] == 729
        assert report["evaluated"] == len(search.archive)
        if algorithm == "bounds":
            assert report["evaluated"] < 729 / 2
        for kind in ("no_better_by", "infeasible_by"):
            used |= {(kind, name) for name, count in report[kind].items() if count}
    if algorithm == "bounds":
        assert len(used) == 4  # either bound served for either reason


def test_a_tolerance_proves_the_front_within_its_factor_with_fewer_evaluations():
    problem = Lattice(3, 3)
    exact = run(problem, "exhaustive")
    near = run(problem, "exhaustive", {"tolerance": 0.1})
    assert near.engine.report()["complete"]
    assert len(near.archive) < len(exact.archive)
    found = near.archive.objectives(near.archive.front())
    for row in problem.true_front():
        assert (found <= row + 0.1 * np.abs(row) + 1e-12).all(axis=1).any()


def test_an_interrupted_enumeration_does_not_claim_a_proof():
    search = run(Lattice(1, 3), "exhaustive", population=4, generations=2)
    assert search.stopped == "budget"
    assert not search.engine.report()["complete"]


def test_values_with_an_inner_gap_are_counted():
    problem = Lattice(2, 1)
    problem.gaps = lambda X: np.where(X[:, 0] > 3, 0.02, 0.0)
    report = run(problem, "exhaustive", algorithm="plain").engine.report()
    assert report["evaluated_with_inner_gap"] == 9 * 9 * 5
    assert report["largest_inner_gap"] == 0.02
    proven = run(Lattice(2, 1), "exhaustive").engine.report()["proven_value"]["m0"]
    assert proven == -problem.true_front()[0, 0]
    assert proven <= report["proven_value"]["m0"] <= proven / 0.98 + 1e-12


def least_possible(problem, X, gaps):
    """Return every feasible value with its gap taken off, minimised: what might be reached."""
    values = problem.metrics(X)
    F = np.column_stack([values[f"m{j}"] for j in range(problem.n_obj)]) * problem.signs
    return (F - np.abs(F) * (gaps / (1 - gaps))[:, None])[values["g"] <= 0]


@pytest.mark.parametrize("objectives", [1, 2])
def test_inner_gaps_leave_a_bound_and_no_optimum(objectives):
    problem = Lattice(5, objectives)
    everything = np.indices((9, 9, 9)).reshape(3, -1).T
    truth = problem.true_front()
    problem.gaps = lambda X: np.where(X[:, 0] >= 0, 0.02, 0.0)
    report = run(problem, "exhaustive", algorithm="plain").engine.report()
    floor = least_possible(problem, everything, np.full(729, 0.02)).min(axis=0)
    assert report["complete"]
    assert report["status"] == "feasible"
    assert report["may_still_improve"] > 0
    for j in range(objectives):
        found, proven = report["found"][f"m{j}"], report["proven_value"][f"m{j}"]
        sign = problem.signs[j]
        assert sign * found == truth[:, j].min()
        assert sign * proven == pytest.approx(floor[j], rel=1e-12)
        gap = report["gap"][f"m{j}"]
        assert gap == pytest.approx(abs(proven - found) / abs(found))
        assert gap > 0


def test_inner_gaps_of_designs_that_cannot_win_leave_the_optimum_proven():
    problem = Lattice(5, 1)
    best = -problem.true_front()[0, 0]
    problem.gaps = lambda X: np.where(problem.metrics(X)["m0"] < 0.9 * best, 0.05, 0.0)
    report = run(problem, "exhaustive", algorithm="plain").engine.report()
    assert report["evaluated_with_inner_gap"] > 100
    assert report["may_still_improve"] == 0
    assert report["status"] == "optimal"
    assert report["gap"] == {"m0": 0.0}
    assert report["proven_value"] == report["found"] == {"m0": best}


@pytest.mark.parametrize("generations", [0, 1, 3, 8])
def test_what_is_open_bounds_an_interrupted_enumeration(generations):
    for seed in range(3):
        problem = Lattice(seed, 2)
        search = run(problem, "exhaustive", population=4, generations=generations)
        report = search.engine.report()
        assert search.stopped == "budget"
        assert report["status"] == ("feasible" if generations else "unknown")
        truth = problem.true_front().min(axis=0) * problem.signs
        for j in range(2):
            reach = problem.signs[j] * report["proven_value"][f"m{j}"]
            assert reach <= problem.signs[j] * truth[j]
            assert (report["gap"][f"m{j}"] is None) == (generations == 0)
    plain = run(Lattice(1, 1), "exhaustive", algorithm="plain", generations=2).engine.report()
    assert plain["proven_value"] == plain["gap"] == {"m0": None}


def test_a_tolerance_is_not_called_optimal_and_its_bound_holds():
    for seed in range(4):
        problem = Lattice(seed, 1)
        report = run(problem, "exhaustive", {"tolerance": 0.1}, population=2).engine.report()
        best = -problem.true_front()[0, 0]
        assert report["complete"]
        assert report["proven_value"]["m0"] >= best >= report["found"]["m0"]
        assert 0 <= report["gap"]["m0"] <= 0.1 / 0.9 + 1e-12
        assert (report["status"] == "optimal") == (report["gap"]["m0"] == 0)


@pytest.mark.parametrize("seed", range(3))
def test_a_first_bound_that_says_nothing_costs_no_evaluation(seed):
    problem = Lattice(seed, 1)
    problem.g = np.full((9, 9, 9), -1.0)
    (_, _), tight = problem.optimistic_tiers()
    blunt = ("blunt", lambda X: {"m0": np.full(len(X), 99.0), "g": np.full(len(X), -1.0)})
    problem.optimistic_tiers = lambda: [blunt, tight]
    search = run(problem, "exhaustive", population=1)
    best = -problem.true_front()[0, 0]
    everything = np.indices((9, 9, 9)).reshape(3, -1).T
    in_doubt = int((tight[1](everything)["m0"] >= best).sum())
    report = search.engine.report()
    assert (report["status"], report["found"]) == ("optimal", {"m0": best})
    assert report["complete"]
    assert len(search.archive) <= in_doubt + 1  # the first one finds a value to prune with
    assert in_doubt < 100


def test_a_space_without_a_feasible_design_is_proven_empty():
    problem = Lattice(0, 1)
    problem.g = np.ones((9, 9, 9))
    report = run(problem, "exhaustive").engine.report()
    assert report["status"] == "infeasible"
    assert report["found"] == {"m0": None}


def test_spaces_too_large_or_without_a_list_are_refused():
    with pytest.raises(InputError, match="729 designs, more than the option max_designs 100"):
        run(Lattice(1, 1), "exhaustive", {"max_designs": 100})
    problem = Lattice(1, 1)
    problem.vtype = float
    with pytest.raises(InputError, match="lists its designs"):
        run(problem, "exhaustive")
    with pytest.raises(InputError, match="orders its designs by area"):
        run(problem, "phaze-hysteresis")


class Series:
    """Two searches over bins of one or two genomes with given values."""

    def __init__(self, series, feasible=None):
        self.n_var, self.n_obj, self.vtype = 2, 1, int
        self.xl, self.xu = np.zeros(2, dtype=int), np.array([1, 99])
        self.objective_cards, self.signs = [metric("value", "max")], np.array([-1.0])
        self.card = SimpleNamespace(
            metrics=self.objective_cards, constraints=[metric("g", "min")], objectives=()
        )
        self.series = series
        self.feasible = feasible

    def metrics(self, X):
        value = np.array([self.series[s][i] for s, i in np.asarray(X, dtype=int)], dtype=float)
        bad = np.zeros(len(X))
        if self.feasible is not None:
            bad = np.array([not self.feasible[s][i] for s, i in np.asarray(X, dtype=int)])
        return {"value": value, "g": bad.astype(float)}

    def exploration(self):
        X = np.array([(s, i) for s, row in enumerate(self.series) for i in range(len(row))])
        return X, X[:, 0], X[:, 1] // 2  # bins of two


def told_by_the_rule(row, level, feasible=None):
    """Bins explored by the rule, written out plainly."""
    done = []
    for k in range(0, len(row), 2):
        fine = feasible[k : k + 2] if feasible else [True] * len(row[k : k + 2])
        values = [v for v, f in zip(row[k : k + 2], fine, strict=True) if f]
        done.append(max(values, default=-1.0))
        if len(done) >= level:
            last = done[-level:]
            if all(last[j] >= last[j + 1] for j in range(level - 1)):
                break
    return len(done)


@pytest.mark.parametrize("level", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("population", [3, 50])
def test_each_search_stops_where_the_rule_says(level, population):
    for seed in range(5):
        rng = np.random.default_rng(seed)
        series = [rng.random(60).round(1).tolist(), rng.random(31).round(1).tolist()]
        feasible = [(rng.random(60) < 0.6).tolist(), (rng.random(31) < 0.9).tolist()]
        problem = Series(series, feasible)
        search = run(problem, "phaze-hysteresis", {"level": level}, population=population)
        report = search.engine.report()
        expected = [
            told_by_the_rule(row, level, fine) for row, fine in zip(series, feasible, strict=True)
        ]
        assert report["bins_explored"] == expected
        assert search.stopped == "exhausted"
        assert len(search.archive) == sum(
            min(2 * bins, len(row)) for bins, row in zip(expected, series, strict=True)
        )


def test_level_one_takes_the_first_bin_only_and_several_objectives_are_refused():
    search = run(Series([[3.0, 4.0, 5.0], [1.0, 0.0, 7.0]]), "phaze-hysteresis", {"level": 1})
    assert search.engine.report()["bins_explored"] == [1, 1]
    problem = Lattice(1, 2)
    with pytest.raises(InputError, match="takes at most 1 objectives, got 2"):
        run(problem, "phaze-hysteresis")
