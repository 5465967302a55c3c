"""Pre-training of the learned partitioner over many graphs, with checkpoints (section 4.3)."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mohsearch.core.catalog import Catalog
from mohsearch.core.digest import content_digest
from mohsearch.core.errors import InputError
from mohsearch.core.seeds import generator
from mohsearch.engines.chiplet_elites import Elites
from mohsearch.engines.chiplet_features import graph_inputs
from mohsearch.engines.chiplet_options import PolicyOptions, PretrainingOptions
from mohsearch.engines.chiplet_policy import GraphTensors, PolicyTrainer
from mohsearch.evaluators.mapper.cache import user_cache
from mohsearch.evaluators.partition.bounds import interval_bounds
from mohsearch.evaluators.partition.chip_package import load_chip_package
from mohsearch.evaluators.partition.contiguous import contiguous_front
from mohsearch.evaluators.partition.costs import evaluate_partitions
from mohsearch.evaluators.partition.sampler import PartitionSampler
from mohsearch.evaluators.partition.task import PartitionTask
from mohsearch.workloads.op_graph_files import list_graphs, load_graph

logger = logging.getLogger(__name__)

TRAINING, VALIDATION, TEST = 66, 5, 16
"""Sizes of the paper's split (section 5.1)."""

_UNSEEN = "hf_bert_large"
"""Graphs of this model are in no split: it is the large one that the paper keeps apart."""


def split_graphs(seed: int = 0) -> tuple[list[str], list[str], list[str]]:
    """Return names of training, validation and test graphs in the paper's proportion.

    A seeded shuffle over all graphs on the shelf but BERT-large. Where the shelf holds fewer than
    the paper's 87, the test and validation graphs keep their numbers.

    Raises
    ------
    InputError
        If the shelf holds too few graphs to leave any for training.
    """
    names = [name for name in list_graphs() if not name.startswith(_UNSEEN)]
    held = TEST + VALIDATION
    if len(names) <= held:
        raise InputError(f"{len(names)} graphs on the shelf leave none for training")
    order = generator(seed, "chiplet", "split").permutation(len(names))
    mixed = [names[i] for i in order]
    return mixed[held : held + TRAINING], mixed[TEST:held], mixed[:TEST]


class GraphTrial:
    """One graph of the training or validation set: proposes, repairs, rewards."""

    def __init__(self, name: str, package: str, chips: int, elites: int) -> None:
        task = PartitionTask(load_graph(name), load_chip_package(package), chips)
        self.task = task
        self.inputs = graph_inputs(task)
        self.tensors = GraphTensors(self.inputs)
        self._sampler = PartitionSampler(task)
        self._bound_s = float(interval_bounds(task).bound_s)
        self.elites = Elites(elites)

    def teach(self) -> None:
        """Put the exact partition of the program order among those to imitate.

        Of numbers of chips that are within 1 % of the best, the largest: it is nearest to balance.
        """
        exact = np.asarray(contiguous_front(self.task).labels, dtype=np.int16)
        gained = self.rewards(exact)
        last = np.flatnonzero(gained >= 0.99 * gained.max())[-1:]
        self.elites.add(exact[last], gained[last])

    def repair(self, labels: NDArray[np.int64], rng: np.random.Generator) -> NDArray[np.int16]:
        """Return the partitions that FIX makes of proposals, shape (batch, n_ops)."""
        return np.asarray(self._sampler.fix(labels.astype(np.int16), rng).labels)

    def rewards(self, partitions: NDArray[np.int16]) -> NDArray[np.float64]:
        """Return bound over interval of partitions, shape (batch,); 0 where memory is short."""
        costs = evaluate_partitions(self.task, partitions)
        fits = costs["peak_memory_bytes"] <= self.task.package.chip.sram_bytes
        return np.where(fits, self._bound_s / costs["interval_s"], 0.0)

    def round(self, trainer: PolicyTrainer, rng: np.random.Generator, learn: bool) -> float:
        """Evaluate one batch of proposals, learn from it if asked, and return its best reward.

        The best partitions are imitated by as much as they are better than the batch: where one op
        bounds the interval, most partitions are alike, and there is nothing to learn from them.
        """
        rollouts = trainer.propose(self.tensors, self.inputs, None)
        fixed = self.repair(rollouts.labels, rng)
        gained = self.rewards(fixed)
        if learn:
            self.elites.add(fixed, gained)
            best = max(self.elites.rewards.max(initial=0.0), 1e-12)
            better = 1.0 - gained.mean() / best
            trainer.learn(self.tensors, rollouts, gained, self.elites.labels, better)
        return float(gained.max())


