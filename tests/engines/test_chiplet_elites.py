"""The best partitions so far: the best first, each once, none without a reward."""

import numpy as np

from mohsearch.engines.chiplet_elites import Elites


def test_they_are_those_a_sort_of_everything_seen_finds():
    rng = np.random.default_rng(0)
    elites, seen = Elites(6), {}
    for _ in range(12):
        labels = rng.integers(3, size=(8, 4))
        rewards = labels @ [1.0, 0.31, 0.17, 0.07]
        elites.add(labels, rewards)
        seen.update(zip(map(tuple, labels.tolist()), rewards.tolist(), strict=True))
    best = sorted((r for r in seen.values() if r > 0), reverse=True)[:6]
    assert elites.rewards.tolist() == best
    assert len({tuple(row) for row in elites.labels.tolist()}) == 6
    assert [seen[tuple(row)] for row in elites.labels.tolist()] == best


def test_partitions_without_reward_are_left():
    elites = Elites(3)
    elites.add(np.zeros((2, 5), dtype=np.int64), np.zeros(2))
    assert len(elites.labels) == 0


def test_of_equal_rewards_the_one_seen_first_stands_first():
    elites = Elites(2)
    elites.add(np.array([[2, 2]]), np.array([1.0]))
    elites.add(np.array([[1, 1], [0, 0]]), np.array([1.0, 1.0]))
    assert elites.labels.tolist() == [[2, 2], [1, 1]]
