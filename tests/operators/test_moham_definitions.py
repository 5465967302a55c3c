"""Each operator against its definition, written out in plain Python with exact probabilities.

For a genome (or a pair) the definition lists every possible child with its probability. The
operator must yield those children and no others, as often as they should come.
"""

from __future__ import annotations

import itertools
from collections import Counter
from fractions import Fraction
from types import SimpleNamespace

import numpy as np
import pytest

from mohsearch.evaluators.package_space import MohamSpace
from mohsearch.operators import OPERATORS
from mohsearch.testing.moham import random_dependencies, random_genomes, random_table

DRAWS = 12_000


class Package:
    """A genome taken apart into lists, for readable definitions."""

    def __init__(self, space: MohamSpace, genome) -> None:
        n, m = space.n_layers, space.max_instances
        genes = [int(g) for g in genome]
        self.space = space
        self.order, self.mapping, self.slot = genes[:n], genes[n : 2 * n], genes[2 * n : 3 * n]
        self.template, self.tile = genes[3 * n : 3 * n + m], genes[3 * n + m :]

    def copy(self) -> Package:
        return Package(self.space, self.genome())

    def genome(self) -> tuple[int, ...]:
        return tuple(self.order + self.mapping + self.slot + self.template + self.tile)

    def on(self, slot: int) -> list[int]:
        return [layer for layer, s in enumerate(self.slot) if s == slot]

    def occupied(self) -> list[int]:
        return sorted(set(self.slot))

    def candidates(self, layer: int, template: int) -> int:
        cell = int(self.space.unique_of_layer[layer]) * self.space.n_templates + template
        return int(self.space.offsets[cell + 1] - self.space.offsets[cell])

    def nearest(self, layer: int, source: int, index: int, target: int) -> int:
        """The mapping on ``target`` that is most like mapping ``index`` on ``source``."""
        cell = int(self.space.unique_of_layer[layer]) * self.space.n_templates + source
        return int(self.space.transform[int(self.space.offsets[cell]) + index, target])

    def send(self, layer: int, slot: int) -> None:
        old, new = self.template[self.slot[layer]], self.template[slot]
        self.mapping[layer] = self.nearest(layer, old, self.mapping[layer], new)
        self.slot[layer] = slot

    def homes(self, layer: int, *excluded: int) -> list[int]:
        """Instances that can run a layer, apart from some."""
        return [
            s
            for s, t in enumerate(self.template)
            if t >= 0 and s not in excluded and self.candidates(layer, t)
        ]

    def instances(self) -> list[int]:
        """Slots that hold an instance: given ones may have no layers."""
        return [s for s, t in enumerate(self.template) if t >= 0]

    def clean(self) -> Package:
        if self.space.fixed_templates is not None:
            return self
        for s in range(len(self.template)):
            if s not in self.slot:
                self.template[s] = -1
        return self

    def last_tile(self, slot: int) -> None:
        ranking = sorted(range(len(self.tile)), key=lambda s: self.tile[s])
        ranking.remove(slot)
        for rank, s in enumerate([*ranking, slot]):
            self.tile[s] = rank

    def depends_on(self, layer: int) -> set[int]:
        """All layers that must run before, direct or not."""
        low, high = self.space.predecessor_offsets[layer : layer + 2]
        direct = {int(p) for p in self.space.predecessors[low:high]}
        return direct.union(*(self.depends_on(p) for p in direct)) if direct else direct


Outcomes = Counter  # child genome (or pair) -> Fraction


def mixture(parts) -> Outcomes:
    """Each part is as likely as the others; a part is a Counter of outcomes."""
    total: Outcomes = Counter()
    for part in parts:
        for child, chance in part.items():
            total[child] += chance / len(parts)
    return total


def sure(child) -> Outcomes:
    return Counter({child: Fraction(1)})


