"""Options of the learned partitioner."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from mohsearch.core.cards import Card

Count = Annotated[int, Field(ge=1)]
Chips = Annotated[int, Field(ge=2, le=64)]


class PretrainingOptions(Card):
    """On what a policy is trained before it meets the graph of a study (section 4.3)."""

    split: Literal["paper"] | None = Field(
        default=None,
        description="`paper`: the graphs that the study chiplet_table2 trains and validates on.",
    )
    graphs: tuple[str, ...] = Field(default=(), description="Training graphs, by name.")
    validation: tuple[str, ...] = Field(
        default=(), description="Graphs on which the checkpoint is chosen, without learning."
    )
    package: str = Field(default="mcm36", description="Package card.")
    chips: Annotated[tuple[Chips, ...], Field(min_length=1)] = Field(
        default=(8,), description="Chips available; of several numbers, each with every graph."
    )
    samples: Count = Field(default=20_000, description="Partitions evaluated in training, in all.")
    teacher: Literal["none", "exact"] = Field(
        default="none",
        description=(
            "`exact`: the exact partitions of the training graphs, least interval over the program "
            "order, are among those imitated. The validation graphs' are not."
        ),
    )
    epochs: Count = Field(default=10, description="Passes over the rollouts of an update.")
    minibatches: Count = Field(default=4, description="Minibatches of an update.")
    learning_rate: Annotated[float, Field(gt=0)] = Field(
        default=1e-4, description="Adam's; smaller than for one graph, since each update sees one."
    )
    entropy: Annotated[float, Field(ge=0)] = Field(
        default=3e-3, description="Weight of the entropy bonus."
    )
    elites: Count = Field(default=2, description="Partitions that are imitated, by graph.")
    checkpoints: Count = Field(default=10, description="Checkpoints to choose from.")
    seed: int = Field(default=0, ge=0, description="Seed of the training.")

    @field_validator("chips", mode="before")
    @classmethod
    def _one_number(cls, value: Any) -> Any:
        return (value,) if isinstance(value, int) else value

    @model_validator(mode="after")
    def _has_graphs(self) -> PretrainingOptions:
        if not self.graphs and self.split is None:
            raise ValueError("give training graphs, or split: paper")
        return self


class PolicyOptions(Card):
    """Options of the engine ``chiplet-rl``; sizes are the paper's where it gives them."""

    layers: Count = Field(default=8, description="GraphSAGE layers.")
    width: Count = Field(default=128, description="Width of every layer.")
    refinements: Count = Field(
        default=2, description="Times that all labels are drawn, each seeing the last (T)."
    )
    rollouts: Annotated[int, Field(ge=2)] = Field(
        default=20, description="Partitions between two updates."
    )
    minibatches: Count = Field(default=4, description="Minibatches of an update.")
    epochs: Count = Field(default=10, description="Passes over the rollouts of an update.")
    learning_rate: Annotated[float, Field(gt=0)] = Field(default=1e-3, description="Adam's.")
    clip: Annotated[float, Field(gt=0, lt=1)] = Field(
        default=0.2, description="Clipping of an op's probability ratio."
    )
    entropy: Annotated[float, Field(ge=0)] = Field(
        default=1e-2, description="Weight of the entropy bonus."
    )
    imitation: Annotated[float, Field(ge=0)] = Field(
        default=1.0,
        description=(
            "Weight of self-imitation: the likelihood of the best partitions so far, as repaired. "
            "At 0 the policy learns as in the paper, by PPO alone."
        ),
    )
    elites: Count = Field(default=10, description="Partitions that are imitated.")
    head: Literal["offsets", "chips"] = Field(
        default="offsets",
        description=(
            "Outputs of the head: distance from an op's centre, up to 4 chips either way, or (as "
            "in the paper) one output per chip."
        ),
    )
    prior: Literal["none", "balanced", "incumbent"] = Field(
        default="balanced",
        description=(
            "What is added to the logits: nothing, or a normal distribution around the op's "
            "balanced position, or around its chip in the best partition so far."
        ),
    )
    sigma: Annotated[float, Field(gt=0)] = Field(
        default=0.3, description="Standard deviation of that distribution, in chips."
    )
    temperature: Annotated[float, Field(gt=0)] = Field(
        default=1.0,
        description=(
            "Divides all logits, prior included; above 1 a pre-trained policy draws more widely. "
            "Pre-training itself is at 1."
        ),
    )
    learn: bool = Field(default=True, description="Whether to learn; off is the paper's zero-shot.")
    checkpoint: str | None = Field(
        default=None,
        description=(
            "Pre-trained policy to start from: a file, or a name on the shelf evaluators/policies."
        ),
    )
    pretraining: PretrainingOptions | None = Field(
        default=None,
        description="Pre-train first, or take the policy from the cache where that was done.",
    )

    @model_validator(mode="after")
    def _one_start(self) -> PolicyOptions:
        if self.checkpoint is not None and self.pretraining is not None:
            raise ValueError("give either a checkpoint or pretraining, not both")
        return self

    def network(self) -> dict[str, Any]:
        """Return what a checkpoint must agree in."""
        return {"layers": self.layers, "width": self.width, "head": self.head}
