"""The projected gradient of the DeepFlow paper, against the authors' own trajectory."""

import json
from types import SimpleNamespace

import numpy as np
import pytest

from mohsearch.core.catalog import builtin_root
from mohsearch.core.errors import InputError
from mohsearch.engines.archive import Archive
from mohsearch.engines.driver import Budget, Recorded, Search
from mohsearch.engines.engine import make_engine
from mohsearch.engines.gradient_engine import GradientEngine
from mohsearch.problems.deepflow import build

REFERENCE = json.loads(
    (builtin_root() / "evaluators/reference/deepflow/gradient_trajectory.json").read_text()
)
GENES = {"area": [0, 1, 2, 3, 4, 6], "power": [7, 8, 9, 10, 11, 13], "perimeter": [14, 15]}


class From:
    """A sampling that gives the same starts whatever it is asked."""

    def __init__(self, *starts):
        self.starts = np.array(starts)

    def do(self, problem, count, random_state=None):
        del problem, count, random_state
        return SimpleNamespace(get=lambda _: self.starts)


@pytest.fixture(scope="module")
def problem():
    return build(
        {
            "devices": 8,
            "strategies": "d8",
            "compat": "deepflow",
            "memory_limit": "ignored",
            "inter_derate": 1.0,
            "chip_area_mm2": REFERENCE["chip_area_mm2"],
        },
        REFERENCE["workload"],
        objectives=["time_s"],
    )


def genome(problem, record):
    x = problem.space.lower.copy()
    for name, genes in GENES.items():
        x[genes] = record[name]
    return x


def search(problem, sampling, generations, population=15, **options):
    archive = Archive(problem)
    engine = make_engine(
        GradientEngine,
        problem,
        SimpleNamespace(sampling=sampling),
        population=population,
        seed=1,
        seen=archive.index,
        options=options,
    )
    return Search(problem, engine, archive, Budget(population, generations))


def test_the_authors_trajectory_comes_out_point_by_point(problem):
    start = genome(problem, REFERENCE["initial"])
    # thirteen fractions and the point itself: a step is fifteen evaluations, a generation too
    run = search(problem, From(start), 101, starts=1, decimals=8)
    points = [run.engine.population()[0] for _ in run.generations()][1:]
    assert len(points) == 100
    times = problem.metrics(np.array(points))["time_s"]
    assert np.abs(np.round(times, 8) - REFERENCE["time_s"]).max() <= 1.1e-8
    for number, expected in REFERENCE["points"].items():
        assert np.allclose(points[int(number) - 1], genome(problem, expected), rtol=0, atol=1e-12)
    best = run.archive.metrics["time_s"][run.archive.front()]
    assert best[0] == pytest.approx(REFERENCE["best_time_s"], abs=1e-8)
    assert run.stopped == "budget"
    assert not run.engine.ask(15).size


def test_a_step_is_the_one_of_equation_6_worked_out_by_hand():
    goal = np.array([0.6, 0.3, 0.1])
    run = search(Bowl(goal), From([0.2, 0.3, 0.5]), 2, population=4, starts=1, steps=1)
    list(run.generations())
    x = np.array([0.2, 0.3, 0.5])
    f = lambda z: ((z - goal) ** 2).sum()  # noqa: E731
    gradient = np.array([(f(x + 0.5 * x * e) - f(x)) / (0.5 * e @ x) for e in np.eye(3)])
    point = x - gradient / np.linalg.norm(gradient)
    point[point <= 0] = 0.01
    average = 0.9 * 0 + 0.1 * point
    assert np.allclose(run.engine.population()[0], average / average.sum())


def test_the_texts_variant_divides_the_point_instead():
    goal = np.array([0.6, 0.3, 0.1])
    run = search(
        Bowl(goal), From([0.2, 0.3, 0.5]), 2, population=4, starts=1, steps=1, normalise="point"
    )
    list(run.generations())
    x = np.array([0.2, 0.3, 0.5])
    f = lambda z: ((z - goal) ** 2).sum()  # noqa: E731
    gradient = np.array([(f(x + 0.5 * x * e) - f(x)) / (0.5 * e @ x) for e in np.eye(3)])
    point = (x - gradient) / np.linalg.norm(x - gradient)
    point[point <= 0] = 0.01
    assert np.allclose(run.engine.population()[0], point / point.sum())


