"""How a running study is shown: live bars on a terminal, occasional lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, Self

import click

from mohsearch.cli.program import leave_closed_pipe

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from mohsearch.study.events import StudyEvent

PLAIN_INTERVAL_S = 10.0
"""Time between two lines about the same thing, where there is no terminal."""


class Reporter(Protocol):
    """Shows a study's events while its block runs."""

    def __enter__(self) -> Self:
        """Start showing."""

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop showing."""

    def __call__(self, event: StudyEvent) -> None:
        """Show one event."""


def make_reporter(runs: int, *, quiet: bool = False) -> Reporter:
    """Return the reporter that suits standard error.

    Parameters
    ----------
    runs
        Number of runs of the study.
    quiet
        Show failures only.
    """
    if not quiet and sys.stderr.isatty():
        return LiveReporter(runs)
    return PlainReporter(runs, quiet=quiet)


def best_text(best: Mapping[str, float]) -> str:
    """Return the best values so far in words."""
    from mohsearch.analysis.quantities import UNIT_OF_SUFFIX, scale_for, short_name

    parts = []
    for name, value in best.items():
        unit = next((u for s, u in UNIT_OF_SUFFIX.items() if name.endswith(s)), "1")
        parts.append(f"{short_name(name)} {scale_for([value], unit).quantity(value, 3)}")
    return "best " + ", ".join(parts) if parts else ""


class PlainReporter:
    """One line per step, and now and then one about progress within it."""

    def __init__(self, runs: int, *, quiet: bool = False) -> None:
        self.runs = runs
        self.quiet = quiet
        self._finished = 0
        self._told_at: dict[str, float] = {}

    def __enter__(self) -> Self:
        """Start showing."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop showing."""

    def __call__(self, event: StudyEvent) -> None:
        """Print a line about the event, unless one about the same was printed just now."""
        if event.kind in {"complete", "failed", "skipped"}:
            self._finished += 1
        text = self._line(event)
        if text and (not self.quiet or event.kind in {"failed", "repaired"}):
            try:
                click.echo(text, err=True)
            except BrokenPipeError:  # not the failure of a run
                leave_closed_pipe()

    def _line(self, event: StudyEvent) -> str:
        count = f"[{self._finished}/{self.runs}]"
        match event.kind:
            case "building" if self._due(event):
                share = f" ({event.generation}/{event.generations})" if event.generations else ""
                return f"{event.run_id}: {event.message}{share}"
            case "generation" if self._due(event):
                done = f"generation {event.generation}/{event.generations}"
                return f"{event.run_id}: {done}; {best_text(event.best)}"
            case "started":
                self._told_at[event.run_id] = time.monotonic()
                return f"{event.run_id}: started"
            case "resumed":
                self._told_at[event.run_id] = time.monotonic()
                return f"{event.run_id}: resumed after generation {event.generation}"
            case "repaired":
                return f"{event.run_id}: {event.message}"
            case "complete":
                return f"{count} {event.run_id}: complete"
            case "skipped":
                return f"{count} {event.run_id}: was complete"
            case "failed":
                return f"{count} {event.run_id}: FAILED: {event.message}"
        return ""

    def _due(self, event: StudyEvent) -> bool:
        now = time.monotonic()
        if now - self._told_at.get(event.run_id, -PLAIN_INTERVAL_S) < PLAIN_INTERVAL_S:
            return False
        self._told_at[event.run_id] = now
        return True


class LiveReporter:
    """Bars drawn by rich: one for the study, one for each problem or run under way."""

    def __init__(self, runs: int) -> None:
        self.runs = runs
        self._bars: dict[str, TaskID] = {}
        self._builds: set[str] = set()
        self._progress: Progress | None = None
        self._total: TaskID | None = None

    def __enter__(self) -> Self:
        """Start drawing."""
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress,
            TextColumn,
            TimeElapsedColumn,
        )

        self._progress = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=28),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[note]}", markup=False, style="dim"),
            console=Console(stderr=True),
            transient=True,
        )
        self._progress.start()
        self._total = self._progress.add_task("runs", total=self.runs, note="")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop drawing."""
        if self._progress is not None:
            self._progress.stop()

    def __call__(self, event: StudyEvent) -> None:
        """Move the bars."""
        if self._progress is None or self._total is None:
            return
        if event.kind in {"complete", "failed", "skipped"}:
            self._progress.advance(self._total)
            bar = self._bars.pop(event.run_id, None)
            if bar is not None:
                self._progress.remove_task(bar)
            if event.kind == "failed":
                self._progress.console.print(
                    f"{event.run_id}: FAILED: {event.message}", markup=False, style="red"
                )
            return
        if event.kind == "repaired":
            text = f"{event.run_id}: {event.message}"
            self._progress.console.print(text, markup=False, style="yellow")
        if event.kind == "building":
            self._builds.add(event.run_id)
        else:
            self._drop_builds()
        bar = self._bars.get(event.run_id)
        if bar is None:
            bar = self._progress.add_task(event.run_id, total=event.generations or None, note="")
            self._bars[event.run_id] = bar
        note = event.message or best_text(event.best)
        self._progress.update(
            bar, completed=event.generation, total=event.generations or None, note=note
        )

    def _drop_builds(self) -> None:
        """Remove the bars of problems that are built: runs have begun."""
        if self._progress is None:
            return
        for name in self._builds & self._bars.keys():
            self._progress.remove_task(self._bars.pop(name))
        self._builds.clear()
