"""Options of the parallelism problem, as a study file gives them."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from mohsearch.core.cards import Card
from mohsearch.problems.phaze_options import Count, Counts, Mode


class ParallelismOptions(Card):
    """What is searched, and on which cluster.

    Examples
    --------
    >>> ParallelismOptions(degrees="measured").techniques
    'all'
    """

    degrees: Literal["all", "measured"] = Field(
        default="all",
        description=(
            "Search degrees, microbatch and interleaving, or keep those of the measured run (a "
            "microbatch that was not stated is searched all the same)."
        ),
    )
    techniques: Literal["all", "measured"] = Field(
        default="all",
        description=(
            "Search recomputation and sequence parallelism, or keep what the measured run used: "
            "its software may have had no other."
        ),
    )
    tensor: Counts | None = Field(
        default=None,
        description="Tensor-parallel degrees; powers of two within a node if not given.",
    )
    pipeline: Counts | None = Field(
        default=None,
        description="Pipeline stages; the divisors of the number of layers if not given.",
    )
    microbatches: Counts = Field(default=(1, 2, 4, 8, 16), description="Sequences of a microbatch.")
    virtual_stages: Counts = Field(
        default=(1, 2, 3, 4, 6, 8), description="Groups of layers on each device."
    )
    recompute: Annotated[tuple[Mode, ...], Field(min_length=1)] = Field(
        default=("none", "selective", "full"),
        description="Activations kept, attention repeated, or every layer repeated.",
    )
    sequence_parallel: Annotated[tuple[bool, ...], Field(min_length=1)] = Field(
        default=(False, True),
        description="Whether tokens between products are divided over tensor-parallel devices.",
    )
    cluster: str | None = Field(
        default=None,
        description="A cluster of the shelf; that of the measured run, or selene, if not given.",
    )
    devices: Count | None = Field(
        default=None, description="Devices in use; those of the measured run if not given."
    )
    global_batch: Count | None = Field(
        default=None, description="Sequences of a batch; those of the measured run if not given."
    )
    sequence_length: Count | None = Field(
        default=None, description="Tokens of a sequence; the run's or model's if not given."
    )
    attention: Literal["fused", "flash"] | None = Field(
        default=None, description="Kernel of attention; that of the run, or fused, if not given."
    )
    sharding: Literal["none", "optimizer"] | None = Field(
        default=None, description="What is spread over replicas; as in the run, or none."
    )
