"""The learned partitioner: it learns what it is paid for, repeats, and is saved and read back."""

from pathlib import Path

import numpy as np
import pytest

from mohsearch.core.errors import InputError
from mohsearch.engines.archive import Archive
from mohsearch.engines.chiplet_elites import Elites
from mohsearch.engines.chiplet_features import FEATURES, graph_inputs
from mohsearch.engines.chiplet_options import PolicyOptions
from mohsearch.engines.chiplet_policy import GraphTensors, PolicyTrainer, build_network
from mohsearch.engines.chiplet_pretraining import (
    GraphTrial,
    find_policy,
    pretrain,
    pretrained,
    split_graphs,
    training_options,
)
from mohsearch.engines.chiplet_rl import PolicyEngine, rewards
from mohsearch.engines.driver import Budget, Search
from mohsearch.engines.engine import make_engine
from mohsearch.evaluators.partition.contiguous import contiguous_front
from mohsearch.evaluators.partition.costs import evaluate_partitions
from mohsearch.evaluators.partition.sampler import PartitionSampler
from mohsearch.evaluators.partition.task import PartitionTask
from mohsearch.operators.portfolio import load_portfolio
from mohsearch.problems.chiplet import build
from mohsearch.study import load_study
from mohsearch.testing.contracts import check_engine
from mohsearch.workloads.op_graph_files import load_graph

torch = pytest.importorskip("torch")

SMALL = {"layers": 2, "width": 16, "rollouts": 8, "epochs": 2, "minibatches": 2}


@pytest.fixture(scope="module")
def task():
    return PartitionTask(load_graph("own_dlrm"), chips=4)


def trainer_on(task, seed=0, **options):
    inputs = graph_inputs(task)
    return PolicyTrainer(PolicyOptions(**{**SMALL, **options}), seed), GraphTensors(inputs), inputs


def test_the_default_network_has_the_papers_sizes():
    network = build_network(PolicyOptions(head="chips"))
    assert len(network["layers"]) == 8
    assert network["layers"][0]["own"].weight.shape == (128, 128)
    assert network["hidden"].weight.shape == (128, 128)
    assert network["out"].weight.shape[1] == 128
    options = PolicyOptions()
    assert (options.rollouts, options.minibatches, options.epochs) == (20, 4, 10)


def test_features_are_finite_and_of_moderate_size():
    for name in ("hf_bert_large_prim", "own_ae", "own_lstm_l1_h256_t16"):
        inputs = graph_inputs(PartitionTask(load_graph(name)))
        assert inputs.features.shape == (inputs.n_ops, FEATURES)
        assert np.isfinite(inputs.features).all()
        assert np.abs(inputs.features).max() < 8


def test_features_of_cuts_are_those_of_a_plain_loop():
    task = PartitionTask(load_graph("own_lstm_l1_h256_t16"), chips=4)
    features, graph = graph_inputs(task).features, task.graph
    share_s = task.time_s.sum() / 4
    edges = list(zip(graph.edge_src.tolist(), graph.edge_dst.tolist(), strict=True))
    cuts = []
    for place in range(task.n + 1):
        open_ops = {u for u, v in edges if u < place <= v}
        crossing = sum(task.transfer_bytes[u] for u in open_ops)
        cuts.append(np.log1p(crossing / task.package.link.bandwidth_bytes_per_s / share_s))
    middle = 4 * task.share_before - 0.5
    assert features[:, -4] == pytest.approx(middle - np.rint(middle), abs=1e-6)
    assert features[:, -3] == pytest.approx(cuts[:-1], abs=1e-6)
    assert features[:, -2] == pytest.approx(cuts[1:], abs=1e-6)
    for v in range(0, task.n, 7):
        near = [cuts[i] for i in range(task.n) if abs(middle[i] - middle[v]) <= 0.25]
        assert features[v, -1] == pytest.approx(cuts[v] - min(near), abs=1e-6)


def test_means_over_neighbours_are_those_of_a_plain_loop(task):
    inputs = graph_inputs(task)
    tensors = GraphTensors(inputs)
    h = np.random.default_rng(0).normal(size=(task.n, 3)).astype(np.float32)
    got = tensors.mean_before(torch.from_numpy(h)).numpy()
    for v in range(task.n):
        before = task.graph.predecessors(v)
        expected = h[before].mean(axis=0) if len(before) else np.zeros(3)
        assert got[v] == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("head", ["chips", "offsets"])
