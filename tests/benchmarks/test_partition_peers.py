"""SAMPLE and FIX beside plain Python and CP-SAT, on chains: each edge on a chip or to the next.

Plain Python propagates the same bounds op by op. CP-SAT has no domains that shrink step by step
(google/or-tools#1279); what comes nearest is one presolve that hands back the tightened domains,
asked once for the domain of every op after one is placed. A partition takes as many queries as ops.
"""

import json
import subprocess
import sys
import time
from collections import deque

import numpy as np
import pytest

from mohsearch.evaluators.partition.propagator import Propagator
from mohsearch.evaluators.partition.sampler import PartitionSampler
from mohsearch.evaluators.partition.task import PartitionTask
from mohsearch.evaluators.partition.validity import are_valid
from mohsearch.workloads.op_graph_files import load_graph

pytestmark = pytest.mark.benchmark

CHIPS = 36
GRAPHS = ("tv_resnet34", "tv_resnet152", "hf_bert_large_prim")
ROWS = 200

QUERY = """
import json, sys, time
from ortools.sat.python import cp_model
data = json.load(sys.stdin)
def domains(placed):
    model = cp_model.CpModel()
    chip = [model.new_int_var(0, data["chips"] - 1, "") for _ in range(data["ops"])]
    for u, v in data["edges"]:
        model.add_linear_constraint(chip[v] - chip[u], 0, 1)
    for u, c in placed:
        model.add(chip[u] == c)
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.fill_tightened_domains_in_response = True
    solver.parameters.stop_after_presolve = True
    solver.parameters.keep_all_feasible_solutions_in_presolve = True
    solver.solve(model)
    found = solver.response_proto.tightened_variables
    return [[list(d.domain)[0], list(d.domain)[-1]] for d in list(found)]
domains(data["placed"])
start = time.process_time()
found = domains(data["placed"])
json.dump({"seconds": time.process_time() - start, "domains": found}, sys.stdout)
"""


def plain_sample(task: PartitionTask, wanted, rng: np.random.Generator) -> list[int]:
    """One chain partition: bounds on each op's chip, propagated with a queue after each choice."""
    graph, n = task.graph, task.n
    low, high = [0] * n, [task.chips - 1] * n
    after = [graph.successors(u).tolist() for u in range(n)]
    before = [graph.predecessors(u).tolist() for u in range(n)]
    for op in rng.permutation(n).tolist():
        chosen = None if wanted is None else int(wanted[op])
        if chosen is None or not low[op] <= chosen <= high[op]:
            chosen = int(rng.integers(low[op], high[op] + 1))
        low[op] = high[op] = chosen
        queue = deque([op])
        while queue:
            u = queue.popleft()
            for near, up, down in ((after[u], 1, 0), (before[u], 0, 1)):
                for v in near:
                    least, most = max(low[v], low[u] - down), min(high[v], high[u] + up)
                    if (least, most) != (low[v], high[v]):
                        low[v], high[v] = least, most
                        queue.append(v)
    return (np.array(low) - min(low)).tolist()


def cpu_seconds(action) -> float:
    start = time.process_time()
    action()
    return time.process_time() - start


def cpsat_query(task: PartitionTask, placed: list[tuple[int, int]]) -> dict:
    request = {
        "ops": task.n,
        "chips": task.chips,
        "edges": np.stack([task.graph.edge_src, task.graph.edge_dst], axis=1).tolist(),
        "placed": placed,
    }
    command = [sys.executable, "-c", QUERY]
    done = subprocess.run(
        command, input=json.dumps(request), capture_output=True, text=True, check=False
    )
    if "ModuleNotFoundError" in done.stderr:
        pytest.skip("OR-tools is not installed")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(params=GRAPHS)
def task(request: pytest.FixtureRequest) -> PartitionTask:
    return PartitionTask(load_graph(request.param), chips=CHIPS)


@pytest.mark.parametrize("what", ["sample", "fix"])
def test_chains_against_plain_python(task: PartitionTask, what: str, benchmark) -> None:
    sampler = PartitionSampler(task, "chain")
    noise = np.random.default_rng(0).integers(0, CHIPS, (ROWS, task.n))

    def ours(rows: int = ROWS):
        rng = np.random.default_rng(1)
        done = sampler.sample(rows, rng) if what == "sample" else sampler.fix(noise[:rows], rng)
        return done.labels

    assert are_valid(task.graph, ours(), CHIPS).all()
    rng = np.random.default_rng(2)
    wanted = None if what == "sample" else noise[0]
    row: list[int] = []
    plain = cpu_seconds(lambda: row.extend(plain_sample(task, wanted, rng)))
    assert are_valid(task.graph, [row], CHIPS).all()
    each = cpu_seconds(ours) / ROWS
    benchmark.extra_info["times_plain_python"] = plain / each
    print(
        f"\n{task.graph.name} (n={task.n}) {what}: {1 / each:,.0f} valid a CPU second, plain "
        f"Python {1 / plain:,.1f}: {plain / each:,.0f} times"
    )
    benchmark(lambda: ours(20))


def test_chains_against_queries_of_cpsat(task: PartitionTask, benchmark) -> None:
    sampler = PartitionSampler(task, "chain")
    middle = task.n // 2
    answer = cpsat_query(task, [(middle, 1)])
    low, high = zip(*answer["domains"][: task.n], strict=True)
    rows = sampler.sample(ROWS, np.random.default_rng(0)).labels
    kept = rows[rows[:, middle] == 1]
    assert ((kept >= low) & (kept <= high)).all()  # CP-SAT's domains hold what we draw
    each = cpu_seconds(lambda: sampler.sample(ROWS, np.random.default_rng(0))) / ROWS
    Propagator(task).set_domain(middle, [1])  # compiled
    general = Propagator(task)
    step = cpu_seconds(lambda: general.set_domain(middle, [1]))
    partition = answer["seconds"] * task.n
    benchmark.extra_info["times_cpsat"] = partition / each
    print(
        f"\n{task.graph.name} (n={task.n}): one query of CP-SAT {answer['seconds']:.3f} CPU-s, "
        f"of ours in full generality {step * 1e3:.2f} ms; a partition by {task.n} queries "
        f"{partition:,.0f} s, ours {each * 1e6:.0f} us: {partition / each:.1e} times"
    )
    benchmark(lambda: sampler.sample(20, np.random.default_rng(0)))
