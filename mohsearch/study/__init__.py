"""Studies: from a YAML file to a tree of results, resumable at any moment.

The public names below are imported on first use, so that ``import mohsearch.study`` is cheap.

>>> from mohsearch.study import load_study, plan_study
>>> plan_study(load_study("smoke")).runs[0].seed
1
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mohsearch.study.events import Progress, StudyEvent
    from mohsearch.study.plan import Plan, PlannedRun, Study, load_study, plan_study
    from mohsearch.study.results import StudyStatus, open_results, read_designs, status
    from mohsearch.study.run import StudyOutcome, resume_study, run_study
    from mohsearch.study.spec import StudySpec

_MODULES = {
    "Plan": "plan",
    "PlannedRun": "plan",
    "Progress": "events",
    "Study": "plan",
    "StudyEvent": "events",
    "StudyOutcome": "run",
    "StudySpec": "spec",
    "StudyStatus": "results",
    "load_study": "plan",
    "open_results": "results",
    "plan_study": "plan",
    "read_designs": "results",
    "resume_study": "run",
    "run_study": "run",
    "status": "results",
}

__all__ = [
    "Plan",
    "PlannedRun",
    "Progress",
    "Study",
    "StudyEvent",
    "StudyOutcome",
    "StudySpec",
    "StudyStatus",
    "load_study",
    "open_results",
    "plan_study",
    "read_designs",
    "resume_study",
    "run_study",
    "status",
]


def __getattr__(name: str) -> Any:
    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{module}"), name)
