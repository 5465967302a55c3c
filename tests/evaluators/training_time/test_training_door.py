"""What the door of the training prediction accepts, fills in and refuses."""

from __future__ import annotations

import pytest

from mohsearch.core.errors import InputError
from mohsearch.evaluators.training_door import evaluate

RUN = {
    "hidden": "12288",
    "layers": "96",
    "heads": "96",
    "tp": "8",
    "pp": "8",
    "gbs": "64",
    "mbs": "1",
}


def write(folder, *rows):
    columns = list(dict.fromkeys(key for row in rows for key in row))
    lines = [",".join(columns)]
    lines += [",".join(str(row.get(key, "")) for key in columns) for row in rows]
    path = folder / "runs.csv"
    path.write_text("\n".join(lines) + "\n")
    return path


def rows_of(folder, *rows):
    return evaluate(write(folder, *rows)).rows


def test_missing_columns_take_the_documented_defaults(tmp_path):
    stated = {
        **RUN, "seq": 2048, "vocab": 51200, "ffn_mult": 4, "kv_heads": 96, "dp": 1, "gpus": 64,
        "vp_interleave": 1, "recompute": "full", "sequence_parallel": "no", "schedule": "1f1b",
        "overlap_tp": "no",
        "overlap_dp": "no", "attention": "fused", "cluster": "selene", "gpus_per_node": 8,
        "inter_node_gbps_per_node": 1600, "sharding": "none",
    }  # fmt: skip
    bare, full = rows_of(tmp_path, RUN, stated)
    assert {**bare, "id": ""} == {**full, "id": ""}
    assert bare["fits"] is True
    assert 18.13 < bare["predicted_s"] < 22  # measured 18.13 s with three virtual stages
    parts = bare["state_bytes"] + bare["activation_bytes"] + bare["working_bytes"]
    assert bare["memory_bytes"] == pytest.approx(parts)
    assert bare["predicted_s"] == pytest.approx(
        bare["pipeline_s"] + bare["sync_s"] + bare["optimizer_s"]
    )


def test_stating_sequence_parallelism_implies_overlapped_collectives_unless_denied(tmp_path):
    rows = rows_of(
        tmp_path,
        RUN,
        {**RUN, "sequence_parallel": "no"},
        {**RUN, "overlap_tp": "yes"},
        {**RUN, "sequence_parallel": "no", "overlap_tp": "no"},
    )
    seconds = [row["predicted_s"] for row in rows]
    assert seconds[1] == seconds[2] < seconds[0] == seconds[3]


def test_columns_of_the_published_tables_mean_the_same_run(tmp_path):
    other = {
        "params_billion": "175", "hidden": "12288", "layers": "96", "heads": "96", "tp": "8",
        "pp": "8", "n_gpus": "64", "global_batch": "64", "micro_batch": "1", "cluster": "selene",
        "recompute": "full", "schedule": "1F1B interleaved (v not stated)",
        "overlap_dp": "no (use_gradient_bucket=false)", "measured_iter_ms": "18130",
    }  # fmt: skip
    one, two = rows_of(tmp_path, {**RUN, "measured_iter_s": "18.13"}, other)
    assert two["predicted_s"] == one["predicted_s"]
    assert two["error"] == pytest.approx(one["error"])


def test_an_open_microbatch_is_the_fastest_that_fits(tmp_path):
    open_run = {**RUN, "mbs": "not stated (best of 1 2 4 8)"}
    tried = [{**RUN, "mbs": b} for b in (1, 2, 4, 8)]
    found, *each = rows_of(tmp_path, open_run, *tried)
    best = min((row for row in each if row["fits"]), key=lambda row: row["predicted_s"])
    assert {**found, "id": ""} == {**best, "id": ""}


def test_a_run_that_fits_with_no_microbatch_is_reported_with_the_smallest(tmp_path):
    (row,) = rows_of(tmp_path, {**RUN, "mbs": "", "tp": 1, "pp": 1, "recompute": "none"})
    assert row["fits"] is False
    assert row["microbatch"] == 1


