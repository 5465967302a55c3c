"""Operators of the training search keep to the area budget and move what they say they move."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from mohsearch.core.errors import InputError
from mohsearch.evaluators.training_architecture import Architectures, feasible_architectures
from mohsearch.evaluators.training_grid import TrainingGrid
from mohsearch.operators import OPERATORS
from mohsearch.operators.phaze_crossover import fit_budget, random_designs
from mohsearch.operators.portfolio import load_ladder, load_portfolio
from mohsearch.testing.contracts import check_repeats

MUTATIONS = [
    "phaze-step",
    "phaze-array-exchange",
    "phaze-vector-exchange",
    "phaze-buffer-exchange",
    "phaze-area-neighbour",
    "phaze-fill-budget",
    "phaze-training-mutation",
]
CROSSOVERS = ["phaze-block-crossover", "phaze-training-crossover"]
BUDGET_MM2 = 278.82667631216


@pytest.fixture(scope="module")
def grid() -> TrainingGrid:
    return TrainingGrid.build()


@pytest.fixture(scope="module")
def rows(grid):
    return random_designs(grid, 400, np.random.default_rng(1))


def faults(grid: TrainingGrid, rows: np.ndarray) -> list[str]:
    """Say what is wrong with designs, from their physical values and the published area rule."""
    wrong = []
    shape = np.array(grid.shape)
    if ((rows < 0) | (rows >= shape)).any():
        return ["an index lies outside the grid"]
    machines = Architectures(*(np.array(grid.axes[k])[rows[:, k]] for k in range(5)))
    area = machines.area_um2() / 1e6
    if (area > BUDGET_MM2 * (1 + 1e-12)).any():
        wrong.append("beyond the budget")
    several = (machines.tensor_cores > 1) & (machines.vector_cores > 1)
    if (area[several] < 0.3 * BUDGET_MM2).any():
        wrong.append("below the window")
    return wrong


def make(name: str):
    return OPERATORS.load(name)()


def test_the_grid_holds_the_published_accelerators(grid):
    published = feasible_architectures()
    mine = grid.architectures(grid.accelerators)
    columns = ("tensor_cores", "vector_cores", "width", "depth", "global_buffer_mib")
    key = [np.stack([getattr(a, c) for c in columns], axis=1) for a in (published, mine)]
    assert {tuple(row) for row in key[0].tolist()} == {tuple(row) for row in key[1].tolist()}
    assert (np.diff(grid.area_mm2[tuple(grid.accelerators.T)]) <= 0).all()
    assert grid.size == 29_360 * 24
    small = TrainingGrid.build(widths=[128, 256], microbatches=[1, 4], hbm_gib=[32])
    designs = small.designs()
    assert len(designs) == small.size == len({tuple(row) for row in designs.tolist()})
    assert faults(small, designs) == []


def test_a_budget_no_accelerator_fits_and_an_unknown_buffer_are_refused():
    with pytest.raises(InputError, match="no accelerator fits the area budget of 1 mm2"):
        TrainingGrid.build(budget_mm2=1.0)
    with pytest.raises(InputError, match="a core buffer of 4096 KiB is not known; known sizes: 1,"):
        TrainingGrid.build(widths=[512], depths=[512])


@pytest.mark.parametrize("name", MUTATIONS)
def test_mutations_stay_within_the_budget_and_leave_their_input_alone(grid, rows, name):
    problem = SimpleNamespace(grid=grid)
    before = rows.copy()
    children = make(name)._do(problem, rows, random_state=np.random.default_rng(2))
    assert np.array_equal(rows, before)
    assert faults(grid, children) == []
    changed = (children != rows).any(axis=1)
    assert changed.mean() > 0.5
    trains = (children[:, 5:] != rows[:, 5:]).any(axis=1)
    if name == "phaze-training-mutation":
        assert ((children != rows).sum(axis=1) == 1).all()
        assert trains.all()
    else:
        assert not trains.any()


@pytest.mark.parametrize("name", CROSSOVERS)
def test_crossovers_stay_within_the_budget_and_only_mix_their_parents(grid, rows, name):
    problem = SimpleNamespace(grid=grid)
    parents = rows.reshape(2, -1, 8)
    children = make(name)._do(problem, parents, random_state=np.random.default_rng(3))
    assert children.shape == parents.shape
    assert faults(grid, children.reshape(-1, 8)) == []
    for gene in range(5, 8):
        assert np.array_equal(
            np.sort(children[:, :, gene], axis=0), np.sort(parents[:, :, gene], axis=0)
        )
    assert (children != parents).any(axis=2).mean() > 0.5


def test_array_exchange_keeps_the_number_of_multipliers(grid, rows):
    children = make("phaze-array-exchange")._do(
        SimpleNamespace(grid=grid), rows, random_state=np.random.default_rng(4)
    )
    before, after = grid.architectures(rows), grid.architectures(children)

    def elements(a):
        return a.tensor_cores * a.width * a.depth

    assert np.array_equal(elements(before), elements(after))
    assert np.array_equal(before.vector_cores, after.vector_cores)


def test_filled_budgets_admit_no_further_doubling(grid, rows):
    children = make("phaze-fill-budget")._do(
        SimpleNamespace(grid=grid), rows, random_state=np.random.default_rng(5)
    )
    for axis in range(5):
        grown = children[:, :5].copy()
        grown[:, axis] += 1
        assert not grid.is_admitted(grown).any()


def test_repair_returns_admitted_rows_from_anywhere_on_the_grid(grid):
    rng = np.random.default_rng(6)
    anywhere = np.stack([rng.integers(n, size=500) for n in grid.shape[:5]], axis=1)
    fallback = random_designs(grid, 500, rng)[:, :5]
    fitted = fit_budget(grid, anywhere, fallback, rng)
    assert grid.is_admitted(fitted).all()
    fine = grid.is_admitted(anywhere)
    assert np.array_equal(fitted[fine], anywhere[fine])
    assert (fitted[~fine] == fallback[~fine]).all(axis=1).mean() < 0.05


def test_operators_that_cannot_act_are_refused_by_name():
    fixed = TrainingGrid.build(
        tensor_cores=[8], vector_cores=[2], widths=[128], depths=[128], global_buffers_mib=[128]
    )
    problem = SimpleNamespace(grid=fixed, n_var=8, card=None)
    refused = load_portfolio("phaze").refusals(problem)
    assert set(refused) == {
        "step",
        "array-exchange",
        "vector-exchange",
        "buffer-exchange",
        "area-neighbour",
        "fill-budget",
    }
    assert "fixes" in refused["step"]
    trained = TrainingGrid.build(microbatches=[1], hbm_gib=[80], recompute=["full"])
    refused = load_portfolio("phaze").refusals(SimpleNamespace(grid=trained, n_var=8))
    assert set(refused) == {"training-crossover", "training-settings"}


def test_portfolios_repeat_for_a_seed_and_the_ladder_switches_each_operator_off(grid):
    problem = SimpleNamespace(
        grid=grid, n_var=8, xl=np.zeros(8), xu=np.array(grid.shape) - 1, vtype=int
    )
    variation = load_portfolio("phaze").build(problem)

    def bred(seed: int):
        rng = np.random.default_rng(seed)
        parents = np.asarray(variation.sampling._do(problem, 40, random_state=rng))
        pairs = parents.reshape(2, 20, 8)
        children = variation.crossover._do(problem, pairs, random_state=rng).reshape(-1, 8)
        return variation.mutation._do(problem, children, random_state=rng)

    check_repeats(bred)
    assert faults(grid, bred(3)) == []
    assert len(load_ladder("phaze", "ablation")) == 10