def test_an_untrained_policy_proposes_chips_as_the_prior_says(task, head):
    trainer, tensors, inputs = trainer_on(task, rollouts=100, head=head, sigma=0.8)
    labels = trainer.propose(tensors, inputs, None).labels
    assert labels.min() >= 0
    assert labels.max() <= 3
    distance = (np.arange(4)[None] - (4 * inputs.position - 0.5)[:, None]) / 0.8
    chance = np.exp(-0.5 * distance**2)
    expected = (chance / chance.sum(axis=1, keepdims=True)) @ np.arange(4)
    assert np.abs(labels.mean(axis=0) - expected).max() < 0.4
    assert np.abs(labels.mean() - expected.mean()) < 0.1


def test_temperature_spreads_the_proposals_and_one_changes_nothing(task):
    def proposals(**options):
        trainer, tensors, inputs = trainer_on(task, rollouts=100, sigma=0.4, **options)
        return trainer.propose(tensors, inputs, None)

    plain, same, hot = proposals(), proposals(temperature=1.0), proposals(temperature=4.0)
    assert np.array_equal(plain.labels, same.labels)
    assert hot.labels.std(axis=0).mean() > 1.5 * plain.labels.std(axis=0).mean()


@pytest.mark.parametrize("refinements", [1, 2, 3])
def test_learning_starts_at_the_probabilities_that_were_drawn_from(task, refinements, monkeypatch):
    """The ratio of the first step is one: nothing is clipped and the loss is the mean advantage."""
    trainer, tensors, inputs = trainer_on(
        task, temperature=3.0, entropy=0.0, refinements=refinements, epochs=1, minibatches=1
    )
    rollouts = trainer.propose(tensors, inputs, None)
    assert rollouts.states.shape[0] == refinements - 1
    losses = []
    loss_of = trainer._loss

    def recorded(graph, lesson, part):
        chosen = lesson.advantage.argsort()[-2:]
        losses.append((loss_of(graph, lesson, chosen), lesson.advantage[chosen].mean()))
        return loss_of(graph, lesson, part)

    monkeypatch.setattr(trainer, "_loss", recorded)
    trainer.learn(tensors, rollouts, np.arange(8.0))
    (loss, gain), = losses  # fmt: skip
    assert float(gain) > 1
    assert float(loss.detach()) == pytest.approx(-float(gain), abs=1e-4)


def test_without_a_prior_an_untrained_policy_proposes_all_chips_alike(task):
    trainer, tensors, inputs = trainer_on(task, rollouts=100, head="chips", prior="none")
    labels = trainer.propose(tensors, inputs, None).labels
    shares = np.bincount(labels.ravel(), minlength=4) / labels.size
    assert np.abs(shares - 0.25).max() < 0.05


def test_the_prior_follows_the_centre_that_is_given(task):
    trainer, tensors, inputs = trainer_on(task, prior="incumbent", sigma=0.2)
    wanted = np.arange(task.n) % 4
    labels = trainer.propose(tensors, inputs, wanted.astype(float)).labels
    assert (labels == wanted).mean() > 0.97


@pytest.mark.parametrize("head", ["chips", "offsets"])
def test_the_policy_learns_what_it_is_paid_for(task, head):
    """Paid by the share of ops on chip 0, PPO makes chip 0 more likely."""
    trainer, tensors, inputs = trainer_on(task, head=head, prior="none", learning_rate=5e-3)
    shares = []
    for _ in range(10):
        rollouts = trainer.propose(tensors, inputs, None)
        paid = (rollouts.labels == 0).mean(axis=1)
        shares.append(paid.mean())
        trainer.learn(tensors, rollouts, paid)
    assert np.mean(shares[-3:]) > np.mean(shares[:3]) + 0.15


def likelihood(trainer, tensors, inputs, wanted):
    """Share of labels as wanted in proposals."""
    return (trainer.propose(tensors, inputs, None).labels == wanted).mean()


