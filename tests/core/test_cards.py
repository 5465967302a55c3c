"""YAML cards: safe, strict, and with errors that say where."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from pydantic import Field

from mohsearch.core.cards import Card, read_card, read_json, read_yaml, validate
from mohsearch.core.errors import InputError


class Inner(Card):
    size_bytes: int


class Outer(Card):
    name: str
    inner: Inner
    many: tuple[Inner, ...] = ()
    choice: tuple[Inner, ...] | int = 0
    few: tuple[int, ...] = Field((), max_length=1)


def write(tmp_path: Path, text: str | bytes) -> Path:
    path = tmp_path / "card.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def test_a_valid_card_is_read_and_frozen(tmp_path: Path) -> None:
    card = read_card(Outer, write(tmp_path, "name: a\ninner: {size_bytes: 3}\n"))
    assert card.inner.size_bytes == 3
    with pytest.raises(Exception, match="frozen"):
        card.name = "b"  # type: ignore[misc]


@pytest.mark.parametrize(
    ("text", "field", "message"),
    [
        ("name: a\ninner: {size_bytes: x}", "inner.size_bytes", "valid integer"),
        ("name: a\ninner: {size_bytes: .nan}", "inner.size_bytes", "finite"),
        ("name: a", "inner", "required"),
        ("name: a\ninner: {size_bytes: 1, sise: 2}", "inner.sise", "known fields: size_bytes"),
        ("name: a\ninner: {size_bytes: 1}\nmany: [{size_bytes: []}]", "many[0].size_bytes", "int"),
        ("- 1\n- 2", None, "must be a mapping"),
        ("", None, "must be a mapping"),
        ("name: a\ninner: 3", "inner", r"must be a mapping from names to values \(got 3\)$"),
        ("name: a\ninner: {size_bytes: 1}\nmany: 3", "many", r"must be a list \(got 3\)$"),
        ("name: a\ninner: {size_bytes: 1}\nmany: [{s: 1}]", "many[0].size_bytes", "required"),
        (
            "name: a\ninner: {size_bytes: 1}\nmany: [{size_bytes: 1, s: 1}]",
            "many[0].s",
            "known fields: size_bytes$",
        ),
        (
            "name: a\ninner: {size_bytes: 1}\nchoice: x",
            "choice",
            r"must be a list or Input should be a valid integer.* \(got 'x'\)$",
        ),
        (
            "name: a\ninner: {size_bytes: 1}\nfew: [1, 2]",
            "few",
            r": must have at most 1 item, not 2",
        ),
        ("name: a\ninner: {size_bytes: 1}\nchoice: [{}]", "choice[0].size_bytes", "required"),
    ],
)
def test_a_wrong_field_is_named_with_its_path(
    tmp_path: Path, text: str, field: str | None, message: str
) -> None:
    with pytest.raises(InputError, match=message) as caught:
        read_card(Outer, write(tmp_path, text))
    assert caught.value.field == field
    assert "card.yaml" in str(caught.value)


def test_further_problems_are_counted() -> None:
    with pytest.raises(InputError, match="and 1 more"):
        validate(Outer, {})


def test_a_list_that_is_short_because_its_item_is_wrong_is_one_problem() -> None:
    class Several(Card):
        sizes: tuple[int, ...] = Field(min_length=1)

    with pytest.raises(InputError) as caught:
        validate(Several, {"sizes": ["x"]})
    assert "sizes[0]" in str(caught.value)
    assert "more" not in str(caught.value)
    with pytest.raises(InputError, match="sizes: must have at least 1 item"):
        validate(Several, {"sizes": []})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: [1, 2", "not valid YAML: line"),
        ("a: 1\na: 2", "duplicate key 'a'"),
        ("a: !!python/object/apply:os.system ['true']", "not valid YAML"),
        ("? [1, 2]\n: x", "not valid YAML"),
        (b"a: \xff\xfe", "not UTF-8"),
        ("[" * 100 + "]" * 100, "nested deeper"),
        ("[" * 5000, "nested deeper"),
        ("a: 2026-13-45", "not valid YAML"),
    ],
)
def test_a_malformed_file_is_an_input_error(
    tmp_path: Path, text: str | bytes, message: str
) -> None:
    with pytest.raises(InputError, match=message):
        read_yaml(write(tmp_path, text))


def test_an_alias_bomb_is_refused(tmp_path: Path) -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 9)]
    with pytest.raises(InputError, match="alias"):
        read_yaml(write(tmp_path, "\n".join(lines)))


def test_a_missing_file_and_a_folder_are_input_errors(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="No such file"):
        read_yaml(tmp_path / "none.yaml")
    with pytest.raises(InputError, match="directory"):
        read_yaml(tmp_path)


def test_a_huge_file_is_refused_before_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "big.yaml"
    with path.open("wb") as stream:
        stream.truncate(17 * 2**20)
    with pytest.raises(InputError, match="larger than 16 MiB"):
        read_yaml(path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "line 1, column 1"),
        ("{", "line 1, column 2"),
        ("[" * 100_000, "nested too deeply"),
        ('{"a": 1, "a": 2}', "duplicate key 'a'"),
        ("9" * 5000, "digits"),
        (r'["\ud800"]', "character that does not exist"),
        (b"[\xff]", "not UTF-8"),
    ],
)
def test_malformed_json_is_an_input_error(tmp_path: Path, text: str | bytes, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_json(write(tmp_path, text))


def test_json_may_start_with_a_byte_order_mark(tmp_path: Path) -> None:
    assert read_json(write(tmp_path, '\ufeff{"a": ["\\ud83d\\ude00"]}')) == {"a": ["\U0001f600"]}


@pytest.mark.parametrize("reader", [read_json, read_yaml])
@pytest.mark.parametrize(
    ("number", "said"),
    [
        ("1.0e+308", "1e+308"),
        ("-2.5e-61", "-2.5e-61"),
        ("1" + "0" * 61, "a number of 62 digits"),
        ("-1" + "0" * 400, "a number of 401 digits"),
    ],
)
def test_a_number_that_no_quantity_can_have_is_named_with_its_place(
    tmp_path: Path, reader: Callable[[Path], object], number: str, said: str
) -> None:
    path = tmp_path / "x"
    path.write_text(f'{{"a": [0, {{"b": {number}}}]}}')
    with pytest.raises(InputError, match=rf"x: a\[1\]\.b: {re.escape(said)} is no quantity"):
        reader(path)


@pytest.mark.parametrize("reader", [read_json, read_yaml])
def test_zero_and_the_limits_themselves_are_numbers(
    tmp_path: Path, reader: Callable[[Path], object]
) -> None:
    path = tmp_path / "x"
    path.write_text("[0, 0.0, 1.0e+60, -1.0e-60]")
    assert reader(path) == [0, 0.0, 1e60, -1e-60]
