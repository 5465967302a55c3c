"""Recognising genomes, and the archive of distinct ones."""

import numpy as np
import pytest
from pymoo.core.population import Population

from mohsearch.engines.archive import Archive
from mohsearch.engines.duplicates import GenomeIndex, SeenElimination, as_genomes, genome_dtype


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (-1, 15, "int8"),
        (0, 127, "int8"),
        (0, 128, "int16"),
        (-1, 40_000, "int32"),
        (0, 2**40, "int64"),
    ],
)
def test_the_smallest_integer_type_that_holds_all_genes_is_taken(low, high, expected):
    assert genome_dtype(np.array([low]), np.array([high])) == np.dtype(expected)


def test_a_gene_outside_its_type_is_an_error_not_a_wrap_around():
    with pytest.raises(ValueError, match="do not fit int8"):
        as_genomes(np.array([[1, 300]]), np.dtype("int8"))
    with pytest.raises(ValueError, match="do not fit int8"):
        as_genomes(np.array([[1.5, 3.0]]), np.dtype("int8"))


def test_equal_rows_have_equal_keys_whatever_their_type():
    index = GenomeIndex(np.dtype("int16"))
    rows = np.array([[1, 2, 3], [3, 2, 1]])
    assert index.keys(rows) == index.keys(rows.astype(np.int8)) == index.keys(rows.astype(float))
    assert len(set(index.keys(rows))) == 2


def test_the_filter_keeps_what_pymoos_own_keeps():
    from pymoo.core.duplicate import DefaultDuplicateElimination

    rng = np.random.default_rng(3)
    candidates = Population.new("X", rng.integers(0, 3, (60, 3)))
    parents = Population.new("X", rng.integers(0, 3, (10, 3)))
    ours = SeenElimination().do(candidates, parents).get("X")
    theirs = DefaultDuplicateElimination().do(candidates, parents).get("X")
    assert {tuple(x) for x in ours} == {tuple(x) for x in theirs}
    assert len(ours) == len(theirs)


def test_the_filter_reports_kept_and_dropped_positions():
    population = Population.new("X", np.array([[1], [2], [1]]))
    kept, keep, drop = SeenElimination().do(population, return_indices=True)
    assert (len(kept), keep, drop) == (2, [0, 1], [2])


def test_the_filter_knows_the_whole_search():
    index = GenomeIndex(np.dtype("int8"))
    index.add(index.keys(np.array([[1, 1]]))[0])
    strategy = SeenElimination(index)
    kept = strategy.do(Population.new("X", np.array([[1, 1], [2, 2], [2, 2]])))
    assert kept.get("X").tolist() == [[2, 2]]
    assert len(strategy.do(Population.new("X", np.array([[2, 2]])))) == 0
    strategy.start_batch()
    assert len(strategy.do(Population.new("X", np.array([[2, 2]])))) == 1


def test_the_archive_numbers_genomes_in_order_and_grows(cases):
    problem = cases.Accelerators()
    archive = Archive(problem)
    X = problem.enumerate()
    for start in range(0, 1024, 100):
        rows = X[start : start + 100]
        keys = archive.index.keys(rows)
        archive.append(rows, problem.compute(rows), keys)
    assert len(archive) == 1024
    assert np.array_equal(archive.genomes, X)
    assert np.array_equal(archive.ids(archive.index.keys(X[[5, 900]])), [5, 900])
    assert sorted(map(tuple, archive.objectives(archive.front()))) == sorted(
        map(tuple, problem.exact_front)
    )


def test_appending_a_known_genome_is_a_defect(cases):
    problem = cases.Accelerators()
    archive = Archive(problem)
    rows = problem.enumerate()[:1]
    archive.append(rows, problem.compute(rows), archive.index.keys(rows))
    with pytest.raises(ValueError, match="distinct and new"):
        archive.append(rows, problem.compute(rows), archive.index.keys(rows))


def test_equal_objective_vectors_are_kept_once_in_the_front(cases):
    problem = cases.Accelerators()
    archive = Archive(problem)
    X = problem.enumerate()
    archive.append(X, problem.compute(X), archive.index.keys(X))
    front = archive.objectives(archive.front())
    assert len({tuple(row) for row in front}) == len(front) == 15
