"""Shelves: found by name, a user's own first, no way out of the shelf."""

from pathlib import Path

import pytest

from mohsearch.core.catalog import SHELVES, Catalog, builtin_root
from mohsearch.core.errors import InputError, UnknownNameError


def test_all_shelves_are_there_without_any_project() -> None:
    assert all((builtin_root() / shelf).is_dir() for shelf in SHELVES)


def test_a_users_file_wins_over_the_built_in_one(tmp_path: Path) -> None:
    for root in (tmp_path / "a", tmp_path / "b"):
        (root / "studies").mkdir(parents=True)
        (root / "studies" / "mine.yaml").write_text("x: 1")
    catalog = Catalog([tmp_path / "a", tmp_path / "b"])
    assert catalog.find("studies", "mine") == tmp_path / "a" / "studies" / "mine.yaml"
    assert "mine" in catalog.names("studies")


def test_a_study_file_sees_the_shelves_of_its_project(tmp_path: Path) -> None:
    study = tmp_path / "studies" / "mine.yaml"
    study.parent.mkdir()
    study.write_text("x: 1")
    assert Catalog.around(study).find("studies", "mine") == study


def test_an_unknown_name_lists_what_exists_and_the_nearest(tmp_path: Path) -> None:
    (tmp_path / "studies").mkdir()
    (tmp_path / "studies" / "breakfast.yaml").write_text("x: 1")
    with pytest.raises(UnknownNameError, match=r"did you mean 'breakfast'\?.*breakfast") as caught:
        Catalog([tmp_path]).find("studies", "breakfst", kind="study", field="f")
    assert caught.value.field == "f"


@pytest.mark.parametrize("name", ["../secret", "a/b", "", ".hidden", "a b", "x\n", "-rf"])
def test_a_name_that_is_no_plain_name_is_refused(name: str) -> None:
    with pytest.raises(InputError, match="is no study name"):
        Catalog().find("studies", name, kind="study")


def test_a_path_is_resolved_against_its_base(tmp_path: Path) -> None:
    (tmp_path / "x.yaml").write_text("x: 1")
    assert Catalog().resolve("studies", "x.yaml", base=tmp_path) == tmp_path / "x.yaml"
    with pytest.raises(InputError, match="no such file"):
        Catalog().resolve("studies", "y.yaml", base=tmp_path)
    with pytest.raises(InputError, match="is a directory"):
        Catalog().resolve("studies", "./", base=tmp_path)