@pytest.mark.parametrize("head", ["chips", "offsets"])
def test_what_is_imitated_becomes_likely_even_where_all_rewards_are_equal(task, head):
    trainer, tensors, inputs = trainer_on(
        task, head=head, sigma=1.0, learning_rate=5e-3, epochs=30, entropy=0.0
    )
    wanted = np.rint(4 * inputs.position - 0.5).astype(np.int64)[None]
    wanted = np.clip(wanted + 1, 0, 3)
    before = likelihood(trainer, tensors, inputs, wanted)
    rollouts = trainer.propose(tensors, inputs, None)
    trainer.learn(tensors, rollouts, np.full(8, 0.5), wanted)
    after = likelihood(trainer, tensors, inputs, wanted)
    assert after > 0.75
    assert after > before + 0.2


def test_labels_out_of_the_heads_reach_are_not_imitated(task):
    """Offsets reach four chips: what lies further away has no action, and teaches nothing."""
    inputs = graph_inputs(PartitionTask(load_graph("own_dlrm"), chips=20))
    trainer = PolicyTrainer(PolicyOptions(**SMALL, entropy=0.0), 0)
    tensors = GraphTensors(inputs)
    before = {k: v.clone() for k, v in trainer.network.state_dict().items()}
    middle = 20 * inputs.position - 0.5
    far = np.where(middle < 10, 19, 0)[None]
    trainer.learn(tensors, trainer.propose(tensors, inputs, None), np.full(8, 0.5), far)
    for name, tensor in trainer.network.state_dict().items():
        assert torch.equal(tensor, before[name])


def test_without_imitation_elites_change_nothing(task):
    results = []
    for elites in (None, np.zeros((1, task.n), dtype=np.int64)):
        trainer, tensors, inputs = trainer_on(task, imitation=0.0)
        trainer.learn(tensors, trainer.propose(tensors, inputs, None), np.arange(8.0), elites)
        results.append(trainer.network.state_dict())
    assert all(torch.equal(tensor, results[1][name]) for name, tensor in results[0].items())


def test_learning_from_scratch_beats_random_sampling_with_as_many_partitions():
    """ResNet-18 on 8 chips, no prior, one output per chip: three seeds of 300 partitions each."""
    task = PartitionTask(load_graph("tv_resnet18"), chips=8)
    inputs, sampler = graph_inputs(task), PartitionSampler(task, "chain")
    tensors = GraphTensors(inputs)
    options = PolicyOptions(layers=3, width=64, epochs=3, minibatches=2, head="chips", prior="none")
    learned, drawn = [], []
    for seed in range(3):
        rng = np.random.default_rng(seed)
        uniform = evaluate_partitions(task, sampler.sample(300, rng).labels)["interval_s"]
        drawn.append(uniform.min())
        trainer, elites, batches = PolicyTrainer(options, seed), Elites(10), []
        for _ in range(15):
            rollouts = trainer.propose(tensors, inputs, None)
            fixed = sampler.fix(rollouts.labels.astype(np.int16), rng).labels
            batches.append(evaluate_partitions(task, fixed)["interval_s"])
            elites.add(fixed, 1.0 / batches[-1])
            trainer.learn(tensors, rollouts, 1.0 / batches[-1], elites.labels)
        learned.append(np.min(batches))
        assert np.mean(batches[-1]) < 0.7 * np.mean(batches[0])
    assert np.exp(np.mean(np.log(learned) - np.log(drawn))) < 0.95


def test_equal_rewards_teach_nothing(task):
    trainer, tensors, inputs = trainer_on(task)
    before = {k: v.clone() for k, v in trainer.network.state_dict().items()}
    trainer.learn(tensors, trainer.propose(tensors, inputs, None), np.full(8, 0.5))
    for name, tensor in trainer.network.state_dict().items():
        assert torch.equal(tensor, before[name])


def test_torch_keeps_its_threads_and_its_global_generator(task):
    threads, state = torch.get_num_threads(), torch.get_rng_state()
    trainer, tensors, inputs = trainer_on(task)
    trainer.learn(tensors, trainer.propose(tensors, inputs, None), np.arange(8.0))
    assert torch.get_num_threads() == threads
    assert torch.equal(torch.get_rng_state(), state)


