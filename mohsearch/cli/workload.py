"""`mohsearch workload`: networks and applications on the shelves, and import of new ones."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from mohsearch.cli.options import DIM
from mohsearch.cli.output import (
    figure_text,
    print_facts,
    print_table,
    say,
    to_json,
)
from mohsearch.cli.program import Group, example

_JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")


def _count(value: float) -> str:
    """Return a large count with a decimal prefix."""
    for limit, suffix in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= limit:
            return f"{value / limit:.4g} {suffix}"
    return f"{value:g}"


VECTOR_OPS = click.option(
    "--vector-op",
    "vector_ops",
    multiple=True,
    metavar="TYPE",
    help="Op type of an ONNX file, otherwise unknown, to take as element-wise. Repeatable.",
)


@click.group(
    cls=Group, epilog=example("mohsearch workload list", "mohsearch workload show resnet50")
)
def workload() -> None:
    """List, show and import networks and applications."""


@workload.command("list", epilog=example("mohsearch workload list"))
@_JSON
def list_(as_json: bool) -> None:
    """List networks, applications and models to train with their sizes, and all other workloads."""
    from mohsearch.cli.workload_shelves import names_by_shelf, print_names
    from mohsearch.core.catalog import Catalog
    from mohsearch.workloads.hf_config import list_models, load_model
    from mohsearch.workloads.zoo import (
        list_applications,
        list_networks,
        load_application,
        load_network,
    )

    catalog = Catalog.around()
    applications = [load_application(n, catalog).summary() for n in list_applications(catalog)]
    networks = [load_network(n, catalog).summary() for n in list_networks(catalog)]
    models: list[dict[str, Any]] = [
        {
            "name": name,
            "kind": model.kind,
            "layers": model.layers + model.decoder_layers,
            "hidden": model.hidden,
            "sequence": model.sequence,
            "parameters": model.parameters,
        }
        for name in list_models(catalog)
        for model in (load_model(name, catalog),)
    ]
    others = names_by_shelf(catalog)
    if as_json:
        listed = {"applications": applications, "networks": networks, "models": models}
        click.echo(to_json(listed | others))
        return
    headers = ["name", "layers", "unique", "longest chain", "MACs"]
    keys = ["layers", "unique_layers", "longest_chain"]
    for title, found in (("Applications", applications), ("Networks", networks)):
        extra = title == "Applications"
        print_table(
            headers + (["networks"] if extra else []),
            [
                [
                    facts["name"],
                    *(figure_text(facts[key]) for key in keys),
                    _count(facts["macs"]),
                    *([figure_text(facts["networks"])] if extra else []),
                ]
                for facts in found
            ],
            title=title,
            numeric=[1, 2, 3, 4],
        )
        click.echo()
    print_table(
        ["name", "kind", "layers", "hidden", "tokens", "parameters"],
        [[str(v) for v in list(m.values())[:-1]] + [_count(m["parameters"])] for m in models],
        title="Models to train",
        numeric=[2, 3, 4, 5],
    )
    click.echo()
    print_names(others)
    click.echo("More about one: mohsearch workload show NAME (a model: --training)")


@workload.command(
    epilog=example(
        "mohsearch workload show arvr",
        "mohsearch workload show resnet50 --layers",
        "mohsearch workload show llama2-7b --training --tp 4 --microbatch 2",
    )
)
@click.argument("name", metavar="NAME_OR_FILE")
@click.option("--layers", is_flag=True, help="List every layer with its shape.")
@click.option(
    "--training",
    is_flag=True,
    help="Show the operators of a training step; NAME_OR_FILE is a model or a config.json.",
)
@click.option("--tp", "tensor_parallel", type=click.IntRange(1), help="Tensor-parallel devices.")
@click.option("--microbatch", type=click.IntRange(1), help="Samples processed at a time.")
@click.option("--sequence", "sequence_length", type=click.IntRange(1), help="Tokens per sample.")
@click.option(
    "--recompute",
    type=click.Choice(["none", "selective", "full"]),
    help="What the backward pass makes again.",
)
@click.option(
    "--sequence-parallel",
    is_flag=True,
    default=None,
    help="Divide tokens over the tensor-parallel devices, too.",
)
@click.option(
    "--fused", is_flag=True, default=None, help="Fuse ops as they are scheduled on an accelerator."
)
@click.option("--csv", "as_csv", is_flag=True, default=None, help="Print the ops as CSV.")
@DIM
@VECTOR_OPS
@_JSON
def show(
    name: str,
    layers: bool,
    training: bool,
    dims: Mapping[str, int],
    vector_ops: tuple[str, ...],
    as_json: bool,
    fused: bool | None,
    as_csv: bool | None,
    **step: Any,
) -> None:
    """Show a network, application, model, graph or iteration: sizes, kinds of layers, source."""
    given = {key: value for key, value in step.items() if value is not None}
    if training:
        _refuse(
            {"--layers": layers, "--dim": dims, "--vector-op": vector_ops}, "without --training"
        )
        from mohsearch.cli.workload_training import show_training

        show_training(name, as_json=as_json, as_csv=bool(as_csv), fused=bool(fused), **given)
        return
    flags = {"tensor_parallel": "--tp", "sequence_length": "--sequence"}
    wrong = {flags.get(key, f"--{key.replace('_', '-')}"): True for key in given}
    _refuse(wrong | {"--fused": fused, "--csv": as_csv}, "with --training")
    from mohsearch.cli.workload_shelves import describe_other
    from mohsearch.core.catalog import Catalog
    from mohsearch.workloads.zoo import (
        describe_network,
        list_applications,
        list_networks,
        load_application,
        load_network,
    )

    catalog = Catalog.around()
    options: dict[str, Any] = {"dims": dims, "vector_ops": vector_ops}
    networks, applications = list_networks(catalog), list_applications(catalog)
    other = describe_other(name, catalog, [*networks, *applications])
    if other is not None:
        _refuse({"--layers": layers, **options}, "for networks and applications")
        click.echo(to_json(other)) if as_json else print_facts(_readable(other))
        return
    known_network = name in networks and name not in applications
    if known_network or any(options.values()):
        graph = load_network(name, catalog, **options)
        facts = describe_network(name, catalog, **options)
        rows = [_layer_row(op.name, "", op.shape) for op in graph.mapped_ops]
    else:
        application = load_application(name, catalog)
        facts = application.summary()
        names = application.networks
        rows = [_layer_row(x.name, names[x.network], x.shape) for x in application.layers]
    if as_json:
        click.echo(to_json(facts | ({"layer_list": rows} if layers else {})))
        return
    print_facts(_readable(facts))
    if layers:
        click.echo()
        headers = list(rows[0]) if rows else ["layer"]
        table = [[figure_text(value) for value in row.values()] for row in rows]
        print_table(headers, table, numeric=range(2, len(headers)))


def _refuse(options: Mapping[str, object], where: str) -> None:
    """Refuse options that do not go with the others."""
    if wrong := [name for name, value in options.items() if value]:
        raise click.UsageError(f"{', '.join(wrong)} can be given only {where}")


def _layer_row(name: str, network: str, shape: Any) -> dict[str, Any]:
    from mohsearch.workloads.layer import DIMS

    row: dict[str, Any] = {"layer": name, "network": network}
    row |= dict(zip(DIMS, shape.bounds(), strict=True))
    row["stride"] = max(shape.stride_h, shape.stride_w)
    row["MACs"] = shape.macs
    return row


def _readable(facts: Mapping[str, Any]) -> dict[str, object]:
    shown: dict[str, object] = {}
    for key, value in facts.items():
        words = key.replace("_", " ")
        if key == "literature":
            published = f"{_count(value['macs'])} MACs ({value['source']}); here: "
            shown["published"] = published + f"{value['ratio']:.3f} of that"
        elif key == "kinds":
            shown[words] = ", ".join(f"{count} {kind}" for kind, count in value.items())
        elif key in {"macs", "weight_elements"}:
            shown["MACs" if key == "macs" else words] = f"{_count(value)} ({value:,})"
        elif value not in ("", None, []):
            shown[words] = figure_text(value)
    return shown


@workload.command(
    "import",
    epilog=example(
        "mohsearch workload import model.onnx --dim batch=1 -o problems/workloads/networks/my.yaml",
        "mohsearch workload import layers.csv --name mine",
    ),
)
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Card to write. Default: the shelf problems/workloads/networks of the working directory.",
)
@click.option("--name", help="Name of the network. Default: the file's.")
@click.option("--title", help="Title on the card. Default: the name.")
@click.option("--source", default="", help="Where the network comes from, for the card.")
@DIM
@VECTOR_OPS
@click.option("--force", is_flag=True, help="Replace an existing card.")
def import_(
    file: Path,
    output: Path | None,
    name: str | None,
    title: str | None,
    source: str,
    dims: Mapping[str, int],
    vector_ops: tuple[str, ...],
    force: bool,
) -> None:
    """Turn an ONNX file or a CSV layer table into a YAML card that studies find by name.

    Weights are not needed. The card holds one row per layer and can be edited by hand.
    """
    from mohsearch.analysis.quantities import count_text
    from mohsearch.core.errors import InputError
    from mohsearch.workloads.graph import OpGraph
    from mohsearch.workloads.zoo import NETWORKS, SHELF, load_network, save_network

    if file.suffix not in {".onnx", ".csv"}:
        raise InputError("give an ONNX file (.onnx) or a layer table (.csv)", source=file)
    if not file.is_file():
        raise InputError("no such file", source=file)
    graph = load_network(str(file.resolve()), dims=dims, vector_ops=vector_ops)
    if not graph.mapped_ops:
        raise InputError("no layer in it multiplies (convolution, matrix product)", source=file)
    label = name or file.stem
    target = output or Path(SHELF) / NETWORKS / f"{label}.yaml"
    if target.suffix != ".yaml":
        raise InputError("a card's name ends in .yaml", source=target)
    if target.exists() and not force:
        raise InputError("exists already; replace it with --force", source=target)
    graph = OpGraph.from_dict(
        graph.to_dict() | {"name": label, "source": source or f"imported from {file.name}"}
    )
    save_network(graph, target, title=title or label)
    again = load_network(str(target.resolve()))
    if again.unique_shapes() != graph.unique_shapes() or again.macs != graph.macs:
        raise RuntimeError(f"{target} does not read back as the imported network")
    layers = count_text(len(graph.mapped_ops), "layer")
    say(f"wrote {target}: {layers}, {_count(graph.macs)} MACs")
    reference = target if output is not None else label
    say(f"Next: mohsearch workload show {reference}")
