"""Options that several commands have."""

from __future__ import annotations

import click


def _dims(_: click.Context, __: click.Parameter, values: tuple[str, ...]) -> dict[str, int]:
    dims = {}
    for text in values:
        name, equals, size = text.partition("=")
        if not (name and equals and size.isdigit() and int(size) > 0):
            raise click.BadParameter(f"{text!r} is not NAME=SIZE, such as batch=1")
        dims[name] = int(size)
    return dims


DIM = click.option(
    "--dim",
    "dims",
    multiple=True,
    metavar="NAME=SIZE",
    callback=_dims,
    help="Size of a symbolic dimension of an ONNX file, such as batch=1. Repeatable.",
)