def test_a_checkpoint_is_read_back_as_it_was_written(task, tmp_path):
    trainer, tensors, inputs = trainer_on(task, seed=1)
    trainer.learn(tensors, trainer.propose(tensors, inputs, None), np.arange(8.0))
    trainer.save(tmp_path / "policy.npz")
    other, _, _ = trainer_on(task, seed=2)
    other.load(tmp_path / "policy.npz")
    for name, tensor in trainer.network.state_dict().items():
        assert torch.equal(tensor, other.network.state_dict()[name])


def test_a_compact_checkpoint_is_smaller_and_proposes_nearly_the_same(task, tmp_path):
    trainer, tensors, inputs = trainer_on(task, width=64)
    trainer.save(tmp_path / "full.npz")
    trainer.save(tmp_path / "compact.npz", compact=True)
    assert (tmp_path / "compact.npz").stat().st_size < 0.7 * (tmp_path / "full.npz").stat().st_size
    other, _, _ = trainer_on(task, width=64)
    other.load(tmp_path / "compact.npz")
    same = (
        other.propose(tensors, inputs, None).labels == trainer.propose(tensors, inputs, None).labels
    )
    assert same.mean() > 0.98


def test_wrong_checkpoints_are_one_clear_error(task, tmp_path):
    trainer, _, _ = trainer_on(task)
    with pytest.raises(InputError, match="no such checkpoint"):
        trainer.load(tmp_path / "missing.npz")
    (tmp_path / "text.npz").write_text("text")
    with pytest.raises(InputError, match="no checkpoint of a policy"):
        trainer.load(tmp_path / "text.npz")
    wide, _, _ = trainer_on(task, width=8)
    wide.save(tmp_path / "wide.npz")
    with pytest.raises(InputError, match="checkpoint of another network"):
        trainer.load(tmp_path / "wide.npz")


def search(seed, *, objectives=("interval_s",), budget=(8, 4), genome="labels", **options):
    given = {"chips": 4, "genome": genome, "constraints": "chain"}
    problem = build(given, "own_ae", objectives=objectives)
    archive = Archive(problem)
    engine = make_engine(
        PolicyEngine, problem, load_portfolio("chiplet", "prior").build(problem),
        options={**SMALL, **options}, population=budget[0], seed=seed, seen=archive.index,
    )  # fmt: skip
    return Search(problem, engine, archive, Budget(*budget))


@pytest.mark.parametrize("options", [{}, {"prior": "incumbent"}, {"learn": False, "sigma": 1.0}])
def test_the_engine_keeps_the_contract(options):
    check_engine(lambda seed: search(seed, **options))


def test_a_batch_of_rollouts_may_span_generations():
    run = search(1, budget=(5, 4), rollouts=8)
    assert [g.evaluations for g in run.generations()] == [5, 10, 15, 20]


def test_other_genomes_are_refused():
    with pytest.raises(InputError, match="genome: labels"):
        search(1, genome="keys")


@pytest.mark.parametrize(("sign", "expected"), [(1.0, [0.5, 0.25, 0.0]), (-1.0, [2.0, 4.0, 0.0])])
def test_rewards_rise_with_throughput_and_vanish_without_memory(sign, expected):
    F = sign * np.array([[2.0], [4.0], [1.0]])
    G = np.array([[-0.1], [0.0], [0.3]])
    assert rewards(F, G).tolist() == expected


PLAN = {"graphs": ["own_ae", "tv_alexnet"], "validation": ["own_dlrm"], "chips": 3, "samples": 48,
        "checkpoints": 2, "epochs": 2}  # fmt: skip


def test_pretraining_keeps_the_best_of_its_checkpoints(tmp_path):
    options = PolicyOptions(**SMALL, pretraining=PLAN)
    scores = pretrain(options, tmp_path / "policy.npz")
    assert len(scores) == 3
    assert all(0 < score <= 1 for score in scores)
    PolicyTrainer(options, 0).load(tmp_path / "policy.npz")
    assert pretrain(options, tmp_path / "again.npz") == scores


