"""How designs vary: sampling, crossover and mutation operators, and portfolios of them."""

from mohsearch.core.registry import Registry

OPERATORS = Registry(
    "operator",
    {
        "moham-random": "mohsearch.operators.moham_sampling:RandomPackages",
        "moham-seeds": "mohsearch.operators.moham_sampling:SeededPackages",
        "moham-scheduling-crossover": "mohsearch.operators.moham_crossover:SchedulingCrossover",
        "moham-mapping-crossover": "mohsearch.operators.moham_crossover:MappingCrossover",
        "moham-instance-crossover": "mohsearch.operators.moham_crossover:InstanceCrossover",
        "moham-scheduling-mutation": "mohsearch.operators.moham_mutation:SchedulingMutation",
        "moham-mapping-mutation": "mohsearch.operators.moham_mutation:MappingMutation",
        "moham-assignment-mutation": "mohsearch.operators.moham_mutation:AssignmentMutation",
        "moham-splitting-mutation": "mohsearch.operators.moham_mutation:SplittingMutation",
        "moham-merging-mutation": "mohsearch.operators.moham_mutation:MergingMutation",
        "moham-position-mutation": "mohsearch.operators.moham_mutation:PositionMutation",
        "moham-template-mutation": "mohsearch.operators.moham_mutation:TemplateMutation",
        "moham-keys-crossover": "mohsearch.operators.moham_keys:KeysCrossover",
        "moham-keys-mutation": "mohsearch.operators.moham_keys:KeysMutation",
    },
)
"""Operator classes by the name that cards use: subclasses of pymoo's Sampling, Crossover, Mutation.
Plug-ins join through entry points of the group ``mohsearch.operator``."""
