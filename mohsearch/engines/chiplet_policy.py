"""The learned partitioner: a GraphSAGE network, a policy head and PPO. The one door to torch.

Paper: section 4.1; Hamilton et al. 2017 (GraphSAGE), Schulman et al. 2017 (PPO). Everything runs in
one thread on the CPU: small matrices gain nothing from more, and results repeat.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mohsearch.core.errors import InputError
from mohsearch.core.optional import require
from mohsearch.engines.chiplet_features import FEATURES, OP_TYPE_BUCKETS, GraphInputs
from mohsearch.engines.chiplet_options import PolicyOptions

REACH = 4
"""Actions of the head ``offsets``: up to this many chips before or after an op's centre."""

MOST_CHIPS = 64
"""Actions of the head ``chips``: it has one output per chip of the largest package."""

STATE = 4
"""What the head sees of an op's label: its shift, its neighbours' shifts, its place."""


def load_torch() -> Any:
    """Return torch, or say which extra brings it."""
    return require("torch", "rl")


@contextmanager
def single_thread() -> Iterator[None]:
    """Run torch in one thread, restoring the number it had."""
    torch = load_torch()
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


class GraphTensors:
    """A graph as tensors, with means over the neighbours of every op."""

    def __init__(self, inputs: GraphInputs) -> None:
        torch = load_torch()
        self.features = torch.from_numpy(inputs.features)
        self.op_type = torch.from_numpy(inputs.op_type)
        n = inputs.n_ops
        self._before = _mean_matrix(inputs.target, inputs.source, n)
        self._after = _mean_matrix(inputs.source, inputs.target, n)

    def mean_before(self, h: Any) -> Any:
        """Return the mean over predecessors of each row of ``h``, shape (n_ops, ...)."""
        return self._before @ h

    def mean_after(self, h: Any) -> Any:
        """Return the mean over successors of each row of ``h``, shape (n_ops, ...)."""
        return self._after @ h


def _mean_matrix(row: NDArray[np.int64], column: NDArray[np.int64], n: int) -> Any:
    torch = load_torch()
    degree = np.bincount(row, minlength=n)
    values = torch.from_numpy((1.0 / degree[row]).astype(np.float32))
    places = torch.from_numpy(np.stack([row, column]))
    return torch.sparse_coo_tensor(places, values, (n, n), check_invariants=True).coalesce()


def build_network(options: PolicyOptions) -> Any:
    """Return the layers of the policy, a ``torch.nn.ModuleDict`` with fresh weights.

    ``enter`` and ``kind`` embed features and op type; ``layers`` are GraphSAGE layers with mean
    aggregation, predecessors and successors apart; ``hidden``, ``state`` and ``out`` are the head.
    """
    nn = load_torch().nn
    width = options.width
    actions = MOST_CHIPS if options.head == "chips" else 2 * REACH + 1
    layers = [
        nn.ModuleDict(
            {
                "own": nn.Linear(width, width),
                "before": nn.Linear(width, width, bias=False),
                "after": nn.Linear(width, width, bias=False),
                "norm": nn.LayerNorm(width),
            }
        )
        for _ in range(options.layers)
    ]
    network = nn.ModuleDict(
        {
            "enter": nn.Linear(FEATURES, width),
            "kind": nn.Embedding(OP_TYPE_BUCKETS, width),
            "layers": nn.ModuleList(layers),
            "hidden": nn.Linear(width, width),
            "state": nn.Linear(STATE, width, bias=False),
            "out": nn.Linear(width, actions),
        }
    )
    nn.init.normal_(network["out"].weight, std=0.01)
    nn.init.zeros_(network["out"].bias)
    return network


def embed(network: Any, graph: GraphTensors) -> Any:
    """Return the head's first layer before the labels are known, shape (n_ops, width)."""
    torch = load_torch()
    h = torch.relu(network["enter"](graph.features) + network["kind"](graph.op_type))
    for layer in network["layers"]:
        before = layer["before"](graph.mean_before(h))
        after = layer["after"](graph.mean_after(h))
        h = h + torch.relu(layer["norm"](layer["own"](h) + before + after))
    return network["hidden"](h)


