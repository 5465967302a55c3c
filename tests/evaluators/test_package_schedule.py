from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest

from mohsearch.evaluators.package_schedule import PackageNetwork, schedule_layers
from mohsearch.testing.moham import random_dependencies

SHARINGS = ("proportional", "max-min", "two-pass")


def shares(sharing, asked, interface_of, bandwidth, system):
    """Progress rate of each running layer and the stretch of the clock, by the definition."""
    rate = dict.fromkeys(asked, Fraction(1))
    for interface in set(interface_of.values()):
        here = {v: d for v, d in asked.items() if interface_of[v] == interface and d > 0}
        total = sum(here.values())
        if total <= bandwidth:
            continue
        if sharing != "max-min":
            rate |= dict.fromkeys(here, Fraction(bandwidth) / total)
            continue
        level = Fraction(0)  # raise a common ceiling until the bandwidth is used up
        for number, (v, d) in enumerate(sorted(here.items(), key=lambda item: item[1])):
            rest = bandwidth - sum(min(e, level) for e in here.values())
            level = min(d, level + rest / (len(here) - number))
            rate[v] = level / d
    wanted = sum(asked.values())
    if sharing == "two-pass":
        return rate, max(Fraction(1), wanted / Fraction(system))
    used = sum(asked[v] * rate[v] for v in asked)
    if used > system:
        rate = {v: r * system / used if asked[v] > 0 else r for v, r in rate.items()}
    return rate, Fraction(1)


def exact_schedule(case):
    """Schedule in exact rationals: at each moment look at every layer afresh."""
    n = len(case["order"])
    position = {v: i for i, v in enumerate(case["order"])}
    work = [Fraction(w) for w in case["work"]]
    left = list(work)
    start, end = {}, {}
    now = Fraction(0)
    while len(end) < n:
        for v in range(n):
            if v in start:
                continue
            before = list(case["predecessors"][v])
            before += [
                u
                for u in range(n)
                if case["instance"][u] == case["instance"][v] and position[u] < position[v]
            ]
            if all(u in end for u in before):
                start[v] = now
        running = [v for v in start if v not in end]
        asked = {v: Fraction(case["bytes"][v]) / work[v] for v in running}
        interface_of = {v: case["interface"][case["instance"][v]] for v in running}
        rate, stretch = shares(
            case["sharing"], asked, interface_of, case["bandwidth"], case["system"]
        )
        step = min(left[v] / rate[v] for v in running)
        now += step * stretch
        for v in running:
            left[v] -= step * rate[v]
            if left[v] == 0:
                end[v] = now
    return start, end


def random_case(rng, sharing):
    n, k = int(rng.integers(1, 9)), int(rng.integers(1, 5))
    predecessors = random_dependencies(rng, n)
    order, done = [], set()
    while len(order) < n:
        ready = [v for v in range(n) if v not in done and set(predecessors[v]) <= done]
        order.append(int(rng.choice(ready)))
        done.add(order[-1])
    return {
        "order": order,
        "predecessors": predecessors,
        "instance": rng.integers(k, size=n).tolist(),
        "interface": rng.integers(2, size=k).tolist(),
        "work": rng.integers(1, 12, size=n).tolist(),
        "bytes": rng.integers(0, 60, size=n).tolist(),
        "bandwidth": int(rng.integers(2, 9)),
        "system": int(rng.integers(3, 14)),
        "sharing": sharing,
    }


def network_of(case, **changes):
    values = {
        "interface_bandwidth_bytes_per_s": case["bandwidth"],
        "system_bandwidth_bytes_per_s": case["system"],
        "link_bandwidth_bytes_per_s": 1e9,
        "sharing": case["sharing"],
    }
    return PackageNetwork(**(values | changes))


def run(case, **changes):
    return schedule_layers(
        case["order"],
        case["instance"],
        case["work"],
        case["bytes"],
        case["predecessors"],
        case["interface"],
        network_of(case, **changes),
    )


