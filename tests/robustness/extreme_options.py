"""Options of a problem at the edges of what their card admits, and a process that tries them.

Edges come from the card's own JSON Schema. A try builds the problem on a small workload, draws
genomes as a search does and evaluates them, in a process that is ended when it takes too long.
"""

import json
import math
import multiprocessing
import resource
import time
import traceback

import psutil
from hypothesis import strategies as st

from mohsearch.problems import PROBLEM_OPTIONS

WHOLE = [0, 1, 2, 3, 5, 64, 1000, 2**20, 2**31, 2**53 + 1, 2**62]
REAL = [0.0, 1e-60, 1e-9, 0.5, 1.0, 3.0, 1e3, 1e9, 1e60]
NAMES = {
    ("chiplet", "package"): ["mcm36", "mcm36_ucie"],
    ("deepflow", "system"): ["V100", "A100"],
    ("deepflow", "strategies"): [["RC-1-1-d64-p1"], ["d64"], ["CR-64-d1-p1"], ["RC-8-8-d1-p1"]],
    ("deepflow", "logic"): [["N7"], ["N12", "N1"]],
    ("deepflow", "memory"): [["HBM2"], ["HBM2", "HBM3"]],
    ("deepflow", "fixed_fractions"): [{"area.core": 0}, {"area.core": 1.0}, {"power.core": 1e-9}],
    ("moham", "templates"): [["simba"], ["eyeriss", "shidiannao"]],
    ("moham", "variant"): [None],
    ("moham", "omit_levels"): [{"shidiannao": ["RegisterOut"]}],
    ("moham", "fixed_hardware"): [None, {"simba": 1}, {"eyeriss": 256}, {"simba": 2**62}],
    ("parallelism", "cluster"): ["selene"],
    ("measured", "devices"): [["A100"], ["H100"]],
    ("phaze", "expert"): [
        {"pipeline": 1, "data": 1, "tensor": 1},
        {"pipeline": 2**31, "data": 2**31, "tensor": 2},
    ],
}
"""Values of options that are names or have a form of their own."""

MEMORY_BYTES = 6 * 2**30


def edges(schema, definitions):
    """Return values at the edges of what a JSON Schema admits."""
    if "$ref" in schema:
        return edges(definitions[schema["$ref"].rsplit("/", 1)[1]], definitions)
    if "anyOf" in schema:
        return [value for part in schema["anyOf"] for value in edges(part, definitions)]
    if "enum" in schema:
        return list(schema["enum"])
    if "const" in schema:
        return [schema["const"]]
    kind = schema.get("type")
    if kind in {"integer", "number"}:
        low = schema.get("minimum", schema.get("exclusiveMinimum", -math.inf))
        high = schema.get("maximum", schema.get("exclusiveMaximum", math.inf))
        known = WHOLE if kind == "integer" else REAL
        ends = [v for v in (low, high) if math.isfinite(v)]
        found = {*(v for v in known if low <= v <= high), *ends}
        return sorted(found - {schema.get("exclusiveMinimum"), schema.get("exclusiveMaximum")})
    if kind == "array":
        return _arrays(schema, definitions)
    return {"boolean": [False, True], "null": [None]}.get(kind, [])


def _arrays(schema, definitions):
    if "prefixItems" in schema:
        choices = [edges(part, definitions) for part in schema["prefixItems"]]
        longest = max(map(len, choices))
        level = [[c[min(i, len(c) - 1)] for c in choices] for i in range(longest)]
        wide = [[choices[0][0], *(c[-1] for c in choices[1:])]]
        return level + wide
    items = edges(schema["items"], definitions)
    return [[value] for value in items] + (
        [items[:2], [items[0], items[-1]], items] if items else []
    )


def options_of(slug, base):
    """Return a strategy: the options of a small problem with one to three at an edge."""
    schema = PROBLEM_OPTIONS.load(slug).model_json_schema()
    definitions = schema.get("$defs", {})
    choices = {}
    for name, field in schema["properties"].items():
        values = NAMES.get((slug, name)) or edges(field, definitions)
        if values:
            choices[name] = values
    changed = st.lists(st.sampled_from(sorted(choices)), min_size=1, max_size=3, unique=True)
    return changed.flatmap(
        lambda names: st.fixed_dictionaries({n: st.sampled_from(choices[n]) for n in names})
    ).map(lambda changes: {**base, **changes})


class Trier:
    """Tries options in a process of its own.

    Parameters
    ----------
    slug, workload, base
        A problem, a small workload, and options with which it is built and evaluated in seconds.
    most_s
        Processor seconds that options may take.
    """

    def __init__(self, slug, workload, base, cache_dir, most_s):
        self.task = (slug, workload, str(cache_dir))
        self.base, self.most_s = base, most_s
        self.process = None

    def try_options(self, options):
        """Return ``refused``, ``evaluated`` or what went wrong, and the text that belongs to it."""
        if self.process is None:
            self._start()
        return self._ask(options, self.most_s)

    def _start(self):
        context = multiprocessing.get_context("spawn")
        self.pipe, there = context.Pipe()
        self.process = context.Process(target=_serve, args=(there, *self.task), daemon=True)
        self.process.start()
        there.close()
        state, text = self._ask(self.base, 600.0)  # compiled code is loaded or made
        assert state == "evaluated", text

    def _ask(self, options, most_s):
        used = _processor_s(self.process.pid)
        began = time.monotonic()
        self.pipe.send(options)
        while not self.pipe.poll(0.5):
            slow = _processor_s(self.process.pid) - used > most_s
            if slow or time.monotonic() - began > 20 * most_s or not self.process.is_alive():
                self.close()
                return ("hangs", f"more than {most_s:g} s") if slow else ("died", "")
        try:
            return self.pipe.recv()
        except EOFError:
            self.close()
            return "died", "its process ended"

    def close(self):
        """End the process."""
        if self.process is not None:
            self.process.kill()
            self.process.join()
            self.pipe.close()
            self.process = None


def _processor_s(pid):
    try:
        used = psutil.Process(pid).cpu_times()
    except psutil.Error:
        return 0.0
    return used.user + used.system


# What follows runs in the process.


def _serve(pipe, slug, workload, cache_dir):
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    while True:
        try:
            options = pipe.recv()
        except EOFError:
            return
        try:
            answer = _tried(slug, workload, options, cache_dir)
        except Exception:
            answer = "raises", traceback.format_exc()
        pipe.send(answer)


def _tried(slug, workload, options, cache_dir):
    import numpy as np

    from mohsearch.core.errors import InputError
    from mohsearch.operators.portfolio import load_portfolio
    from mohsearch.problems import PROBLEMS

    try:
        problem = PROBLEMS.load(slug)(options, workload, cache_dir=cache_dir, workers=1)
        portfolio = load_portfolio(slug).applicable(problem).build(problem)
    except InputError as error:
        return "refused", str(error)
    genomes = portfolio.sampling._do(problem, 4, random_state=np.random.default_rng(1))
    if not len(genomes):
        return "refused", "the sampling finds no genome"
    metrics = problem.metrics(genomes)
    wrong = {n: v.tolist() for n, v in metrics.items() if not np.isfinite(v).all()}
    if wrong:
        return "not finite", json.dumps(wrong)
    json.dumps(problem.ideal_point(), allow_nan=False)
    for genome in genomes:
        json.dumps(problem.decode(genome), allow_nan=False)
    return "evaluated", ""
