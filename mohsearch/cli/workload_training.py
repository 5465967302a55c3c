"""What `mohsearch workload show --training` prints: the operators of a training step."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from mohsearch.cli.output import print_facts, print_table, to_json

if TYPE_CHECKING:
    from mohsearch.workloads.training import TrainingLayer, TrainingWorkload

_COLUMNS = (
    "layer",
    "pass",
    "op",
    "type",
    "phase",
    "engine",
    "batch",
    "m",
    "n",
    "k",
    "elements",
    "tensor_flops",
    "vector_flops",
    "read_bytes",
    "write_bytes",
    "collective",
    "collective_bytes",
    "after",
)


def show_training(name: str, *, as_json: bool, as_csv: bool, fused: bool, **options: Any) -> None:
    """Print the operators of every kind of layer of a model in training."""
    from mohsearch.workloads.hf_config import load_model
    from mohsearch.workloads.training import build_training

    workload = build_training(load_model(name), **options)
    rows = list(_rows(workload, fused))
    if as_csv:
        text = io.StringIO()
        writer = csv.DictWriter(text, _COLUMNS, extrasaction="ignore", lineterminator="\n")
        writer.writeheader()
        writer.writerows({**row, "after": " ".join(map(str, row["after"]))} for row in rows)
        click.echo(text.getvalue(), nl=False)
        return
    facts = _facts(workload)
    layers = [_layer_facts(layer) for layer in workload.layers]
    if as_json:
        click.echo(to_json({**facts, "layers": layers, "ops": rows}))
        return
    print_facts({key.replace("_", " "): _plain(value) for key, value in facts.items()})
    click.echo()
    headers = [key.replace("_", " ") for key in layers[0]]
    table = [[_plain(value) for value in layer.values()] for layer in layers]
    print_table(headers, table, title="Layers, on one device", numeric=range(1, len(headers)))
    for layer in workload.layers:
        for which in ("forward", "backward", "update"):
            chosen = [x for x in rows if (x["layer"], x["pass"]) == (layer.name, which)]
            click.echo()
            _print_ops(f"{layer.name}, {which}: {len(chosen)} op{'s' * (len(chosen) != 1)}", chosen)


def _rows(workload: TrainingWorkload, fused: bool) -> Iterator[dict[str, Any]]:
    from mohsearch.workloads.training_fusion import fuse

    for layer in workload.layers:
        for which, plain in layer.graphs.items():
            graph = fuse(plain) if fused else plain
            for op, before in zip(graph.ops, graph.predecessors, strict=True):
                own = op.to_dict() | {"after": [graph.ops[i].name for i in before]}
                yield {"layer": layer.name, "pass": which, **own}


def _facts(workload: TrainingWorkload) -> dict[str, Any]:
    model = workload.model
    return {
        "name": model.name,
        "kind": model.kind,
        "source": model.source,
        "parameters": model.parameters,
        "sequence": workload.sequence,
        "microbatch": workload.microbatch,
        "tensor_parallel": workload.tensor_parallel,
        "sequence_parallel": workload.sequence_parallel,
        "recompute": workload.recompute,
        "parameters_per_device": workload.parameters,
        "tensor_flops_per_device": workload.flops,
    }


def _layer_facts(layer: TrainingLayer) -> dict[str, Any]:
    return {
        "layer": layer.name,
        "count": layer.count,
        "forward_ops": len(layer.forward),
        "backward_ops": len(layer.backward),
        "parameters": layer.parameters,
        "state_bytes": layer.state_bytes,
        "stash_bytes": layer.stash_bytes,
        "boundary_bytes": layer.boundary_bytes,
    }


def _print_ops(title: str, rows: list[dict[str, Any]]) -> None:
    headers = ["op", "engine", "shape", "FLOPs", "read", "written", "sent", "after"]
    table = [
        [
            row["op"],
            row["engine"],
            _shape(row),
            _scaled(row["tensor_flops"] + row["vector_flops"]),
            _scaled(row["read_bytes"]) + "B",
            _scaled(row["write_bytes"]) + "B",
            _scaled(row["collective_bytes"]) + "B" if row["collective"] else "",
            ", ".join(row["after"]),
        ]
        for row in rows
    ]
    print_table(headers, table, title=title, numeric=(3, 4, 5, 6))


def _shape(row: dict[str, Any]) -> str:
    if not row["m"]:
        return str(row["elements"])
    dims = f"{row['m']} x {row['n']} x {row['k']}"
    return f"{row['batch']} of {dims}" if row["batch"] > 1 else dims


def _scaled(value: float) -> str:
    for limit, suffix in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= limit:
            return f"{value / limit:.4g} {suffix}"
    return f"{value:g} "


def _plain(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,}" if isinstance(value, int) else str(value)