@pytest.mark.parametrize("sharing", SHARINGS)
def test_the_schedule_equals_one_in_exact_rationals(sharing):
    rng = np.random.default_rng(11)
    crowded = 0
    for _ in range(150):
        case = random_case(rng, sharing)
        start, end = exact_schedule(case)
        result = run(case)
        for v in range(len(case["order"])):
            assert result.start_s[v] == pytest.approx(float(start[v]), rel=1e-12, abs=1e-12)
            assert result.end_s[v] == pytest.approx(float(end[v]), rel=1e-12)
        crowded += result.stalled_s.max() > 0
    assert crowded > 60


def test_the_schedule_is_the_limit_of_small_time_steps():
    rng = np.random.default_rng(5)
    for _ in range(5):
        case = random_case(rng, "proportional")
        result = run(case)
        order, step, now = case["order"], result.latency_s / 1500, 0.0
        left = np.array(case["work"], dtype=float)
        demand = np.array(case["bytes"]) / left
        instance = np.array(case["instance"])
        interface = np.array(case["interface"])[instance]
        blockers = [
            [u for u in order[: order.index(v)] if instance[u] == instance[v]] + before
            for v, before in enumerate(case["predecessors"])
        ]
        while (left > 0).any():
            running = [v for v in order if left[v] > 0 and (left[blockers[v]] <= 0).all()]
            rate = np.bincount(running, minlength=len(order)).astype(float)
            for j in (0, 1):
                here = (interface == j) & (demand > 0)
                rate[here] *= min(1.0, case["bandwidth"] / max((demand * rate)[here].sum(), 1e-9))
            rate[demand > 0] *= min(1.0, case["system"] / max((demand * rate).sum(), 1e-9))
            left -= rate * step
            now += step
        assert now == pytest.approx(result.latency_s, rel=0.01)


