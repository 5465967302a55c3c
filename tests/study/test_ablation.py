"""Ablations derived from studies, run on exact cases, and read again."""

import csv
import io
import json

import numpy as np
import pytest

from mohsearch.analysis.ablate import ablate
from mohsearch.analysis.compare import compare
from mohsearch.analysis.results import read_final_fronts, read_fronts
from mohsearch.core.errors import InputError, UnknownNameError
from mohsearch.study import load_study, open_results, run_study
from mohsearch.study.ablation import ablation_study, is_ablation
from tests.analysis.synthetic_results import run_groups, write_results
from tests.command_line import run


@pytest.fixture
def ablated(study, tmp_path):
    """The knapsack's ablation, run."""
    made = ablation_study(study(seeds=3))
    output = tmp_path / "ablated"
    assert run_study(made, output, workers=1).exit_code == 0
    return output


def test_every_operator_is_switched_off_alone_and_the_whole_stays(study):
    made = ablation_study(study(portfolios=[{"name": "migrating"}]))
    assert [(p.title, p.without) for p in made.spec.portfolios] == [
        ("migrating", ()),
        ("migrating-without-newcomers", ("newcomers",)),
        ("migrating-without-crossover", ("crossover",)),
        ("migrating-without-mutation", ("mutation",)),
    ]
    assert made.spec.seed_list() == (1, 2), "the second seed is the control"
    assert is_ablation(made.spec)
    assert ablation_study(made).spec == made.spec


def test_a_ladder_gives_the_steps_of_the_shelf():
    made = ablation_study(load_study("smoke"), ladder="ablation", seeds=4)
    assert len(made.spec.portfolios) == 11
    assert made.spec.portfolios[3].without == ("sa-crossover",)
    assert made.spec.seed_list() == (1, 2, 3, 4)
    assert [e.engine for e in made.spec.engines] == ["pymoo"], "random draws have no operators"


def test_the_figure_of_the_paper_is_an_ablation_already():
    study = load_study("moham_fig12")
    assert ablation_study(study).spec == study.spec


def test_what_cannot_be_ablated_says_why(study):
    with pytest.raises(UnknownNameError, match="unknown portfolio label 'other'"):
        ablation_study(study(), "other")
    with pytest.raises(InputError, match="needs 2 seeds at least"):
        ablation_study(study(), seeds=1)
    with pytest.raises(InputError, match="no engine of this study uses crossover"):
        ablation_study(study(engines=[{"engine": "random"}]))


def final_points(tree, run):
    """Non-dominated feasible losses of a run's last population, by loops over the raw store."""
    last = tree[run]["history"].to_dataset().isel(generation=-1)
    rows = {
        (-float(a), -float(b))
        for a, b, g in zip(
            last["profit_a"].values,
            last["profit_b"].values,
            last["excess_weight"].values,
            strict=True,
        )
        if g <= 0
    }
    return [p for p in rows if not any(q != p and q[0] <= p[0] and q[1] <= p[1] for q in rows)]


def share_by_loops(winners, losers):
    beaten = [any(w != p and w[0] <= p[0] and w[1] <= p[1] for w in winners) for p in losers]
    return sum(beaten) / len(beaten)


def test_shares_are_those_of_the_final_populations_counted_pair_by_pair(ablated):
    tree = open_results(ablated)
    for front in read_final_fronts(ablated):
        points = {tuple(p) for p in front.losses(("profit_a", "profit_b"))}
        assert points == set(final_points(tree, front.run))
    (found,) = ablate(ablated)
    prefix = "exact-knapsack-nsga2-standard"
    base = [final_points(tree, f"{prefix}-s{s}") for s in (1, 2, 3)]
    assert found.baseline_run == f"{prefix}-s1"
    assert found.control.share == share_by_loops(base[0], base[1])
    pairs = [share_by_loops(a, b) for a in base for b in base if a is not b]
    assert found.control.shares == pytest.approx(pairs)
    assert [step.name for step in found.steps] == ["crossover", "mutation"]
    for step in found.steps:
        others = [final_points(tree, f"{prefix}-without-{step.name}-s{s}") for s in (1, 2, 3)]
        assert step.share == share_by_loops(base[0], others[0])
        assert step.shares == pytest.approx([share_by_loops(a, b) for a in base for b in others])
        assert step.test is not None
        assert step.test.verdict == "too few seeds"
        assert len(step.hypervolumes) == 3


