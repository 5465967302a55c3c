"""Portfolios: found by name, switchable operator by operator, nonsense refused."""

from __future__ import annotations

import json
import re
from types import SimpleNamespace

import numpy as np
import pytest
from pymoo.algorithms.moo.nsga2 import NSGA2
from pymoo.core.problem import Problem
from pymoo.optimize import minimize

from mohsearch.core.catalog import Catalog
from mohsearch.core.errors import InputError, UnknownNameError
from mohsearch.operators import OPERATORS
from mohsearch.operators.portfolio import (
    describe,
    describe_portfolios,
    load_ladder,
    load_portfolio,
    load_shelf,
)
from mohsearch.testing.moham import random_space

TABLE_4 = {
    "scheduling-crossover": 0.103,
    "scheduling-mutation": 0.052,
    "sa-crossover": 0.045,
    "sa-template": 0.041,
    "sa-merging": 0.042,
    "sa-splitting": 0.039,
    "mapping-mutation": 0.048,
    "mapping-crossover": 0.047,
    "layer-assignment": 0.025,
    "sa-position": 0.027,
}
"""Probabilities of Table 4 of the MOHaM paper."""


def problem_of(space) -> SimpleNamespace:
    return SimpleNamespace(space=space, n_var=space.n_var, xl=space.lower, xu=space.upper)


@pytest.fixture
def own_shelf(tmp_path):
    """Return a function that writes a project's own operators of moham and finds them."""

    def write(text: str) -> Catalog:
        (tmp_path / "operators").mkdir(exist_ok=True)
        (tmp_path / "operators" / "moham.yaml").write_text(text)
        return Catalog([tmp_path])

    return write


SHELF = """
problem: moham
default: mine
operators:
  start: {operator: moham-random, kind: sampling, share: 1, description: d, source: s}
  swap: {operator: moham-scheduling-mutation, kind: mutation, probability: 0.5, description: d,
         source: s}
  split: {operator: moham-splitting-mutation, kind: mutation, probability: 0.2, description: d,
          source: s}
portfolios:
  mine: {description: d, source: s}
"""


def test_the_papers_portfolio_holds_its_ten_operators_with_table_4s_probabilities():
    portfolio = load_portfolio("moham", "paper")
    rates = {
        n: portfolio.operators[n].probability for n in portfolio.names("crossover", "mutation")
    }
    assert rates == TABLE_4
    assert portfolio.names("immigrant") == []
    assert {c.application for c in portfolio.operators.values()} == {"individual"}


def test_without_a_name_the_shelfs_default_is_meant():
    assert load_portfolio("moham").name == load_shelf("moham")[0].default


def test_the_authors_program_mutates_layer_by_layer_and_takes_immigrants():
    portfolio = load_portfolio("moham", "artifact")
    per_layer = {n for n, c in portfolio.operators.items() if c.application == "layer"}
    assert per_layer == {"scheduling-mutation", "mapping-mutation", "layer-assignment"}
    assert portfolio.operators["layer-assignment"].probability == 0.053
    built = portfolio.build()
    assert built.immigrants.count(250) == 25
    assert built.sampling.counts(250) == [248, 2]


@pytest.mark.parametrize("name", sorted(load_shelf("moham")[0].portfolios))
def test_every_portfolio_varies_packages_and_keeps_them_valid(name):
    fixed = name == "mapping-only"
    space = random_space(np.random.default_rng(1), layers=20, max_instances=6, fixed=fixed)
    problem, rng = problem_of(space), np.random.default_rng(2)
    variation = load_portfolio("moham", name).build(problem)
    X = variation.sampling.do(problem, 40, random_state=rng).get("X")
    assert space.is_valid(X).all()
    assert variation.repair is None
    pairs = X.reshape(2, 20, -1)
    children = variation.crossover._do(problem, pairs, random_state=rng).reshape(X.shape)
    children = variation.mutation._do(problem, children, random_state=rng)
    assert space.is_valid(children).all()
    assert (children != X).any()


@pytest.mark.parametrize("name", sorted(TABLE_4))
def test_each_operator_of_the_paper_can_be_switched_off_or_left_alone(name):
    portfolio = load_portfolio("moham", "paper")
    off, alone = portfolio.without(name), portfolio.only(name)
    assert set(off.names("crossover", "mutation")) == set(TABLE_4) - {name}
    assert alone.names("crossover", "mutation") == [name]
    assert alone.names("sampling") == portfolio.names("sampling")
    assert (off.label, alone.label) == (f"paper without {name}", f"paper only {name}")
    assert portfolio.names("crossover", "mutation") == [
        n for n in portfolio.operators if n in TABLE_4
    ]
    built = off.build()
    assert len(built.crossover.members) + len(built.mutation.members) == 9


