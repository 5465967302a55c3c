"""What Optuna's samplers are not used for."""

from types import SimpleNamespace

import numpy as np
import pytest

from mohsearch.core.errors import InputError
from mohsearch.problems.base import Box, VariableCard


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


class Fenced:
    """Minimise the distance from 20 on 0..31 in three genes whose sum may be at most 30."""

    vtype, n_var, n_obj, signs = int, 3, 1, np.ones(1)
    xl, xu = np.zeros(3, dtype=int), np.full(3, 31)
    card = SimpleNamespace(
        metrics=(SimpleNamespace(name="away"),), constraints=(SimpleNamespace(name="over"),)
    )
    objective_cards = (SimpleNamespace(name="away"),)

    def metrics(self, X):
        over = X.sum(axis=1) - 30.0
        return {"away": np.abs(X - 20.0).sum(axis=1), "over": over}

    def box(self):
        names = ("a", "b", "c")
        return Box(names, self.xl, self.xu, ("integer",) * 3, lambda Z: np.asarray(Z, int))


@pytest.mark.parametrize("algorithm", ["tpe", "random"])
def test_samplers_are_told_the_constraints(search, algorithm):
    made = search(
        Fenced(), engine="optuna", algorithm=algorithm, population=20, generations=5,
        portfolio=SimpleNamespace(),
    )  # fmt: skip
    list(made.generations())
    feasible = (made.archive.constraints() <= 0).all(axis=1)
    assert all(len(trial.constraints) == 1 for trial in made.engine._study.trials)
    if algorithm == "tpe":
        # a sampler that knows of the limit turns to points within it: chance hits 17 % of the time
        assert feasible[50:].mean() > 0.35
        assert made.archive.objectives(made.archive.front())[0, 0] <= 34
    else:
        assert feasible.mean() < 0.35
