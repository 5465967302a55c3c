"""Whatever the size of a number, an evaluator gives a finite value, a reason or an error."""

from __future__ import annotations

import math
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mohsearch.core.errors import InputError, MohsearchError
from mohsearch.evaluators import EVALUATORS
from mohsearch.evaluators.systolic import DATAFLOWS, systolic_cycles, systolic_utilization
from mohsearch.hardware.manufacturing import (
    WaferCard,
    die_yield,
    dies_per_wafer,
    good_die_usd,
    interposer_package_usd,
    load_manufacturing,
    organic_package_usd,
    wafer_of,
)
from mohsearch.hardware.technology import monotone_log_log
from tests.robustness.malformed import KINDS, changed, clear

POSITIVE = [1e-60, 1e-30, 1e-9, 0.5, 1.0, 3.0, 1e9, 1e30, 1e60]
WHOLE = [1, 2, 3, 7, 1000, 2**20, 2**31 - 1, 2**31, 2**40, 2**53 + 1, 2**62]
ANY = [0, *POSITIVE, *WHOLE]
positive, whole = st.sampled_from(POSITIVE), st.sampled_from(WHOLE)


def few(count):
    checks = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
    return settings(
        max_examples=count,
        derandomize=True,
        deadline=None,
        database=None,
        suppress_health_check=checks,
    )


def numbers_in(data, path=()):
    """Yield the path of every number."""
    if isinstance(data, dict | list):
        items = data.items() if isinstance(data, dict) else enumerate(data)
        for key, value in items:
            yield from numbers_in(value, (*path, key))
    elif isinstance(data, int | float) and not isinstance(data, bool):
        yield path


def not_finite(value):
    """Return whether plain data has a number that is none, unless a reason stands beside it."""
    if isinstance(value, dict):
        if value.get("reason", "feasible") != "feasible":
            return False
        return any(not_finite(inner) for inner in value.values())
    if isinstance(value, list | tuple):
        return any(not_finite(inner) for inner in value)
    return isinstance(value, float) and not math.isfinite(value)


DOORS = [
    kind
    for kind in KINDS
    if kind.command[0] == "evaluate" and kind.data is not None and kind.name not in {"design"}
]


@pytest.mark.parametrize("kind", DOORS, ids=lambda kind: kind.name)
def test_every_evaluator_answers_extreme_numbers_in_its_file(kind, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    evaluate, good = EVALUATORS.load(kind.command[1]), kind.data
    places = list(numbers_in(good))
    files = [Path(name) for name in kind.command[2:] if "." in name]
    chips = {"chips": 2} if "--chips" in kind.command else {}
    changes = st.lists(
        st.tuples(st.sampled_from(places), st.sampled_from(ANY)), min_size=1, max_size=3
    )
    answered = []

    @few(25)
    @given(changes)
    def answers(chosen):
        data = good
        for path, value in chosen:
            data = changed(data, path, value)
        clear(tmp_path)
        kind.place(tmp_path, kind.written(data))
        try:
            report = evaluate(*files, **chips)
        except MohsearchError:
            return
        answered.append(report)
        assert not not_finite([report.document, list(report.rows), list(report.summary)])

    answers()
    assert answered, "every change was refused"


@few(60)
@given(whole, whole, whole, whole, whole, st.sampled_from(DATAFLOWS))
def test_systolic_cycles_stay_exact_far_beyond_64_bits(m, n, k, height, width, dataflow):
    held, stream, loads = {
        "os": ((m, n), k, 0), "ws": ((k, n), m, height), "is": ((k, m), n, height),
    }[dataflow]  # fmt: skip
    folds = math.ceil(Fraction(held[0], height)) * math.ceil(Fraction(held[1], width))
    cycles = systolic_cycles(m, n, k, height, width, dataflow)
    assert cycles == folds * (loads + stream + height + width - 2) - 1
    share = systolic_utilization(m, n, k, height, width, dataflow)
    if cycles:
        assert share == pytest.approx(float(Fraction(m * n * k, cycles * height * width)))


@few(100)
@given(*[positive] * 4, st.sampled_from([1.0, 2.0, 36.0, 1e6]), st.sampled_from([1e-60, 0.5, 1.0]))
def test_dies_and_packages_have_a_price_or_fit_no_wafer(area, usd, defects, alpha, dies, bonding):
    wafer = WaferCard(wafer_usd=usd, defects_per_cm2=defects, clustering=alpha)
    card = load_manufacturing().model_copy(update={"bonding_yield": bonding})
    areas, counts = np.array([area]), np.array([dies])
    share, price = die_yield(areas, wafer), good_die_usd(areas, wafer, card)
    assert 0 < share[0] <= 1
    assert (dies_per_wafer(areas, card)[0] == 0) == math.isinf(price[0])
    if math.isfinite(price[0]):
        assert price[0] > 0
        organic = organic_package_usd(counts, areas, price, card)
        silicon = interposer_package_usd(counts, areas * dies, price * dies, card)
        assert np.isfinite(organic).all()
        assert np.isfinite(silicon).all()


def test_clustering_without_end_is_the_law_of_poisson():
    wafer = WaferCard(wafer_usd=1, defects_per_cm2=0.5, clustering=1e60)
    assert die_yield(np.array([200.0]), wafer)[0] == pytest.approx(math.exp(-1.0))


def test_a_wafer_that_is_all_edge_and_a_node_beyond_prices_are_refused():
    card = load_manufacturing()
    with pytest.raises(ValueError, match="nothing is left of the wafer"):
        type(card).model_validate({**card.model_dump(), "wafer_edge_mm": 150.0})
    steep = {"1": (1e-60, 3.0), "2": (1e60, 3.0)}
    logic = {
        nm: WaferCard(wafer_usd=usd, defects_per_cm2=1, clustering=a)
        for nm, (usd, a) in steep.items()
    }
    with pytest.raises(InputError, match="says nothing of a node of 64 nm"):
        wafer_of(card.model_copy(update={"logic": logic}), 64.0)


@few(60)
@given(st.sampled_from([1, 2**20, 2**62]), *[positive] * 2)
def test_memories_far_beyond_the_known_ones_are_finite_or_refused(size, low, high):
    try:
        value = monotone_log_log([size], (2, 4), (low, high))
    except InputError:
        assert high > low
        assert size > 4
        return
    assert np.isfinite(value).all()
    assert value[0] >= low * (1 - 1e-9)
