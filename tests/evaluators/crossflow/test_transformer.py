"""Transformer training steps, compared with sums over the workload's own operators."""

import numpy as np
import pytest

from mohsearch.core.errors import InputError
from mohsearch.evaluators.crossflow.config import allocation_row
from mohsearch.evaluators.crossflow.design_points import (
    DesignPoints,
    PointOptions,
    evaluate_points,
    technology_of,
)
from mohsearch.evaluators.crossflow.evaluate import Strategy
from mohsearch.evaluators.crossflow.layout import A_AREA, A_POWER, A_TDP
from mohsearch.evaluators.crossflow.operations import OPERATION_COLUMNS
from mohsearch.evaluators.crossflow.reading import config_from
from mohsearch.evaluators.crossflow.reasons import INDIVISIBLE, MEMORY_OVERFLOW, OK
from mohsearch.evaluators.crossflow.transformer import Transformer, _stages
from mohsearch.workloads.hf_config import load_model

V100 = allocation_row(config_from({"system": "V100"}))
TECHNOLOGY = (technology_of("V100"),)
WORK = Transformer(load_model("bert-large"), 32, microbatch=4, sequence_length=512)


V100[8] = V100[15] = V100[19] = 0.02  # links inside a package
V100[18] = 0.4


def metrics(codes, work=WORK, **options):
    rows = np.tile(V100, (len(codes), 1))
    points = DesignPoints(TECHNOLOGY, rows, None, np.array(codes))
    return evaluate_points(points, work, PointOptions(**options))


def test_all_degrees_do_the_operations_of_the_workload_and_no_others():
    codes = [(0, 1, 1, 1, 1), (0, 1, 1, 4, 1), (0, 1, 1, 1, 4), (1, 2, 1, 2, 2)]
    m = metrics(codes)
    vector = 0
    for layer in WORK.cut(1).layers:
        for name, graph in layer.graphs.items():
            vector += graph.vector_flops * layer.count * (1 if name == "update" else 8)
    for i, (_, kp1, kp2, dp, _) in enumerate(codes):
        # Every replica updates its own copy; reductions and collectives add a little.
        assert m.flop[i] >= WORK.cut(1).flops * 8
        assert m.flop[i] == pytest.approx(WORK.cut(1).flops * 8 + vector, rel=0.02 * kp1 * kp2 * dp)
    assert m.flop[0] == pytest.approx(WORK.cut(1).flops * 8 + vector, rel=1e-12)
    assert m.flop[2] == pytest.approx(m.flop[0], rel=1e-12)


def test_a_step_is_fill_steady_state_and_update():
    micro = [metrics([(0, 1, 1, 1, 4)], Transformer(WORK.model, b, 4, 512)).time_s[0]
             for b in (4, 8, 12, 16)]  # fmt: skip
    steps = np.diff(micro)
    assert steps == pytest.approx(np.full(3, steps[0]), rel=1e-9)
    alone = [metrics([(0, 1, 1, 1, 1)], Transformer(WORK.model, b, 4, 512)).time_s[0]
             for b in (4, 8)]  # fmt: skip
    # Four stages: a micro-batch adds a quarter of the work, or more where stages are uneven.
    whole = alone[1] - alone[0]
    assert 0.25 * whole <= steps[0] < 0.5 * whole


def test_stages_are_contiguous_and_split_the_work_as_evenly_as_can_be():
    cut = WORK.cut(1)
    work = [layer.forward.tensor_flops + layer.backward.tensor_flops for layer in cut.layers]
    for lp in (1, 2, 3, 4, 7, 24, len(cut.chain)):
        stages = _stages(cut, lp)
        assert stages.sum(axis=0).tolist() == [layer.count for layer in cut.layers]
        assert np.all(stages.sum(axis=1) >= 1)
        # Contiguous: the kinds of all stages in a row are the chain.
        kinds = [k for row in stages for k in range(row.size) for _ in range(int(row[k]))]
        assert kinds == list(cut.chain)
        most = max(stages @ work)
        assert most == pytest.approx(min_of_max(cut, work, lp), rel=1e-9)


