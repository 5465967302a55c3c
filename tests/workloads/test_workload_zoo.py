"""The shelf of networks and applications, held against published figures."""

from __future__ import annotations

import itertools
import math
import subprocess
import sys

import numpy as np
import pytest

from mohsearch.core.catalog import Catalog, builtin_root
from mohsearch.core.errors import InputError, UnknownNameError
from mohsearch.workloads.table import write_table
from mohsearch.workloads.zoo import (
    describe_network,
    list_applications,
    list_networks,
    load_application,
    load_network,
)

# Layers, distinct loop nests, MACs and (where it is more than a product of the other columns) the
# number of weights. MACs of MobileBERT, BERT-Large, ResNet-50, SSD-ResNet34, SSD-MobileNetV1,
# YOLOv3, GoogLeNet, MobileNetV3-Large, AlexNet and VGG-16 are held against literature below.
FACTS = {
    "mobilenetv3_large": (64, 46, 216_589_760),
    "deeplabv3_mobilenetv2": (71, 40, 4_831_158_272),
    "deeplabv3plus_mobilenetv2": (61, 38, 26_937_170_752),
    "mobilebert": (409, 6, 8_732_172_288),
    "resnet50": (54, 24, 4_089_184_256),
    "ssd_resnet34": (51, 28, 216_415_931_904),
    "bert_large": (192, 5, 123_211_874_304),
    "ssd_mobilenetv1": (47, 39, 1_237_129_408),
    "ssd300_resnet50": (65, 37, 20_150_906_112),
    "yolov3": (75, 23, 32_932_037_632),
    "unet": (23, 19, 238_837_101_568),
    "googlenet": (58, 50, 1_498_376_192),
    "dlrm": (8, 7, 534_635_200),
    "dlrm_mlperf": (9, 8, 5_034_999_808),
    "alexnet": (5, 5, 2_663_139_456),
    "vgg16": (13, 9, 46_039_891_968),
    "tiny_cnn": (6, 6, 48_224),
    "tiny_encoder": (8, 4, 18_432),
}

# Layers, distinct loop nests, GMAC and longest chain. Two pairs of SSD-ResNet34's layers differ in
# nothing but one row and column of padding, which no loop nest sees: 57 for edge, 59 with them.
APPLICATIONS = {
    "mobile": (544, 92, 13.8, 337),
    "edge": (297, 57, 343.7, 144),
    "arvr": (199, 105, 277.1, 71),
    "arvr_as_shipped": (217, 103, 296.0, 71),
    "datacenter": (333, 85, 158.2, 144),
    "tiny": (14, 10, 0.0, 6),
}


def builtin_only(tmp_path):
    return Catalog([tmp_path])


def test_every_network_on_the_shelf_has_its_facts_here(tmp_path):
    root = builtin_root() / "problems" / "workloads" / "networks"
    assert {p.stem for p in root.glob("*.yaml")} == set(FACTS)
    assert set(FACTS) <= set(list_networks(builtin_only(tmp_path)))


@pytest.mark.parametrize("name", FACTS)
def test_a_network_has_its_layers_and_macs(name):
    net = load_network(name)
    assert (len(net.mapped_ops), len(net.unique_shapes()), net.macs) == FACTS[name]
    assert net.source


@pytest.mark.parametrize("name", FACTS)
def test_a_network_agrees_with_the_literature_its_card_cites(name):
    facts = describe_network(name)
    assert facts["licence"] in {"MIT", "Apache-2.0"}
    if "literature" in facts:
        published = facts["literature"]
        assert abs(published["ratio"] - 1) <= published["tolerance"], published["source"]


def test_most_networks_of_the_paper_cite_literature():
    cited = {name for name in FACTS if "literature" in describe_network(name)}
    assert cited >= {
        "mobilenetv3_large", "mobilebert", "resnet50", "ssd_resnet34", "bert_large",
        "ssd_mobilenetv1", "yolov3", "googlenet", "alexnet", "vgg16",
    }  # fmt: skip


