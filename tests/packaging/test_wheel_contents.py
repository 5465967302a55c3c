"""Every tracked file of the package and the shelves is declared for the wheel."""

import configparser
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SHELVES = ("problems", "operators", "evaluators", "studies")


def tracked(folder: str) -> list[Path]:
    out = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", folder],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if out.returncode != 0:
        pytest.skip("not a git checkout")
    return [Path(line) for line in out.stdout.splitlines() if (ROOT / line).is_file()]


def declared() -> dict[str, str]:
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg", encoding="utf-8")
    packages = config["options"]["packages"].split()
    mapped = dict(
        line.split(" = ") for line in config["options"]["package_dir"].strip().splitlines()
    )
    return {p: mapped.get(p, p.replace(".", "/")) for p in packages}


def test_every_folder_with_python_is_a_declared_package() -> None:
    folders = {str(p.parent) for p in tracked("mohsearch") if p.suffix == ".py"}
    assert folders == {d for p, d in declared().items() if not p.startswith("mohsearch.catalog")}


def test_every_shelf_is_a_declared_package_and_holds_data_only() -> None:
    packages = declared()
    for shelf in SHELVES:
        assert packages[f"mohsearch.catalog.{shelf}"] == shelf
        assert not [p for p in tracked(shelf) if p.suffix == ".py"]


def test_every_file_of_the_package_that_is_no_python_is_declared() -> None:
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg", encoding="utf-8")
    patterns = {
        folder: config["options.package_data"].get(package, "").replace(",", " ").split()
        for package, folder in declared().items()
    }
    for path in tracked("mohsearch"):
        if path.suffix == ".py":
            continue
        places = [folder for folder in patterns if path.is_relative_to(folder)]
        matches = [path.relative_to(f).match(pattern) for f in places for pattern in patterns[f]]
        assert any(matches), f"{path} is not in options.package_data"


def test_the_stub_of_the_package_names_what_it_offers() -> None:
    import mohsearch

    lines = (ROOT / "mohsearch" / "__init__.pyi").read_text(encoding="utf-8").splitlines()
    stubbed = {line.split(" as ")[1] for line in lines if " as " in line}
    assert stubbed == set(mohsearch._API)
    assert all(callable(getattr(mohsearch, name)) for name in stubbed)


@pytest.mark.parametrize("shelf", SHELVES)
def test_each_shelfs_readme_says_where_its_code_lives(shelf: str) -> None:
    first = (ROOT / shelf / "README.md").read_text(encoding="utf-8").splitlines()
    assert any("mohsearch/" in line for line in first[:3])
