"""Studies of all four problems killed at random moments: always the undisturbed result."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from mohsearch.operators.portfolio import load_portfolio
from mohsearch.problems import PROBLEMS
from tests.contracts.conftest import SMALL_INSTANCES

SCRIPT = Path(__file__).parent / "kill_again_and_again.py"


def study_of(problem, generations):
    small = SMALL_INSTANCES[problem]
    return {
        "name": "killed",
        "title": "A study that is killed",
        "problems": [{"name": problem, "options": small["options"]}],
        "workloads": [small["workload"]],
        "portfolios": [{"name": load_portfolio(problem).name, "skip_inapplicable": True}],
        "budget": {"population": 12, "generations": generations},
        "executor": {"workers": 1},
    }


GENERATIONS = {"chiplet": 160, "deepflow": 160, "moham": 480, "phaze": 80}
"""So many that starting a session is a small part of it."""


@pytest.mark.parametrize(
    ("problem", "kills", "generations"),
    [
        ("moham", 10, 32),  # more of them in the slow tests
        *(
            pytest.param(p, 60, GENERATIONS.get(p, 80), marks=pytest.mark.slow)
            for p in sorted(SMALL_INSTANCES)
        ),
    ],
)
def test_a_study_killed_at_random_moments_ends_as_if_undisturbed(
    problem, kills, generations, tmp_path, capsys
):
    assert problem in PROBLEMS.names()
    path = tmp_path / "killed.yaml"
    path.write_text(yaml.safe_dump(study_of(problem, generations)))
    environment = os.environ | {
        "MOHSEARCH_CACHE": str(tmp_path / "cache"),
        "PYTHONPATH": str(Path(__file__).resolve().parents[2]),
    }
    done = subprocess.run(
        [sys.executable, str(SCRIPT), str(path), str(tmp_path), str(kills), "1"],
        capture_output=True,
        text=True,
        check=False,
        timeout=1800,
        env=environment,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    told = json.loads(done.stdout.splitlines()[-1])
    lost = told["lost_s"]
    with capsys.disabled():
        print(
            f"\n{problem}: {told['killed']} kills survived of {kills} ({told['places']}), "
            f"{told['rounds']} times to the end; lost per kill {sum(lost) / len(lost):.2f} s on "
            f"average, {lost[-1]:.2f} s at most; sessions of {told['session_s']:.1f} s; of "
            f"{told['rounds'] * told['distinct']} genomes {told['missing']} missing, "
            f"{told['repeated']} stored twice, {told['again']} evaluated again after a kill",
            end="",
        )
    assert told["killed"] == kills
    assert told["rounds"] > 0
    assert told["missing"] == told["repeated"] == 0
    assert told["again"] >= 0
    assert told["places"].get("search", 0) >= kills / 2, "most kills hit a search under way"
