"""YAML cards: safe, strict, and with errors that say where."""

from pathlib import Path

import pytest

from mohsearch.core.cards import Card, read_card, read_yaml, validate
from mohsearch.core.errors import InputError


class Inner(Card):
    size_bytes: int


class Outer(Card):
    name: str
    inner: Inner
    many: tuple[Inner, ...] = ()


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
        ("- 1\n- 2", None, "dictionary"),
        ("", None, "dictionary"),
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
