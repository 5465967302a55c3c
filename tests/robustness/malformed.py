"""Valid files of every kind that the tool reads, and ways to break them."""

from __future__ import annotations

import copy
import gzip
import json
import random
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from mohsearch.core.catalog import builtin_root

ROOT = builtin_root()


@dataclass(frozen=True)
class Kind:
    """One kind of file.

    ``file`` is where it stands in a project folder, ``command`` what reads it there, ``around``
    further files of the project.
    """

    name: str
    file: str
    command: tuple[str, ...]
    content: Callable[[], bytes]
    around: tuple[tuple[str, str], ...] = ()

    def place(self, folder: Path, content: bytes) -> Path:
        """Write the file, and those around it, into a project folder."""
        for name, text in self.around:
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        path = folder / self.file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        return path

    @property
    def data(self) -> Any:
        """The content as plain data; None where it is no YAML or JSON."""
        text = self.content()
        if self.file.endswith(".yaml"):
            return yaml.safe_load(text)
        if self.file.endswith(".json"):
            return json.loads(text)
        return None

    def written(self, data: Any) -> bytes:
        """Write plain data as this kind of file."""
        if self.file.endswith(".json"):
            return json.dumps(data).encode()
        dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
        return str(yaml.dump(data, Dumper=dumper, sort_keys=False)).encode()


def shelf(path: str) -> Callable[[], bytes]:
    """Return the content of a built-in file."""
    return (ROOT / path).read_bytes


def text(content: str) -> Callable[[], bytes]:
    return content.encode


def as_json(value: Any) -> Callable[[], bytes]:
    return lambda: json.dumps(value).encode()


def first_case(path: str) -> Callable[[], bytes]:
    def read() -> bytes:
        raw = (ROOT / path).read_bytes()
        found = json.loads(raw)
        cases = found if isinstance(found, list) else found["cases"]
        return json.dumps(cases[:1]).encode()

    return read


def small_model() -> bytes:
    """Return an ONNX model of one convolution and one product."""
    from onnx import TensorProto, helper

    def tensor(name: str, *shape: int) -> Any:
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)

    nodes = [
        helper.make_node("Conv", ["x", "w"], ["y"], name="conv", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["y"], ["z"], name="relu"),
    ]
    inputs = [tensor("x", 1, 8, 16, 16), tensor("w", 16, 8, 3, 3)]
    graph = helper.make_graph(nodes, "small", inputs, [tensor("z", 1, 16, 16, 16)])
    return helper.make_model(graph).SerializeToString()


STUDY = """
name: small
title: A study
problems: [{name: moham, options: {max_instances: 2}}]
workloads: [tiny]
engines: [{engine: pymoo, algorithm: nsga2}]
portfolios: [{name: paper, without: [sa-splitting]}]
seeds: [1, 2]
budget: {population: 4, generations: 2, convergence: {window: 5, tolerance: 0.1}}
executor: {workers: 1}
"""
PACKAGE = {
    "id": "two",
    "clock_ghz": 1.0,
    "sharing": "proportional",
    "instances": [{"id": "a", "interface": 0}, {"id": "b", "interface": 1}],
    "layers": [
        {"name": "conv", "instance": "a", "cycles": 1e6, "memory_bytes": 4e6},
        {"name": "fc", "instance": "b", "cycles": 1e6, "memory_bytes": 4e6,
         "predecessors": ["conv"]},
    ],
    "order": ["conv", "fc"],
}  # fmt: skip
SCHEDULE = {
    "num_tc": 1,
    "num_vc": 1,
    "ops": [
        {"type": "tensor", "lat": 4, "lat_intra": 4},
        {"type": "vector", "lat": 2.5, "lat_intra": 1.5},
    ],
    "edges": [[0, 1]],
}
LAYER = {
    "layer": {"N": 1, "K": 4, "C": 4, "P": 2, "Q": 2, "stride_h": 1},
    "template": "simba",
    "options": {"objective": "energy", "max_evaluations": 2000},
}
GRAPH = {
    "name": "g",
    "float_bytes": 2,
    "ops": ["linear", "relu"],
    "param_bytes": [2048],
    "node_op": [0, 1, 0],
    "node_out": [64, 64, 64],
    "node_flops": [4096, 64, 4096],
    "node_params": [[0], [], []],
    "edge_src": [0, 1],
    "edge_dst": [1, 2],
}
TINY_CASE = {
    "id": "c", "n": 3, "chips": 2, "edges": [[0, 1], [1, 2]], "latency": [1.0, 2.0, 3.0]
}  # fmt: skip
HF = {
    "model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
    "intermediate_size": 128, "vocab_size": 100, "max_position_embeddings": 64,
}  # fmt: skip
DESIGN = {
    "problem": "chiplet", "options": {}, "workload": "own_ae", "objectives": ["interval_s"],
    "genome": [1] + [0] * 36,
}  # fmt: skip
SHOW = ("workload", "show")

