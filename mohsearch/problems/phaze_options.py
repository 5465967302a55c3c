"""Options of the phaze problem, as a study file gives them."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from mohsearch.core.cards import Card
from mohsearch.evaluators.device_placement.problem import ExpertPlan
from mohsearch.evaluators.op_cost_options import CostOptions
from mohsearch.evaluators.training_architecture import (
    CORE_COUNTS,
    GLOBAL_BUFFERS_MIB,
    LEAST_SHARE,
    WIDTHS,
)
from mohsearch.evaluators.training_grid import TrainingGrid
from mohsearch.evaluators.training_search import TrainingCluster
from mohsearch.evaluators.training_times import STRICT_SHARING

Positive = Annotated[float, Field(gt=0)]
Count = Annotated[int, Field(ge=1, le=2**20)]
"""Products of three of them are exact in 64 bits."""
Counts = Annotated[tuple[Count, ...], Field(min_length=1)]
Mode = Literal["none", "selective", "full"]


COST_SWITCHES = (
    "op_costs",
    "bandwidth_sharing",
    "weight_gradients",
    "precision",
    "optimizer",
    "sync_factor",
    "clock_ghz",
    "network_gb_per_s",
    "memory_gb_per_s",
)
"""Options that say how time and energy of a training step are modelled."""


class ExpertCard(Card):
    """A placement by hand."""

    pipeline: Count
    data: Count
    tensor: Count = 1


class PhazeOptions(Card):
    """The grid that is searched, the cluster, and how training is modelled.

    Examples
    --------
    >>> PhazeOptions(microbatches=[1], hbm_gib=[80]).grid().size
    58720
    """

    tensor_cores: Counts = Field(default=CORE_COUNTS, description="Numbers of tensor cores.")
    vector_cores: Counts = Field(default=CORE_COUNTS, description="Numbers of vector cores.")
    widths: Counts = Field(
        default=WIDTHS, description="Columns of a tensor core, lanes of a vector core."
    )
    depths: Counts = Field(default=WIDTHS, description="Rows of a tensor core.")
    global_buffers_mib: Counts = Field(
        default=GLOBAL_BUFFERS_MIB, description="Sizes of the shared buffer, in MiB."
    )
    fixed_architecture: tuple[Count, Count, Count, Count, Count] | None = Field(
        default=None,
        description=(
            "Tensor cores, vector cores, width, depth and buffer (MiB) of a given accelerator: "
            "only its training is searched, and the area budget does not count."
        ),
    )
    accelerator: Literal["tpuv4", "spotlight", "published", "common"] | None = Field(
        default=None,
        description=(
            "A given accelerator by its role in the paper: TPUv4, what Spotlight found for the "
            "model, what the paper found for the model, or its common one (tables 2 and 4)."
        ),
    )
    area_budget_mm2: Positive | None = Field(
        default=None, description="Largest area; that of the paper's TPUv4 if not given."
    )
    least_area_share: float = Field(
        default=LEAST_SHARE,
        ge=0,
        le=1,
        description="Smallest share of the budget where both kinds of cores are several.",
    )
    microbatches: Counts = Field(default=(1, 2, 4, 8), description="Samples of a microbatch.")
    hbm_gib: Counts = Field(default=(32, 64, 80), description="Memory of a device, in GiB.")
    recompute: Annotated[tuple[Mode, ...], Field(min_length=1)] = Field(
        default=("none", "full"),
        description=(
            "What becomes of activations: kept, attention repeated (selective), or a whole stage "
            "repeated from its inputs (full, as published)."
        ),
    )
    best_setting: bool = Field(
        default=False,
        description=(
            "Choose microbatch and recomputation inside, for the least time of each model, instead "
            "of searching them as genes: designs are then hardware only."
        ),
    )
    devices: Count = Field(default=1024, description="Accelerators of the cluster.")
    global_batch: Count = Field(default=4096, description="Samples of a batch.")
    tensor_parallel: Counts = Field(
        default=(1, 2, 4, 8),
        description="Tensor-parallel widths; those that cannot cut a model are left out.",
    )
    published_widths: bool = Field(
        default=False,
        description="Try the widths that the paper tried for the model, in place of these.",
    )
    sequence_length: Count | None = Field(
        default=None, description="Tokens per sample; the model's if not given."
    )
    network_gb_per_s: Positive = Field(
        default=4 * 2**30 / 1e9, description="Bandwidth of every link, in 1e9 bytes/s."
    )
    memory_gb_per_s: Positive = Field(
        default=1228.0, description="Bandwidth of a device's memory, in 1e9 bytes/s (TPUv4)."
    )
    clock_ghz: Positive = Field(default=1.05, description="Clock of the cores.")
    bandwidth_sharing: Count = Field(
        default=STRICT_SHARING,
        description=(
            "Operators on single cores get this part of the bandwidths each (at most the number of "
            "cores counts); the default never exceeds them, 1 gives each the whole as published."
        ),
    )
    precision: Literal["mixed", "mixed16", "single", "paper"] = Field(
        default="mixed", description="Bytes of weights, gradients and optimizer state."
    )
    optimizer: Literal["adam", "sgd"] = Field(default="adam", description="Optimizer.")
    sequence_parallel: bool = Field(
        default=False,
        description="Divide tokens between products over the tensor-parallel devices.",
    )
    weight_gradients: bool = Field(
        default=True, description="Count weight gradients and the optimizer's step."
    )
    sync_factor: Positive = Field(
        default=2.0,
        description="Gradient bytes times this cross a link per synchronisation (ring: 2).",
    )
    op_costs: Literal["model", "paper"] = Field(
        default="model",
        description=(
            "Operator costs of this project, or the published program's choices: fixed bandwidths, "
            "vector operators without memory, constant followers."
        ),
    )
    placement: Literal["optimal", "expert"] = Field(
        default="optimal",
        description="The best placement, or the plan in `expert`, by default the paper's.",
    )
    expert: ExpertCard | None = Field(
        default=None, description="Pipeline, data and tensor parallel degree of a plan by hand."
    )
    mean: Literal["geometric", "arithmetic"] = Field(
        default="geometric",
        description="Mean of several models' throughputs (published program: arithmetic).",
    )
    schedule_states: int = Field(
        default=512, ge=1, description="Effort of an operator schedule: states kept on a level."
    )
    schedule_gap: float = Field(
        default=0.0,
        ge=0,
        lt=1,
        description="Share of a schedule's length that may stay unproven without a search.",
    )
    schedule_nodes: int | None = Field(
        default=None,
        ge=-1,
        description=(
            "Effort of the bound by phases for schedules the search leaves open, -1: none; by "
            "default 100 on one fixed accelerator and none where accelerators are searched."
        ),
    )
    compat: Literal["paper"] | None = Field(
        default=None,
        description=(
            "`paper` sets every switch to the published program: op_costs, bandwidth_sharing 1, no "
            "weight gradients, 16-bit state with SGD, sync_factor 4, arithmetic mean, and its "
            "clock of 1.05 MHz; switches given beside it keep their values."
        ),
    )

    @model_validator(mode="after")
    def _consistent(self) -> PhazeOptions:
        if self.accelerator is not None and self.fixed_architecture is not None:
            raise ValueError("give either accelerator or fixed_architecture, not both")
        for name in ("microbatches", "hbm_gib", "recompute", "tensor_parallel"):
            values = getattr(self, name)
            if len(set(values)) < len(values):
                raise ValueError(f"{name}: a value stands twice")
        return self

    def resolved(self) -> PhazeOptions:
        """Return the options with `compat` written out as switches."""
        if self.compat is None:
            return self
        given = {name: getattr(self, name) for name in self.model_fields_set}
        return PhazeOptions.model_validate({**PAPER, **given, "compat": None})

    @property
    def phase_nodes(self) -> int:
        """Effort of the bound by phases, the default made explicit."""
        if self.schedule_nodes is not None:
            return self.schedule_nodes
        fixed = self.accelerator is not None or self.fixed_architecture is not None
        return 100 if fixed else -1

    def grid(self) -> TrainingGrid:
        """Return the grid of designs."""
        axes = {
            "tensor_cores": self.tensor_cores,
            "vector_cores": self.vector_cores,
            "widths": self.widths,
            "depths": self.depths,
            "global_buffers_mib": self.global_buffers_mib,
        }
        budget, least = self.area_budget_mm2, self.least_area_share
        if self.fixed_architecture is not None:
            given = zip(axes, self.fixed_architecture, strict=True)
            axes = {name: (value,) for name, value in given}
            budget, least = 1e9, 0.0
        return TrainingGrid.build(
            **axes,
            microbatches=(0,) if self.best_setting else self.microbatches,
            hbm_gib=self.hbm_gib,
            recompute=("best",) if self.best_setting else self.recompute,
            budget_mm2=budget,
            least_share=least,
        )

    def cluster(self) -> TrainingCluster:
        """Return the machine."""
        return TrainingCluster(
            self.devices, self.global_batch, self.network_gb_per_s * 1e9, self.sync_factor
        )

    def cost(self) -> CostOptions:
        """Return how operators are costed."""
        hertz, link = self.clock_ghz * 1e9, self.network_gb_per_s * 1e9
        if self.op_costs == "paper":
            published = CostOptions.paper(frequency_hz=hertz)
            return CostOptions(
                **{
                    **vars(published),
                    "sharing": self.bandwidth_sharing,
                    "link_bytes_per_s": link,
                }
            )
        return CostOptions(
            frequency_hz=hertz,
            memory_bytes_per_s=self.memory_gb_per_s * 1e9,
            link_bytes_per_s=link,
            sharing=self.bandwidth_sharing,
        )

    def expert_plan(self) -> ExpertPlan | None:
        """Return the plan by hand, if placements follow it."""
        if self.placement != "expert" or self.expert is None:
            return None
        return ExpertPlan(self.expert.pipeline, self.expert.tensor, self.expert.data, 0)


PAPER = {
    "op_costs": "paper",
    "bandwidth_sharing": 1,
    "weight_gradients": False,
    "precision": "paper",
    "optimizer": "sgd",
    "sync_factor": 4.0,
    "mean": "arithmetic",
    "clock_ghz": 1.05e-3,
}
"""The published program's choices (commit fed7cde)."""