def min_of_max(cut, work, lp):
    """Least of the largest part, by dynamic programming over all cuts."""
    chain = [work[k] for k in cut.chain]
    ahead = np.concatenate([[0], np.cumsum(chain)])
    best = [0.0] + [float("inf")] * len(chain)
    for _ in range(lp):
        best = [
            min((max(best[j], ahead[i] - ahead[j]) for j in range(i)), default=float("inf"))
            for i in range(len(chain) + 1)
        ]
    return best[-1]


def test_degrees_that_do_not_divide_the_model_have_a_reason():
    codes = [(1, 7, 1, 1, 1), (0, 1, 1, 64, 1), (0, 1, 1, 1, 40), (2, 2, 2, 2, 2)]
    m = metrics(codes)
    assert m.reason[:3].tolist() == [INDIVISIBLE] * 3
    assert np.isinf(m.time_s[:3]).all()
    assert m.reason[3] == OK


def test_memory_falls_with_every_degree_but_data_parallelism():
    m = metrics([(0, 1, 1, 1, 1), (1, 4, 1, 1, 1), (0, 1, 1, 1, 4), (0, 1, 1, 4, 1)])
    assert m.memory_bytes[1] < m.memory_bytes[0]
    assert m.memory_bytes[2] < m.memory_bytes[0]
    assert m.memory_bytes[3] == m.memory_bytes[0]
    layers = WORK.cut(1).layers
    state = sum(x.count * x.state_bytes for x in layers)
    stash = sum(x.count * x.stash_bytes for x in layers)
    assert m.memory_bytes[0] == state + stash
    big = metrics([(0, 1, 1, 1, 1)], Transformer(WORK.model, 64, 64, 512))
    assert big.reason[0] == MEMORY_OVERFLOW


def test_two_dimensions_of_tensor_parallelism_send_as_much_as_one():
    table = {}
    for name in ("CR-8", "RC-2-4"):
        rows = WORK.rows(Strategy.parse(name).row)[1]
        sent = rows[(rows[:, 0] == 2) & (rows[:, 1] < 9)]
        share = sent[:, 4] * (sent[:, 5] - 1) / sent[:, 5] * np.where(sent[:, 7] == 2, 2, 1)
        table[name] = float((share * sent[:, 2]).sum())
        assert rows.shape[1] == OPERATION_COLUMNS
    assert table["RC-2-4"] == pytest.approx(table["CR-8"])


def test_energy_is_conserved_and_recomputation_costs_time_and_saves_memory():
    codes = [(0, 1, 1, 1, 1), (1, 2, 1, 2, 2)]
    plain = metrics(codes, nodes_per_package=4)
    again = metrics(
        codes, Transformer(WORK.model, 32, 4, 512, recompute="full"), nodes_per_package=4
    )
    assert np.all(again.time_s > plain.time_s)
    assert np.all(again.memory_bytes < plain.memory_bytes)
    assert np.all(again.flop > 1.2 * plain.flop)
    for m in (plain, again):
        assert m.energy_j == pytest.approx(m.power_w * m.time_s * m.devices)
        assert np.all(m.power_w <= m.peak_power_w)


def test_models_that_cannot_be_trained_so_are_refused_at_once():
    with pytest.raises(InputError, match="batch_size"):
        Transformer(WORK.model, 0)
    with pytest.raises(InputError, match="takes 1 to 512 tokens"):
        Transformer(WORK.model, 8, sequence_length=100000)


@pytest.mark.parametrize("column", [A_TDP, A_AREA, A_POWER, A_POWER + 1, A_POWER + 2, A_POWER + 6])
def test_more_of_a_resource_is_never_slower(column):
    code = np.array([(1, 2, 1, 2, 2)])
    rows = np.tile(V100, (5, 1))
    rows[:, 3:] *= 0.6
    rows[:, column] *= np.array([0.8, 0.9, 1.0, 1.1, 1.3])
    times = evaluate_points(DesignPoints(TECHNOLOGY, rows, None, code[0]), WORK).time_s
    assert np.isfinite(times).all()
    assert np.all(np.diff(times) <= 1e-9 * times[1:])
