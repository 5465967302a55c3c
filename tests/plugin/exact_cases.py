"""Problems whose fronts are known exactly, as a plug-in: problems, operators and a shelf.

`knapsack` (maximise two profits under a weight limit), `assignment` (quadratic assignment with two
flows) and `accelerators` (layers of two networks on two instances; latency, energy, area). The
fronts in `exact_fronts.json` come from complete enumeration.
"""

from __future__ import annotations

import json
import os
import time
from itertools import permutations, product
from pathlib import Path

import numpy as np
from pymoo.core.crossover import Crossover
from pymoo.core.mutation import Mutation
from pymoo.core.sampling import Sampling

from mohsearch.core.cards import Card
from mohsearch.core.digest import content_digest
from mohsearch.core.errors import InputError, UnknownNameError
from mohsearch.core.processes import allowed_processes
from mohsearch.problems.base import BudgetCard, MetricCard, ProblemCard, SearchProblem

DATA = json.loads((Path(__file__).parent / "exact_fronts.json").read_text())


def _metric(name, sense="min"):
    return MetricCard(name=name, unit="1", sense=sense, description=f"value of {name}")


def _card(slug, metrics, constraints=()):
    return ProblemCard(
        slug=slug,
        title=slug,
        description=f"exact case {slug}",
        reference="complete enumeration",
        variables=(),
        metrics=tuple(metrics),
        objectives=tuple(m.name for m in metrics if m.name != "weight"),
        constraints=tuple(constraints),
        budget=BudgetCard(population=20, generations=20),
    )


class Options(Card):
    """Ways to slow a problem down or to break it."""

    delay_s: float = 0.0
    fail_at: int | None = None
    nan_at: int | None = None
    die_at: int | None = None
    poison: str | None = None
    poison_bits: int = 10**9


def _note(what, X):
    """Write what this process does to the file that a test has named, if any."""
    path = os.environ.get("EXACT_CASES_LOG")
    if path:
        line = json.dumps({"pid": os.getpid(), "what": what, "rows": np.asarray(X).tolist()})
        with open(path, "a", encoding="utf-8") as stream:
            stream.write(line + "\n")


class ExactProblem(SearchProblem):
    """A problem with its exact front; subclasses compute."""

    permutation = False

    def __init__(self, slug, card, lower, upper, objectives=None, options=None):
        super().__init__(card, np.asarray(lower), np.asarray(upper), objectives)
        self.slug = slug
        self.options = options or Options()
        self.computed = 0

    @property
    def exact_front(self):
        """Minimised objectives of the exact front."""
        return np.array(DATA[self.slug]["front"]) * self.signs

    def metrics(self, X):
        """Compute, after the delays and accidents that the options ask for."""
        before, self.computed = self.computed, self.computed + len(X)
        options = self.options
        _note("begins", X)
        if options.delay_s:
            time.sleep(options.delay_s)
        if options.die_at is not None and before <= options.die_at < self.computed:
            os._exit(9)
        if options.fail_at is not None and before <= options.fail_at < self.computed:
            raise RuntimeError("the evaluator broke")
        values = self.compute(np.asarray(X))
        if options.poison:
            values = self._poisoned(np.asarray(X), values)
        if options.nan_at is not None and before <= options.nan_at < self.computed:
            values = {k: np.full_like(v, np.nan) for k, v in values.items()}
        _note("ends", X)
        return values

    def _poisoned(self, X, values):
        """Break at rows with many ones."""
        bad = X.sum(axis=1) >= min(self.options.poison_bits, self.n_var)
        if not bad.any():
            return values
        if self.options.poison == "raise":
            raise RuntimeError("poisoned")
        if self.options.poison == "die":
            os._exit(9)
        if self.options.poison == "hang":
            time.sleep(600)
        return {k: np.where(bad, np.nan, v) for k, v in values.items()}

    def decode(self, x):
        """Return the row."""
        return {"kind": self.slug, "row": [int(v) for v in x]}

    def digest(self):
        """Return a hash of the data."""
        return content_digest(self.slug, DATA[self.slug], [m.name for m in self.objective_cards])

    def ideal_point(self):
        """Return the best of each metric on the exact front."""
        best = np.min(self.exact_front, axis=0) * self.signs
        return {m.name: float(v) for m, v in zip(self.objective_cards, best, strict=True)}

    def certificate(self):
        """Say that the front is exact."""
        return {"front": "complete enumeration"}


class Knapsack(ExactProblem):
    """Two profits, maximised, under a weight limit."""

    def __init__(self, **kwargs):
        card = _card(
            "knapsack",
            [_metric("profit_a", "max"), _metric("profit_b", "max"), _metric("weight")],
            [_metric("excess_weight")],
        )
        n = len(DATA["knapsack"]["weights"])
        super().__init__("knapsack", card, np.zeros(n, int), np.ones(n, int), **kwargs)

    def compute(self, X):
        """Weigh and count."""
        data = DATA["knapsack"]
        profits = X @ np.array(data["profits"], dtype=float)
        weight = X @ np.array(data["weights"], dtype=float)
        return {
            "profit_a": profits[:, 0],
            "profit_b": profits[:, 1],
            "weight": weight,
            "excess_weight": weight - data["capacity"],
        }

    def enumerate(self):
        """Return all rows."""
        n = self.n_var
        return (np.arange(2**n)[:, None] >> np.arange(n)) & 1


