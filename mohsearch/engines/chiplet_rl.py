"""Reinforcement learning of partitions: a policy proposes, the constraint solver repairs."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from mohsearch.core.seeds import generator
from mohsearch.engines.chiplet_anneal import partition_space
from mohsearch.engines.chiplet_elites import Elites
from mohsearch.engines.chiplet_features import graph_inputs
from mohsearch.engines.chiplet_options import PolicyOptions
from mohsearch.engines.chiplet_policy import GraphTensors, PolicyTrainer, load_torch
from mohsearch.engines.chiplet_pretraining import find_policy, pretrained
from mohsearch.engines.engine import Capabilities, Engine, FloatArray


class PolicyEngine(Engine):
    """The paper's search: a policy proposes labels, FIX repairs them, PPO learns from the rewards.

    The reward of a proposal is the throughput of the repaired partition, 0 where its memory does
    not fit; the gradient is taken on the proposal (section 4.1), and, with the option
    ``imitation``, on the best partitions so far. Needs the extra ``rl`` (torch).

    Raises
    ------
    InputError
        If the problem's genome is not ``labels``, or the checkpoint is of another network.
    MissingExtraError
        If torch is not installed.
    """

    algorithms: ClassVar = {
        "ppo": Capabilities(
            "GraphSAGE policy with constraint solver; Xie et al. 2022",
            max_objectives=1,
            operators=(),
        )
    }
    default_algorithm = "ppo"
    options_card: ClassVar = PolicyOptions
    sequential: ClassVar = True

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        load_torch()
        self._space = partition_space(self.problem, "chiplet-rl")
        self._rng = generator(self.seed, "chiplet-rl", "repair")
        self._trainer: Any = None
        given = self.options.checkpoint
        self._checkpoint = None if given is None else find_policy(given)
        self._waiting = np.empty((0, self._space.n_ops), dtype=np.int64)
        self._rollouts: Any = None
        self._rewards: list[float] = []
        self._elites = Elites(self.options.elites)

    def _start(self) -> None:
        """Build the policy at the first proposal: pre-training may take long."""
        seed = int(generator(self.seed, "chiplet-rl", "policy").integers(2**62))
        self._inputs = graph_inputs(self._space.task)
        self._graph = GraphTensors(self._inputs)
        self._trainer = PolicyTrainer(self.options, seed)
        checkpoint = self._checkpoint
        if self.options.pretraining is not None:
            checkpoint = Path(pretrained(self.options))
        if checkpoint is not None:
            self._trainer.load(checkpoint)

    def ask(self, k: int) -> NDArray[Any]:
        """Return at most ``k`` partitions of the current batch of proposals, repaired."""
        if self._trainer is None:
            self._start()
        if not len(self._waiting):
            centre = None
            if self.options.prior == "incumbent" and len(self._elites.labels):
                centre = self._elites.labels[0].astype(np.float64)
            self._rollouts = self._trainer.propose(self._graph, self._inputs, centre)
            self._waiting = self._space.fix(self._rollouts.labels, self._rng)
        return np.asarray(self._waiting[:k], dtype=self.seen.dtype)

    def tell(self, X: NDArray[Any], F: FloatArray, G: FloatArray) -> None:
        """Collect rewards; learn once the whole batch has them."""
        gained = rewards(F, G)
        self._rewards.extend(gained.tolist())
        self._elites.add(X, gained)
        self._waiting = self._waiting[len(X) :]
        if not len(self._waiting):
            if self.options.learn:
                paid = np.array(self._rewards)
                self._trainer.learn(self._graph, self._rollouts, paid, self._elites.labels)
            self._rewards = []

    def population(self) -> NDArray[Any]:
        """Return the best partition so far, shape (1, n_ops)."""
        if not len(self._elites.labels):
            return np.empty((0, self.problem.n_var), dtype=self.seen.dtype)
        return np.asarray(self._elites.labels[:1], dtype=self.seen.dtype)

    def save(self, path: Path) -> None:
        """Write the policy as it is now; ``checkpoint`` reads it."""
        if self._trainer is None:
            self._start()
        self._trainer.save(Path(path))


def rewards(F: FloatArray, G: FloatArray) -> FloatArray:
    """Return rewards (n,) of one minimised objective F (n, 1).

    Its inverse, or its negative where the metric is maximised (and so negative in F); 0 where a
    constraint is violated.
    """
    value = np.asarray(F[:, 0], dtype=np.float64)
    gain = np.where(value < 0, -value, 1.0 / np.maximum(value, 1e-300))
    return np.where((G <= 0).all(axis=1), gain, 0.0)
