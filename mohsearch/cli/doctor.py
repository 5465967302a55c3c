"""`mohsearch doctor`: is this installation able to work."""

from __future__ import annotations

import os
import platform
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import click

from mohsearch import __version__
from mohsearch.cli.output import print_table, to_json
from mohsearch.cli.program import example

REQUIRED = (
    "numpy", "numba", "pymoo", "moocore", "xarray", "zarr", "pydantic", "networkx", "pulp",
    "optuna", "deap", "matplotlib", "rich", "click", "PyYAML",
)  # fmt: skip
EXTRAS = {
    "onnx": ("onnx",),
    "netcdf": ("h5netcdf", "h5py"),
    "report": ("plotly",),
    "cpsat": ("ortools",),
    "rl": ("torch",),
    "torch": ("torch",),
    "gp": ("greenlet", "torch"),
    "dask": ("distributed",),
}
"""Extras that bring features, with their packages."""


@dataclass(frozen=True)
class Check:
    """One finding."""

    what: str
    state: Literal["ok", "absent", "FAILED"]
    detail: str


@click.command(epilog=example("mohsearch doctor"))
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
def doctor(as_json: bool) -> None:
    """Check that this installation works.

    Versions, extras, caches, shelves, and a tiny search whose result is known.

    The exit code is 1 if something that is needed is missing or fails; absent extras are fine.
    """
    checks = [_python(), *_libraries(), *_extras(), _processors()]
    for what, test in (
        ("compiled-code cache", _numba_cache),
        ("temporary folder", _temporary),
        ("shelves", _shelves),
        ("self-test", _self_test),
    ):
        checks.append(_guarded(what, test))
    if as_json:
        click.echo(to_json([vars(check) for check in checks]))
    else:
        print_table(["check", "state", "detail"], [[c.what, c.state, c.detail] for c in checks])
    failed = [check.what for check in checks if check.state == "FAILED"]
    if failed:
        click.echo(f"\nnot able to work: {', '.join(failed)}", err=True)
        raise click.exceptions.Exit(1)
    if not as_json:
        click.echo("\nall is well")


def _guarded(what: str, test: Callable[[], str]) -> Check:
    try:
        return Check(what, "ok", test())
    except Exception as error:  # whatever goes wrong here is the finding
        return Check(what, "FAILED", f"{type(error).__name__}: {error}".splitlines()[0])


def _python() -> Check:
    version = platform.python_version()
    detail = f"{version} on {platform.platform(terse=True)}, mohsearch {__version__}"
    return Check("python", "ok" if sys.version_info >= (3, 11) else "FAILED", detail)


def _version(package: str) -> str | None:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _libraries() -> list[Check]:
    found = {name: _version(name) for name in REQUIRED}
    missing = [name for name, version in found.items() if version is None]
    present = ", ".join(f"{name} {version}" for name, version in found.items() if version)
    checks = [Check("libraries", "ok", present)]
    if missing:
        checks.append(Check("missing libraries", "FAILED", ", ".join(missing)))
    return checks


def _extras() -> list[Check]:
    checks = []
    for extra, packages in EXTRAS.items():
        found = {name: _version(name) for name in packages}
        if all(found.values()):
            detail = ", ".join(f"{name} {version}" for name, version in found.items())
            checks.append(Check(f"extra {extra}", "ok", detail))
        else:
            detail = f"install it with: pip install 'mohsearch[{extra}]'"
            checks.append(Check(f"extra {extra}", "absent", detail))
    return checks


def _processors() -> Check:
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return Check("processors", "ok", f"{usable} usable of {os.cpu_count()}")


def _numba_cache() -> str:
    """Numba keeps compiled code beside the source, or in the user's cache if it cannot."""
    import mohsearch

    chosen = os.environ.get("NUMBA_CACHE_DIR")
    places = [Path(chosen)] if chosen else [Path(mohsearch.__file__).parent, _user_cache()]
    for place in places:
        existing = next((p for p in (place, *place.parents) if p.exists()), place)
        if os.access(existing, os.W_OK):
            return f"writable: {place}"
    raise PermissionError(f"no writable place among {', '.join(map(str, places))}")


def _user_cache() -> Path:
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "numba"


def _temporary() -> str:
    with tempfile.TemporaryFile() as file:
        file.write(b"mohsearch")
    return tempfile.gettempdir()


def _shelves() -> str:
    from mohsearch.core.catalog import SHELVES, Catalog

    catalog = Catalog.around()
    holding = [str(r) for r in catalog.roots if any((r / shelf).is_dir() for shelf in SHELVES)]
    studies = catalog.names("studies")
    if not catalog.names("evaluators", "templates"):
        raise FileNotFoundError(f"no templates in {', '.join(map(str, catalog.roots))}")
    return f"{len(studies)} studies; in {', '.join(holding)}"


def _self_test() -> str:
    """Run a small search from study file to results, and hold its front against its bounds."""
    from dataclasses import replace

    from mohsearch.analysis.fronts import distance_to_ideal
    from mohsearch.analysis.indicators import nondominated
    from mohsearch.analysis.results import read_fronts
    from mohsearch.study.plan import load_study
    from mohsearch.study.run import run_study

    loaded = load_study("smoke")
    spec = loaded.spec.model_copy(
        update={
            "engines": loaded.spec.engines[:1],
            "portfolios": loaded.spec.portfolios[:1],
            "budget": loaded.spec.budget.model_copy(update={"population": 8, "generations": 3}),
        }
    )
    with tempfile.TemporaryDirectory() as folder:
        outcome = run_study(replace(loaded, spec=spec), Path(folder) / "results", workers=1)
        if outcome.failed:
            raise RuntimeError(outcome.failed[0].message)
        (front,) = read_fronts(Path(folder) / "results", designs=False)
    if not len(front) or not nondominated(front.losses()).all():
        raise ArithmeticError("a search of known kind gives a wrong front")
    for name, gaps in distance_to_ideal(front).items():
        if (gaps < -1e-12).any():
            raise ArithmeticError(f"a solution passes the proven bound of {name}")
    return f"a small search gives {len(front)} solutions, none beyond the proven bounds"
