"""`mohsearch report`, and its page in a real browser where one is installed."""

import shutil

import pytest
from click.testing import CliRunner

from mohsearch.cli.main import cli
from tests.analysis.synthetic_results import two_engines

BROWSERS = ("chromium", "chromium-browser", "google-chrome")


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    return two_engines(tmp_path_factory.mktemp("results"), seeds=1)


@pytest.fixture(scope="module")
def page(results, tmp_path_factory):
    output = tmp_path_factory.mktemp("report")
    done = CliRunner().invoke(cli, ["report", str(results), "-o", str(output), "--designs", "20"])
    assert done.exit_code == 0, done.output
    assert "note: 20 of" in done.stderr
    assert f"wrote {output / 'report.html'} (" in done.stderr
    return output / "report.html"


def test_the_command_writes_the_page_and_its_copy(page):
    assert page.stat().st_size > 1e6
    assert "made with:" in (page.parent / "report.md").read_text(encoding="utf-8")


def test_a_folder_without_results_is_one_clear_error(tmp_path):
    done = CliRunner().invoke(cli, ["report", str(tmp_path), "-o", str(tmp_path / "out")])
    assert done.exit_code == 2
    assert "holds no results.zarr" in done.stderr
    assert not (tmp_path / "out").exists()


def test_without_plotly_the_error_names_the_extra(results, tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "plotly", None)
    monkeypatch.setitem(__import__("sys").modules, "plotly.offline", None)
    done = CliRunner().invoke(cli, ["report", str(results), "-o", str(tmp_path / "out")])
    assert done.exit_code == 2
    assert "mohsearch[report]" in done.stderr


@pytest.fixture(scope="module")
def shown(page):
    """The page as a browser without network shows it, its messages and requests."""
    sync_api = pytest.importorskip(
        "playwright.sync_api", reason="playwright is not installed (extra browser)"
    )
    found = next((path for name in BROWSERS if (path := shutil.which(name))), None)
    if found is None:
        pytest.skip(f"no browser is installed ({', '.join(BROWSERS)})")
    messages, requests = [], []
    with sync_api.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=found)
        context = browser.new_context(viewport={"width": 1400, "height": 1000})
        context.set_default_timeout(120_000)
        context.set_offline(True)
        tab = context.new_page()
        tab.on("console", lambda message: messages.append(message.text))
        tab.on("pageerror", lambda error: messages.append(str(error)))
        tab.on("request", lambda request: requests.append(request.url))
        tab.goto(page.as_uri())
        tab.wait_for_selector("body[data-ready=yes]")
        yield tab, messages, requests
        browser.close()


def test_in_a_browser_the_page_shows_itself_without_message_or_request(shown, page):
    tab, messages, requests = shown
    tab.wait_for_selector("#front-plot .points path")
    tab.wait_for_selector("#convergence-plot .scatterlayer path")
    assert messages == []
    assert requests == [page.as_uri()]
    headings = tab.locator("section:visible h2").all_inner_texts()
    assert headings == ["Fronts", "Convergence", "Comparison", "Where the figures come from"]


def test_in_a_browser_a_click_on_a_point_shows_its_design(shown):
    tab, messages, _ = shown
    wanted = tab.evaluate(
        """() => {
            const traces = document.getElementById("front-plot").data;
            const chosen = traces.find((t) => t.name === "random");
            const at = chosen.x.indexOf(Math.max(...chosen.x));
            return { x: chosen.x[at], point: chosen.customdata[at], text: chosen.text[at] };
        }"""
    )
    place = tab.evaluate(
        """(point) => {
            const plot = document.getElementById("front-plot");
            for (const path of plot.querySelectorAll(".points path")) {
                const datum = path.__data__;
                if (datum && datum.data === point) {
                    const box = path.getBoundingClientRect();
                    return [box.x + box.width / 2, box.y + box.height / 2];
                }
            }
        }""",
        wanted["point"],
    )
    tab.mouse.click(*place)
    label = wanted["text"].partition("<br>")[0].replace(", solution", ": solution")
    tab.wait_for_function(
        "(label) => document.getElementById('design-title').textContent === label", arg=label
    )
    solution = label.rpartition(" ")[2]
    assert tab.inner_text("#design-command").endswith(f"--solution {solution}")
    assert messages == []


def test_in_a_browser_a_row_shows_a_design_with_its_schedule(shown):
    tab, messages, _ = shown
    tab.locator("#picks tr.link").first.click()
    tab.wait_for_selector("#design-pictures .barlayer path")
    assert tab.locator("#design-tables table").first.inner_text().startswith("Instances")
    assert "MACs" in tab.inner_text("#design-line")
    assert messages == []


def test_in_a_browser_a_budget_leaves_fewer_solutions(shown):
    tab, messages, _ = shown
    before = tab.inner_text("#remaining")
    slider = tab.locator("#budgets input[data-metric=latency_s]")
    slider.evaluate("(e) => { e.value = 3; e.dispatchEvent(new Event('input')); }")
    left, _, total = tab.inner_text("#remaining").partition(" of ")
    assert before.startswith(total.split()[0])
    assert 0 < int(left) <= 5
    tab.click("#reset")
    assert tab.inner_text("#remaining") == before
    assert messages == []