def test_children_that_nothing_acted_on_are_kept_only_on_demand(own_shelf):
    space = random_space(np.random.default_rng(6), layers=30)
    problem = problem_of(space)
    copies = {}
    for mode in ("keep", "redraw"):
        portfolio = load_portfolio(
            "moham", catalog=own_shelf(SHELF.replace("mine: {", f"mine: {{copies: {mode},"))
        )
        assert portfolio.record()["copies"] == mode
        variation, rng = portfolio.build(problem), np.random.default_rng(7)
        X = variation.sampling._do(problem, 2000, random_state=rng)
        pairs = variation.crossover._do(problem, X.reshape(2, 1000, -1), random_state=rng)
        children = variation.mutation._do(problem, pairs.reshape(X.shape), random_state=rng)
        copies[mode] = (children == X).all(axis=1).mean()
    assert copies["keep"] > copies["redraw"] + 0.1


def test_switching_off_the_last_sampling_or_all_variation_is_refused():
    with pytest.raises(InputError, match="no first population"):
        load_portfolio("moham", "paper", without=["random-packages"])
    with pytest.raises(InputError, match="nothing would vary"):
        load_portfolio("moham", "paper", without=TABLE_4)
    with pytest.raises(InputError, match="nothing would vary"):
        load_portfolio("moham", "paper", only=["random-packages"])
    with pytest.raises(InputError, match="not both"):
        load_portfolio("moham", "paper", without=["sa-merging"], only=["sa-merging"])
    with pytest.raises(InputError, match="at least one"):
        load_portfolio("moham", "paper").only()


def test_an_unknown_operator_is_reported_where_it_was_written_with_what_exists():
    with pytest.raises(UnknownNameError) as caught:
        load_portfolio(
            "moham", "paper", without=["sa-mergin"], source="my.yaml", field="portfolios[0]"
        )
    message = str(caught.value)
    assert message.startswith("my.yaml: portfolios[0].without: unknown operator")
    assert "did you mean 'sa-merging'" in message
    assert "layer-assignment" in message
    with pytest.raises(UnknownNameError, match=r"did you mean 'paper'\?"):
        load_portfolio("moham", "papr", source="my.yaml", field="portfolios[0].name")
    with pytest.raises(UnknownNameError, match="moham"):
        load_portfolio("mohan")


def test_fixed_hardware_refuses_the_operators_that_change_it_and_names_them():
    problem = problem_of(random_space(np.random.default_rng(3), fixed=True))
    portfolio = load_portfolio("moham", "paper")
    pattern = r"'sa-splitting' cannot be used here: it changes the hardware.*switch off: (.*)"
    with pytest.raises(InputError, match=pattern) as caught:
        portfolio.build(problem)
    named = re.search(pattern, str(caught.value)).group(1).split(", ")
    assert set(named) == {"sa-splitting", "sa-merging", "sa-template"}
    assert set(portfolio.refusals(problem)) == set(named)
    rest = portfolio.applicable(problem)
    assert rest.operators == load_portfolio("moham", "mapping-only").operators
    rest.build(problem)


def test_nothing_is_refused_where_the_hardware_is_free():
    problem = problem_of(random_space(np.random.default_rng(3)))
    portfolio = load_portfolio("moham", "paper")
    assert portfolio.refusals(problem) == {}
    assert portfolio.applicable(problem) == portfolio


def test_the_ablation_ladder_switches_off_each_operator_of_the_paper_once():
    whole, *steps = load_ladder("moham", "ablation")
    assert whole == load_portfolio("moham", "paper")
    missing = [set(whole.operators) - set(step.operators) for step in steps]
    assert sorted(name for (name,) in missing) == sorted(TABLE_4)
    with pytest.raises(UnknownNameError, match="available: ablation"):
        load_ladder("moham", "ablations")


def test_the_record_is_json_and_tells_portfolios_apart():
    records = [json.dumps(step.record()) for step in load_ladder("moham", "ablation")]
    assert len(set(records)) == 11
    per_layer = load_portfolio("moham", "paper-per-layer").record()
    assert json.dumps(per_layer) not in records


