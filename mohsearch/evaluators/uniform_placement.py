"""Device placement of networks whose inner layers are all alike, for many accelerators at once.

Same model and same optimum as :func:`mohsearch.evaluators.device_placement.solver.place` (PHAZE,
section 5 and appendix B; flushing 1F1B schedule), for a chain of one first layer, ``n`` equal inner
layers and one last layer, sliced alike on ``t`` devices. Then a plan with ``s`` stages is three
numbers: the inner layers of the first stage, of the last one, and the most that any stage between
them has. Loads and memory grow with each, so the least load of a pipeline is found by bisection
instead of a table over all intervals, and the whole choice of stages, replicas and widths takes
microseconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from mohsearch.evaluators.device_placement.problem import LayerCosts, PlacementProblem

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

FIRST, INNER, LAST = range(3)
"""Order of the three kinds of layers in every array below."""

RESULT_COLUMNS = ("width", "stages", "replicas", "first", "last", "most")


@dataclass(frozen=True)
class UniformChain:
    """What does not depend on the accelerator: one slice's bytes by tensor-parallel width.

    Attributes
    ----------
    inner
        Number of inner layers, at least 1.
    widths
        Tensor-parallel widths, ascending, shape (widths,).
    weight_bytes, state_bytes, activation_bytes
        Weights; weights with gradients and optimizer state; intermediate outputs of a microbatch.
        Each of shape (widths, 3), columns first, inner and last layer.
    boundary_bytes
        What a microbatch sends from layer to layer, shape (widths,).
    input_bytes
        What the network's input takes when it is kept for recomputation.
    """

    inner: int
    widths: Integers
    weight_bytes: Floats
    state_bytes: Floats
    activation_bytes: Floats
    boundary_bytes: Floats
    input_bytes: float = 0.0


@dataclass(frozen=True)
class Cluster:
    """Devices, batch and network of all placements; fields as in :class:`PlacementProblem`."""

    devices: int
    microbatches: int
    bandwidth_bytes_per_s: float
    sync_factor: float = 2.0
    overlap_recompute: bool = True

    def problem(
        self,
        chain: UniformChain,
        forward_s: Floats,
        backward_s: Floats,
        memory_bytes: float,
        recompute: bool,
    ) -> PlacementProblem:
        """Return the placement of one accelerator in the general form.

        Parameters
        ----------
        chain
            The network.
        forward_s, backward_s
            Shape (widths, 3).
        memory_bytes, recompute
            As in :class:`PlacementProblem`.
        """
        n = chain.inner + 2
        kind = np.full(n, INNER)
        kind[0], kind[-1] = FIRST, LAST
        costs = {
            int(t): LayerCosts(
                forward_s=forward_s[w, kind],
                backward_s=backward_s[w, kind],
                weight_bytes=chain.weight_bytes[w, kind],
                state_bytes=chain.state_bytes[w, kind],
                activation_bytes=chain.activation_bytes[w, kind],
                sliced=np.full(n, t > 1),
                edge_bytes=np.full(n - 1, chain.boundary_bytes[w]),
            )
            for w, t in enumerate(chain.widths)
        }
        return PlacementProblem(
            layer_ids=tuple(range(n)),
            sources=np.arange(n - 1),
            targets=np.arange(1, n),
            costs=costs,
            devices=self.devices,
            memory_bytes=memory_bytes,
            bandwidth_bytes_per_s=self.bandwidth_bytes_per_s,
            microbatches=self.microbatches,
            recompute=recompute,
            overlap_recompute=self.overlap_recompute,
            input_bytes=chain.input_bytes,
            sync_factor=self.sync_factor,
        )


class UniformPlans(NamedTuple):
    """Plans of several accelerators, each array of shape (count,).

    Attributes
    ----------
    time_s
        Time per batch; infinite where nothing fits.
    width
        Index of the tensor-parallel width in the chain's, -1 where nothing fits.
    stages, replicas
        Pipeline and data-parallel degree.
    first, last, most
        Inner layers of the first and of the last stage, and the most in a stage between.
    """

    time_s: Floats
    width: Integers
    stages: Integers
    replicas: Integers
    first: Integers
    last: Integers
    most: Integers


def place_uniform(
    chain: UniformChain,
    cluster: Cluster,
    forward_s: Floats,
    backward_s: Floats,
    memory_bytes: Floats,
    recompute: NDArray[np.bool_],
    update_s_per_byte: Floats | None = None,
) -> UniformPlans:
    """Return the fastest plan of each accelerator.

    Parameters
    ----------
    chain, cluster
        The network and the machine.
    forward_s, backward_s
        Latency of one microbatch through one layer, shape (count, widths, 3); infinite where an
        accelerator cannot run a layer.
    memory_bytes
        Of a device, shape (count,).
    recompute
        Whether stages keep only their inputs, shape (count,).
    update_s_per_byte
        What the optimizer's step takes by byte of weights, shape (count,); none by default. Like
        the synchronisation of gradients it is counted for the first stage, which ends last.

    Examples
    --------
    >>> one = np.array([1])
    >>> column = np.ones((1, 3))
    >>> chain = UniformChain(2, one, column, column, column, np.zeros(1))
    >>> cluster = Cluster(devices=4, microbatches=8, bandwidth_bytes_per_s=1e9)
    >>> load = np.ones((1, 1, 3))
    >>> plans = place_uniform(chain, cluster, load, load, np.array([1e9]), np.array([False]))
    >>> int(plans.stages[0]), int(plans.replicas[0]), round(float(plans.time_s[0]), 6)
    (1, 4, 16.0)
    """
    count = len(memory_bytes)
    degrees, batches = _replicas(cluster)
    update = np.zeros(count) if update_s_per_byte is None else update_s_per_byte
    times = np.empty(count)
    plans = np.empty((count, len(RESULT_COLUMNS)), dtype=np.int64)
    _place_all(
        _Bytes(
            chain.inner,
            np.asarray(chain.widths, dtype=np.int64),
            np.ascontiguousarray(chain.weight_bytes, dtype=np.float64),
            np.ascontiguousarray(chain.state_bytes, dtype=np.float64),
            np.ascontiguousarray(chain.activation_bytes, dtype=np.float64),
            np.ascontiguousarray(chain.boundary_bytes, dtype=np.float64),
            float(chain.input_bytes),
        ),
        _Machine(
            cluster.devices,
            float(cluster.bandwidth_bytes_per_s),
            float(cluster.sync_factor),
            cluster.overlap_recompute,
            degrees,
            batches,
        ),
        np.ascontiguousarray(forward_s, dtype=np.float64),
        np.ascontiguousarray(backward_s, dtype=np.float64),
        np.ascontiguousarray(memory_bytes, dtype=np.float64),
        np.ascontiguousarray(recompute, dtype=np.bool_),
        np.ascontiguousarray(update, dtype=np.float64),
        times,
        plans,
    )
    return UniformPlans(times, *(np.ascontiguousarray(column) for column in plans.T))


def stage_sizes(
    chain: UniformChain,
    width: int,
    memory_bytes: float,
    recompute: bool,
    plan: Sequence[int],
) -> list[int]:
    """Return the inner layers of every stage, first stage first.

    Parameters
    ----------
    chain, memory_bytes, recompute
        As given to :func:`place_uniform`.
    width
        Index of the plan's tensor-parallel width.
    plan
        Stages, and inner layers of the first and the last stage and the most between.
    """
    stages, first, last, most = (int(value) for value in plan)
    if stages == 1:
        return [chain.inner]
    left = chain.inner - first - last
    between = []
    for position in range(2, stages):
        room = _inner_room(chain, width, memory_bytes, recompute, position)
        others = stages - 1 - position  # each of the stages still to come takes at least one
        taken = min(most, room, left - others)
        between.append(taken)
        left -= taken
    return [first, *between[::-1], last]


def _inner_room(
    chain: UniformChain, width: int, memory_bytes: float, recompute: bool, position: int
) -> int:
    """Return the most inner layers of a stage between, ``position`` places from the end."""
    return int(
        _most_inner(
            chain.state_bytes[width, INNER],
            chain.activation_bytes[width, INNER],
            0.0,
            0.0,
            float(chain.boundary_bytes[width]),
            memory_bytes,
            recompute,
            position,
            chain.inner,
        )
    )


def _replicas(cluster: Cluster) -> tuple[Integers, Floats]:
    empty = np.empty(0)
    none = np.empty(0, dtype=np.int64)
    problem = PlacementProblem(
        (), none, none, {}, cluster.devices, 0.0, cluster.bandwidth_bytes_per_s,
        cluster.microbatches,
    )  # fmt: skip
    degrees, batches = problem.replica_choices
    return degrees, batches if len(batches) else empty


class _Bytes(NamedTuple):
    inner: int
    widths: Integers
    weights: Floats
    state: Floats
    activations: Floats
    boundary: Floats
    input_bytes: float


class _Machine(NamedTuple):
    devices: int
    bandwidth: float
    sync: float
    overlap: bool
    degrees: Integers
    batches: Floats


@njit(cache=True, nogil=True, error_model="numpy")
def _most_inner(  # type: ignore[no-untyped-def]
    state, activations, own_state, own_activations, entering, memory, recompute, position, inner
):
    """Return the most inner layers that fit a stage beside its own first or last layer; -1: none.

    ``entering`` bytes are kept per microbatch under recomputation.
    """
    waiting = position - 1.0
    fixed = own_state + own_activations
    each = state + activations
    if recompute:
        fixed += waiting * entering
    else:
        fixed += waiting * own_activations
        each += waiting * activations
    room = memory - fixed
    if room < 0:
        return -1
    if each <= 0:
        return inner
    fitting = room / each * (1 + 1e-15)
    most = inner if fitting >= inner else int(fitting) + 1
    while most > 0 and fixed + most * each > memory:
        most -= 1
    return most


@njit(cache=True, nogil=True, error_model="numpy")
def _load(forward, backward, into, out, repeats, overlap):  # type: ignore[no-untyped-def]
    """Return the seconds a stage takes for one microbatch; ``into``, ``out`` are its transfers."""
    if not repeats:
        return into + forward + out + backward
    if overlap:
        return into + forward + max(forward, out) + backward
    return into + forward + forward + out + backward


@njit(cache=True, nogil=True, error_model="numpy")
def _place_all(  # type: ignore[no-untyped-def]
    chain, machine, forward, backward, memory, recompute, update, times, plans
):
    n = chain.inner
    tables = np.empty((4, n + 1))
    need = np.empty(n + 1, dtype=np.int64)
    filled = np.empty(n + 1, dtype=np.int64)
    for c in range(len(memory)):
        best = np.inf
        plans[c, :] = -1
        for w in range(len(chain.widths)):
            if not np.isfinite(forward[c, w].sum() + backward[c, w].sum()):
                continue
            best = _place_width(
                chain, machine, w, forward[c, w], backward[c, w], memory[c], recompute[c],
                update[c],
                best, plans[c], tables, need, filled,
            )  # fmt: skip
        times[c] = best


@njit(cache=True, nogil=True, error_model="numpy")
def _place_width(  # type: ignore[no-untyped-def]
    chain,
    machine,
    w,
    forward,
    backward,
    memory,
    recompute,
    update,
    best,
    plan,
    tables,
    need,
    filled,
):
    """Return the least time, ``best`` or lower; write the plan that has it."""
    n = chain.inner
    t = chain.widths[w]
    hop = chain.boundary[w] / machine.bandwidth
    state, acts = chain.state[w], chain.activations[w]
    entering = chain.boundary[w]
    first_load, middle, last_load, _ = tables[0], tables[1], tables[2], tables[3]
    for k in range(n + 1):
        f, b = k * forward[1], k * backward[1]
        first_load[k] = _load(forward[0] + f, backward[0] + b, 0.0, hop, recompute, machine.overlap)
        middle[k] = _load(f, b, hop, hop, recompute, machine.overlap)
        last_load[k] = _load(forward[2] + f, backward[2] + b, hop, 0.0, False, machine.overlap)
    whole = forward.sum() + (n - 1) * forward[1] + backward.sum() + (n - 1) * backward[1]
    own_state, own_acts = state[0] + state[2], acts[0] + acts[2]
    alone = _most_inner(state[1], acts[1], own_state, own_acts, 0.0, memory, False, 1, n)
    if alone >= n:
        weight = chain.weights[w].sum() + (n - 1) * chain.weights[w, 1]
        best = _choose(machine, update, w, t, 1, whole, weight, n, n, 0, best, plan)
    last_room = _most_inner(state[1], acts[1], state[2], acts[2], entering, memory, recompute, 1, n)
    if last_room < 0:
        return best
    # need[m]: the most layers of a stage between when these hold m in all, for a growing number
    # of them; filled[q] is what they hold when each has at most q
    filled[:] = 0
    need[:] = n + 1
    need[0] = 0
    for s in range(2, min(n + 2, machine.devices // t) + 1):
        between = s - 2
        if s > 2:
            room = _most_inner(state[1], acts[1], 0.0, 0.0, entering, memory, recompute, s - 1, n)
            if room < 1:
                return best
            total = 0
            need[:] = n + 1
            for q in range(1, n + 1):
                filled[q] += min(q, room)
                while total < min(n, filled[q]):
                    total += 1
                    need[total] = q
        kept = chain.input_bytes
        first_room = _most_inner(
            state[1], acts[1], state[0], acts[0], kept, memory, recompute, s, n
        )
        for k in range(min(first_room, n - between) + 1):
            slowest = first_load[k]
            lead = slowest * _fewest(machine, t, s)
            if lead >= best:
                break
            rest = n - k
            last = _split(middle, last_load, need, rest, between, min(last_room, rest - between))
            if last < 0:
                continue
            q = need[rest - last] if between else 0
            if (between and q > n) or (not between and last != rest):
                continue
            slowest = max(slowest, last_load[last])
            if between:
                slowest = max(slowest, middle[q])
            weight = chain.weights[w, 0] + k * chain.weights[w, 1]
            best = _choose(machine, update, w, t, s, slowest, weight, k, last, q, best, plan)
    return best


@njit(cache=True, nogil=True, error_model="numpy")
def _fewest(machine, t, s):  # type: ignore[no-untyped-def]
    """Return the fewest rounds of a pipeline of s stages: microbatches and bubble."""
    c = np.searchsorted(machine.degrees, machine.devices // (t * s), side="right") - 1
    return np.inf if c < 0 else machine.batches[c] + s - 1


@njit(cache=True, nogil=True, error_model="numpy")
def _split(middle, last_load, need, rest, between, most):  # type: ignore[no-untyped-def]
    """Return the inner layers of the last stage that make the slowest of the rest fastest."""
    if most < 0:
        return -1
    if between == 0:
        return rest if most >= rest else -1
    top = len(middle) - 1
    low, high = 0, most  # the first count at which the last stage is no faster than those between
    while low < high:
        half = (low + high) // 2
        q = need[rest - half]
        if q <= top and last_load[half] >= middle[q]:
            high = half
        else:
            low = half + 1
    if low == 0:
        return 0
    q = need[rest - low]
    before = need[rest - low + 1]
    here = np.inf if q > top else max(last_load[low], middle[q])
    there = np.inf if before > top else max(last_load[low - 1], middle[before])
    return low - 1 if there <= here else low


@njit(cache=True, nogil=True, error_model="numpy")
def _choose(machine, update, w, t, s, slowest, weight, first, last, most, best, plan):  # type: ignore[no-untyped-def]
    """Return the least time over the numbers of replicas; write the plan that improves on it."""
    c = np.searchsorted(machine.degrees, machine.devices // (t * s), side="right") - 1
    while c >= 0:
        steady = slowest * (machine.batches[c] + s - 1)
        if steady >= best:
            break
        degree = machine.degrees[c]
        sync = machine.sync * ((degree - 1) / degree) / machine.bandwidth
        time = steady + (sync + update) * weight
        if time < best:
            best = time
            plan[0] = w
            plan[1] = s
            plan[2] = degree
            plan[3] = first
            plan[4] = last
            plan[5] = most
        c -= 1
    return best
