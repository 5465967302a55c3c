"""The searches as pymoo problems with named, united metrics."""

from mohsearch.core.registry import Registry

PROBLEMS = Registry(
    "problem",
    {
        "chiplet": "mohsearch.problems.chiplet:build",
        "deepflow": "mohsearch.problems.deepflow:build",
        "measured": "mohsearch.problems.measured:build",
        "moham": "mohsearch.problems.moham:build",
        "parallelism": "mohsearch.problems.parallelism:build",
        "phaze": "mohsearch.problems.phaze:build",
    },
)
"""Problem builders by slug: called as ``build(options, workload, objectives=..., catalog=...,
cache_dir=..., progress=...)`` each returns a :class:`mohsearch.problems.base.SearchProblem`.
Plug-ins join through entry points of the group ``mohsearch.problem``."""

PROBLEM_OPTIONS = Registry(
    "problem options",
    {
        "chiplet": "mohsearch.problems.chiplet_options:ChipletOptions",
        "deepflow": "mohsearch.problems.deepflow_options:DeepflowOptions",
        "measured": "mohsearch.problems.measured_options:MeasuredOptions",
        "moham": "mohsearch.problems.moham_options:MohamOptions",
        "parallelism": "mohsearch.problems.parallelism_options:ParallelismOptions",
        "phaze": "mohsearch.problems.phaze_options:PhazeOptions",
    },
)
"""The card that validates and describes the options of each problem."""

WORKLOAD_LOADERS = Registry(
    "workload loader",
    {
        "chiplet": "mohsearch.workloads.op_graph_files:load_graph",
        "deepflow": "mohsearch.problems.deepflow_workloads:load_iteration",
        "measured": "mohsearch.evaluators.crossflow.measured_points:load_points",
        "moham": "mohsearch.workloads.zoo:load_application",
        "parallelism": "mohsearch.problems.parallelism_runs:load_run",
        "phaze": "mohsearch.workloads.training_sets:load_models",
    },
)
"""What looks a problem's workload up by name or path when a study is planned: called as
``load(name, catalog, base=folder, source=file, field=path)`` it raises where there is none. A
problem without an entry looks its workloads up when it is built."""
