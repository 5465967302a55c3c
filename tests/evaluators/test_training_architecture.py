"""The space of training accelerators beside the list published with PHAZE."""

from __future__ import annotations

import csv
import time
from pathlib import Path

import numpy as np
import pytest

from mohsearch.evaluators.training_architecture import (
    all_architectures,
    exploration_order,
    feasible_architectures,
)

SHELF = Path(__file__).resolve().parents[2] / "evaluators" / "reference" / "phaze"


@pytest.fixture(scope="module")
def space():
    return feasible_architectures()


def counts(values):
    return dict(
        zip(*(column.tolist() for column in np.unique(values, return_counts=True)), strict=True)
    )


def test_the_space_has_the_published_size(space):
    assert len(all_architectures()) == 75_712
    assert len(space) == 29_360
    large = space.area_um2() >= 0.3 * 278_826_676.31216
    assert (large.sum(), (~large).sum()) == (23_580, 5_780)
    assert len(feasible_architectures(least_share=0.0)) == 51_943


def test_cores_buffers_and_widths_are_as_often_as_published(space):
    assert list(counts(space.tensor_cores).values()) == [
        5570, 2300, 2352, 2386, 2398, 2362, 2297, 2202, 2049, 1793, 1468, 1223, 960,
    ]  # fmt: skip
    assert list(counts(space.global_buffer_mib).values()) == [
        2968, 3010, 3066, 3224, 3918, 7029, 6145,
    ]  # fmt: skip
    assert list(counts(space.width).values()) == [4100, 4118, 4068, 4087, 3909, 3555, 3024, 2499]
    tensor = {
        *zip(space.tensor_cores, space.width, space.depth, space.global_buffer_mib, strict=True)
    }
    vector = {*zip(space.vector_cores, space.width, space.global_buffer_mib, strict=True)}
    assert (len(tensor), len(vector)) == (4_186, 697)


def test_the_largest_forty_have_the_published_areas(space):
    order = np.argsort(-space.area_um2(), kind="stable")
    with (SHELF / "largest_accelerators.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 40
    for place, row in zip(order, rows, strict=False):
        ours = (
            space.tensor_cores[place],
            space.vector_cores[place],
            space.width[place],
            space.depth[place],
            space.global_buffer_mib[place],
        )
        assert ours == tuple(
            int(row[key])
            for key in ("tensor_cores", "vector_cores", "width", "depth", "buffer_mib")
        )
        assert space.area_um2()[place] == pytest.approx(float(row["area_um2"]), abs=1e-5)


def test_the_paper_finds_its_accelerators_where_the_order_says(space):
    order, number = exploration_order(space)
    assert number[-1] + 1 == 13_506
    published = {
        (4, 1024, 256, 64, 8): (85, 70),
        (1, 1024, 256, 256, 8): (89, 73),
        (4, 256, 256, 256, 4): (424, 351),
        (2, 512, 256, 256, 32): (923, 693),
    }
    visited = space.take(order)
    for design, (index, bin_index) in published.items():
        place = int(
            np.flatnonzero(
                (visited.tensor_cores == design[0])
                & (visited.vector_cores == design[1])
                & (visited.width == design[2])
                & (visited.depth == design[3])
                & (visited.global_buffer_mib == design[4])
            )[0]
        )
        assert abs(place - index) <= 1
        assert abs(number[place] - bin_index) <= 1


def test_derived_sizes_stay_in_their_published_range(space):
    assert (space.tensor_buffer_kib.min(), space.tensor_buffer_kib.max()) == (1, 1024)
    assert set(space.vector_buffer_kib.tolist()) == {1, 2, 4}
    bandwidth = space.global_buffer_words_per_cycle
    assert (bandwidth.min(), bandwidth.max()) == (32, 4096)


@pytest.mark.benchmark
def test_all_areas_are_found_faster_than_a_loop_over_one_tenth(capsys):
    begin = time.process_time()
    space = feasible_architectures()
    whole = time.process_time() - begin
    begin = time.process_time()
    for place in range(0, len(space), 10):
        space.take(np.array([place])).area_um2()
    tenth = time.process_time() - begin
    with capsys.disabled():
        print(f"\n29,360 areas: {whole * 1e3:.0f} CPU-ms; 2,936 one by one: {tenth * 1e3:.0f}")
    assert whole < tenth
