"""Constraint program of a partitioning task, solved by CP-SAT in a process of its own.

Run as ``python -m mohsearch.evaluators.partition.cpsat_process``: a JSON model on standard input, a
JSON answer on standard output. OR-tools and other solvers bundle clashing builds of one library, so
they never meet in one process. This is the only module that imports ``ortools``.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from mohsearch.core.optional import require


class _Program:
    """Variables and constraints; times are whole ticks.

    ``above[u][c]`` says that op u is on chip c or a later one; ``on[u][c]`` that it is on chip c.
    """

    def __init__(self, data: dict[str, Any], cp_model: Any) -> None:
        self.model = cp_model.CpModel()
        self.ops = int(data["ops"])
        self.chips = int(data["chips"])
        self.ticks = data["ticks"]
        self.reads: list[list[tuple[int, int, int]]] = [[] for _ in range(self.ops)]
        for u, v, chip_ticks, link_ticks in data["edges"]:
            self.reads[u].append((v, chip_ticks, link_ticks))
        self.edges = [(u, v) for u, v, _, _ in data["edges"]]
        horizon = int(sum(self.ticks)) + 2 * sum(e[2] for e in data["edges"])
        self.interval = self.model.new_int_var(int(data["bound"]), max(horizon, 1), "interval")
        self._place()
        self._use_chips_in_order()
        self.loads: list[list[Any]] = [
            [self.ticks[u] * self.on[u][c] for u in range(self.ops)] for c in range(self.chips)
        ]
        if data["chain"]:
            self._chain()
        else:
            self._general()
        for load in self.loads:
            self.model.add(sum(load) <= self.interval)
        self.model.minimize(self.interval)

    def _place(self) -> None:
        model, chips = self.model, self.chips
        self.above = [
            [None, *[model.new_bool_var(f"a{u}_{c}") for c in range(1, chips)]]
            for u in range(self.ops)
        ]
        self.on = [[model.new_bool_var(f"x{u}_{c}") for c in range(chips)] for u in range(self.ops)]
        for u in range(self.ops):
            model.add_exactly_one(self.on[u])
            for c in range(1, chips):
                above = self.above[u][c]
                if c > 1:
                    model.add_implication(above, self.above[u][c - 1])
                model.add(sum(self.on[u][c:]) == above)
        for u, v in self.edges:
            for c in range(1, chips):
                model.add_implication(self.above[u][c], self.above[v][c])

    def _use_chips_in_order(self) -> None:
        model = self.model
        used = [model.new_bool_var(f"u{c}") for c in range(self.chips)]
        for c in range(self.chips):
            column = [self.on[u][c] for u in range(self.ops)]
            model.add_bool_or([*column, used[c].negated()])
            for x in column:
                model.add_implication(x, used[c])
            if c:
                model.add_implication(used[c], used[c - 1])

    def _levels(self, u: int) -> list[tuple[int, int, list[int]]]:
        """Return the steps in which an op's transfers grow: ticks of chip and link, and readers."""
        steps = []
        chip, link = 0, 0
        for size in sorted({(t, s) for _, t, s in self.reads[u] if t or s}):
            readers = [v for v, t, s in self.reads[u] if (t, s) >= size]
            steps.append((size[0] - chip, size[1] - link, readers))
            chip, link = size
        return steps

    def _chain(self) -> None:
        """Let each edge reach the next chip at most."""
        model = self.model
        for u, v in self.edges:
            for c in range(2, self.chips):
                model.add_implication(self.above[v][c], self.above[u][c - 1])
        for u in range(self.ops):
            for ticks, _, readers in self._levels(u):
                for c in range(1, self.chips):
                    crosses = model.new_bool_var("")
                    for v in readers:
                        model.add_bool_or([crosses, self.above[v][c].negated(), self.above[u][c]])
                    self.loads[c - 1].append(ticks * crosses)
                    self.loads[c].append(ticks * crosses)

    def _general(self) -> None:
        """Equation (4), and transfers to any later chip over the links in between."""
        self._forbid_triangles()
        model, chips = self.model, self.chips
        links: list[list[Any]] = [[] for _ in range(chips)]
        for u in range(self.ops):
            for ticks, link_ticks, readers in self._levels(u):
                for b in range(1, chips):
                    sends = model.new_bool_var("")
                    for v in readers:
                        model.add_bool_or([sends, self.on[v][b].negated(), self.on[u][b]])
                    self.loads[b].append(ticks * sends)
                    for a in range(b):
                        from_here = model.new_bool_var("")
                        model.add_bool_or([from_here, sends.negated(), self.on[u][a].negated()])
                        self.loads[a].append(ticks * from_here)
                        for link in range(a, b):
                            links[link].append(link_ticks * from_here)
        self.loads += [terms for terms in links if terms]

    def _forbid_triangles(self) -> None:
        model, chips = self.model, self.chips
        pairs = [(a, b) for a in range(chips) for b in range(a + 1, chips)]
        direct = {pair: model.new_bool_var("") for pair in pairs}
        indirect = {pair: model.new_bool_var("") for pair in pairs}
        for u, v in self.edges:
            for a, b in pairs:
                model.add_bool_or([direct[a, b], self.on[u][a].negated(), self.on[v][b].negated()])
        for a, b in pairs:
            model.add_bool_or([direct[a, b].negated(), indirect[a, b].negated()])
            for c in range(a + 1, b):
                for second in (direct, indirect):
                    model.add_bool_or(
                        [indirect[a, b], direct[a, c].negated(), second[c, b].negated()]
                    )


def solve(data: dict[str, Any]) -> dict[str, Any]:
    """Solve a model: labels (None without one), whether it is proven, and the bound in ticks."""
    cp_model = require("ortools.sat.python.cp_model", "cpsat")
    program = _Program(data, cp_model)
    if data["hint"] is not None:
        for u, chip in enumerate(data["hint"]):
            for c in range(program.chips):
                program.model.add_hint(program.on[u][c], int(c == chip))
    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = float(data["time_limit_s"])
    solver.parameters.num_workers = int(data["workers"])
    solver.parameters.random_seed = int(data["seed"])
    status = solver.solve(program.model)
    answer: dict[str, Any] = {
        "status": solver.status_name(status),
        "bound": float(solver.best_objective_bound),
        "labels": None,
        "seconds": float(solver.wall_time),
    }
    if status in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        answer["labels"] = [
            next(c for c in range(program.chips) if solver.boolean_value(program.on[u][c]))
            for u in range(program.ops)
        ]
        answer["objective"] = float(solver.objective_value)
    return answer


if __name__ == "__main__":
    from mohsearch.core.errors import MissingExtraError

    try:
        result = solve(json.load(sys.stdin))
    except MissingExtraError:
        result = {"status": "MISSING"}
    json.dump(result, sys.stdout)
