"""The exact cases as fixtures."""

import importlib
from pathlib import Path
from types import SimpleNamespace

import pytest

PLUGIN = Path(__file__).resolve().parent.parent / "plugin"


@pytest.fixture
def cases(monkeypatch):
    """The module of problems with known fronts."""
    monkeypatch.syspath_prepend(str(PLUGIN))
    return importlib.import_module("exact_cases")


@pytest.fixture
def operators(cases):
    """Sampling, crossover and mutation for the exact cases."""
    return SimpleNamespace(
        sampling=cases.RandomRows(),
        crossover=cases.BlockCrossover(),
        mutation=cases.BlockMutation(),
        immigrants=None,
    )


@pytest.fixture
def search(operators):
    """Build a search: ``search(problem, engine, algorithm, population, generations, ...)``."""
    from mohsearch.engines import ENGINES
    from mohsearch.engines.archive import Archive
    from mohsearch.engines.driver import Budget, Search
    from mohsearch.engines.engine import make_engine

    def build(
        problem,
        engine="pymoo",
        algorithm=None,
        population=20,
        generations=10,
        seed=1,
        portfolio=operators,
        convergence=None,
        options=None,
    ):
        archive = Archive(problem)
        made = make_engine(
            ENGINES.load(engine),
            problem,
            portfolio,
            algorithm=algorithm,
            options=options,
            population=population,
            seed=seed,
            seen=archive.index,
        )
        return Search(problem, made, archive, Budget(population, generations, convergence))

    return build
