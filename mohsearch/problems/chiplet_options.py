"""Options of the chiplet problem, as a study file gives them."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from mohsearch.core.cards import Card

Genome = Literal["labels", "offsets", "segments", "keys"]
Repair = Literal["fix", "project"]
Positive = Annotated[float, Field(gt=0)]


class ChipletOptions(Card):
    """The package, the genome and how a partition is costed.

    Examples
    --------
    >>> ChipletOptions(chips=8, genome="segments").fidelity
    'analytic'
    """

    package: str = Field(
        default="mcm36", description="Package card: chips, links, memory, energies, process."
    )
    chips: int | None = Field(
        default=None, ge=1, le=64, description="Chips available; the package's if not given."
    )
    genome: Genome = Field(
        default="segments",
        description=(
            "What is varied: the chip of every op (labels, repaired), its distance from the "
            "balanced position (offsets, projected), the share of work of every chip (segments, "
            "projected), or the ops' order, cut by a dynamic program (keys)."
        ),
    )
    constraints: Literal["ladder", "general", "chain"] = Field(
        default="ladder",
        description=(
            "How partitions are sampled and repaired: over all that satisfy constraints 1 to 3 "
            "(general), over those whose edges span at most one chip (chain, never fails), or "
            "general first and chain where it fails (ladder)."
        ),
    )
    repair: Repair = Field(
        default="fix",
        description=(
            "What operators on labels do with a partition that breaks constraints 1 to 3: the "
            "paper's FIX in a random order, or the projection that changes no op by more chips "
            "than it must."
        ),
    )
    fidelity: Literal["analytic", "hardware"] = Field(
        default="analytic",
        description=(
            "Cost model: the analytic one, or one with factors by op type, fusion, overheads and "
            "spilling that the exact solvers and greedy baselines do not know."
        ),
    )
    hardware_seed: int = Field(
        default=0, ge=0, description="Which hardware the fidelity hardware stands for."
    )
    element_bytes: Literal[1, 2, 4] | None = Field(
        default=None, description="Bytes of a tensor element; the package's if not given."
    )
    sram_mb: Positive | None = Field(
        default=None, description="Memory of a chip in 2**20 bytes; the package's if not given."
    )
    memory_limit: bool = Field(
        default=True,
        description="Whether a partition that needs more memory than a chip has is infeasible.",
    )

    @property
    def unconstrained(self) -> bool:
        """Whether the problem has no constraint: methods that know none can search it."""
        return not self.memory_limit