def test_the_tables_list_all_operators_and_portfolios():
    rows = {row["name"]: row for row in describe("moham")}
    assert {n: rows[n]["rate"] for n in TABLE_4} == TABLE_4
    assert rows["sa-merging"]["kind"] == "mutation"
    assert rows["sa-merging"]["enabled"]
    assert "paper" in rows["sa-merging"]["portfolios"]
    assert not rows["integer-crossover"]["enabled"]
    assert all(row["source"] and row["description"] for row in rows.values())
    kinds = {row["name"]: row["kind"] for row in describe_portfolios("moham")}
    assert kinds["paper"] == "portfolio"
    assert kinds["ablation"] == "ladder"


def test_every_registered_operator_stands_on_the_shelf():
    shelf, _ = load_shelf("moham")
    used = {card.operator for card in shelf.operators.values()}
    assert {name for name in OPERATORS.names() if name.startswith("moham-")} == used


def test_a_project_may_bring_its_own_portfolio(own_shelf):
    portfolio = load_portfolio("moham", catalog=own_shelf(SHELF))
    assert portfolio.names() == ["start", "swap", "split"]
    assert [p for _, p in portfolio.build().mutation.members] == [0.5, 0.2]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            ("kind: mutation, probability: 0.5", "kind: mutation"),
            "operators.swap: a mutation needs",
        ),
        (("probability: 0.5", "probability: 1.5"), "operators.swap.probability"),
        (("share: 1,", "share: 1, probability: 1,"), "operators.start: a sampling needs a share"),
        (("default: mine", "default: yours"), "no portfolio 'yours'"),
        (("mine: {", "mine: {operators: [start, fly],"), "no operator 'fly'"),
        (("mine: {", "mine: {operators: [start, start],"), "stands twice"),
        (("mine: {", "mine: {operators: [swap],"), "portfolios.mine: has no sampling"),
        (("mine: {", "mine: {overrides: {swap: {probability: 2}},"), "overrides.swap.probability"),
        (("mine: {", "mine: {overrides: {swap: {share: 1}},"), "overrides.swap: a mutation needs"),
        (("problem: moham", "problem: phaze"), "problem: must be 'moham'"),
    ],
)
def test_a_wrong_shelf_is_refused_with_the_field(own_shelf, change, message):
    catalog = own_shelf(SHELF.replace(*change))
    with pytest.raises(InputError) as caught:
        load_portfolio("moham", catalog=catalog)
    assert message in str(caught.value)
    assert "moham.yaml" in str(caught.value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("moham-scheduling-mutation", "moham-dance"), "operators.swap.operator: unknown operator"),
        (("operator: moham-scheduling-mutation", "operator: moham-random"), "is no mutation"),
        (
            ("probability: 0.2", "application: layer, probability: 0.2"),
            "operators.split.application: this operator acts on whole individuals",
        ),
        (("probability: 0.5", "options: {speed: 3}, probability: 0.5"), "operators.swap.options"),
    ],
)
def test_a_shelf_that_does_not_fit_the_classes_is_refused_when_built(own_shelf, change, message):
    portfolio = load_portfolio("moham", catalog=own_shelf(SHELF.replace(*change)))
    with pytest.raises(InputError) as caught:
        portfolio.build()
    assert message in str(caught.value)


def test_plain_pymoo_runs_with_a_portfolio():
    space = random_space(np.random.default_rng(4), layers=12, max_instances=4)

    class Toy(Problem):
        def __init__(self) -> None:
            super().__init__(n_var=space.n_var, n_obj=2, xl=space.lower, xu=space.upper, vtype=int)
            self.space = space

        def _evaluate(self, X, out, *args, **kwargs):
            chosen = space.features[space.rows_of(X)]
            out["F"] = chosen[:, :, :2].sum(axis=1)

    def run(seed: int):
        problem = Toy()
        variation = load_portfolio("moham", "paper").build(problem)
        algorithm = NSGA2(
            pop_size=40,
            sampling=variation.sampling,
            crossover=variation.crossover,
            mutation=variation.mutation,
        )
        return minimize(problem, algorithm, ("n_gen", 30), seed=seed)

    first, again = run(1), run(1)
    assert space.is_valid(first.pop.get("X")).all()
    assert np.array_equal(first.pop.get("X"), again.pop.get("X"))
    start = load_portfolio("moham").build().sampling
    drawn = start.do(Toy(), 40, random_state=np.random.default_rng(1)).get("X")
    assert (first.F.min(axis=0) < Toy().evaluate(drawn).min(axis=0)).all()