def test_a_model_may_be_named_instead_of_described(tmp_path):
    sizes = {"tp": 8, "gbs": 32, "mbs": 1}
    named = {**sizes, "model": "llama2-7b"}
    given = {
        **sizes, "hidden": 4096, "layers": 32, "heads": 32, "ffn": 11008, "gated_mlp": "yes",
        "seq": 4096, "vocab": 32000, "untied_head": "yes",
    }  # fmt: skip
    one, two = rows_of(tmp_path, named, given)
    assert one["predicted_s"] == two["predicted_s"]


def test_the_network_of_a_row_chooses_the_cluster_and_else_replaces_the_cards(tmp_path):
    base = {**RUN, "dp": "8", "gbs": "512", "gpu": "A100"}
    rows = rows_of(
        tmp_path,
        base,
        {**base, "inter_node_gbps_per_node": 800},
        {**base, "inter_node_gbps_per_node": 400},
        {**base, "pp": 1, "dp": 1, "inter_node_gbps_per_node": 800},
        {**base, "gpu": "H100"},
    )
    chosen = [row["cluster"] for row in rows]
    assert chosen == ["selene", "a100_512", "selene", "a100_node", "dgx_h100"]
    assert rows[2]["sync_s"] > 2 * rows[0]["sync_s"]
    assert rows[4]["predicted_s"] < rows[0]["predicted_s"]


