"""How many training runs a second are predicted."""

from __future__ import annotations

import numpy as np
import pytest

from mohsearch.core.catalog import builtin_root
from mohsearch.evaluators.training_time.predict import predict_training
from mohsearch.evaluators.training_time.reading import read_training_cases

RUNS = builtin_root() / "evaluators" / "reference" / "phaze" / "training_runs.csv"


@pytest.mark.benchmark(group="training runs")
@pytest.mark.parametrize("part", ["reading", "predicting one by one", "predicting at once"])
def test_all_measured_runs(benchmark, part):
    """Rows a second; at once against one by one is what the arrays are worth."""
    cases = read_training_cases(RUNS)
    rows = len(cases.row)
    if part == "reading":
        result = benchmark(read_training_cases, RUNS)
        assert len(result.row) == rows
    elif part == "predicting at once":
        result = benchmark(predict_training, cases.runs, cases.clusters)
        assert len(result.iteration_s) == rows
    else:
        single = [(cases.runs.take(np.array([k])), [cases.clusters[k]]) for k in range(rows)]

        def each():
            return [predict_training(*one).iteration_s[0] for one in single]

        assert len(benchmark.pedantic(each, rounds=2)) == rows
    benchmark.extra_info["rows_per_s"] = rows / benchmark.stats.stats.median