def head_logits(network: Any, embedded: Any, state: Any, actions: int) -> Any:
    """Return logits (..., n_ops, actions) for label states (..., n_ops, STATE)."""
    hidden = load_torch().relu(embedded + network["state"](state))
    return network["out"](hidden)[..., :actions]


@dataclass
class Rollouts:
    """A batch of proposals: states and actions of every refinement, and where they stand.

    ``states`` (T, batch, n_ops, STATE), ``actions`` and ``log_p`` (T, batch, n_ops), ``prior``
    (n_ops, actions), ``labels`` int64 (batch, n_ops).
    """

    states: Any
    actions: Any
    log_p: Any
    prior: Any
    labels: NDArray[np.int64]


class PolicyTrainer:
    """Proposes partitions of a graph and learns from their rewards by PPO.

    Parameters
    ----------
    options
        Sizes of network and training.
    seed
        Seed of the initial weights and of all draws.
    """

    def __init__(self, options: PolicyOptions, seed: int) -> None:
        self.options = options
        torch = load_torch()
        self._rng = torch.Generator().manual_seed(seed)
        with single_thread(), torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.network = build_network(options)
        self._start_optimizer()

    def _start_optimizer(self) -> None:
        rate = self.options.learning_rate
        self._optimizer = load_torch().optim.Adam(self.network.parameters(), lr=rate)

    def propose(
        self, graph: GraphTensors, inputs: GraphInputs, centre: NDArray[np.float64] | None
    ) -> Rollouts:
        """Return one batch of proposals (equation 7: each refinement sees the labels of the last).

        Parameters
        ----------
        centre
            By op, the chip around which it is placed; None for the balanced position.
        """
        torch, options = load_torch(), self.options
        chips, batch = inputs.chips, options.rollouts
        middle = chips * inputs.position - 0.5 if centre is None else centre
        base, prior = _actions(options, middle, chips)
        anchor = torch.from_numpy(np.asarray(middle, dtype=np.float32))
        states, actions, log_p = [], [], []
        state = torch.zeros(batch, inputs.n_ops, STATE)
        with single_thread(), torch.no_grad():
            embedded = embed(self.network, graph)
            labels = torch.zeros(batch, inputs.n_ops, dtype=torch.int64)
            for _ in range(options.refinements):
                logits = head_logits(self.network, embedded, state, prior.shape[1]) + prior
                chance = torch.log_softmax(logits / options.temperature, dim=-1)
                drawn = _draw(chance, self._rng)
                states.append(state)
                actions.append(drawn)
                log_p.append(chance.gather(-1, drawn[..., None])[..., 0])
                labels = (base + drawn).clamp(0, chips - 1)
                state = _state(graph, labels, anchor, chips)
        return Rollouts(
            torch.stack(states), torch.stack(actions), torch.stack(log_p), prior, labels.numpy()
        )

    def learn(self, graph: GraphTensors, rollouts: Rollouts, reward: NDArray[np.float64]) -> None:
        """Take PPO steps; rewards (batch,) are normalised within the batch.

        The probability ratio is clipped for each op alone and averaged: the ratio of the whole
        proposal, a product over thousands of ops, would always be clipped.
        """
        torch, options = load_torch(), self.options
        spread = float(reward.std())
        if spread == 0.0:
            return
        advantage = torch.from_numpy(((reward - reward.mean()) / spread).astype(np.float32))
        count = len(reward)
        size = -(-count // options.minibatches)
        with single_thread():
            for _ in range(options.epochs):
                order = torch.randperm(count, generator=self._rng)
                for part in order.split(size):
                    loss = self._loss(graph, rollouts, advantage, part)
                    self._optimizer.zero_grad()
                    loss.backward()
                    torch.nn.utils.clip_grad_norm_(self.network.parameters(), 1.0)
                    self._optimizer.step()

    def _loss(self, graph: GraphTensors, rollouts: Rollouts, advantage: Any, part: Any) -> Any:
        torch, options = load_torch(), self.options
        embedded = embed(self.network, graph)
        prior = rollouts.prior
        logits = (
            head_logits(self.network, embedded, rollouts.states[:, part], prior.shape[1]) + prior
        )
        chance = torch.log_softmax(logits / options.temperature, dim=-1)
        actions = rollouts.actions[:, part]
        log_p = chance.gather(-1, actions[..., None])[..., 0]
        ratio = torch.exp(log_p - rollouts.log_p[:, part])
        gain = advantage[part][None, :, None]
        clipped = ratio.clamp(1 - options.clip, 1 + options.clip)
        surrogate = torch.minimum(ratio * gain, clipped * gain).mean()
        entropy = -(chance.exp() * chance.clamp(min=-50)).sum(-1).mean()
        return -surrogate - options.entropy * entropy

    def save(self, path: Path) -> None:
        """Write the network's weights and sizes to a ``.npz`` file (no pickle)."""
        weights = {name: tensor.numpy() for name, tensor in self.network.state_dict().items()}
        path.parent.mkdir(parents=True, exist_ok=True)
        shape = json.dumps(self.options.network())
        temporary = path.with_name(f".{path.name}.tmp.npz")
        np.savez(temporary, allow_pickle=False, network=np.array(shape), **weights)
        temporary.replace(path)

    def load(self, path: Path) -> None:
        """Read weights that :meth:`save` wrote; the optimiser starts anew.

        Raises
        ------
        InputError
            If there is no such file, or it is of a network of other sizes.
        """
        try:
            with np.load(path, allow_pickle=False) as held:
                shape = json.loads(str(held["network"]))
                weights = {name: held[name] for name in held.files if name != "network"}
        except FileNotFoundError:
            raise InputError("no such checkpoint", source=path) from None
        except (OSError, ValueError, KeyError) as error:
            raise InputError(f"no checkpoint of a policy: {error}", source=path) from error
        if shape != self.options.network():
            raise InputError(
                f"checkpoint of another network: {shape}, wanted {self.options.network()}",
                source=path,
            )
        torch = load_torch()
        self.network.load_state_dict({k: torch.from_numpy(v) for k, v in weights.items()})
        self._start_optimizer()


def _actions(options: PolicyOptions, middle: NDArray[np.float64], chips: int) -> tuple[Any, Any]:
    """Return the chip of action 0 by op, and the logarithm of the prior by op and action."""
    torch = load_torch()
    if options.head == "chips":
        base = np.zeros((len(middle), 1))
        shift = np.arange(chips)[None]
    else:
        base = np.rint(middle)[:, None] - REACH
        shift = np.arange(2 * REACH + 1)[None]
    chip = base + shift
    prior = np.zeros(chip.shape)
    if options.prior != "none":
        prior = -0.5 * ((chip - middle[:, None]) / options.sigma) ** 2
    prior = np.where((chip < 0) | (chip >= chips), -1e4, prior)
    prior -= np.logaddexp.reduce(prior, axis=1, keepdims=True)
    return (
        torch.from_numpy(base[:, 0].astype(np.int64)),
        torch.from_numpy(prior.astype(np.float32)),
    )


def _draw(chance: Any, rng: Any) -> Any:
    """Draw one action by op from log-probabilities (batch, n_ops, actions)."""
    total = chance.exp().cumsum(-1)
    mark = load_torch().rand(chance.shape[:-1], generator=rng)[..., None] * total[..., -1:]
    return (mark >= total).sum(-1).clamp(max=chance.shape[-1] - 1)


def _state(graph: GraphTensors, labels: Any, anchor: Any, chips: int) -> Any:
    """Return what the head sees of labels (batch, n_ops): the op's own shift, its neighbours'."""
    places = labels.to(anchor.dtype)
    shift = places - anchor
    before = graph.mean_before(shift.T).T
    after = graph.mean_after(shift.T).T
    place = (places + 0.5) / chips
    return load_torch().stack([shift / REACH, before / REACH, after / REACH, place], dim=-1)
