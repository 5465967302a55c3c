"""Digests are stable, seeds repeat and are independent, registries are lazy and closed."""

import dataclasses
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mohsearch.core.digest import content_digest
from mohsearch.core.errors import MissingExtraError, UnknownNameError
from mohsearch.core.optional import require
from mohsearch.core.registry import Registry
from mohsearch.core.seeds import generator

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@given(JSON)
def test_equal_content_has_an_equal_digest(value: object) -> None:
    copied = dict(reversed(value.items())) if isinstance(value, dict) else value
    assert content_digest(value) == content_digest(copied)


def test_a_digest_is_the_same_in_another_process() -> None:
    code = "from mohsearch.core.digest import content_digest as d; print(d({'a': {1, 2}}))"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == content_digest({"a": {1, 2}})


def test_different_content_has_a_different_digest() -> None:
    values = [0, 0.5, "0", [0], {"0": 0}, None, True, np.arange(3), np.arange(3.0), [[0], 1]]
    assert len({content_digest(v) for v in values}) == len(values)


def test_an_object_without_canonical_form_is_refused() -> None:
    with pytest.raises(TypeError, match="no canonical form"):
        content_digest(object())


def test_dataclasses_of_other_types_differ() -> None:
    first = dataclasses.make_dataclass("A", ["x"])(1)
    second = dataclasses.make_dataclass("B", ["x"])(1)
    assert content_digest(first) != content_digest(second)


def test_streams_repeat_and_differ_by_name_and_seed() -> None:
    def draw(*key: str | int) -> tuple[int, ...]:
        return tuple(generator(3, *key).integers(0, 2**40, 4).tolist())

    assert draw("a", 1) == draw("a", 1)
    assert len({draw("a"), draw("b"), draw("a", 1), draw("a", "1"), draw()}) == 5


def test_generators_leave_the_global_one_alone() -> None:
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    generator(1, "x").random(10)
    assert np.array_equal(before, np.random.get_state()[1])  # noqa: NPY002


def test_a_negative_seed_is_refused() -> None:
    with pytest.raises(ValueError, match="negative"):
        generator(-1)


def test_an_unknown_name_lists_the_known_ones() -> None:
    registry = Registry("engine", {"pymoo": "json:loads"})
    with pytest.raises(UnknownNameError, match="available: pymoo"):
        registry.load("pymo", source="a.yaml", field="engine")
    assert registry.names() == ["pymoo"]


def test_a_missing_optional_package_names_its_extra() -> None:
    with pytest.raises(MissingExtraError, match=r"mohsearch\[onnx\]"):
        require("no_such_package_here", "onnx")
