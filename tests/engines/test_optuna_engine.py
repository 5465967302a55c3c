"""What Optuna's samplers are not used for."""

import numpy as np
import pytest

from mohsearch.core.errors import InputError
from mohsearch.problems.base import VariableCard


def test_long_genomes_are_refused_gene_by_gene(cases, search):
    problem = cases.Accelerators()
    problem.n_var = 65
    with pytest.raises(InputError, match="genomes of at most 64 genes; this problem has 65"):
        search(problem, engine="optuna", algorithm="tpe")


def test_orders_are_refused_gene_by_gene(cases, search):
    problem = cases.Assignment()
    order = VariableCard(name="order", kind="permutation", description="places")
    problem.card = problem.card.model_copy(update={"variables": (order,)})
    with pytest.raises(InputError, match="genes of this problem depend on each other"):
        search(problem, engine="optuna", algorithm="random")


def test_children_of_optunas_parents_are_valid_rows(cases, search):
    made = search(cases.Assignment(), engine="optuna", population=16, generations=8)
    for _ in made.generations():
        pass
    rows = np.sort(made.archive.genomes, axis=1)
    assert (rows == np.arange(7)).all()


def test_logging_is_left_as_it_was(cases, search):
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    for _ in search(cases.Accelerators(), engine="optuna", generations=2).generations():
        pass
    assert optuna.logging.get_verbosity() == optuna.logging.ERROR
