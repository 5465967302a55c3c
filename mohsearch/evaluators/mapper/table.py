"""The mapping table: every kept mapping of every unique layer on every template, as arrays.

:func:`build_table` searches the whole mapping space of each layer on each architecture, keeps a
diverse subset of each Pareto set and caches the sets on disk. A layer that has no mapping on an
architecture has an empty cell (no rows) whose certificate holds the reason under ``infeasible``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from mohsearch.hardware.architecture import Architecture
from mohsearch.workloads.layer import LayerShape

Rule = Literal["diverse", "paper"]
Progress = Callable[[int, int, str], None]


@dataclass(frozen=True)
class MappingTable:
    """Pareto-optimal mappings of ``U`` unique layers on ``T`` templates, ``M`` rows in all.

    Rows are grouped by layer, then by template: the mappings of layer ``u`` on template ``t`` are
    rows ``offsets[u * T + t]`` up to ``offsets[u * T + t + 1]``. ``L`` is the largest number of
    on-chip storage levels of any template, outermost first; columns a template does not have are 0
    in ``reads``, ``writes`` and ``size_words`` and 1 in ``fanout``.

    Attributes
    ----------
    templates
        Template names, length T.
    layers
        Unique layer shapes, length U.
    offsets
        int64, shape (U * T + 1,).
    cycles
        int64, shape (M,): latency with the template's own DRAM bandwidth, alone in the package.
    dram_read_bytes, dram_write_bytes
        int64, shape (M,): traffic to and from memory, the whole layer.
    fixed_energy_pj
        float64, shape (M,): energy that does not depend on buffer sizes (MACs, NoC, DRAM).
    reads, writes
        float64, shape (M, L): row accesses of each level, all instances; ``writes`` holds fills and
        updates.
    size_words
        int64, shape (M, L): capacity each instance of the level must have, rounded up to the
        template's granularity.
    fanout
        int64, shape (M, L + 1): ratio of instances below; ``fanout[m, 0]`` counts instances of the
        first on-chip level, ``fanout[m, L]`` the MACs below each instance of the innermost one.
    notation
        length M: the mapping in readable loop-nest notation.
    certificates
        length U * T: what was enumerated and pruned, and whether the set is complete.
    """

    templates: tuple[str, ...]
    layers: tuple[LayerShape, ...]
    offsets: NDArray[np.int64]
    cycles: NDArray[np.int64]
    dram_read_bytes: NDArray[np.int64]
    dram_write_bytes: NDArray[np.int64]
    fixed_energy_pj: NDArray[np.float64]
    reads: NDArray[np.float64]
    writes: NDArray[np.float64]
    size_words: NDArray[np.int64]
    fanout: NDArray[np.int64]
    notation: tuple[str, ...]
    certificates: tuple[dict[str, object], ...]

    def rows(self, layer: int, template: int) -> slice:
        """Return the slice of rows that hold layer ``layer`` on template ``template``."""
        cell = layer * len(self.templates) + template
        return slice(int(self.offsets[cell]), int(self.offsets[cell + 1]))


def build_table(
    layers: Sequence[LayerShape],
    architectures: Sequence[Architecture],
    *,
    limit: int | None = 32,
    rule: Rule = "diverse",
    cache: Path | bool = True,
    workers: int | None = None,
    progress: Progress | None = None,
) -> MappingTable:
    """Search every layer on every architecture and return the kept mappings.

    Parameters
    ----------
    layers
        Unique layer shapes; table row groups follow their order.
    architectures
        Templates, with distinct names.
    limit
        Mappings kept of each Pareto set; None keeps all.
    rule
        ``diverse``: the fastest, the least energy, the smallest area, then spread over the front;
        ``paper``: the ``limit // 2`` fastest and as many of least energy.
    cache
        A folder, True for the user's cache folder, False for none.
    workers
        Processes; None for one per available core.
    progress
        Called with (pairs done, pairs in all, label of the pair just done).
    """
    raise NotImplementedError
