"""CMA-ES on the independent variables of a problem."""

from types import SimpleNamespace

import numpy as np
import pytest

from mohsearch.core.errors import InputError
from mohsearch.engines.archive import Archive
from mohsearch.engines.cma_engine import CmaEngine
from mohsearch.engines.driver import Budget, Recorded, Search
from mohsearch.engines.engine import make_engine
from mohsearch.problems.base import Box
from mohsearch.testing.contracts import check_repeats

SPAN = 4.0


class Valley:
    """A rotated, ill-conditioned quadratic of known optimum, one gene perhaps whole."""

    vtype, n_var, n_obj, signs = float, 5, 1, np.ones(1)
    xl, xu = -SPAN * np.ones(5), SPAN * np.ones(5)

    def __init__(self, kinds=("real",) * 5, limit=None, spread=10.0):
        metric = SimpleNamespace(name="value")
        extra = () if limit is None else (SimpleNamespace(name="over"),)
        self.card = SimpleNamespace(metrics=(metric,), constraints=extra)
        self.objective_cards = (metric,)
        self.kinds, self.limit = kinds, limit
        basis = np.linalg.qr(np.random.default_rng(0).normal(size=(5, 5)))[0]
        self.form = basis @ np.diag(spread ** np.arange(5.0)) @ basis.T
        self.goal = np.array([1.0, -0.5, 2.0, 0.25, -1.5])

    def metrics(self, X):
        away = X - self.goal
        values = {"value": np.einsum("ni,ij,nj->n", away, self.form, away)}
        if self.limit is not None:
            values["over"] = X[:, 0] - self.limit
        return values

    def box(self):
        names = tuple("abcde")
        return Box(names, self.xl, self.xu, self.kinds, lambda Z: np.asarray(Z, float).copy())


def search(problem, generations=150, population=20, seed=1, **options):
    archive = Archive(problem)
    engine = make_engine(
        CmaEngine,
        problem,
        SimpleNamespace(),
        population=population,
        seed=seed,
        seen=archive.index,
        options=options,
    )
    return Search(problem, engine, archive, Budget(population, generations))


def best(run):
    list(run.generations())
    front = run.archive.front()
    return run.archive.genomes[front[0]], float(run.archive.metrics["value"][front[0]])


def test_the_optimum_of_a_rotated_valley_is_found():
    problem = Valley()
    x, value = best(search(problem))
    assert np.allclose(x, problem.goal, atol=1e-4)
    assert value < 1e-6


def test_an_optimum_on_a_constraint_is_approached_from_the_feasible_side():
    problem = Valley(limit=0.0, spread=1.5)
    x, value = best(search(problem))
    # the optimum under x0 <= 0, by the normal equations of the other four
    rest = problem.form[1:, 1:]
    shift = np.linalg.solve(rest, problem.form[1:, 0]) * problem.goal[0]
    expected = np.concatenate([[0.0], problem.goal[1:] + shift])
    assert x[0] <= 0.0
    assert value == pytest.approx(problem.metrics(expected[None])["value"][0], rel=0.02)


def test_whole_numbers_stay_whole():
    problem = Valley(("integer", "real", "categorical", "real", "real"))
    run = search(problem, generations=80)
    best(run)
    whole = run.archive.genomes[:, [0, 2]]
    assert np.array_equal(whole, np.round(whole))
    assert len(np.unique(whole, axis=0)) > 3


def test_a_converged_run_starts_again_with_twice_the_points():
    run = search(Valley(), generations=250, popsize=8)
    best(run)
    assert run.engine._restarts >= 1
    assert run.engine._strategy.popsize == 8 * 2**run.engine._restarts


def test_a_seed_repeats_and_no_global_generator_moves():
    check_repeats(lambda seed: best(search(Valley(), generations=5, seed=seed))[0])


def test_a_resumed_search_is_the_one_that_was_never_interrupted():
    whole, part = search(Valley(), 12, population=7), search(Valley(), 5, population=7)
    list(whole.generations())
    ledger = list(part.generations())
    recorded = Recorded(
        part.archive.genomes,
        part.archive.metrics,
        np.array([g.evaluations for g in ledger]),
        np.array([g.distinct for g in ledger]),
        1.0,
        1.0,
    )
    resumed = search(Valley(), 12, population=7)
    list(resumed.generations(recorded))
    assert np.array_equal(resumed.archive.genomes, whole.archive.genomes)


def test_what_it_cannot_search_is_refused():
    problem = Valley()
    problem.box = lambda: None
    with pytest.raises(InputError, match="genes of this problem depend"):
        search(problem)
    problem = Valley()
    flat = Box(tuple("abcde"), problem.xl, problem.xl, problem.kinds, lambda Z: Z)
    problem.box = lambda: flat
    with pytest.raises(InputError, match="at least two free variables"):
        search(problem)
    with pytest.raises(InputError):
        search(Valley(), popsize=2)