class Bowl:
    """Squared distance from a point of the simplex."""

    vtype, n_var, n_obj, signs = float, 3, 1, np.ones(1)
    xl, xu = np.zeros(3), np.ones(3)

    def __init__(self, goal, excess=None):
        metric = SimpleNamespace(name="distance")
        extra = () if excess is None else (SimpleNamespace(name="excess"),)
        self.goal, self.excess = goal, excess
        self.card = SimpleNamespace(metrics=(metric,), constraints=extra)
        self.objective_cards = (metric,)
        part = SimpleNamespace(genes=np.arange(3), total=1.0)
        self.space = SimpleNamespace(classes=(part,), remedies=(("excess", 2),))

    def metrics(self, X):
        values = {"distance": ((X - self.goal) ** 2).sum(axis=1)}
        if self.excess is not None:
            values["excess"] = self.excess(X)
        return values


def test_a_violated_constraint_raises_the_share_that_mends_it():
    goal = np.array([0.9, 0.05, 0.05])
    points = []
    for excess in (None, lambda X: 0.3 / X[:, 2] - 1.0):
        run = search(Bowl(goal, excess), From([0.6, 0.3, 0.1]), 2, population=4, steps=1, starts=1)
        list(run.generations())
        points.append(run.engine.population()[0])
    free, held = points
    # the constraint says 0.3 / 0.1 - 1 = 2 too much: three times the share, then back to the sum
    expected = free * np.array([1.0, 1.0, 3.0])
    assert np.allclose(held, expected / expected.sum())
    assert held[2] > 1.5 * free[2]


def test_starts_advance_side_by_side_and_share_the_budget():
    starts = np.random.default_rng(0).dirichlet(np.ones(3), 5)
    run = search(Bowl(np.array([0.5, 0.3, 0.2])), From(*starts), 40, population=20, starts=5)
    last = list(run.generations())[-1]
    assert last.evaluations == 800
    steps = [descent.step for descent in run.engine._descents]
    assert max(steps) - min(steps) <= 1
    best = run.archive.metrics["distance"].min()
    assert best < 0.01 * run.archive.metrics["distance"][:5].min()


def test_a_resumed_search_is_the_one_that_was_never_interrupted(problem):
    start = genome(problem, REFERENCE["initial"])
    whole = search(problem, From(start), 12, population=10, starts=1)
    history = list(whole.generations())
    part = search(problem, From(start), 5, population=10, starts=1)
    ledger = list(part.generations())
    recorded = Recorded(
        part.archive.genomes,
        part.archive.metrics,
        np.array([g.evaluations for g in ledger]),
        np.array([g.distinct for g in ledger]),
        1.0,
        1.0,
    )
    resumed = search(problem, From(start), 12, population=10, starts=1)
    again = list(resumed.generations(recorded))
    assert np.array_equal(resumed.archive.genomes, whole.archive.genomes)
    assert [g.evaluations for g in again] == [g.evaluations for g in history]
    assert [g.replayed for g in again] == [True] * 5 + [False] * 7


def test_a_problem_without_fractions_and_senseless_settings_are_refused():
    bowl = Bowl(np.array([0.5, 0.3, 0.2]))
    bowl.space = None
    with pytest.raises(InputError, match="needs a problem with fractions"):
        search(bowl, From([0.2, 0.3, 0.5]), 2)
    for options in ({"perturbation": 1.0}, {"averaging": 1.0}, {"starts": 0}, {"momentum": 1}):
        with pytest.raises(InputError):
            search(Bowl(np.array([0.5, 0.3, 0.2])), From([0.2, 0.3, 0.5]), 2, **options)
