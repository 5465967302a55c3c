"""The array engine's selection against pymoo's."""

import moocore
import numpy as np
import pytest
from pymoo.core.population import Population
from pymoo.core.problem import Problem
from pymoo.operators.survival.rank_and_crowding import RankAndCrowding

from mohsearch.engines.array_engine import survivors


def pymoo_survivors(F, G, count):
    population = Population.new("X", np.arange(len(F))[:, None], "F", F, "G", G)
    problem = Problem(n_var=1, n_obj=F.shape[1], n_ieq_constr=G.shape[1])
    kept = RankAndCrowding().do(
        problem, population, n_survive=count, random_state=np.random.default_rng(0)
    )
    return set(kept.get("X")[:, 0]), dict(zip(kept.get("X")[:, 0], kept.get("rank"), strict=True))


@pytest.mark.parametrize("objectives", [1, 2, 3, 4])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_the_same_points_survive_with_the_same_ranks(objectives, seed):
    rng = np.random.default_rng(seed)
    F = rng.random((80, objectives))
    chosen, rank, crowding = survivors(F, np.zeros(80), 40)
    expected, ranks = pymoo_survivors(F, np.empty((80, 0)), 40)
    assert set(chosen) == expected
    assert {int(i): int(r) for i, r in zip(chosen, rank, strict=True)} == ranks
    assert len(crowding) == 40


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("share", [0.2, 0.9])
def test_infeasible_points_come_last_by_violation(seed, share):
    rng = np.random.default_rng(seed)
    F = rng.random((60, 3))
    G = np.where(rng.random((60, 2)) < share / 2, rng.random((60, 2)), -1.0)
    violation = np.maximum(G, 0).sum(axis=1)
    chosen, _, _ = survivors(F, violation, 33)
    expected = pymoo_survivors(F, G, 33)[0]
    assert len(chosen) == len(expected)
    # Both ends of a front have infinite room; which of them goes first is arbitrary.
    ranks = moocore.pareto_rank(F[violation <= 0])
    feasible = np.flatnonzero(violation <= 0)
    for point in set(chosen) ^ expected:
        front = F[feasible[ranks == ranks[list(feasible).index(point)]]]
        assert ((F[point] == front.min(axis=0)) | (F[point] == front.max(axis=0))).any()
    feasible_first = violation[chosen] > 0
    assert (np.diff(feasible_first.astype(int)) >= 0).all()


def test_copies_of_a_point_go_before_lone_points():
    F = np.array([[0.0, 4.0], [2.0, 2.0], [2.0, 2.0], [2.0, 2.0], [3.0, 1.0], [4.0, 0.0]])
    chosen, _, _ = survivors(F, np.zeros(6), 4)
    assert {0, 4, 5} <= set(chosen)


def test_fewer_points_than_places_are_all_kept():
    chosen, rank, _ = survivors(np.array([[1.0, 2.0], [2.0, 3.0]]), np.zeros(2), 10)
    assert chosen.tolist() == [0, 1]
    assert rank.tolist() == [0, 1]
