"""Cluster cards and the constants of the training-time model."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Annotated

from pydantic import Field

from mohsearch.core.cards import Card, read_card
from mohsearch.core.catalog import Catalog, builtin_root
from mohsearch.core.errors import InputError
from mohsearch.hardware.figures import SourcedCard
from mohsearch.hardware.systems import SystemCard, load_system

Positive = Annotated[float, Field(gt=0)]
Count = Annotated[int, Field(ge=1)]


class ClusterCard(SourcedCard):
    """Nodes of equal devices: an all-to-all link inside, a network between them.

    ``all_reduce_bytes_per_s`` is the bus bandwidth that a large all-reduce reaches among so many
    devices of one node (volume ``2 (n-1)/n`` of the message over time); between two sizes the
    larger holds.
    """

    name: str
    device: str
    aliases: tuple[str, ...] = ()
    """What measurements call the device of this cluster."""
    devices_per_node: Count
    nodes: Count
    tensor_efficiency: Annotated[float, Field(gt=0, le=1)]
    """Sustained fraction of the data sheet's tensor rate inside a full 256 x 128 tile: clocks fall
    under load, by how much depends on power and cooling."""
    network_bytes_per_s_per_node: Positive
    all_reduce_bytes_per_s: dict[Count, Positive]
    all_reduce_latency_s: Positive
    preferred: bool = False
    """Whether a row that names nothing but the device runs here."""


class TrainingConstants(Card):
    """What holds for all clusters; calibrated but for the optimizer.

    Attributes
    ----------
    fill_k
        Pipeline fill of a tile, in steps along the reduction dimension.
    memory_efficiency
        Achieved fraction of the HBM bandwidth.
    network_efficiency
        Achieved fraction of the bandwidth between nodes.
    kernel_gap_s
        Idle time of the device between two kernels.
    host_s
        Time of the host to issue one kernel; a layer is bound by it when its kernels are short.
    logit_bytes
        HBM traffic of the loss per logit, forward and backward.
    optimizer_bytes
        HBM traffic of the optimizer step per parameter; counted, not fitted.
    source
        What they were fitted to, and how.
    """

    fill_k: Positive
    memory_efficiency: Annotated[float, Field(gt=0, le=1)]
    network_efficiency: Annotated[float, Field(gt=0, le=1)]
    kernel_gap_s: Positive
    host_s: Positive
    logit_bytes: Positive
    optimizer_bytes: Positive
    source: str


class TrainingCluster(Card):
    """A cluster with its device."""

    card: ClusterCard
    device: SystemCard

    @property
    def devices(self) -> int:
        """Number of devices.

        Examples
        --------
        >>> load_cluster("selene").devices
        4480
        """
        return self.card.nodes * self.card.devices_per_node


def cluster_names(catalog: Catalog | None = None) -> list[str]:
    """Return the names of all cluster cards."""
    return (catalog or Catalog()).names("evaluators", "clusters")


def load_cluster(
    name: str,
    catalog: Catalog | None = None,
    *,
    source: str | None = None,
    field: str | None = None,
) -> TrainingCluster:
    """Return a cluster by name or path of its card.

    Raises
    ------
    UnknownNameError
        If there is no such card.
    """
    shelves = catalog or Catalog()
    path = shelves.resolve(
        "evaluators", name, folder="clusters", kind="cluster", source=source, field=field
    )
    return _read_cluster(path, shelves.roots)


@lru_cache(maxsize=64)
def _read_cluster(path: Path, roots: tuple[Path, ...]) -> TrainingCluster:
    """Read a card once per process: reading takes longer than hundreds of predictions."""
    card = read_card(ClusterCard, path)
    return TrainingCluster(card=card, device=load_system(card.device, Catalog(roots)))


@lru_cache(maxsize=1)
def load_constants() -> TrainingConstants:
    """Return the calibrated constants."""
    path = builtin_root() / "evaluators" / "reference" / "phaze" / "training_constants.yaml"
    return read_card(TrainingConstants, path)


def choose_cluster(
    clusters: Mapping[str, TrainingCluster],
    device: str | None,
    network_bytes_per_s: float | None,
    devices: int,
    *,
    source: str | None = None,
) -> str:
    """Return the cluster that a measurement without a cluster name was made on.

    Of the clusters with that device and that network, the smallest that is large enough; where the
    network is not given, the preferred one; where no card has the network, the preferred one too
    (the row's own bandwidth then replaces that of the card).

    Raises
    ------
    InputError
        If no card has the device.
    """
    if device is None:
        fitting = {
            n: c for n, c in clusters.items() if c.card.preferred and c.card.device == "A100"
        }
    else:
        label = device.casefold()
        fitting = {
            n: c
            for n, c in clusters.items()
            if any(_same_device(label, known) for known in (c.card.device, *c.card.aliases))
        }
    if not fitting:
        known = sorted({a for c in clusters.values() for a in (c.card.device, *c.card.aliases)})
        message = f"no cluster with devices {device!r}; known devices: {', '.join(known)}"
        raise InputError(message, source=source, field="gpu")
    if network_bytes_per_s is not None:
        same = {
            n: c
            for n, c in fitting.items()
            if abs(c.card.network_bytes_per_s_per_node / network_bytes_per_s - 1) < 1e-6
        }
        enough = {n: c for n, c in same.items() if c.devices >= devices}
        if enough or same:
            return min(enough or same, key=lambda n: (same[n].devices, n))
    return min(fitting, key=lambda n: (not fitting[n].card.preferred, n))


def _same_device(label: str, known: str) -> bool:
    """Whether a label is a known name, perhaps followed by a remark in brackets."""
    return label.partition("(")[0].strip() == known.casefold()