def pretrain(options: PolicyOptions, path: Path) -> list[float]:
    """Train a policy over many graphs and write the best checkpoint to ``path``.

    Graphs take turns in random order, one batch of rollouts each. At every checkpoint the policy
    proposes one batch for each validation graph without learning; the checkpoint is kept whose
    best partitions are best, in the mean over these graphs: the mean reward of a batch would be
    best for a policy that always proposes the same.

    Returns
    -------
    list
        Mean over the validation graphs of the best reward (bound over interval) of a batch, at each
        checkpoint, the untrained policy first.
    """
    plan = options.pretraining
    assert plan is not None
    training, validation = _graphs(plan)
    trials = _trials(training, plan, options.elites)
    checks = _trials(validation, plan, options.elites)
    if plan.teacher == "exact":
        for trial in trials:
            trial.teach()
    rng = generator(plan.seed, "chiplet", "pretraining")
    trainer = PolicyTrainer(options, plan.seed)
    batches = max(1, plan.samples // options.rollouts)
    stops = {round(batches * (i + 1) / plan.checkpoints) for i in range(plan.checkpoints)}
    scores = [_score(trainer, checks, plan.seed)]
    trainer.save(path)
    turn: list[int] = []
    for batch in range(1, batches + 1):
        turn = turn or rng.permutation(len(trials)).tolist()
        trials[turn.pop()].round(trainer, rng, learn=True)
        if batch in stops:
            scores.append(_score(trainer, checks, plan.seed))
            logger.info("pre-training: %d of %d batches, score %.4f", batch, batches, scores[-1])
            if scores[-1] >= max(scores):
                trainer.save(path)
    return scores


def _trials(names: Sequence[str], plan: PretrainingOptions, elites: int) -> list[GraphTrial]:
    return [GraphTrial(name, plan.package, k, elites) for k in plan.chips for name in names]


def training_options(options: PolicyOptions) -> PolicyOptions:
    """Return the options under which the policy of a search is pre-trained.

    Network, refinements, prior and imitation are the search's; all else is the pre-training's own
    or the default, so that searches which fine-tune differently start from one policy.
    """
    plan = options.pretraining
    assert plan is not None
    return PolicyOptions(
        epochs=plan.epochs,
        minibatches=plan.minibatches,
        learning_rate=plan.learning_rate,
        **options.network(),
        refinements=options.refinements,
        prior="none" if options.prior == "none" else "balanced",
        sigma=options.sigma,
        imitation=options.imitation,
        elites=plan.elites,
        entropy=plan.entropy,
        pretraining=plan,
    )


def _score(trainer: PolicyTrainer, checks: Sequence[GraphTrial], seed: int) -> float:
    if not checks:
        return 0.0
    rng = generator(seed, "chiplet", "validation")
    return float(np.mean([trial.round(trainer, rng, learn=False) for trial in checks]))


def _graphs(plan: PretrainingOptions) -> tuple[Sequence[str], Sequence[str]]:
    if plan.split == "paper":
        training, validation, _ = split_graphs()
        return training, validation
    return plan.graphs, plan.validation


def find_policy(name_or_path: str) -> Path:
    """Return the file of a saved policy: a path, or a name on the shelf ``evaluators/policies``.

    Raises
    ------
    InputError
        If nothing is found.
    """
    found = Catalog.around().resolve(
        "evaluators", name_or_path, folder="policies", kind="policy", suffixes=(".npz",)
    )
    return Path(found)


def pretrained(options: PolicyOptions) -> str:
    """Return the file of the policy that ``options`` describe, training it where it is not cached.

    The cache is ``chiplet_policies`` in the user's cache folder, by a hash of the options and of
    the graphs.
    """
    plan = options.pretraining
    assert plan is not None
    training, validation = _graphs(plan)
    graphs = [load_graph(name).digest() for name in (*training, *validation)]
    used = training_options(options)
    described = used.model_dump(mode="json", exclude={"temperature"})
    digest = content_digest("chiplet policy", described, graphs)
    path = user_cache() / "chiplet_policies" / f"{digest[:24]}.npz"
    if not path.is_file():
        logger.info("pre-training a policy on %d graphs: %s", len(training), path)
        working = path.with_name(f"{path.stem}.working.npz")
        pretrain(used, working)
        working.replace(path)
    return str(path)
