"""A user's project with the exact cases as a plug-in, and studies in it."""

import importlib
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

PLUGIN = Path(__file__).resolve().parent.parent / "plugin"


@pytest.fixture
def cases(monkeypatch):
    """The plug-in's module, installed for this process and those it starts."""
    monkeypatch.syspath_prepend(str(PLUGIN))
    path = os.pathsep.join(filter(None, [str(PLUGIN), os.environ.get("PYTHONPATH", "")]))
    monkeypatch.setenv("PYTHONPATH", path)
    return importlib.import_module("exact_cases")


@pytest.fixture
def project(cases, tmp_path):
    """A project folder with the operators of the exact cases."""
    (tmp_path / "operators").symlink_to(PLUGIN / "operators")
    (tmp_path / "studies").mkdir()
    return tmp_path


@pytest.fixture
def content():
    """A study as plain data, to be changed by a test."""
    return {
        "name": "small",
        "title": "A study of exact cases",
        "problems": [{"name": "exact"}],
        "workloads": ["knapsack"],
        "engines": [{"algorithm": "nsga2"}],
        "portfolios": [{"name": "standard"}],
        "seeds": 1,
        "budget": {"population": 16, "generations": 8},
        "executor": {"workers": 1},
    }


@pytest.fixture
def write_study(project):
    """Write a study into the project; return its path."""

    def write(content):
        path = project / "studies" / f"{content['name']}.yaml"
        path.write_text(yaml.safe_dump(content))
        return path

    return write


@pytest.fixture
def study(write_study, content):
    """Load the study, with top-level fields changed: ``study(seeds=2)``."""
    from mohsearch.study import load_study

    def load(**changes):
        return load_study(write_study({**content, **changes}))

    return load


RUNNER = """
import os
import sys
from mohsearch.study import load_study, run_study, store

def main():
    store.FLUSH_S = float(os.environ.get("MOHSEARCH_TEST_FLUSH_S", store.FLUSH_S))
    def show(event):
        if event.kind == "generation":
            print("generation", event.generation, flush=True)
    study = load_study(sys.argv[1])
    outcome = run_study(study, sys.argv[2], workers=int(sys.argv[3]), progress=show)
    sys.exit(outcome.exit_code)

if __name__ == "__main__":
    main()
"""


@pytest.fixture
def start(project):
    """Start a study in a process of its own: ``start(path, output, workers)``."""
    script = project / "run_it.py"
    script.write_text(RUNNER)
    started = []

    def begin(path, output, workers=1):
        process = subprocess.Popen(
            [sys.executable, str(script), str(path), str(output), str(workers)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        return process

    yield begin
    for process in started:
        if process.poll() is None:
            process.kill()
        process.communicate()


@pytest.fixture
def content_of():
    """Everything of a run's result that must not depend on how it was carried out."""
    import numpy as np

    from mohsearch.study import open_results

    def read(output):
        tree = open_results(output)
        found = {}
        for name, node in tree.children.items():
            arrays = {
                f"{group}/{variable}": np.asarray(data.values).tobytes()
                for group in ("history", "archive", "front")
                for variable, data in node[group].to_dataset().data_vars.items()
                if variable not in {"wall_s", "cpu_s", "design"}
            }
            designs = [str(text) for text in node["front"]["design"].values]
            found[name] = (node.attrs["digest"], node.attrs["status"], arrays, designs)
        tree.close()
        return found

    return read
