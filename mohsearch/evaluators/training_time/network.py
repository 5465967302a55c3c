"""Seconds of collectives inside a node and between nodes, for whole arrays at once."""

from __future__ import annotations

import numpy as np

from mohsearch.evaluators.training_time.cards import TrainingConstants
from mohsearch.evaluators.training_time.cases import ClusterRates, Floats, TrainingRuns

STEP_LATENCY_S = 5e-6
"""Further latency of a collective for every doubling of the group."""


class ClusterNetwork:
    """Collectives of training runs.

    Consecutive devices are one tensor-parallel group, then come the replicas, then the stages.

    Parameters
    ----------
    runs, rates, constants
        What runs, on what, and the calibrated fractions.
    """

    def __init__(
        self, runs: TrainingRuns, rates: ClusterRates, constants: TrainingConstants
    ) -> None:
        self.runs = runs
        self.latency = rates.all_reduce_latency_s
        self.node_bus = rates.node_all_reduce
        node = runs.network_bytes_per_s * constants.network_efficiency
        self.device_share = node / runs.devices_per_node
        """What one device gets of the network when all of a node send at once, bytes/s."""

    def bus(self, members: Floats) -> Floats:
        """Return the bus bandwidth of an all-reduce among neighbours in one node."""
        low = np.clip(np.ceil(np.log2(np.maximum(members, 1))), 0, 3).astype(np.int64)
        return np.asarray(self.node_bus[low, np.arange(len(low))])

    def tensor_all_reduce_s(self, size: Floats) -> Floats:
        """Return the time of an all-reduce of ``size`` bytes over a tensor-parallel group.

        A group wider than a node crosses the network with all devices of each node.
        """
        members = self.runs.tensor
        inside = np.minimum(members, self.runs.devices_per_node)
        bus = np.where(
            members > self.runs.devices_per_node,
            np.minimum(self.bus(inside), self.device_share * inside),
            self.bus(inside),
        )
        seconds = 2 * (members - 1) / members * size / bus + self._latency(members)
        return np.asarray(np.where(members > 1, seconds, 0.0))

    def replica_ring_s(self, volume: Floats) -> Floats:
        """Return the time to send ``volume`` bytes around the ring of one slice's replicas."""
        tensor, data = self.runs.tensor, self.runs.data
        per_node = np.maximum(np.floor(self.runs.devices_per_node / tensor), 1)
        inside = np.minimum(data, per_node)
        within = self.bus(np.minimum(tensor * data, self.runs.devices_per_node))
        between = np.minimum(within, self.device_share * inside)
        crosses = tensor * data > self.runs.devices_per_node
        seconds = volume / np.where(crosses, between, within) + self._latency(data)
        return np.asarray(np.where(data > 1, seconds, 0.0))

    def gradient_all_reduce_s(self, size: Floats) -> Floats:
        """Return the time of an all-reduce of ``size`` bytes of gradients over the replicas."""
        return self.replica_ring_s(2 * (self.runs.data - 1) / self.runs.data * size)

    def stage_transfer_s(self, size: Floats) -> Floats:
        """Return the time to hand a microbatch of ``size`` bytes to the next stage.

        Every device of a tensor-parallel group sends its share, and the receivers gather them
        (scatter/gather of Narayanan et al., SC21, section 4.1).
        """
        runs = self.runs
        share = size / runs.tensor
        link = np.where(self.crosses_nodes, self.device_share, self.bus(runs.devices_per_node))
        gather = np.where(
            runs.tensor > 1,
            share * (runs.tensor - 1) / self.bus(np.minimum(runs.tensor, runs.devices_per_node)),
            0.0,
        )
        seconds = share / link + self.latency + gather
        return np.asarray(np.where(runs.pipeline > 1, seconds, 0.0))

    def tied_embedding_s(self, size: Floats) -> Floats:
        """Return the time to add up the gradient of the embedding in first and last stage."""
        link = np.where(self.crosses_nodes, self.device_share, self.bus(self.runs.devices_per_node))
        return np.asarray(np.where(self.runs.pipeline > 1, size / link + self.latency, 0.0))

    @property
    def crosses_nodes(self) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
        """Whether stages stand in different nodes."""
        runs = self.runs
        return runs.tensor * runs.data * runs.pipeline > runs.devices_per_node

    def _latency(self, members: Floats) -> Floats:
        return self.latency + STEP_LATENCY_S * np.log2(np.maximum(members, 1))
