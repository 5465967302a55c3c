"""Pictures of training designs: every operator and stage is drawn, and 1F1B keeps its rules."""

from itertools import pairwise

import numpy as np
import pytest

from mohsearch.analysis.plot_phaze import (
    one_forward_one_backward,
    plot_layer_schedule,
    plot_pipeline,
)
from mohsearch.core.errors import InputError, UnknownNameError


def op(name, engine, start, end, tensor=None, vector=None):
    return {
        "name": name,
        "engine": engine,
        "start_s": start,
        "end_s": end,
        "all_cores": tensor is None and vector is None,
        "tensor_core": tensor,
        "vector_core": vector,
    }


def design(stages: int = 3) -> dict:
    ops = [
        op("first", "tensor", 0.0, 1e-3),
        op("left", "tensor", 1e-3, 3e-3, tensor=0),
        op("right", "fused", 1e-3, 2e-3, tensor=1, vector=1),
        op("last", "collective", 3e-3, 4e-3),
    ]
    one = {"makespan_s": 4e-3, "bound_s": 4e-3, "serial_s": 5e-3, "ops": ops}
    stage = {
        "forward_s": 1.0,
        "load_s": 3.0,
        "state_bytes": 2e10,
        "activation_bytes": 1e10,
        "memory_bytes": 4e10,
    }
    part = {
        "model": "toy",
        "placed": True,
        "microbatch": 2,
        "recompute": "full",
        "pipeline": stages,
        "data": 4,
        "tensor": 2,
        "stages": [dict(stage) for _ in range(stages)],
        "layers": [{"name": "decoder", "count": 6, "forward": one, "backward": one}],
    }
    return {
        "architecture": {},
        "training": {"hbm_bytes": 8e10},
        "models": [part, {"model": "lost", "placed": False}],
    }


def bars(axes):
    return [patch for patch in axes.patches if patch.get_width() > 0]


def test_a_layer_shows_every_operator_on_the_cores_it_takes():
    figure = plot_layer_schedule(design())
    for axes in figure.axes:
        rows = [label.get_text() for label in axes.get_yticklabels()]
        assert rows == ["all cores", "tensor core 0", "tensor core 1", "vector core 1"]
        assert len(bars(axes)) == 5  # the fused one stands on two cores
        assert "20.0% shorter than in turn, optimal" in axes.get_xlabel()


@pytest.mark.parametrize("stages", [1, 3, 30])
def test_a_pipeline_shows_every_stage_with_its_memory(stages):
    figure = plot_pipeline(design(stages))
    passes, memory = figure.axes
    drawn = len(bars(memory))
    assert drawn == 3 * stages
    width = sum(patch.get_width() for patch in bars(memory))
    assert width == pytest.approx(stages * 4e10 / 2**30)
    expected = 2 * stages if stages > 16 else 2 * stages * (stages + 3)
    assert len(bars(passes)) == expected


def test_one_forward_one_backward_keeps_order_devices_and_stash():
    rng = np.random.default_rng(1)
    forward, backward = rng.uniform(1, 2, 5), rng.uniform(2, 3, 5)
    passes = one_forward_one_backward(forward.tolist(), backward.tolist(), 9)
    assert len(passes) == 2 * 5 * 9
    end = {(k, m, f): stop for k, m, f, _, stop in passes}
    for k, m, is_forward, start, _ in passes:
        if is_forward and k:
            assert start >= end[k - 1, m, True]
        if not is_forward:
            assert start >= end[k, m, True]
            if k < 4:
                assert start >= end[k + 1, m, False]
    for k in range(5):
        mine = sorted((start, stop, f) for s, _, f, start, stop in passes if s == k)
        assert all(a[1] <= b[0] + 1e-12 for a, b in pairwise(mine))
        in_flight = np.cumsum([1 if f else -1 for _, _, f in mine])
        assert in_flight.max() == 5 - k


def test_designs_without_what_is_drawn_are_refused():
    with pytest.raises(InputError, match="trains no model"):
        plot_pipeline({"instances": []})
    with pytest.raises(UnknownNameError, match="toy"):
        plot_pipeline(design(), model="tay")
    with pytest.raises(InputError, match="lost could not be placed"):
        plot_layer_schedule(design(), model="lost")