def test_the_summary_has_mean_and_greatest_error_by_set_and_of_the_peer(tmp_path):
    measured = [
        {**RUN, "set": "a", "measured_iter_s": 10, "peer_s": 11},
        {**RUN, "set": "a", "measured_iter_s": 20, "peer_s": 19},
        {**RUN, "set": "b"},
        {**RUN, "set": "c", "measured_iter_s": 20, "peer_s": ""},
    ]
    report = evaluate(write(tmp_path, *measured))
    seconds = report.rows[0]["predicted_s"]
    by_set = {row["set"]: row for row in report.summary}
    assert list(by_set) == ["a", "c", "all"]
    errors = [abs(seconds / 10 - 1), abs(seconds / 20 - 1)]
    assert by_set["a"]["mean_error"] == pytest.approx(sum(errors) / 2)
    assert by_set["a"]["max_error"] == pytest.approx(max(errors))
    assert by_set["a"]["peer_mean_error"] == pytest.approx(0.075)
    assert by_set["c"]["peer_mean_error"] is None
    assert report.rows[2]["error"] is None


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"hidden": ""}, "row 1: hidden: missing"),
        ({"gbs": ""}, "row 1: gbs: missing"),
        ({"layers": "many"}, "row 1: layers: not a number: 'many'"),
        ({"layers": "nan"}, "row 1: layers: must be positive"),
        ({"tp": "0"}, "row 1: tp: must be positive"),
        ({"tp": "1.5"}, "row 1: tp: must be a whole number"),
        ({"tp": "5"}, "row 1: tp: heads (96) is no multiple of tensor (5)"),
        ({"heads": "80"}, "row 1: heads: hidden (12288) is no multiple of heads (80)"),
        ({"pp": "97"}, "row 1: pp: more stages (97) than layers (96)"),
        ({"gpus": "100"}, "row 1: gpus: 100 devices are no multiple of tp x pp = 64"),
        ({"gpus": "100", "dp": "1"}, "row 1: gpus: 100 devices, but tp x pp x dp = 64"),
        ({"mbs": "3"}, "row 1: gbs: a batch of 64 cannot be cut into microbatch 3"),
        ({"recompute": "some"}, "row 1: recompute: 'some' is none of: none, selective, full"),
        ({"schedule": "zigzag"}, "row 1: schedule: 'zigzag' is none of: 1f1b, gpipe"),
        ({"sequence_parallel": "maybe"}, "row 1: sequence_parallel: must be yes or no"),
        ({"vp_interleave": "5"}, "row 1: vp_interleave: 96 layers do not make equal"),
        ({"vp_interleave": "3", "gbs": "60"}, "row 1: vp_interleave: interleaving needs micro"),
        ({"vp_interleave": "3", "schedule": "gpipe"}, "row 1: vp_interleave: interleaving needs"),
        ({"vp_interleave": "3", "pp": "1"}, "row 1: vp_interleave: interleaving needs pipeline"),
        ({"sharding": "zero3"}, "row 1: sharding: 'zero3' is not modelled"),
        ({"sharding": "FULL_SHARD"}, "row 1: sharding: fully sharded runs with tensor"),
        ({"cluster": "selen"}, "row 1: cluster: unknown cluster 'selen'; did you mean 'selene'?"),
        ({"gpu": "TPU v4"}, "row 1: gpu: no cluster with devices 'TPU v4'; known devices: A100"),
        ({"hidden": "", "model": "gpt5"}, "row 1: model: "),
        ({"hidden": "", "model": "t5-base"}, "row 1: model: t5-base is an encoder-decoder"),
        ({"hidden": "", "model": "mixtral-8x7b"}, "row 1: model: mixtral-8x7b is a mixture"),
        ({"measured_iter_s": "-1"}, "row 1: measured_iter_s: must be positive"),
    ],
)
def test_a_wrong_field_is_named_with_its_row(tmp_path, change, said):
    with pytest.raises(InputError) as caught:
        evaluate(write(tmp_path, {**RUN, **change}))
    assert f"runs.csv: {said}" in str(caught.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "no header row"),
        ("hidden,layers\n", "no case in it"),
        ("hidden,hidden\n1,2\n", "hidden: a second column of this name"),
        ("hidden,layers\n1,2,3\n", "row 1: more fields than the header has columns"),
    ],
)
def test_a_file_without_cases_is_refused(tmp_path, text, said):
    path = tmp_path / "runs.csv"
    path.write_text(text)
    with pytest.raises(InputError, match=said):
        evaluate(path)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"attention": "falsh"}, "attention: 'falsh' is none of: fused, flash"),
        ({"tp": "4", "sequence_parallel": "yes", "seq": "2046"}, "4 devices do not divide 2046"),
        ({"tp": "4", "kv_heads": "2"}, None),
        ({"tp": "8", "heads": "24", "kv_heads": "12", "hidden": "3072"}, "key-value heads"),
    ],
)
def test_rows_that_cannot_be_cut_are_refused(tmp_path, columns, message):
    row = {"hidden": "2048", "layers": "4", "heads": "16", "gbs": "8", "mbs": "1"} | columns
    path = tmp_path / "runs.csv"
    path.write_text(",".join(row) + "\n" + ",".join(row.values()) + "\n")
    if message is None:
        assert evaluate(path).rows[0]["predicted_s"] > 0
        return
    with pytest.raises(InputError, match=message):
        evaluate(path)


def test_a_device_holds_a_whole_key_value_head_at_least(tmp_path):
    path = tmp_path / "runs.csv"
    path.write_text(
        "hidden,layers,heads,kv_heads,tp,gbs,mbs\n4096,4,32,8,8,8,1\n4096,4,32,2,8,8,1\n"
    )
    one, copied = evaluate(path).rows
    assert copied["state_bytes"] == one["state_bytes"]
    assert copied["predicted_s"] == one["predicted_s"]


def test_a_model_and_figures_that_contradict_it_are_refused(tmp_path):
    path = tmp_path / "runs.csv"
    path.write_text("model,gated_mlp,gbs,mbs\nllama2-7b,no,8,1\n")
    with pytest.raises(InputError, match="gated_mlp: the model llama2-7b says that already"):
        evaluate(path)
    path.write_text("model,untied_head,gbs,mbs\nllama2-7b,no,8,1\n")
    with pytest.raises(InputError, match="untied_head: the model llama2-7b says that already"):
        evaluate(path)
    path.write_text("model,seq,gbs,mbs\ngpt2-xl,4096,8,1\n")
    with pytest.raises(InputError, match="seq: gpt2-xl takes up to 1024 tokens"):
        evaluate(path)
