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


@pytest.mark.parametrize(
    ("problem", "kills"),
    [
        ("moham", 10),  # more of them in the slow tests
        *(pytest.param(p, 60, marks=pytest.mark.slow) for p in sorted(SMALL_INSTANCES)),
    ],
)
def test_a_study_killed_at_random_moments_ends_as_if_undisturbed(problem, kills, tmp_path, capsys):
    assert problem in PROBLEMS.names()
    path = tmp_path / "killed.yaml"
    path.write_text(yaml.safe_dump(study_of(problem, 8 if kills == 10 else 30)))
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
            f"\n{problem}: {told['killed']} kills survived of {kills}, {told['rounds']} times to "
            f"the end; lost per kill {sum(lost) / len(lost):.3f} s on average, {lost[-1]:.3f} s at "
            f"most, sessions of {told['session_s']:.2f} s",
            end="",
        )
    assert told["killed"] == kills
    assert told["rounds"] > 0
