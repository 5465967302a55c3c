"""Search methods behind one interface: ask for genomes, tell their values."""

from mohsearch.core.registry import Registry

ENGINES = Registry(
    "engine",
    {
        "array": "mohsearch.engines.array_engine:ArrayEngine",
        "chiplet-anneal": "mohsearch.engines.chiplet_anneal:AnnealEngine",
        "chiplet-rl": "mohsearch.engines.chiplet_rl:PolicyEngine",
        "cma": "mohsearch.engines.cma_engine:CmaEngine",
        "deap": "mohsearch.engines.deap_engine:DeapEngine",
        "deepflow-gradient": "mohsearch.engines.gradient_engine:GradientEngine",
        "exhaustive": "mohsearch.engines.exhaustive_engine:ExhaustiveEngine",
        "optuna": "mohsearch.engines.optuna_engine:OptunaEngine",
        "phaze-hysteresis": "mohsearch.engines.hysteresis_engine:HysteresisEngine",
        "pymoo": "mohsearch.engines.pymoo_engine:PymooEngine",
        "random": "mohsearch.engines.random_engine:RandomEngine",
    },
)
"""Names to :class:`mohsearch.engines.engine.Engine` classes, imported on first use."""