CARDS = "problems/workloads"
KINDS = [
    Kind("study", "studies/x.yaml", ("study", "plan", "studies/x.yaml"), text(STUDY)),
    Kind("template", "x.yaml", ("template", "show", "x.yaml"),
         shelf("evaluators/templates/simba.yaml")),
    Kind("problem", "problems/moham.yaml", ("problem", "show", "moham"),
         shelf("problems/moham.yaml")),
    Kind("operators", "operators/moham.yaml", ("operator", "list", "moham"),
         shelf("operators/moham.yaml")),
    Kind("technology", "evaluators/technology/cmos45.yaml", ("evaluate", "layer-mapper", "x.json"),
         shelf("evaluators/technology/cmos45.yaml"), (("x.json", json.dumps(LAYER)),)),
    Kind("system", "evaluators/systems/X.yaml", ("evaluate", "crossflow", "one.yaml"),
         shelf("evaluators/systems/V100.yaml"),
         (("one.yaml", "system: X\ngemm: {m: 64, k: 64, n: 64}\n"),)),
    Kind("cluster", "evaluators/clusters/X.yaml", ("evaluate", "training", "runs.csv"),
         shelf("evaluators/clusters/a100_node.yaml"),
         (("runs.csv", "hidden,layers,heads,gbs,cluster\n1024,4,16,8,X\n"),)),
    Kind("package", "evaluators/packages/mcm36.yaml", ("evaluate", "chip-partition", "g.json"),
         shelf("evaluators/packages/mcm36.yaml"), (("g.json", json.dumps(GRAPH)),)),
    Kind("network card", "x.yaml", (*SHOW, "x.yaml"),
         shelf("problems/workloads/networks/bert_large.yaml")),
    Kind("application", "x.yaml", (*SHOW, "x.yaml"),
         shelf("problems/workloads/applications/tiny.yaml")),
    Kind("model card", "x.yaml", (*SHOW, "x.yaml", "--training"),
         shelf("problems/workloads/models/gpt2.yaml")),
    Kind("hf config", "config.json", (*SHOW, "config.json", "--training"), as_json(HF)),
    Kind("layer table", "x.csv", (*SHOW, "x.csv"),
         shelf("problems/workloads/networks/alexnet.csv")),
    Kind("onnx", "x.onnx", (*SHOW, "x.onnx"), small_model),
    Kind("graph", "g.json", ("evaluate", "chip-partition", "g.json", "--chips", "2"),
         as_json(GRAPH)),
    Kind("partition cases", "c.json", ("evaluate", "chip-partition", "c.json"), as_json(TINY_CASE)),
    Kind("partition", "p.json", ("evaluate", "chip-check", "g.json", "p.json", "--chips", "2"),
         as_json({"labels": [0, 0, 1]}), (("g.json", json.dumps(GRAPH)),)),
    Kind("crossflow", "x.yaml", ("evaluate", "crossflow", "x.yaml"),
         text("system: V100\ngemm: {m: 64, k: 64, n: 64}\nstrategy: RC-1-1-d1-p1\n")),
    Kind("placement", "x.json", ("evaluate", "device-placement", "x.json"),
         first_case("evaluators/reference/phaze/placement_chains.json")),
    Kind("kernel", "x.csv", ("evaluate", "kernel", "x.csv"),
         text("gpu,op,M,N,K,measured_ms,dtype\na100,mlp_up_proj,2048,22016,4096,1.57,fp16\n")),
    Kind("layer mapper", "x.json", ("evaluate", "layer-mapper", "x.json"), as_json(LAYER)),
    Kind("loop nest", "x.json", ("evaluate", "loop-nest", "x.json"),
         first_case("evaluators/reference/moham/loop_nest_cases.json")),
    Kind("op schedule", "x.json", ("evaluate", "op-schedule", "x.json"), as_json(SCHEDULE)),
    Kind("package schedule", "x.json", ("evaluate", "package-schedule", "x.json"),
         as_json(PACKAGE)),
    Kind("systolic", "x.csv", ("evaluate", "systolic", "x.csv"),
         text("M,N,K,H,W,dataflow\n8,8,8,8,8,os\n")),
    Kind("training", "x.csv", ("evaluate", "training", "x.csv"),
         text("hidden,layers,heads,gbs,seq,tp,pp,dp,cluster\n1024,4,16,8,512,1,1,1,a100_node\n")),
    Kind("design", "x.json", ("evaluate", "design", "x.json"), as_json(DESIGN)),
]  # fmt: skip
"""Every kind of file that a command reads by path or by name."""

