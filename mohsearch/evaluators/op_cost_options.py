"""What operator costs depend on besides the accelerator: clock, memory, links, energies."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Annotated

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from mohsearch.core.cards import Card, read_card
from mohsearch.core.catalog import builtin_root
from mohsearch.workloads.training_ops import PRIMITIVES

Floats = NDArray[np.float64]
Positive = Annotated[float, Field(gt=0)]

WORD_BYTES = 2
"""A word is a 16-bit number (PHAZE, appendix C)."""


class CostTechnology(Card):
    """Cycles of lane operations, and energies.

    Attributes
    ----------
    lane_cycles
        By primitive of :data:`mohsearch.workloads.training_ops.PRIMITIVES`.
    paper_cycles
        Cycles per element by op type, ``forward`` and ``backward``, of the published code.
    sram_kib, sram_pj_per_64_bits
        Sizes, rising, and the energy of an access.
    """

    name: str
    node_nm: Positive
    lane_cycles: Mapping[str, Positive]
    paper_cycles: Mapping[str, Mapping[str, Positive]]
    multiply_pj: Positive
    add_pj: Positive
    sram_kib: tuple[Positive, ...]
    sram_pj_per_64_bits: tuple[Positive, ...]
    hbm_pj_per_bit: Positive

    @property
    def cycles(self) -> Floats:
        """Cycles of every primitive, in their order."""
        return np.array([self.lane_cycles[name] for name in PRIMITIVES])

    def sram_word_pj(self, kib: NDArray[np.int64]) -> Floats:
        """Return the energy of reading or writing one word of a buffer of so many KiB."""
        x, y = np.log(self.sram_kib), np.log(self.sram_pj_per_64_bits)
        at = np.log(np.asarray(kib, dtype=np.float64))
        place = np.clip(np.searchsorted(x, at) - 1, 0, len(x) - 2)
        slope = (y[place + 1] - y[place]) / (x[place + 1] - x[place])
        return np.asarray(np.exp(y[place] + slope * (at - x[place])) * (8 * WORD_BYTES / 64))

    @property
    def hbm_word_pj(self) -> float:
        """Energy of moving one word from or to the memory."""
        return self.hbm_pj_per_bit * 8 * WORD_BYTES


@lru_cache(maxsize=1)
def default_cost_technology() -> CostTechnology:
    """Return the figures at 22 nm."""
    path = builtin_root() / "evaluators" / "technology" / "op_cost" / "training22.yaml"
    return read_card(CostTechnology, path)


@dataclass(frozen=True)
class CostOptions:
    """How operators are costed. Each switch changes one thing.

    Attributes
    ----------
    frequency_hz
        Clock of all cores.
    memory_bytes_per_s
        Of the HBM.
    link_bytes_per_s, link_latency_s
        Of every link between accelerators, and what each step of a ring costs besides.
    sharing
        How many ops an op on one core shares the two bandwidths with, itself included; an op on all
        cores has them for itself. With fewer cores than that, so many as there are cores.
    filled
        Whether the folds of an array are filled and drained as in SCALE-Sim.
    buffered
        Whether half of each buffer is for what comes next.
    vector_memory
        Whether vector ops wait for their operands.
    fused_tiles
        Whether the followers of a fused op run on every element; else they cost a constant, and the
        head of a chain of vector ops nothing (as in the published code).
    paper_lanes
        Whether vector ops take the cycles per element of the published code.
    glb_words, memory_words
        Fixed words per cycle of the global buffer and the memory, whatever the accelerator.
    """

    frequency_hz: float = 1.05e9
    memory_bytes_per_s: float = 1.228e12
    link_bytes_per_s: float = 4 * 2**30
    link_latency_s: float = 0.0
    sharing: int = 2
    filled: bool = True
    buffered: bool = True
    vector_memory: bool = True
    fused_tiles: bool = True
    paper_lanes: bool = False
    glb_words: float | None = None
    memory_words: float | None = None
    technology: CostTechnology = field(default_factory=default_cost_technology)

    def __post_init__(self) -> None:
        for name in ("frequency_hz", "memory_bytes_per_s", "link_bytes_per_s", "sharing"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be positive, got {getattr(self, name)}")

    @property
    def memory_words_per_cycle(self) -> float:
        """Words that the memory moves in a cycle."""
        if self.memory_words is not None:
            return self.memory_words
        return self.memory_bytes_per_s / self.frequency_hz / WORD_BYTES

    @classmethod
    def paper(cls, *, frequency_hz: float = 1.05e6) -> CostOptions:
        """Return the choices of the code published with PHAZE (commit fed7cde).

        Bandwidths of 256 and 128 words a cycle whatever the accelerator, no filling of arrays,
        whole buffers, vector ops without memory, fused followers as a constant, and the clock as it
        stands there: 1.05e6, called 1.05 GHz, so that computing takes 1000 times too long beside
        communication. Pass ``frequency_hz=1.05e9`` for the published choices at the real clock.
        """
        return cls(
            frequency_hz=frequency_hz,
            sharing=1,
            filled=False,
            buffered=False,
            vector_memory=False,
            fused_tiles=False,
            paper_lanes=True,
            glb_words=256.0,
            memory_words=128.0,
        )
