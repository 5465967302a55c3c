"""What it costs: pure functions from workload and hardware to metrics."""

from __future__ import annotations

from mohsearch.core.registry import Registry

EVALUATORS = Registry(
    "evaluator",
    {
        "crossflow": "mohsearch.evaluators.crossflow.crossflow_door:evaluate",
        "kernel": "mohsearch.evaluators.crossflow.kernel_door:evaluate",
        "design": "mohsearch.study.design:evaluate",
        "chip-check": "mohsearch.evaluators.partition.check_door:evaluate",
        "chip-partition": "mohsearch.evaluators.partition.partition_door:evaluate",
        "device-placement": "mohsearch.evaluators.device_placement.door:evaluate",
        "layer-mapper": "mohsearch.evaluators.mapper.door:evaluate",
        "loop-nest": "mohsearch.evaluators.loop_nest:evaluate",
        "op-schedule": "mohsearch.evaluators.op_schedule.door:evaluate",
        "package-schedule": "mohsearch.evaluators.package_door:evaluate",
        "systolic": "mohsearch.evaluators.systolic:evaluate",
        "training": "mohsearch.evaluators.training_door:evaluate",
    },
)
"""Evaluators that can be called alone: ``evaluate(path) -> EvaluationReport``.

One may take further files by position, and settings that the command line has options for by name.
"""