def test_hypervolumes_are_those_of_all_that_was_found_as_compare_has_them(ablated):
    (found,) = ablate(ablated)
    compared = compare(read_fronts(ablated), "portfolio")
    standings = {s.contender: s.hypervolumes for s in compared.standings}
    assert found.control.hypervolumes == standings["standard"]
    for step in found.steps:
        assert step.hypervolumes == standings[f"standard-without-{step.name}"]


ENTRIES = [{"name": "paper"}, {"name": "paper", "label": "off", "without": ["sa-merging"]}]


def two_portfolios(folder, whole, off, seeds=4):
    """Write runs of a portfolio and of one without an operator, of given qualities."""
    groups = {}
    for seed in range(1, seeds + 1):
        small = {"seed": seed, "generations": 2, "population": 12}
        groups |= run_groups(f"r-{seed}", quality=whole, portfolio="paper", **small)
        groups |= run_groups(f"o-{seed}", quality=off, portfolio="off", **small)
    write_results(folder, groups, spec=json.dumps({"portfolios": ENTRIES}))
    (found,) = ablate(folder)
    return found


@pytest.mark.parametrize(
    ("without", "told"), [(1.0, "needed"), (90.0, "harmful"), (8.5, "no difference shown")]
)
def test_an_operator_is_needed_harmful_or_neither(tmp_path, without, told):
    found = two_portfolios(tmp_path, whole=8.0, off=without)
    assert found.steps[0].conclusion == told
    assert found.records()[1]["conclusion"] == told


def test_an_operator_that_has_nothing_to_vary_is_said_to_and_not_tested(tmp_path):
    """Each seed's run without it is the run with it."""
    found = two_portfolios(tmp_path, whole=8.0, off=8.0, seeds=2)
    assert found.steps[0].idle
    assert found.steps[0].test is None
    assert found.steps[0].conclusion == "nothing to vary here"


def test_the_command_runs_an_ablation_and_reads_it_again(write_study, content, tmp_path):
    path = write_study({**content, "budget": {"population": 12, "generations": 3}})
    folder = tmp_path / "out"
    first = run("ablate", path, "--output", folder, "--workers", 1, "-q", "-o", tmp_path / "a.csv")
    again = run("ablate", folder, "-o", tmp_path / "a.png")
    assert first.stdout == again.stdout
    assert "nothing (control)" in first.stdout
    assert "too few seeds to conclude from hypervolumes: 2 a variant; 5 are needed" in first.stdout
    rows = list(csv.DictReader(io.StringIO((tmp_path / "a.csv").read_text())))
    assert [row["without"] for row in rows] == ["", "crossover", "mutation"]
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    refused = run("ablate", folder, "--seeds", 3, code=2)
    assert "--seeds has no meaning" in refused.stderr


def test_a_study_without_variants_is_no_ablation(study, tmp_path):
    run_study(study(), tmp_path / "plain", workers=1)
    refused = run("ablate", tmp_path / "plain", code=2)
    assert "is no ablation" in refused.stderr


def test_published_shares_stand_beside_ours(tmp_path):
    found = two_portfolios(tmp_path, whole=8.0, off=0.5, seeds=2)
    assert found.control.published == 0.149
    assert np.median(found.steps[0].shares) > np.median(found.control.shares)
    out = run("ablate", tmp_path).stdout
    assert "14.9% published" in out
