"""The learned partitioner: a GraphSAGE network, a policy head and PPO. The one door to torch.

Paper: section 4.1; Hamilton et al. 2017 (GraphSAGE), Schulman et al. 2017 (PPO), Oh et al. 2018
(self-imitation). Everything runs in one thread on the CPU: small matrices gain nothing from more,
and results repeat.
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

    The first refinement sees no labels, so its state is blank for all: ``states`` has those of the
    later ones, (T - 1, batch, n_ops, STATE). ``actions`` and ``log_p`` (T, batch, n_ops), ``prior``
    (n_ops, actions), ``base`` int64 (n_ops,), the chip of action 0, and ``labels`` int64
    (batch, n_ops).
    """

    states: Any
    actions: Any
    log_p: Any
    prior: Any
    base: Any
    labels: NDArray[np.int64]


@dataclass
class _Lesson:
    """What an update works on: rollouts, their advantage (batch,), and what to imitate.

    ``elites`` are actions (k, n_ops), ``within`` (k, n_ops) their weights, 0 where there is no such
    action, and ``turn`` (batch,) says which one each rollout imitates.
    """

    rollouts: Rollouts
    advantage: Any
    elites: Any = None
    within: Any = None
    turn: Any = None


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
        with single_thread(), torch.no_grad():
            embedded = embed(self.network, graph)
            state = torch.zeros(1, inputs.n_ops, STATE)
            labels = torch.zeros(batch, inputs.n_ops, dtype=torch.int64)
            for turn in range(options.refinements):
                chance = self._chance(embedded, state, prior)
                drawn = _draw(chance.expand(batch, -1, -1), self._rng)
                actions.append(drawn)
                log_p.append(_taken(chance, drawn))
                labels = (base + drawn).clamp(0, chips - 1)
                if turn + 1 < options.refinements:
                    state = _state(graph, labels, anchor, chips)
                    states.append(state)
        return Rollouts(
            torch.stack(states) if states else torch.zeros(0, batch, inputs.n_ops, STATE),
            torch.stack(actions), torch.stack(log_p), prior, base, labels.numpy(),
        )  # fmt: skip

    def _chance(self, embedded: Any, state: Any, prior: Any) -> Any:
        """Return logarithms of probabilities (..., n_ops, actions)."""
        logits = head_logits(self.network, embedded, state, prior.shape[1]) + prior
        logits = logits / self.options.temperature
        return logits - logits.logsumexp(-1, keepdim=True)

    def learn(
        self,
        graph: GraphTensors,
        rollouts: Rollouts,
        reward: NDArray[np.float64],
        elites: NDArray[np.int64] | None = None,
        weight: float = 1.0,
    ) -> None:
        """Take PPO steps; rewards (batch,) are normalised within the batch.

        The probability ratio is clipped for each op alone and averaged: the ratio of the whole
        proposal, a product over thousands of ops, would always be clipped.

        Parameters
        ----------
        elites
            Valid partitions (k, n_ops) to imitate: their likelihood under the policy is raised too,
            by the weight ``imitation``. A reward shared by all ops says little of any one of them;
            a good partition says what each should do.
        weight
            Factor on the imitation.
        """
        torch, options = load_torch(), self.options
        spread = float(reward.std())
        imitates = elites is not None and len(elites) > 0 and options.imitation * weight > 0
        if spread == 0.0 and not imitates:
            return
        advantage = (reward - reward.mean()) / (spread or 1.0)
        lesson = _Lesson(rollouts, torch.from_numpy(advantage.astype(np.float32)))
        if imitates:
            wanted = torch.from_numpy(np.asarray(elites, dtype=np.int64)) - rollouts.base
            most = rollouts.prior.shape[1] - 1
            lesson.elites = wanted.clamp(0, most)
            lesson.within = weight * (lesson.elites == wanted).to(torch.float32)
            lesson.turn = torch.randint(len(wanted), (len(reward),), generator=self._rng)
        size = -(-len(reward) // options.minibatches)
        with single_thread():
            for _ in range(options.epochs):
                order = torch.randperm(len(reward), generator=self._rng)
                for part in order.split(size):
                    loss = self._loss(graph, lesson, part)
                    self._optimizer.zero_grad()
                    loss.backward()
                    torch.nn.utils.clip_grad_norm_(self.network.parameters(), 1.0)
                    self._optimizer.step()

    def _loss(self, graph: GraphTensors, lesson: _Lesson, part: Any) -> Any:
        """Return the loss of a minibatch, the mean over the refinements."""
        rollouts, options = lesson.rollouts, self.options
        embedded = embed(self.network, graph)
        blank = load_torch().zeros(1, *embedded.shape[:1], STATE)
        loss = 0.0
        for turn in range(len(rollouts.actions)):
            state = rollouts.states[turn - 1, part] if turn else blank
            chance = self._chance(embedded, state, rollouts.prior)
            loss = loss - self._surrogate(chance, lesson, turn, part)
            loss = loss - options.entropy * _entropy(chance)
            if lesson.elites is not None:
                # The blank state is the same for all rollouts: all elites are imitated from it.
                which = lesson.turn[part] if turn else slice(None)
                likelihood = _taken(chance, lesson.elites[which]) * lesson.within[which]
                loss = loss - options.imitation * likelihood.mean()
        return loss / len(rollouts.actions)

    def _surrogate(self, chance: Any, lesson: _Lesson, turn: int, part: Any) -> Any:
        """Return PPO's clipped objective of one refinement, the mean over rollouts and ops."""
        torch, clip = load_torch(), self.options.clip
        log_p = _taken(chance, lesson.rollouts.actions[turn, part])
        ratio = torch.exp(log_p - lesson.rollouts.log_p[turn, part])
        gain = lesson.advantage[part][:, None]
        return torch.minimum(ratio * gain, ratio.clamp(1 - clip, 1 + clip) * gain).mean()

    def save(self, path: Path, *, compact: bool = False) -> None:
        """Write the network's weights and sizes to a ``.npz`` file (no pickle).

        ``compact`` halves the file: weights are rounded to 16 bits.
        """
        kind = np.float16 if compact else np.float32
        held = self.network.state_dict().items()
        weights = {name: tensor.numpy().astype(kind) for name, tensor in held}
        path.parent.mkdir(parents=True, exist_ok=True)
        shape = json.dumps(_shape(self.options))
        temporary = path.with_name(f".{path.name}.tmp.npz")
        np.savez_compressed(temporary, allow_pickle=False, network=np.array(shape), **weights)
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
        wanted = _shape(self.options)
        if shape != wanted:
            raise InputError(
                f"checkpoint of another network: {shape}, wanted {wanted}",
                source=path,
            )
        torch = load_torch()
        self.network.load_state_dict(
            {name: torch.from_numpy(w.astype(np.float32)) for name, w in weights.items()}
        )
        self._start_optimizer()


def _shape(options: PolicyOptions) -> dict[str, Any]:
    """Return what a checkpoint must agree in."""
    return {**options.network(), "features": FEATURES}


def _taken(chance: Any, actions: Any) -> Any:
    """Return log-probabilities of actions (rows, n_ops); ``chance`` may have one row for all."""
    rows = chance.expand(len(actions), -1, -1)
    return rows.gather(-1, actions[..., None])[..., 0]


def _entropy(chance: Any) -> Any:
    """Return the mean entropy of an op's distribution, in nats."""
    return -(chance.exp() * chance.clamp(min=-50)).sum(-1).mean()


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
