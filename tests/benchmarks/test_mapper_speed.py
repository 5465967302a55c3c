"""The exact mapper: published case, a whole workload, and what a genetic mapper finds instead."""

import time
from dataclasses import replace

import numpy as np
import pytest

from mohsearch.core.catalog import builtin_root
from mohsearch.evaluators.mapper.baselines import (
    genetic_search,
    random_search,
    relative_hypervolume,
)
from mohsearch.evaluators.mapper.exact import search_layer
from mohsearch.evaluators.mapper.translate import MapperOptions
from mohsearch.hardware.templates import load_template
from mohsearch.workloads.layer import LayerShape
from mohsearch.workloads.zoo import load_application

pytestmark = pytest.mark.benchmark

TEMPLATES = ("eyeriss", "simba", "shidiannao")
ALEXNET_CONV1 = LayerShape(K=64, C=3, P=55, Q=55, R=11, S=11, stride_h=4, stride_w=4)
EXHAUSTIVE_CPU_S = 5620 * 60
"""Timeloop's exhaustive mapper on the AlexNet case (24 threads), as published with LEMON."""


def test_alexnet_conv1_at_the_published_optimum(benchmark):
    card = builtin_root() / "evaluators" / "reference" / "moham" / "three_level.yaml"
    machine = load_template(str(card))
    memory, shared, local = machine.levels
    machine = replace(machine, levels=(memory, shared, replace(local, fanout=())))
    options = MapperOptions(objective="edp", sizing="full", padding=False)
    front = benchmark(search_layer, ALEXNET_CONV1, machine, options)
    print(
        f"\n{front.energy_pj[0] * 1e-6:.2f} uJ, {front.cycles[0]} cycles,"
        f" {front.certificate['mappings']:.3g} factorisations,"
        f" {EXHAUSTIVE_CPU_S / benchmark.stats['mean']:.3g} times faster than exhaustive search"
    )


def test_every_layer_of_the_data_centre_workload(benchmark):
    layers = load_application("datacenter").unique_layers
    architectures = [load_template(name) for name in TEMPLATES]
    for architecture in architectures:
        search_layer(LayerShape(K=2, C=2), architecture)

    def search():
        started = time.process_time()
        fronts = [search_layer(layer, arch) for arch in architectures for layer in layers]
        return time.process_time() - started, fronts

    cpu_s, fronts = benchmark.pedantic(search, rounds=1)
    certificates = [front.certificate for front in fronts]
    assert all(certificate["complete"] for certificate in certificates)
    mappings = sum(c["mappings"] for c in certificates)
    work = sum(c["evaluations"] + c["lower_bounds"] for c in certificates)
    print(
        f"\n{len(fronts)} complete fronts of {sum(map(len, fronts))} mappings in {cpu_s:.1f} CPU-s:"
        f" {mappings:.3g} factorisations, {work / cpu_s / 1e6:.2f} M costed or bounded a CPU-s"
    )


@pytest.mark.parametrize("template", TEMPLATES)
def test_hypervolume_beside_random_and_genetic_search(benchmark, template):
    layer, architecture = LayerShape(K=64, C=64, P=14, Q=14, R=3, S=3), load_template(template)
    front = benchmark.pedantic(search_layer, (layer, architecture), rounds=3, warmup_rounds=1)
    budget = 5000
    shares = {
        search.__name__: relative_hypervolume(
            front, search(layer, architecture, budget, np.random.default_rng(0))
        )
        for search in (random_search, genetic_search)
    }
    found = ", ".join(f"{name} {share:.3f}" for name, share in shares.items())
    proof = front.certificate
    print(
        f"\n{template}: {found} of the exact front's hypervolume after {budget} mappings;"
        f" the exact front: {proof['evaluations']} mappings costed, {proof['lower_bounds']} bounds"
    )