@pytest.mark.parametrize("sharing", SHARINGS)
def test_interfaces_move_exactly_the_bytes_and_never_more_than_their_bandwidth(sharing):
    rng = np.random.default_rng(7)
    for _ in range(150):
        case = random_case(rng, sharing)
        result = run(case)
        assert (result.interface_bytes_per_s <= case["bandwidth"] * (1 + 1e-12)).all()
        assert (result.interface_bytes_per_s.sum(axis=1) <= case["system"] * (1 + 1e-12)).all()
        expected = np.zeros(result.interface_bytes_per_s.shape[1])
        for v, b in enumerate(case["bytes"]):
            expected[case["interface"][case["instance"][v]]] += b
        assert result.interface_bytes == pytest.approx(expected, rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("sharing", SHARINGS)
def test_layers_respect_dependencies_instances_and_their_own_latency(sharing):
    rng = np.random.default_rng(8)
    for _ in range(150):
        case = random_case(rng, sharing)
        result = run(case)
        for v, before in enumerate(case["predecessors"]):
            assert all(result.end_s[p] <= result.start_s[v] for p in before)
        for i in set(case["instance"]):
            mine = [v for v in case["order"] if case["instance"][v] == i]
            assert all(result.end_s[a] <= result.start_s[b] for a, b in pairwise(mine))
        assert (result.end_s - result.start_s >= np.array(case["work"]) * (1 - 1e-12)).all()


@pytest.mark.parametrize("sharing", SHARINGS)
def test_no_bandwidth_makes_a_schedule_faster_than_unlimited_bandwidth(sharing):
    rng = np.random.default_rng(9)
    for _ in range(100):
        case = random_case(rng, sharing)
        free = run(case, interface_bandwidth_bytes_per_s=1e9, system_bandwidth_bytes_per_s=1e9)
        assert (run(case).end_s >= free.end_s * (1 - 1e-12)).all()
        assert free.stalled_s.max() == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize("sharing", ["proportional", "max-min"])
def test_more_bandwidth_never_delays_layers_that_all_start_together(sharing):
    rng = np.random.default_rng(10)
    for _ in range(100):
        n = int(rng.integers(1, 7))
        case = random_case(rng, sharing) | {
            "order": list(range(n)),
            "predecessors": [[] for _ in range(n)],
            "instance": list(range(n)),
            "interface": [0] * n,
            "work": rng.integers(1, 12, size=n).tolist(),
            "bytes": rng.integers(0, 60, size=n).tolist(),
        }
        ends = [
            run(case, interface_bandwidth_bytes_per_s=b, system_bandwidth_bytes_per_s=1e9).end_s
            for b in (2, 3, 5, 8, 20)
        ]
        for slow, fast in pairwise(ends):
            assert (fast <= slow * (1 + 1e-12)).all()


def test_more_bandwidth_never_delays_a_package_with_one_interface():
    # All layers with traffic progress at the same rate: the schedule is the uncrowded one on a
    # clock that more bandwidth can only speed up.
    rng = np.random.default_rng(13)
    for _ in range(100):
        case = random_case(rng, "proportional")
        case["interface"] = [0] * len(case["interface"])
        case["bytes"] = [b + 1 for b in case["bytes"]]
        ends = [
            run(case, interface_bandwidth_bytes_per_s=b, system_bandwidth_bytes_per_s=1e9).end_s
            for b in (2, 3, 5, 8, 20)
        ]
        for slow, fast in pairwise(ends):
            assert (fast <= slow * (1 + 1e-12)).all()


def test_with_several_interfaces_more_bandwidth_can_delay_the_package():
    # Layer 0 ends sooner, so its successor 1 runs beside layer 2, which the long layer 3 awaits.
    def latency(bandwidth):
        network = PackageNetwork(interface_bandwidth_bytes_per_s=bandwidth)
        predecessors = [[], [0], [], [2]]
        work, moved = [10, 10, 12, 100], [50, 40, 48, 0]
        return schedule_layers(
            [0, 1, 2, 3], [0, 1, 2, 2], work, moved, predecessors, [0, 1, 1], network
        ).latency_s

    assert latency(4.0) == pytest.approx(112.0)
    assert latency(5.0) == pytest.approx(113.2)


def test_a_layer_alone_is_limited_by_its_link_and_its_interface():
    def alone(**limits):
        network = PackageNetwork(**limits)
        return schedule_layers([0], [0], [1.0], [8e9], [[]], [0], network)

    wide = {"interface_bandwidth_bytes_per_s": 1e12, "system_bandwidth_bytes_per_s": 1e12}
    assert alone(**wide).end_s[0] == 1.0
    assert alone(**wide, link_bandwidth_bytes_per_s=2e9).end_s[0] == 4.0
    assert alone().end_s[0] == 2.0
    assert alone().stalled_s[0] == 1.0


def test_proportional_sharing_slows_all_alike_and_max_min_spares_the_modest():
    def ends(sharing):
        network = PackageNetwork(sharing=sharing)
        return schedule_layers(
            [0, 1], [0, 1], [1.0, 1.0], [6e9, 1e9], [[], []], [0, 0], network
        ).end_s

    assert ends("proportional").tolist() == [1.75, 1.75]
    assert ends("max-min").tolist() == [1.75, 1.0]


def test_the_two_pass_stretch_counts_what_is_wanted_not_what_interfaces_give():
    network = PackageNetwork(system_bandwidth_bytes_per_s=6e9, sharing="two-pass")
    result = schedule_layers([0, 1], [0, 1], [1.0, 1.0], [8e9, 4e9], [[], []], [0, 1], network)
    # 12 of 6 GB/s are wanted: layer 1 needs 2 s; then 8 GB/s remain for the half of layer 0.
    assert result.end_s.tolist() == [2.0 + 4 / 3, 2.0]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"order": [1, 0]}, "layer 1 must come after its predecessor 0"),
        ({"order": [0, 0]}, "each layer once"),
        ({"alone_s": [1.0, 0.0]}, "alone_s"),
        ({"bytes_moved": [1.0, -1.0]}, "bytes_moved"),
        ({"instance": [0, 2]}, "instances are numbered 0 to 1"),
        ({"interface_of_instance": []}, "memory interface"),
        ({"alone_s": [1.0]}, "one entry a layer"),
    ],
)
def test_a_schedule_that_cannot_be_is_refused(changes, message):
    arguments = {
        "order": [0, 1],
        "instance": [0, 1],
        "alone_s": [1.0, 1.0],
        "bytes_moved": [1.0, 1.0],
        "predecessors": [[], [0]],
        "interface_of_instance": [0, 0],
    }
    with pytest.raises(ValueError, match=message):
        schedule_layers(**(arguments | changes), network=PackageNetwork())
