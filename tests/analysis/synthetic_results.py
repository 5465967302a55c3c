"""A small results tree in the contract's layout, and designs that look like real ones."""

import hashlib
import json
from pathlib import Path

import numpy as np
import xarray as xr

METRICS = {
    "latency_s": ("s", "end of the last layer"),
    "energy_j": ("J", "energy of all layers"),
    "area_mm2": ("mm2", "silicon of all instances"),
}
TEMPLATES = ("eyeriss", "shidiannao", "simba")
IDEAL = {"latency_s": 0.004, "energy_j": 0.02, "area_mm2": 1.0}


def design(rng, instances=5, networks=("detector", "depth"), layers_each=14):
    """A package with a schedule in which every layer starts when its instance is free."""
    parts = []
    for k in range(instances):
        macs = int(rng.choice([64, 168, 256, 1024]))
        parts.append(
            {
                "id": k,
                "template": TEMPLATES[k % 3],
                "tile": [k % 4, k // 4],
                "interface": 0,
                "macs": macs,
                "area_mm2": float(rng.uniform(0.4, 3.0)),
                "energy_j": float(rng.uniform(0.001, 0.01)),
                "levels": [
                    {"name": "buffer", "size_bytes": int(2 ** rng.integers(14, 18)), "instances": 1}
                ],
            }
        )
    free = np.zeros(instances)
    ready = dict.fromkeys(networks, 0.0)
    layers = []
    for step in range(layers_each):
        for network in networks:
            k = int(rng.integers(instances))
            start = max(free[k], ready[network])
            length = float(rng.uniform(1e-4, 1.5e-3))
            layers.append(
                {
                    "name": f"{network}/conv{step}",
                    "network": network,
                    "instance": k,
                    "mapping": "P4 Q4 K8 | C3 R3 S3",
                    "start_s": start,
                    "end_s": start + length,
                    "stalled_s": length * 0.3 if rng.random() < 0.3 else 0.0,
                    "energy_j": 1e-4,
                }
            )
            free[k] = ready[network] = start + length
    return {
        "package": {"mesh": [4, 4], "interfaces": 4},
        "instances": parts,
        "layers": layers,
    }


def _values(rng, count, quality):
    """Points near the surface x*y*z = constant, the nearer the larger ``quality``."""
    weights = rng.dirichlet(np.full(3, 0.7), count)
    noise = 1 + rng.exponential(1.0 / quality, (count, 1))
    points = np.exp(3.0 * (1 - weights)) * noise / np.e**2
    return points * np.array([0.01, 0.05, 2.0])


def _variables(values, dims):
    return {
        name: (dims, values[..., k], {"units": unit, "sense": "min", "long_name": words})
        for k, (name, (unit, words)) in enumerate(METRICS.items())
    }


def run_groups(run, *, seed=1, quality=8.0, generations=6, population=20, done=None, **attrs):
    """The datasets of one run by path."""
    rng = np.random.default_rng([seed, int(quality * 10)])
    done = generations if done is None else done
    archive = np.full((generations * population, 3), np.nan)
    for g in range(done):
        rows = slice(g * population, (g + 1) * population)
        archive[rows] = _values(rng, population, 0.5 + quality * (g + 1) / generations)
    known = archive[: done * population]
    best = np.array([not ((known <= p).all(1) & (known < p).any(1)).any() for p in known], bool)
    front = known[best]
    root = {
        "problem": "moham",
        "problem_label": "moham",
        "workload": "arvr",
        "engine": "pymoo",
        "algorithm": "nsga2",
        "portfolio": "moham",
        "seed": seed,
        "status": "complete" if done == generations else "running",
        "objectives": list(METRICS),
        "metrics": list(METRICS),
        "constraints": [],
        "digest": hashlib.sha256(known.tobytes()).hexdigest() if done == generations else "",
        "ideal_point": json.dumps(IDEAL),
        "certificate": json.dumps({"mapper": "complete"}),
        "provenance": json.dumps({"wall_s": 1.5, "cpu_s": 1.4, "command": "mohsearch"}),
    } | attrs
    index = np.arange(generations * population).reshape(generations, population)
    ledger = np.where(np.arange(generations) < done, population * np.arange(1, generations + 1), -1)
    history = xr.Dataset(
        _variables(archive[index], ("generation", "individual"))
        | {
            "archive_index": (("generation", "individual"), index),
            "done": ("generation", np.arange(generations) < done),
            "evaluations": ("generation", ledger),
            "distinct": ("generation", ledger),
        }
    )
    designs = [json.dumps(design(rng, instances=int(rng.integers(2, 7)))) for _ in front]
    texts = np.array(designs, dtype=np.dtypes.StringDType())
    result = xr.Dataset(
        _variables(front, ("solution",))
        | {
            "genome": (("solution", "gene"), np.zeros((len(front), 4), dtype=np.int32)),
            "genome_id": ("solution", np.flatnonzero(best)),
            "design": ("solution", texts),
        }
    )
    groups = {
        f"/{run}": xr.Dataset(attrs=root),
        f"/{run}/history": history,
        f"/{run}/archive": xr.Dataset(_variables(archive, ("genome_id",))),
    }
    if done == generations:
        groups[f"/{run}/front"] = result
    return groups


def write_results(folder: Path, groups, study="synthetic", spec="{}"):
    """Write the tree to ``folder/results.zarr``."""
    root = xr.Dataset(attrs={"study": study, "spec": spec, "mohsearch_version": "0.0"})
    tree = xr.DataTree.from_dict({"/": root} | groups)
    tree.to_zarr(folder / "results.zarr", consolidated=False, zarr_format=3)
    return folder


def two_engines(folder: Path, seeds=3):
    """A study of two engines with some seeds each; nsga2 is the better one."""
    groups = {}
    for seed in range(1, seeds + 1):
        groups |= run_groups(f"moham-arvr-nsga2-{seed}", seed=seed, quality=12.0)
        groups |= run_groups(
            f"moham-arvr-random-{seed}", seed=seed, quality=1.0, engine="random", algorithm="random"
        )
    return write_results(folder, groups)