def test_a_pretrained_policy_is_cached_and_the_search_starts_from_it(tmp_path, monkeypatch):
    monkeypatch.setenv("MOHSEARCH_CACHE", str(tmp_path))
    small = {"layers": 1, "width": 8, "rollouts": 4}
    options = PolicyOptions(**small, pretraining={**PLAN, "samples": 40, "checkpoints": 1})
    path = pretrained(options)
    written = Path(path).stat().st_mtime_ns
    assert pretrained(options.model_copy(update={"learn": False, "epochs": 3})) == path
    assert Path(path).stat().st_mtime_ns == written
    first = search(1, checkpoint=path, learn=False, **small)
    second = search(1, pretraining=options.pretraining.model_dump(), learn=False, **small)
    for _ in zip(first.generations(), second.generations(), strict=True):
        pass
    assert np.array_equal(first.archive.genomes, second.archive.genomes)


def test_the_shipped_policy_is_found_by_name_and_read():
    trainer = PolicyTrainer(PolicyOptions(), 0)
    trainer.load(find_policy("mcm36-split"))
    assert find_policy("mcm36-split").stat().st_size < 1_000_000
    with pytest.raises(InputError, match=r"unknown policy 'mcm37'.*mcm36-split"):
        search(1, checkpoint="mcm37")
    with pytest.raises(InputError, match="no such file"):
        search(1, checkpoint="folder/missing.npz")


def test_searches_that_fine_tune_differently_share_one_pretraining():
    plain = PolicyOptions(pretraining=PLAN)
    other = PolicyOptions(pretraining=PLAN, epochs=3, prior="incumbent", learning_rate=1e-4)
    assert training_options(plain) == training_options(other)
    assert training_options(plain) == training_options(
        PolicyOptions(pretraining=PLAN, temperature=2.5)
    )
    assert training_options(plain) != training_options(PolicyOptions(pretraining=PLAN, sigma=1))


def test_a_teacher_shows_the_exact_partition_of_the_program_order():
    trial = GraphTrial("tv_resnet18", "mcm36", 8, 2)
    trial.teach()
    exact = contiguous_front(trial.task)
    shown = evaluate_partitions(trial.task, trial.elites.labels.astype(np.int16))["interval_s"]
    assert len(shown) == 1
    assert shown[0] <= 1.011 * exact.interval_s.min()
    near = exact.chips[exact.interval_s <= 1.005 * exact.interval_s.min()].max()
    assert trial.elites.labels.max() + 1 >= near


def test_a_graph_with_nothing_to_gain_teaches_nothing(monkeypatch):
    """Elites are imitated by as much as they are better than the batch."""
    trial, trainer = (
        GraphTrial("tv_alexnet", "mcm36", 3, 2),
        PolicyTrainer(PolicyOptions(**SMALL), 0),
    )
    before = {k: v.clone() for k, v in trainer.network.state_dict().items()}
    monkeypatch.setattr(trial, "rewards", lambda partitions: np.full(len(partitions), 0.5))
    assert trial.round(trainer, np.random.default_rng(0), learn=True) == 0.5
    assert len(trial.elites.labels) == 2
    for name, tensor in trainer.network.state_dict().items():
        assert torch.equal(tensor, before[name])


def test_pretraining_for_several_numbers_of_chips_meets_each_graph_with_each(tmp_path):
    plan = {**PLAN, "chips": [2, 4], "samples": 64}
    options = PolicyOptions(**SMALL, pretraining=plan)
    assert options.pretraining.chips == (2, 4)
    assert PolicyOptions(pretraining=PLAN).pretraining.chips == (3,)
    assert len(pretrain(options, tmp_path / "policy.npz")) == 3
    with pytest.raises(ValueError, match="at least 1 item"):
        PolicyOptions(pretraining={**PLAN, "chips": []})


def test_the_split_is_the_papers_and_the_study_tests_on_it():
    training, validation, test = split_graphs()
    assert (len(training), len(validation), len(test)) == (66, 5, 16)
    assert len({*training, *validation, *test}) == 87
    assert not any("bert_large" in name for name in (*training, *validation, *test))
    assert list(load_study("chiplet_table2").spec.workloads) == test


def test_options_that_contradict_each_other_are_refused():
    with pytest.raises(ValueError, match="either a checkpoint or pretraining"):
        PolicyOptions(checkpoint="a.npz", pretraining=PLAN)
    with pytest.raises(ValueError, match="give training graphs"):
        PolicyOptions(pretraining={"samples": 10})