def scheduling_mutation(p: Package) -> Outcomes:
    parts = []
    for i, layer in enumerate(p.order):
        later = [j for j in range(i + 1, len(p.order)) if layer in p.depends_on(p.order[j])]
        end = min(later, default=len(p.order))
        swaps = []
        for k in range(i + 1, end):
            child = p.copy()
            if p.depends_on(p.order[k]) <= set(p.order[:i]):
                child.order[i], child.order[k] = child.order[k], child.order[i]
            swaps.append(sure(child.genome()))
        parts.append(mixture(swaps) if swaps else sure(p.genome()))
    return mixture(parts)


def mapping_mutation(p: Package) -> Outcomes:
    parts = []
    for layer, old in enumerate(p.mapping):
        known = p.candidates(layer, p.template[p.slot[layer]])
        children = []
        for index in set(range(known)) - {old} or {old}:
            child = p.copy()
            child.mapping[layer] = index
            children.append(sure(child.genome()))
        parts.append(mixture(children))
    return mixture(parts)


def assignment_mutation(p: Package) -> Outcomes:
    parts = []
    for layer in range(len(p.slot)):
        children = []
        for slot in p.homes(layer, p.slot[layer]):
            child = p.copy()
            child.send(layer, slot)
            children.append(sure(child.clean().genome()))
        parts.append(mixture(children) if children else sure(p.genome()))
    return mixture(parts)


