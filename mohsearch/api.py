"""The functions of everyday use, also found as ``mohsearch.run_study`` and so on.

A study is run into a folder; everything else reads such folders.

>>> import tempfile, pathlib, mohsearch
>>> study = {
...     "name": "demo",
...     "title": "Two ways to vary packages for two tiny networks",
...     "problems": [{"name": "moham", "options": {"max_instances": 2}}],
...     "workloads": ["tiny"],
...     "portfolios": [{"name": "paper"}, {"name": "generic"}],
...     "seeds": 2,
...     "budget": {"population": 8, "generations": 3},
... }
>>> scratch = tempfile.TemporaryDirectory()
>>> folder = pathlib.Path(scratch.name) / "demo"
>>> mohsearch.run_study(study, folder, workers=1).exit_code
0
>>> sorted(mohsearch.open_results(folder).children)[0]
'moham-tiny-pymoo-generic-s1'
>>> comparison = mohsearch.compare(folder, by="portfolio")
>>> [standing.rank for standing in comparison.standings]
[1, 2]
>>> comparison.tests[""][0].verdict
'too few seeds'
>>> mohsearch.plot("front", folder, folder / "front.svg").axes[0].get_xlabel()
'energy (µJ)'
>>> (folder / "front.svg").is_file()
True
>>> scratch.cleanup()
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import xarray as xr
    from matplotlib.figure import Figure

    from mohsearch.analysis.ablate import Ablation
    from mohsearch.analysis.compare import Comparison
    from mohsearch.analysis.fronts import Front
    from mohsearch.study.events import Progress
    from mohsearch.study.plan import Study
    from mohsearch.study.run import StudyOutcome


def run_study(
    study: str | Path | Mapping[str, Any],
    output: str | Path | None = None,
    *,
    workers: int | None = None,
    cache_dir: Path | None = None,
    progress: Progress | None = None,
) -> StudyOutcome:
    """Run a study, or what is missing of it, into a folder.

    Parameters
    ----------
    study
        A name on the ``studies`` shelf, a YAML file, or the same as plain data.
    output
        Folder of the results (default: ``results/<name>``).
    workers
        Runs carried out at the same time (default: the study's, else one per core). With more than
        one, call this under ``if __name__ == "__main__":``.
    cache_dir
        Where problems keep what is costly to compute (default: theirs).
    progress
        Called with each :class:`mohsearch.study.events.StudyEvent`.

    Raises
    ------
    InputError
        If the study is wrong (with the field path), or the folder holds something else.
    """
    from mohsearch.study.events import silent
    from mohsearch.study.run import run_study as run

    loaded = _loaded(study)
    folder = Path(output) if output is not None else Path("results") / loaded.spec.name
    return run(loaded, folder, workers=workers, cache_dir=cache_dir, progress=progress or silent)


def open_results(output: str | Path) -> xr.DataTree:
    """Open the results in a study's output folder as one lazy tree of labelled arrays.

    Raises
    ------
    InputError
        If the folder holds no results.
    """
    from mohsearch.study.results import open_results as open_tree

    return open_tree(output)


def read_fronts(output: str | Path, runs: Sequence[str] = ()) -> tuple[Front, ...]:
    """Return the fronts of a study's runs with their decoded designs.

    Parameters
    ----------
    runs
        Names, parts of names or shell patterns (default: all runs).

    Raises
    ------
    InputError
        If no run has a front yet.
    """
    from mohsearch.analysis.results import read_fronts as read

    return read(Path(output), runs)


def compare(
    *outputs: str | Path,
    by: str | None = None,
    objectives: Sequence[str] | None = None,
    runs: Sequence[str] = (),
) -> Comparison:
    """Compare the runs of one or more studies: ranks, indicators, tests over seeds.

    Parameters
    ----------
    outputs
        Folders of results.
    by
        ``engine``, ``portfolio``, ``problem``, ``workload``, ``template`` or ``seed`` (default: all
        that differs but the workload).
    objectives
        Metrics to compare on (default: all objectives).
    runs
        As in :func:`read_fronts`.

    Raises
    ------
    InputError
        If there is nothing to compare, or runs have no metrics in common.
    """
    from mohsearch.analysis.compare import compare as compare_fronts
    from mohsearch.analysis.gather import gather

    return compare_fronts(gather([Path(o) for o in outputs], runs), by, objectives)


def ablate(
    study: str | Path | Mapping[str, Any],
    output: str | Path | None = None,
    *,
    portfolio: str | None = None,
    ladder: str | None = None,
    seeds: int | None = None,
    workers: int | None = None,
) -> tuple[Ablation, ...]:
    """Switch a portfolio's operators off one by one and say what each is worth.

    Parameters
    ----------
    study
        A folder that holds an ablation already, or a study as in :func:`run_study`.
    output
        Folder of the results (default: ``results/<name>-ablation``).
    portfolio, ladder, seeds
        See :func:`mohsearch.study.ablation.ablation_study`.
    workers
        As in :func:`run_study`.

    Raises
    ------
    InputError
        If the study cannot be ablated, or a run failed.
    """
    from mohsearch.analysis.ablate import ablate as read_ablations
    from mohsearch.core.errors import InputError
    from mohsearch.study.ablation import ablation_study
    from mohsearch.study.run import run_study as run

    if not isinstance(study, Mapping) and (Path(study) / "results.zarr").is_dir():
        return read_ablations(study)
    made = ablation_study(_loaded(study), portfolio, ladder, seeds)
    folder = Path(output) if output is not None else Path("results") / made.spec.name
    outcome = run(made, folder, workers=workers)
    if outcome.failed:
        first = outcome.failed[0]
        raise InputError(f"run {first.run_id} failed: {first.message}", source=folder)
    return read_ablations(folder)


def plot(kind: str, output: str | Path, path: str | Path | None = None, **options: Any) -> Figure:
    """Draw results and return the matplotlib figure; write it where ``path`` is given.

    Parameters
    ----------
    kind
        ``front``, ``convergence``, ``attainment``, ``compare``, ``gantt`` or ``ablation``.
    output
        Folder of results.
    path
        Picture to write: .png, .svg or .pdf.
    options
        ``runs`` (as in :func:`read_fronts`), ``by`` (convergence, attainment, compare),
        ``objectives`` (front, attainment, compare), ``solution`` (gantt; default the knee),
        ``heading``.

    Raises
    ------
    UnknownNameError
        If there is no such picture.
    InputError
        If there is nothing to draw.
    """
    from mohsearch.analysis.style import save
    from mohsearch.core.errors import UnknownNameError

    if kind not in _PICTURES:
        raise UnknownNameError("picture", kind, _PICTURES)
    figure = _PICTURES[kind](Path(output), options.pop("runs", ()), options)
    if path is not None:
        save(figure, Path(path))
    return figure


def _loaded(study: str | Path | Mapping[str, Any]) -> Study:
    from mohsearch.core.cards import validate
    from mohsearch.core.catalog import Catalog
    from mohsearch.study.plan import Study, load_study
    from mohsearch.study.spec import StudySpec

    if not isinstance(study, Mapping):
        return load_study(study)
    spec = validate(StudySpec, dict(study), source="study")
    return Study(spec, Path.cwd() / f"{spec.name}.yaml", Catalog.around())


def _front(folder: Path, runs: Sequence[str], options: dict[str, Any]) -> Figure:
    from mohsearch.analysis.labels import pool_seeds
    from mohsearch.analysis.plot_front import plot_front
    from mohsearch.analysis.results import read_fronts as read

    pooled, names = pool_seeds(read(folder, runs, designs=False))
    return plot_front(pooled, options.pop("objectives", None), names=names, **options)


def _convergence(folder: Path, runs: Sequence[str], options: dict[str, Any]) -> Figure:
    from mohsearch.analysis.convergence import curves
    from mohsearch.analysis.plot_convergence import plot_convergence
    from mohsearch.analysis.results import read_histories

    found = curves(read_histories(folder, runs), options.pop("by", None))
    return plot_convergence(found, **options)


def _attainment(folder: Path, runs: Sequence[str], options: dict[str, Any]) -> Figure:
    from mohsearch.analysis.plot_attainment import plot_attainment
    from mohsearch.analysis.results import read_fronts as read

    return plot_attainment(
        read(folder, runs, designs=False), options.pop("objectives", None), **options
    )


def _compare(folder: Path, runs: Sequence[str], options: dict[str, Any]) -> Figure:
    from mohsearch.analysis.compared_curves import compared_curves
    from mohsearch.analysis.plot_compare import plot_compare

    by, objectives = options.pop("by", None), options.pop("objectives", None)
    result = compare(folder, by=by, objectives=objectives, runs=runs)
    return plot_compare(result, compared_curves([folder], runs, result), **options)


def _gantt(folder: Path, runs: Sequence[str], options: dict[str, Any]) -> Figure:
    from mohsearch.analysis.fronts import choose
    from mohsearch.analysis.plot_gantt import plot_gantt

    item = read_fronts(folder, runs)[0]
    index = choose(item, str(options.pop("solution", "knee")))
    return plot_gantt(item.designs[index], **options)


def _ablation(folder: Path, runs: Sequence[str], options: dict[str, Any]) -> Figure:
    from mohsearch.analysis.ablate import ablate as read_ablations
    from mohsearch.analysis.plot_ablate import plot_ablate

    return plot_ablate(read_ablations(folder, runs)[0], **options)


_PICTURES: dict[str, Callable[[Path, Sequence[str], dict[str, Any]], Figure]] = {
    "front": _front,
    "convergence": _convergence,
    "attainment": _attainment,
    "compare": _compare,
    "gantt": _gantt,
    "ablation": _ablation,
}
