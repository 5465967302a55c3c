"""What a running study tells whoever shows its progress."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

EventKind = Literal[
    "building", "started", "resumed", "repaired", "generation", "complete", "failed", "skipped"
]


@dataclass(frozen=True)
class StudyEvent:
    """One step of a running study.

    Attributes
    ----------
    kind
        ``building``: a problem is being built, ``message`` says what happens, ``generation`` of
        ``generations`` parts are done; ``started``: a run
        begins, or ``resumed`` after ``generation`` generations that an earlier session completed;
        ``repaired``: stored results were damaged, and the run is repeated with what could be
        saved; ``generation``: one more is complete; ``complete``: the run's front is written;
        ``failed``: the run ended with ``message``; ``skipped``: the run was complete before.
    run_id
        The run; the problem's label and workload for ``building``.
    generation, generations
        Completed ones and the most there can be.
    evaluations
        Evaluations so far.
    best
        Best value so far of each objective, natural signs.
    message
        Text for people.
    """

    kind: EventKind
    run_id: str
    generation: int = 0
    generations: int = 0
    evaluations: int = 0
    best: Mapping[str, float] = field(default_factory=dict)
    message: str = ""


Progress = Callable[[StudyEvent], None]


def silent(event: StudyEvent) -> None:
    """Show nothing."""