BOMB = "\n".join(
    ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    + [f"a{k}: &a{k} [{', '.join([f'*a{k - 1}'] * 9)}]" for k in range(1, 10)]
)
"""Nine to the tenth power of values in a few hundred bytes."""

WRONG = [
    None, True, -1, 0, 0.5, float("nan"), float("inf"), -float("inf"), 10**30, -(10**30), 1e308,
    2**63, "", "no-such-name", "../../../etc/passwd", "\x00", "é" * 3000, [], {}, [[]], [None],
    {"a": {"b": [1]}},
]  # fmt: skip
"""Values of which at least most are wrong in any field."""


DROPPED = object()


def whole_file(kind: Kind) -> Iterator[tuple[str, bytes]]:
    """Yield files that are wrong as a whole."""
    good = kind.content()
    yield "empty", b""
    yield "one space", b" "
    yield "not UTF-8", b"\xff\xfe\x80" + good
    yield "null bytes", b"\x00" * 64
    yield "binary", bytes(random.Random(1).randbytes(2048))
    yield "nested lists", b"[" * 100_000
    yield "nested objects", b'{"a":' * 50_000
    yield "alias bomb", BOMB.encode()
    yield "huge number", b"9" * 20_000
    yield "a list", b"[1, 2, 3]"
    yield "text", b"just words\n"
    yield "object tag", b"!!python/object/apply:os.system ['touch pwned']\n"
    yield "pickle", b"\x80\x04\x95\x1d\x00\x00\x00\x00\x00\x00\x00\x8c\x05posix\x94."
    yield "gzip of nothing", gzip.compress(b"")
    yield "duplicate key", b"name: a\nname: b\n"


def cut_or_flipped(kind: Kind, rng: random.Random, count: int) -> Iterator[tuple[str, bytes]]:
    """Yield files with their end missing, or with a few bits flipped."""
    good = kind.content()
    for _ in range(count):
        cut = rng.randrange(len(good))
        yield f"cut at {cut}", good[:cut]
        broken = bytearray(good)
        places = [rng.randrange(8 * len(good)) for _ in range(rng.randint(1, 4))]
        for place in places:
            broken[place // 8] ^= 1 << (place % 8)
        yield f"bits {places}", bytes(broken)


def places_in(data: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the path of every field, and of the first two items of every list."""
    items: Any = ()
    if isinstance(data, dict):
        items = data.items()
    elif isinstance(data, list):
        items = list(enumerate(data))[:2]
    for key, value in items:
        yield (*path, key)
        yield from places_in(value, (*path, key))


def changed(data: Any, path: tuple[Any, ...], value: Any, *, drop: bool = False) -> Any:
    """Return a copy of ``data`` with one field replaced or left out."""
    result = copy.deepcopy(data)
    holder = result
    for key in path[:-1]:
        holder = holder[key]
    if drop:
        del holder[path[-1]]
    else:
        holder[path[-1]] = value
    return result


def wrong_fields(
    kind: Kind, choose: Callable[[list[Any]], list[Any]] = list
) -> Iterator[tuple[str, bytes]]:
    """Yield files with one field wrong, missing or too many; for CSV one cell.

    ``choose`` picks among the places and values, before any is written.
    """
    data = kind.data
    if data is None:
        if kind.file.endswith(".csv"):
            yield from choose(list(_wrong_cells(kind)))
        return
    places = [(path, value) for path in places_in(data) for value in (DROPPED, *WRONG)]
    if isinstance(data, dict):
        places.append((("no_such_field",), 1))
    for path, value in choose(places):
        where = ".".join(map(str, path))
        if value is DROPPED:
            yield f"without {where}", kind.written(changed(data, path, None, drop=True))
        else:
            yield f"{where} = {str(value)[:30]!r}", kind.written(changed(data, path, value))


def _wrong_cells(kind: Kind) -> Iterator[tuple[str, bytes]]:
    rows = [line.split(",") for line in kind.content().decode().splitlines()[:3]]
    cells = ["", "-1", "0", "nan", "inf", "1e400", "9" * 400, "1.5", "../x", '"', "\x00", "a b"]
    for column in range(len(rows[0])):
        without = [[c for k, c in enumerate(row) if k != column] for row in rows]
        yield f"without column {rows[0][column]}", _table(without)
        for cell in cells:
            bad = [list(row) for row in rows]
            bad[1][column] = cell
            yield f"{rows[0][column]} = {cell[:20]!r}", _table(bad)
    yield "short row", _table([*rows, ["1"]])
    yield "long row", _table([*rows, ["1"] * 50])


def _table(rows: list[list[str]]) -> bytes:
    return ("\n".join(",".join(row) for row in rows) + "\n").encode()


def clear(folder: Path) -> None:
    """Empty a folder."""
    for path in folder.iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()
