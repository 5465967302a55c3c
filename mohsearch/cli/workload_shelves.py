"""Listing and showing of the workloads that are no networks of layers: graphs and iterations."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from mohsearch.cli.output import print_facts
from mohsearch.core.catalog import Catalog


def names_by_shelf(catalog: Catalog) -> dict[str, list[str]]:
    """Return the names of graphs to partition, iterations and runs, by the shelf they stand on."""
    from mohsearch.problems.deepflow_workloads import iteration_names
    from mohsearch.problems.parallelism_runs import run_names
    from mohsearch.workloads.op_graph_files import list_graphs

    return {
        "graphs": list_graphs(catalog),
        "iterations": iteration_names(catalog),
        "runs": run_names(),
    }


def print_names(found: dict[str, list[str]]) -> None:
    """Print the names of each shelf in a few lines."""
    titles = {
        "graphs": "Graphs of ops (chiplet)",
        "iterations": "Iterations and products (deepflow)",
        "runs": "Measured training runs (parallelism)",
    }
    for shelf, names in found.items():
        click.echo(f"{titles[shelf]}: {len(names)}")
        print_facts({"": " ".join(names)})
        click.echo()


def describe_other(name: str, catalog: Catalog, taken: Sequence[str]) -> dict[str, Any] | None:
    """Return the facts of a graph, iteration or training run, or None where the name is neither.

    Names in ``taken`` are networks or applications, which come first.

    Raises
    ------
    InputError
        If the name is that of a model to train, or a file is wrong.
    """
    from mohsearch.core.errors import InputError
    from mohsearch.problems.parallelism_runs import load_run, run_names
    from mohsearch.workloads.hf_config import list_models

    if name in taken:
        return None
    found = names_by_shelf(catalog)
    if name not in found["graphs"] and _is_model(name):
        raise InputError(f"{name} is a model to train; show it with --training")
    if name in found["graphs"] or name.endswith((".json", ".json.gz")):
        return _graph_facts(name, catalog)
    if name in found["iterations"]:
        return _iteration_facts(name, catalog)
    if name in run_names(None):
        return {"name": name, **{k: v for k, v in load_run(name).record.items() if v}}
    if name in list_models(catalog):
        raise InputError(f"{name} is a model to train; show it with --training")
    return None


def _is_model(name: str) -> bool:
    """Whether a name is that of a Hugging Face configuration file."""
    from mohsearch.core.cards import read_json

    if not name.endswith(".json") or not Path(name).is_file():
        return False
    content = read_json(Path(name))
    return isinstance(content, dict) and "model_type" in content


def _graph_facts(name: str, catalog: Catalog) -> dict[str, Any]:
    from mohsearch.workloads.op_graph_files import load_graph

    graph = load_graph(Path(name) if "." in name else name, catalog)
    return {**graph.summary(), "element_bytes": graph.element_bytes, "source": graph.source}


def _iteration_facts(name: str, catalog: Catalog) -> dict[str, Any]:
    from mohsearch.core.cards import read_yaml
    from mohsearch.problems.deepflow_workloads import FOLDER, load_iteration

    load_iteration(name, catalog)
    path = catalog.find("problems", name, folder=FOLDER)
    return {"name": name, **read_yaml(path), "path": str(path)}
