"""The documentation's examples run, its studies can be planned, its links lead somewhere."""

import json
import re
from pathlib import Path

import pytest

from mohsearch.study.plan import load_study, plan_study
from tests.command_line import run

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGES = sorted(
    path.relative_to(DOCS).as_posix()
    for path in DOCS.rglob("*.md")
    if not path.relative_to(DOCS).parts[0].startswith("_")
)
SESSIONS = ("guide/python.md", "guide/extend.md")
LINK = re.compile(r"\]\(([^)#\s]+)(#[^)]*)?\)")


def blocks(page, language="python"):
    text = (DOCS / page).read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", SESSIONS)
def test_the_python_of_a_page_runs_from_top_to_bottom(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    session = {"__name__": "example"}
    found = blocks(page)
    assert len(found) >= 3
    for number, block in enumerate(found, 1):
        exec(compile(block, f"{page}, example {number}", "exec"), session)


def test_every_page_of_the_guide_with_python_is_one_of_those_that_are_run():
    guide = {page for page in PAGES if page.startswith("guide/") and blocks(page)}
    assert guide == set(SESSIONS)


@pytest.mark.parametrize("study", sorted(p.name for p in DOCS.glob("tutorials/*.yaml")))
def test_the_study_of_a_tutorial_can_be_planned_and_its_page_runs_it(study):
    path = DOCS / "tutorials" / study
    plan = plan_study(load_study(path))
    assert 2 <= len(plan.runs) <= 9
    page = (DOCS / "tutorials" / f"{study.partition('_')[0]}.md").read_text(encoding="utf-8")
    assert f"mohsearch study run docs/tutorials/{study} " in page


@pytest.mark.parametrize("page", PAGES)
def test_links_to_files_lead_to_files_that_exist(page):
    text = (DOCS / page).read_text(encoding="utf-8")
    for target, _ in LINK.findall(re.sub(r"^```.*?^```$", "", text, flags=re.M | re.S)):
        if "://" not in target and not target.startswith("mailto:"):
            assert ((DOCS / page).parent / target).exists(), target


def test_the_pages_of_claims_name_studies_that_exist_and_leave_out_no_table_or_figure():
    shelf = {path.stem for path in (DOCS.parent / "studies").glob("*.yaml")}
    pages = {path.stem: path.read_text(encoding="utf-8") for path in (DOCS / "claims").iterdir()}
    assert set(pages) == {"chiplet", "deepflow", "moham", "phaze"}
    page = "\n".join(pages.values())
    named = set(re.findall(r"`((?:moham|phaze|deepflow|chiplet)_\w+)`", page))
    assert named <= shelf
    assert {name for name in shelf if re.search(r"_(fig|table)\d+$", name)} <= named


def test_the_yaml_of_the_guide_is_understood_as_written(tmp_path, monkeypatch):
    from mohsearch.core.catalog import Catalog
    from mohsearch.workloads.zoo import load_application

    network, application, *_ = blocks("guide/extend.md", "yaml")
    folder = tmp_path / "problems" / "workloads"
    for kind, name, text in (
        ("networks", "two_layers", network),
        ("applications", "both", application),
    ):
        (folder / kind).mkdir(parents=True)
        (folder / kind / f"{name}.yaml").write_text(text, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    loaded = load_application("both", Catalog.around())
    assert len(loaded.networks) == 3


def test_the_package_of_the_guide_runs_as_its_study_says(tmp_path, monkeypatch):
    _, _, shelf, study = blocks("guide/extend.md", "yaml")
    (entry_points,) = blocks("guide/extend.md", "ini")
    metadata = "Metadata-Version: 2.1\nName: my-tiles\nVersion: 1.0\n"
    for name, text in {
        "site/my_tiles.py": "\n".join(blocks("guide/extend.md")),
        "site/my_tiles-1.0.dist-info/METADATA": metadata,
        "site/my_tiles-1.0.dist-info/entry_points.txt": entry_points,
        "operators/tiles.yaml": shelf,
        "studies/tiles.yaml": study,
        "tiles.json": "[[64, 32], [1, 1]]",
    }.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path / "site")
    run("study", "run", "tiles", "--workers", 1, "--output", "out")
    front = json.loads(run("front", "export", "out", "--format", "json").stdout)
    assert len(front["runs"]) == 4
    moved = run("evaluate", "tile-words", "tiles.json", "--format", "csv").stdout.splitlines()
    assert moved == ["rows,columns,moved_words", "64,32,12288", "1,1,524288"]
    assert "A JSON list of tiles, each [rows, columns]." in run("evaluate", "--list").stdout