def splitting_mutation(p: Package) -> Outcomes:
    large = [s for s in p.occupied() if len(p.on(s)) >= 2]
    free = [s for s in range(len(p.template)) if s not in p.slot]
    if not large or not free:
        return sure(p.genome())
    parts = []
    for s in large:
        halves = list(itertools.combinations(p.on(s), len(p.on(s)) // 2))
        children = []
        for half in halves:
            child = p.copy()
            child.template[free[0]] = child.template[s]
            for layer in half:
                child.slot[layer] = free[0]
            child.last_tile(free[0])
            children.append(sure(child.genome()))
        parts.append(mixture(children))
    return mixture(parts)


def dispatch(p: Package, moves: dict[int, list[int]]) -> Outcomes:
    """Send each layer to a uniform choice of its slots, independently."""
    children = []
    for goals in itertools.product(*moves.values()):
        child = p.copy()
        for layer, slot in zip(moves, goals, strict=True):
            child.send(layer, slot)
        children.append(child)
    return mixture([sure(c.genome()) for c in children])


def merging_mutation(p: Package) -> Outcomes:
    parts = []
    for source, target in itertools.permutations(p.occupied(), 2):
        moves = {}
        for layer in p.on(source):
            if p.candidates(layer, p.template[target]):
                moves[layer] = [target]
            elif p.homes(layer, source, target):
                moves[layer] = p.homes(layer, source, target)
        parts.append(cleaned(p, dispatch(p, moves)))
    return mixture(parts) if parts else sure(p.genome())


def cleaned(p: Package, outcomes: Outcomes) -> Outcomes:
    total: Outcomes = Counter()
    for child, chance in outcomes.items():
        total[Package(p.space, child).clean().genome()] += chance
    return total


def position_mutation(p: Package) -> Outcomes:
    parts = []
    for a, b in itertools.combinations(p.instances(), 2):
        child = p.copy()
        child.tile[a], child.tile[b] = child.tile[b], child.tile[a]
        parts.append(sure(child.genome()))
    return mixture(parts) if parts else sure(p.genome())


def with_template(p: Package, slot: int, template: int, layers: list[int]) -> Outcomes | None:
    """Change an instance's template under some of its layers; None if one has nowhere to go."""
    able = [layer for layer in layers if p.candidates(layer, template)]
    moves = {layer: p.homes(layer, slot) for layer in layers if layer not in able}
    if not all(moves.values()):
        return None
    changed: Outcomes = Counter()
    for genome, chance in dispatch(p, moves).items():
        child = Package(p.space, genome)
        for layer in able:
            old = child.template[slot]
            child.mapping[layer] = child.nearest(layer, old, child.mapping[layer], template)
        child.template[slot] = template
        changed[child.genome()] += chance
    return changed


def template_mutation(p: Package) -> Outcomes:
    parts = []
    for slot in p.occupied():
        for template in set(range(p.space.n_templates)) - {p.template[slot]}:
            layers = p.on(slot)
            result = None
            if any(p.candidates(layer, template) for layer in layers):
                result = with_template(p, slot, template, layers)
            parts.append(sure(p.genome()) if result is None else result)
    return mixture(parts)


def scheduling_crossover(a: Package, b: Package) -> Outcomes:
    parts = []
    for cut in range(1, len(a.order)):
        first, second = a.copy(), b.copy()
        first.order = a.order[:cut] + [x for x in b.order if x not in a.order[:cut]]
        second.order = b.order[:cut] + [x for x in a.order if x not in b.order[:cut]]
        parts.append(sure((first.genome(), second.genome())))
    return mixture(parts)


def mapping_crossover(a: Package, b: Package) -> Outcomes:
    def child(one: Package, two: Package, cut: int) -> tuple[int, ...]:
        result = one.copy()
        for layer in one.order[cut:]:
            source, target = two.template[two.slot[layer]], one.template[one.slot[layer]]
            result.mapping[layer] = one.nearest(layer, source, two.mapping[layer], target)
        return result.genome()

    cuts = range(1, len(a.order))
    return mixture([sure((child(a, b, cut), child(b, a, cut))) for cut in cuts])


def with_instance(p: Package, donor: Package, slot: int) -> Outcomes:
    """Bring the donor's instance into a package."""
    coming = donor.on(slot)
    if not coming:
        return sure(p.genome())
    if slot not in p.slot:
        begin = p.copy()
        if slot not in p.instances():
            begin.last_tile(slot)
            begin.template[slot] = donor.template[slot]
        bases = sure(begin.genome())
    elif p.template[slot] == donor.template[slot]:
        bases = sure(p.genome())
    else:
        staying = [layer for layer in p.on(slot) if layer not in coming]
        changed = with_template(p, slot, donor.template[slot], staying)
        if changed is None:
            return sure(p.genome())
        bases = changed
    total: Outcomes = Counter()
    for genome, chance in bases.items():
        child = Package(p.space, genome)
        for layer in coming:
            child.slot[layer], child.mapping[layer] = slot, donor.mapping[layer]
        total[child.clean().genome()] += chance
    return total


def instance_crossover(a: Package, b: Package) -> Outcomes:
    parts = []
    for slot in sorted({*a.slot, *b.slot}):
        both: Outcomes = Counter()
        for first, chance in with_instance(a, b, slot).items():
            for second, other in with_instance(b, a, slot).items():
                both[first, second] += chance * other
        parts.append(both)
    return mixture(parts)


def small_space(seed: int, given: list[int] | None = None) -> MohamSpace:
    """Five layers on up to four slots of three templates; ``given`` fixes the templates."""
    rng = np.random.default_rng(seed)
    unmappable = 0.0 if given else (0.1, 0.5)[seed % 2]
    table = random_table(rng, unique=4, templates=3, most=3, unmappable=unmappable)
    features = np.column_stack([table.cycles, table.fixed_energy_pj, table.size_words.sum(axis=1)])
    return MohamSpace.from_arrays(
        rng.integers(4, size=5),
        random_dependencies(rng, 5),
        table.offsets,
        features.astype(float),
        templates=3,
        max_instances=4,
        fixed_templates=given,
    )


def assert_frequencies(observed: Counter, expected: Outcomes) -> None:
    assert sum(expected.values()) == 1
    assert set(observed) <= set(expected), "a child that the definition does not allow"
    draws = sum(observed.values())
    # rare children together, so that every cell expects enough draws
    rare = {child for child, chance in expected.items() if chance * draws < 8}
    cells = [
        (float(chance * draws), observed[c]) for c, chance in expected.items() if c not in rare
    ]
    if rare:
        cells.append(
            (float(sum(expected[c] for c in rare) * draws), sum(observed[c] for c in rare))
        )
    chi = sum((seen - mean) ** 2 / mean for mean, seen in cells)
    freedom = len(cells) - 1
    assert chi <= freedom + 5 * (2 * freedom) ** 0.5 + 12, (chi, freedom)
    assert all(seen > 0 for _, seen in cells)


MUTATIONS = {
    "moham-scheduling-mutation": scheduling_mutation,
    "moham-mapping-mutation": mapping_mutation,
    "moham-assignment-mutation": assignment_mutation,
    "moham-splitting-mutation": splitting_mutation,
    "moham-merging-mutation": merging_mutation,
    "moham-position-mutation": position_mutation,
    "moham-template-mutation": template_mutation,
}
CROSSOVERS = {
    "moham-scheduling-crossover": scheduling_crossover,
    "moham-mapping-crossover": mapping_crossover,
    "moham-instance-crossover": instance_crossover,
}


def counted(rows: np.ndarray) -> Counter:
    by_bytes = Counter(row.tobytes() for row in np.ascontiguousarray(rows, dtype=np.int64))
    return Counter({tuple(np.frombuffer(b, np.int64).tolist()): c for b, c in by_bytes.items()})


@pytest.mark.parametrize("name", MUTATIONS)
@pytest.mark.parametrize("seed", range(4))
def test_a_mutation_yields_the_children_of_its_definition_as_often_as_it_says(name, seed):
    space = small_space(seed)
    rng = np.random.default_rng(100 + seed)
    operator = OPERATORS.load(name)()
    for genome in random_genomes(space, rng, 2):
        expected = MUTATIONS[name](Package(space, genome))
        many = np.tile(genome, (DRAWS, 1))
        children = operator._do(SimpleNamespace(space=space), many, random_state=rng)
        assert_frequencies(counted(children), expected)


@pytest.mark.parametrize("name", [*list(MUTATIONS)[:3], "moham-position-mutation"])
@pytest.mark.parametrize("given", [[2, 0, 1, 0], [1, -1, 0, 2]])
def test_a_mutation_of_a_given_package_yields_the_children_of_its_definition(name, given):
    space = small_space(1, given)
    rng = np.random.default_rng(300)
    operator = OPERATORS.load(name)()
    for genome in random_genomes(space, rng, 2):
        expected = MUTATIONS[name](Package(space, genome))
        many = np.tile(genome, (DRAWS, 1))
        children = operator._do(SimpleNamespace(space=space), many, random_state=rng)
        assert_frequencies(counted(children), expected)


@pytest.mark.parametrize("name", CROSSOVERS)
@pytest.mark.parametrize("seed", range(4))
def test_a_crossover_yields_the_children_of_its_definition_as_often_as_it_says(name, seed):
    space = small_space(seed, [2, 0, 1, 0] if seed == 3 else None)
    rng = np.random.default_rng(200 + seed)
    operator = OPERATORS.load(name)()
    genomes = random_genomes(space, rng, 4)
    for a, b in zip(genomes[:2], genomes[2:], strict=True):
        expected = CROSSOVERS[name](Package(space, a), Package(space, b))
        pairs = np.stack([np.tile(a, (DRAWS, 1)), np.tile(b, (DRAWS, 1))])
        children = operator._do(SimpleNamespace(space=space), pairs, random_state=rng)
        together = counted(np.concatenate([children[0], children[1]], axis=1))
        observed = Counter({(c[: len(a)], c[len(a) :]): k for c, k in together.items()})
        assert_frequencies(observed, expected)


@pytest.mark.parametrize("name", list(MUTATIONS)[:3])
def test_application_to_each_layer_hits_every_layer_with_its_probability(name):
    layers, rate, rows = 20, 0.05, 20_000
    space = MohamSpace.from_arrays(
        [0] * layers, [[]] * layers, [0, 2, 4], np.arange(1.0, 13).reshape(4, 3), templates=2
    )
    rng = np.random.default_rng(9)
    X = np.tile(random_genomes(space, rng, 1)[0], (rows, 1))
    operator = OPERATORS.load(name)(layer_probability=rate)
    children = operator._do(SimpleNamespace(space=space), X, random_state=rng)
    block = {
        "moham-scheduling-mutation": "order",
        "moham-mapping-mutation": "mapping",
        "moham-assignment-mutation": "slot",
    }[name]
    changed = getattr(space.view(children), block) != getattr(space.view(X), block)
    if block == "order":
        # the first position can only be swapped by its own turn; the last layer has no partner
        hits = changed[:, :1].mean(axis=0)
    else:
        hits = changed.mean(axis=0)
    assert np.abs(hits - rate).max() < 5 * (rate * (1 - rate) / rows) ** 0.5


def readable_space() -> MohamSpace:
    """Five layers 0->1->2 and 3->4, two templates; layer 4 runs on template 0 only.

    Unique layer 0 has two mappings on template 0 (fast and large; slow and small) and three on
    template 1; unique layer 1 has two on template 0.
    """
    features = [[1, 5, 9], [9, 5, 1], [1, 4, 9], [3, 4, 3], [9, 4, 1], [2, 2, 2], [4, 1, 1]]
    return MohamSpace.from_arrays(
        [0, 0, 0, 0, 1],
        [[], [0], [1], [], [3]],
        [0, 2, 5, 7, 7],
        np.array(features, dtype=float),
        templates=2,
        max_instances=3,
    )


def test_a_merged_instance_brings_its_layers_with_the_most_similar_mappings():
    space = readable_space()
    #                  order          mapping        slot           template  tile
    genome = np.array([0, 3, 1, 4, 2, 2, 0, 2, 1, 1, 2, 2, 2, 0, 0, 0, -1, 1, 2, 0, 1])
    operator = OPERATORS.load("moham-merging-mutation")()
    rng = np.random.default_rng(0)
    children = operator._do(
        SimpleNamespace(space=space), np.tile(genome, (50, 1)), random_state=rng
    )
    # into slot 0: mappings 2, 0, 2 of template 1 (slow, fast, slow) become 1, 0, 1 of template 0;
    # into slot 2: layer 3 goes there (mapping 1 -> 2), layer 4 cannot and stays with its instance
    into_0 = [0, 3, 1, 4, 2, 1, 0, 1, 1, 1, 0, 0, 0, 0, 0, 0, -1, -1, 2, 0, 1]
    into_2 = [0, 3, 1, 4, 2, 2, 0, 2, 2, 1, 2, 2, 2, 2, 0, 0, -1, 1, 2, 0, 1]
    assert np.unique(children, axis=0).tolist() == sorted([into_0, into_2])


def test_a_split_instance_keeps_its_template_and_takes_the_last_tile():
    space = readable_space()
    genome = np.array([0, 3, 1, 4, 2, 2, 0, 0, 1, 1, 2, 2, 0, 0, 0, 0, -1, 1, 2, 0, 1])
    operator = OPERATORS.load("moham-splitting-mutation")()
    rng = np.random.default_rng(0)
    children = operator._do(
        SimpleNamespace(space=space), np.tile(genome, (200, 1)), random_state=rng
    )
    blocks = space.view(np.unique(children, axis=0))
    assert {tuple(row) for row in blocks.slot.tolist()} == {
        (1, 2, 0, 0, 0),  # slot 2 holds two layers: one of them goes
        (2, 1, 0, 0, 0),
        (2, 2, 1, 0, 0),  # slot 0 holds three: one of them goes
        (2, 2, 0, 1, 0),
        (2, 2, 0, 0, 1),
    }
    assert {tuple(row) for row in blocks.tile.tolist()} == {(1, 2, 0)}
    assert {tuple(row) for row in blocks.template.tolist()} == {(0, 1, 1), (0, 0, 1)}


def test_a_layer_that_the_new_template_cannot_run_moves_to_an_instance_that_can():
    space = readable_space()
    genome = np.array([0, 3, 1, 4, 2, 0, 2, 2, 1, 1, 0, 2, 2, 1, 0, 0, 0, 1, 2, 0, 1])
    operator = OPERATORS.load("moham-template-mutation")()
    children = operator._do(
        SimpleNamespace(space=space),
        np.tile(genome, (200, 1)),
        random_state=np.random.default_rng(0),
    )
    assert np.unique(children, axis=0).tolist() == sorted(
        [
            # slot 0 becomes template 1: layer 0 stays (mapping 0 -> 0), layer 4 moves to slot 1
            [0, 3, 1, 4, 2, 0, 2, 2, 1, 1, 0, 2, 2, 1, 1, 1, 0, 1, 2, 0, 1],
            # slot 1 becomes template 1: its layer 3 stays (mapping 1 -> 2)
            [0, 3, 1, 4, 2, 0, 2, 2, 2, 1, 0, 2, 2, 1, 0, 0, 1, 1, 2, 0, 1],
            # slot 2 becomes template 0: layers 1 and 2 stay (mapping 2 -> 1)
            [0, 3, 1, 4, 2, 0, 1, 1, 1, 1, 0, 2, 2, 1, 0, 0, 0, 0, 2, 0, 1],
        ]
    )


def test_a_template_change_that_strands_a_layer_is_refused():
    space = readable_space()
    genome = np.array([0, 3, 1, 4, 2, 0, 2, 2, 1, 1, 0, 2, 2, 2, 0, 0, -1, 1, 2, 0, 1])
    genome[8] = 1  # layer 3 on slot 2: nothing but slot 0 can run layer 4
    operator = OPERATORS.load("moham-template-mutation")()
    children = operator._do(
        SimpleNamespace(space=space),
        np.tile(genome, (200, 1)),
        random_state=np.random.default_rng(0),
    )
    templates = {tuple(t) for t in space.view(children).template.tolist()}
    assert templates == {(0, -1, 1), (0, -1, 0)}


def test_the_order_of_a_child_begins_as_one_parent_and_ends_as_the_other():
    space = readable_space()
    rest = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, -1, -1, 0, 1, 2]
    a = np.array([0, 1, 2, 3, 4, *rest])
    b = np.array([3, 4, 0, 1, 2, *rest])
    operator = OPERATORS.load("moham-scheduling-crossover")()
    children = operator._do(
        SimpleNamespace(space=space),
        np.stack([np.tile(a, (99, 1)), np.tile(b, (99, 1))]),
        random_state=np.random.default_rng(0),
    )
    pairs = {(tuple(x[:5].tolist()), tuple(y[:5].tolist())) for x, y in zip(*children, strict=True)}
    assert pairs == {
        ((0, 3, 4, 1, 2), (3, 0, 1, 2, 4)),
        ((0, 1, 3, 4, 2), (3, 4, 0, 1, 2)),
        ((0, 1, 2, 3, 4), (3, 4, 0, 1, 2)),
    }


@pytest.mark.parametrize("given", [None, [0, 1]])
def test_mutations_alone_reach_every_valid_package_of_a_small_space(given):
    features = np.array([[1, 5, 9], [9, 5, 1], [3, 4, 3], [2, 2, 2], [5, 1, 2]], dtype=float)
    space = MohamSpace.from_arrays(
        [0, 1, 0], [[], [0], []], [0, 2, 3, 4, 5], features, templates=2, max_instances=2,
        fixed_templates=given,
    )  # fmt: skip
    ranges = [range(low, high + 1) for low, high in zip(space.lower, space.upper, strict=True)]
    every = np.array(list(itertools.product(*ranges)))
    valid = every[space.is_valid(every)]
    rng = np.random.default_rng(1)
    operators = [OPERATORS.load(name)() for name in MUTATIONS]
    X = np.tile(valid[rng.integers(len(valid))], (400, 1))
    reached = {x.tobytes() for x in X}
    for _ in range(150):
        for operator in operators:
            chosen = rng.random(len(X)) < 0.5
            X[chosen] = operator._do(SimpleNamespace(space=space), X[chosen], random_state=rng)
            reached.update(x.tobytes() for x in X)
    assert len(reached) == len(valid) == len({x.tobytes() for x in valid})
