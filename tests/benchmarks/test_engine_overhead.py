"""What the driver and the engines cost, beside pymoo called directly in the same run."""

import time

import numpy as np
import pytest
from pymoo.algorithms.moo.nsga2 import NSGA2
from pymoo.core.mutation import Mutation
from pymoo.core.sampling import Sampling
from pymoo.operators.crossover.pntx import TwoPointCrossover
from pymoo.optimize import minimize

from mohsearch.engines import ENGINES
from mohsearch.engines.archive import Archive
from mohsearch.engines.driver import Budget, Search
from mohsearch.engines.duplicates import SeenElimination
from mohsearch.engines.engine import make_engine
from mohsearch.problems.base import BudgetCard, MetricCard, ProblemCard, SearchProblem

pytestmark = pytest.mark.benchmark

GENES, POPULATION, GENERATIONS = 1000, 250, 300


class Sums(SearchProblem):
    """Three conflicting sums over integers: next to nothing to evaluate."""

    def __init__(self):
        metrics = tuple(
            MetricCard(name=f"f{j}", unit="1", sense="min", description="a sum") for j in range(3)
        )
        card = ProblemCard(
            slug="sums",
            title="sums",
            description="three sums",
            reference="this benchmark",
            variables=(),
            metrics=metrics,
            objectives=("f0", "f1", "f2"),
            budget=BudgetCard(population=POPULATION, generations=GENERATIONS),
        )
        super().__init__(card, np.zeros(GENES, int), np.full(GENES, 15))
        self.thirds = np.arange(GENES) % 3

    def metrics(self, X):
        total = X.sum(axis=1, dtype=float)
        parts = [X[:, self.thirds == j].sum(axis=1, dtype=float) for j in range(3)]
        return {f"f{j}": total - 2 * part for j, part in enumerate(parts)}

    def decode(self, x):
        return {"row": x.tolist()}

    def digest(self):
        return "sums"


class Rows(Sampling):
    def _do(self, problem, n_samples, random_state=None, **_):
        return random_state.integers(0, 16, (n_samples, GENES))


class Reset(Mutation):
    def _do(self, problem, X, random_state=None, **_):
        X = X.copy()
        X[np.arange(len(X)), random_state.integers(0, GENES, len(X))] = random_state.integers(
            0, 16, len(X)
        )
        return X


class Operators:
    sampling, crossover, mutation = Rows(), TwoPointCrossover(), Reset()
    immigrants = None


def cpu_seconds(call):
    began = time.process_time()
    call()
    return time.process_time() - began


def ours(engine, generations=GENERATIONS):
    problem = Sums()
    archive = Archive(problem, POPULATION * generations)
    made = make_engine(
        ENGINES.load(engine),
        problem,
        Operators,
        population=POPULATION,
        seed=1,
        seen=archive.index,
    )
    search = Search(problem, made, archive, Budget(POPULATION, generations))
    for _ in search.generations():
        pass
    assert len(archive) == POPULATION * generations


def plain_pymoo(filtered, generations=GENERATIONS):
    algorithm = NSGA2(
        pop_size=POPULATION,
        sampling=Operators.sampling,
        crossover=Operators.crossover,
        mutation=Operators.mutation,
        eliminate_duplicates=SeenElimination() if filtered else True,
    )
    minimize(Sums(), algorithm, ("n_gen", generations), seed=1)


def test_nsga2_at_paper_scale_with_a_thousand_genes(benchmark):
    """250 x 300, trivial evaluation: our driver round pymoo beside pymoo called directly."""
    ours("pymoo", 5), ours("array", 5), plain_pymoo(True, 5)
    plain = cpu_seconds(lambda: plain_pymoo(False))
    filtered = cpu_seconds(lambda: plain_pymoo(True))
    array = cpu_seconds(lambda: ours("array"))
    driven = benchmark.pedantic(lambda: cpu_seconds(lambda: ours("pymoo")), rounds=1)
    print(
        f"\nNSGA-II {POPULATION} x {GENERATIONS}, {GENES} genes, CPU seconds: "
        f"pymoo called directly {plain:.2f}, with our duplicate filter {filtered:.2f}; "
        f"through our driver {driven:.2f} ({driven / filtered - 1:+.0%} over the latter), "
        f"array engine {array:.2f} ({array / filtered - 1:+.0%})"
    )
    benchmark.extra_info.update(
        pymoo_alone_s=plain, pymoo_filtered_s=filtered, driven_s=driven, array_s=array
    )
    assert array < filtered
    assert driven <= 1.05 * filtered


def test_replay_of_a_whole_search(benchmark):
    """What a resumed run spends, without evaluating anything, on the generations it already has."""
    from mohsearch.engines.driver import Recorded

    def search(recorded=None):
        problem = Sums()
        archive = Archive(problem, POPULATION * GENERATIONS)
        made = make_engine(
            ENGINES.load("array"),
            problem,
            Operators,
            population=POPULATION,
            seed=1,
            seen=archive.index,
        )
        done = Search(problem, made, archive, Budget(POPULATION, GENERATIONS))
        return archive, list(done.generations(recorded))

    archive, generations = search()
    recorded = Recorded(
        genomes=archive.genomes,
        metrics=archive.metrics,
        evaluations=np.array([g.evaluations for g in generations]),
        distinct=np.array([g.distinct for g in generations]),
        wall_s=0.0,
        cpu_s=0.0,
    )
    again = []
    replayed = benchmark.pedantic(
        lambda: cpu_seconds(lambda: again.extend(search(recorded))), rounds=1
    )
    assert np.array_equal(again[0].genomes, archive.genomes)
    print(f"\nreplay of {GENERATIONS} generations, {GENES} genes: {replayed:.2f} CPU seconds")