def test_bert_large_has_the_macs_of_the_closed_formula():
    t, h, f, heads, layers = 384, 1024, 4096, 16, 24
    linear = 4 * t * h * h + 2 * t * h * f
    attention = 2 * heads * t * t * (h // heads)
    assert load_network("bert_large").macs == layers * (linear + attention)


def test_dlrm_has_the_macs_of_its_layer_widths():
    def stack(*widths):
        return sum(a * b for a, b in itertools.pairwise(widths))

    per_sample = stack(13, 512, 256, 64, 16) + 27 * 27 * 16 + stack(367, 512, 256, 1)
    assert load_network("dlrm").macs == 1100 * per_sample
    per_sample = stack(13, 512, 256, 128) + 27 * 27 * 128 + stack(479, 1024, 1024, 512, 256, 1)
    assert load_network("dlrm_mlperf").macs == 2048 * per_sample


def test_depthwise_layers_are_one_group_per_channel():
    net = load_network("ssd_mobilenetv1")
    depthwise = [op.shape for op in net.mapped_ops if op.kind == "dwconv"]
    assert len(depthwise) == 13
    assert all(s.C == 1 and s.K == 1 and s.G >= 32 for s in depthwise)
    assert not any(op.kind == "dwconv" for op in load_network("ssd300_resnet50").mapped_ops)


@pytest.mark.parametrize("name", APPLICATIONS)
def test_an_application_has_the_size_of_the_paper_s_workload(name):
    app = load_application(name)
    layers, unique, gmacs, chain = APPLICATIONS[name]
    assert (app.n_layers, app.n_unique, app.longest_chain) == (layers, unique, chain)
    assert round(app.macs / 1e9, 1) == gmacs


def test_every_application_on_the_shelf_is_known_here(tmp_path):
    assert set(list_applications(builtin_only(tmp_path))) == set(APPLICATIONS)


def test_layers_with_equal_loop_nests_may_differ_in_padding_alone():
    ops = load_network("ssd_resnet34").mapped_ops
    with_image = {(op.shape, op.input_h, op.input_w) for op in ops}
    assert len(with_image) - len({op.shape for op in ops}) == 2


def test_a_network_alone_is_an_application_of_one():
    app = load_application("resnet50")
    assert app.networks == ("resnet50",)
    assert app.n_layers == 54


def test_an_unknown_name_is_said_with_what_exists(tmp_path):
    catalog = builtin_only(tmp_path)
    with pytest.raises(
        UnknownNameError, match=r"unknown network 'resnet5'; did you mean 'resnet50'"
    ):
        load_network("resnet5", catalog)
    with pytest.raises(
        UnknownNameError, match=r"s\.yaml: runs\[0\].workload: unknown application or network 'arv'"
    ):
        load_application("arv", catalog, source="s.yaml", field="runs[0].workload")


def write_project(root):
    networks = root / "problems" / "workloads" / "networks"
    applications = root / "problems" / "workloads" / "applications"
    networks.mkdir(parents=True)
    applications.mkdir()
    (networks / "mine.csv").write_text("name,type,N,K,C\na,gemm,2,3,4\nb,gemm,2,3,3\n")
    (networks / "resnet50.yaml").write_text(
        "title: T\nsource: S\nlayers:\n  - {name: a, type: gemm, N: 1, K: 2, C: 3}\n"
    )
    (applications / "mix.yaml").write_text(
        "title: M\nnetworks:\n  - mine\n  - {network: mine, batch: 2, replicas: 2}\n"
        "  - network: ../networks/mine.csv\n"
    )


def test_a_user_s_own_networks_are_found_by_name_first_and_by_path(tmp_path):
    write_project(tmp_path)
    catalog = builtin_only(tmp_path)
    assert "mine" in list_networks(catalog)
    assert load_network("mine", catalog).macs == 42
    assert load_network("resnet50", catalog).macs == 6
    path = tmp_path / "problems/workloads/networks/mine.csv"
    assert load_network(path).macs == 42
    assert load_application(path).n_layers == 2
    assert load_application(path.with_name("resnet50.yaml")).n_layers == 1


def test_an_application_takes_batches_replicas_and_paths(tmp_path):
    write_project(tmp_path)
    app = load_application("mix", builtin_only(tmp_path))
    assert app.networks == ("mine", "mine#1", "mine#2", "mine(2)")
    assert app.n_layers == 8
    assert app.macs == 42 * (1 + 2 + 2 + 1)
    assert [layer.shape.N for layer in app.layers] == [2, 2, 4, 4, 4, 4, 2, 2]
    assert len({layer.name for layer in app.layers}) == 8
    assert app.n_unique == 4


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("title: T\nsource: S\n", "exactly one of table, onnx, layers, transformer is needed"),
        ("title: T\nsource: S\ntable: gone.csv\n", r"net\.yaml: table: no such file"),
        ("title: T\nsource: S\nlayer: []\n", "layer: no such field; known fields: .*layers"),
        (
            "title: T\nsource: S\nlayers:\n  - {name: a, type: gemm, N: 0, K: 1, C: 1}\n",
            r"layers\[0\]\.N: Input should be greater than 0",
        ),
        (
            "title: T\nsource: S\nlayers:\n"
            "  - {name: a, type: gemm, N: 1, K: 1, C: 1, predecessors: [b]}\n",
            r"layers\[0\], predecessors: unknown op 'b'",
        ),
        (
            "title: T\nsource: S\ntransformer: {hidden: 10, heads: 3, layers: 1, sequence: 4}\n",
            "transformer: 3 heads do not divide hidden = 10",
        ),
        (
            "title: T\nsource: S\ndims: {batch: 1}\nlayers: []\n",
            "dims and vector_ops belong to an onnx file",
        ),
    ],
)
def test_a_wrong_network_card_says_which_field(tmp_path, text, problem):
    path = tmp_path / "net.yaml"
    path.write_text(text)
    with pytest.raises(InputError, match=problem):
        load_network(path)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("title: T\nnetworks: []\n", "networks: "),
        ("title: T\nnetworks: [resnet5]\n", r"networks\[0\]\.network: unknown network 'resnet5'"),
        ("title: T\nnetworks: [{network: unet, batch: 0}]\n", r"networks\[0\]\.batch"),
        ("title: T\nnetworks: [./gone.csv]\n", r"networks\[0\]\.network: no such file"),
    ],
)
def test_a_wrong_application_card_says_which_field(tmp_path, text, problem):
    path = tmp_path / "app.yaml"
    path.write_text(text)
    with pytest.raises(InputError, match=problem):
        load_application(path)


@pytest.mark.parametrize("load", [load_network, load_application])
def test_a_file_of_another_format_is_refused(tmp_path, load):
    (tmp_path / "net.txt").write_text("hello")
    with pytest.raises(InputError, match=r"net\.txt is no network file; they end in \.yaml"):
        load(tmp_path / "net.txt")


def test_onnx_options_are_refused_where_they_mean_nothing():
    with pytest.raises(InputError, match="dims and vector_ops are for ONNX files"):
        load_network("resnet50", dims={"batch": 1})


def test_applications_survive_export_of_their_networks(tmp_path):
    for name in ("unet", "mobilebert", "bert_large"):
        net = load_network(name)
        write_table(net, tmp_path / f"{name}.csv")
        again = load_application(tmp_path / f"{name}.csv")
        before = load_application(name)
        assert again.digest() == before.digest()


def test_loading_needs_no_onnx():
    code = (
        "import sys; from mohsearch.workloads.zoo import load_application; "
        "load_application('arvr'); sys.exit('onnx' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_layer_macs_stay_within_int64():
    app = load_application("edge")
    assert app.layer_macs.dtype == np.int64
    assert app.macs == sum(math.prod(layer.shape.bounds()) for layer in app.layers)