class Assignment(ExactProblem):
    """Quadratic assignment with two flows; the genome is a permutation."""

    permutation = True

    def __init__(self, **kwargs):
        card = _card("assignment", [_metric("cost_a"), _metric("cost_b")])
        n = len(DATA["assignment"]["distances"])
        super().__init__("assignment", card, np.zeros(n, int), np.full(n, n - 1), **kwargs)

    def compute(self, X):
        """Sum flow times distance."""
        distances = np.array(DATA["assignment"]["distances"], dtype=float)
        placed = distances[X[:, :, None], X[:, None, :]]
        costs = [(placed * np.array(flow)).sum(axis=(1, 2)) for flow in DATA["assignment"]["flows"]]
        return {"cost_a": costs[0], "cost_b": costs[1]}

    def enumerate(self):
        """Return all permutations."""
        return np.array(list(permutations(range(self.n_var))))


class Accelerators(ExactProblem):
    """Layers of two networks on two instances: mapping, instance of each layer; templates."""

    def __init__(self, **kwargs):
        card = _card("accelerators", [_metric("latency"), _metric("energy"), _metric("area")])
        super().__init__("accelerators", card, np.zeros(10, int), np.ones(10, int), **kwargs)

    def compute(self, X):
        """Schedule each row in the given order."""
        rows = [self._one(row) for row in X]
        return dict(zip(("latency", "energy", "area"), np.array(rows, float).T, strict=True))

    @staticmethod
    def _one(row):
        data = DATA["accelerators"]
        mapping, instance, template = row[:4], row[4:8], row[8:]
        free, network_free, buffer = [0, 0], [0, 0], {}
        energy = 0
        for layer in data["order"]:
            i, network = instance[layer], layer // data["layers_per_network"]
            option = data["options"][layer][template[i]][mapping[layer]]
            end = max(free[i], network_free[network]) + option[0]
            free[i] = network_free[network] = end
            energy += option[1]
            buffer[i] = max(buffer.get(i, 0), option[2])
        area = sum(data["template_area"][template[i]] + size for i, size in buffer.items())
        return max(free), energy, area

    def enumerate(self):
        """Return all rows."""
        return np.array(list(product((0, 1), repeat=10)))


PROBLEMS = {"knapsack": Knapsack, "assignment": Assignment, "accelerators": Accelerators}


def build(options, workload, *, objectives=None, catalog=None, cache_dir=None, progress=None):
    """Build a case; the workload is its name."""
    if workload not in PROBLEMS:
        raise UnknownNameError("exact case", workload, PROBLEMS)
    if "broken" in options:
        raise RuntimeError("cannot be built")
    if unknown := set(options) - set(Options.model_fields):
        raise InputError(f"no such option: {sorted(unknown)[0]}", field="options")
    if progress is not None:
        progress(1, 1, "exact case")
    if path := os.environ.get("EXACT_CASES_BUILDS"):  # a file that a test has named
        with open(path, "a", encoding="utf-8") as stream:
            stream.write(f"{os.getpid()} {allowed_processes()}\n")
    return PROBLEMS[workload](objectives=objectives, options=Options(**options))


class RandomRows(Sampling):
    """Random rows, or random permutations."""

    def _do(self, problem, n_samples, random_state=None, **_):
        if problem.permutation:
            order = np.tile(np.arange(problem.n_var), (n_samples, 1))
            return random_state.permuted(order, axis=1)
        return random_state.integers(problem.xl, problem.xu + 1, (n_samples, problem.n_var))


class BlockCrossover(Crossover):
    """Uniform crossover; for permutations the positions of one parent's first values."""

    def __init__(self):
        super().__init__(2, 2, prob=1.0)

    def _do(self, problem, X, random_state=None, **_):
        children = X.copy()
        if not problem.permutation:
            swap = random_state.random(X.shape[1:]) < 0.5
            children[0] = np.where(swap, X[1], X[0])
            children[1] = np.where(swap, X[0], X[1])
            return children
        for m in range(X.shape[1]):
            cut = int(random_state.integers(1, problem.n_var))
            for child, (a, b) in enumerate(((0, 1), (1, 0))):
                head = X[a, m, :cut]
                tail = X[b, m][~np.isin(X[b, m], head)]
                children[child, m] = np.concatenate([head, tail])
        return children


class BlockMutation(Mutation):
    """Reset of one gene in each row on average; for permutations a swap."""

    def _do(self, problem, X, random_state=None, **_):
        X = X.copy()
        if problem.permutation:
            pairs = random_state.integers(0, problem.n_var, (len(X), 2))
            rows = np.arange(len(X))
            a, b = X[rows, pairs[:, 0]], X[rows, pairs[:, 1]]
            X[rows, pairs[:, 0]], X[rows, pairs[:, 1]] = b, a
            return X
        hit = random_state.random(X.shape) < 1 / problem.n_var
        return np.where(hit, random_state.integers(problem.xl, problem.xu + 1, X.shape), X)
