"""Options of the deepflow problem, as a study file gives them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from mohsearch.core.cards import Card
from mohsearch.evaluators.crossflow.design_space import FRACTION_NAMES
from mohsearch.evaluators.crossflow.evaluate import AUTHORS, CORRECTED, Model, Strategy
from mohsearch.evaluators.crossflow.placement import Topology

Positive = Annotated[float, Field(gt=0)]
Share = Annotated[float, Field(ge=0, le=1)]


def _pair(value: Any) -> Any:
    """Return a range where one number is given."""
    return (value, value) if isinstance(value, int | float) else value


def _several(value: Any) -> Any:
    """Return a tuple where one name is given."""
    return (value,) if isinstance(value, str) else value


Range = Annotated[tuple[Positive, Positive], BeforeValidator(_pair)]
Names = Annotated[tuple[str, ...], Field(min_length=1), BeforeValidator(_several)]


class DeepflowOptions(Card):
    """What is searched and what is given.

    A variable is fixed where one value is given and searched where there are several.

    Examples
    --------
    >>> DeepflowOptions(devices=8, strategies="d8", tdp_w=300).tdp_w
    (300.0, 300.0)
    """

    system: str = Field(
        default="V100",
        description=(
            "System card (evaluators/systems) whose technology, budgets and fractions hold where "
            "nothing else is said."
        ),
    )
    devices: int = Field(default=8, ge=1, le=2**20, description="Accelerators of the whole system.")
    nodes_per_package: int = Field(
        default=1, ge=1, le=4096, description="Accelerators in one package, linked inside it."
    )
    inter_topology: Topology = Field(
        default="switch", description="Network between packages: chain is the authors' program's."
    )
    intra_topology: Topology = Field(default="mesh", description="Network inside a package.")
    inter_derate: Positive | None = Field(
        default=None,
        description=(
            "Messages that share a link between packages, given instead of worked out from the "
            "placement (as in the authors' configurations)."
        ),
    )
    intra_derate: Positive | None = Field(
        default=None, description="As `inter_derate`, for links inside a package."
    )
    logic: Names | None = Field(
        default=None, description="Logic nodes to choose from, in order; the system's by default."
    )
    memory: Names | None = Field(
        default=None, description="Main memories to choose from; the system's by default."
    )
    network: Names | None = Field(
        default=None, description="Networks between packages; the system's by default."
    )
    quoted_bandwidths: bool = Field(
        default=False,
        description=(
            "Take memory and network bandwidths per node from the cards, as the paper's case "
            "studies, instead of working them out from area, power and perimeter."
        ),
    )
    intra_bandwidth_gb_per_s: Positive | None = Field(
        default=None,
        description="Bandwidth of a link inside a package, in 1e9 bytes/s; worked out by default.",
    )
    tdp_w: Range | None = Field(
        default=None, description="Power of a node, or its range; the system's by default."
    )
    node_area_mm2: Range | None = Field(
        default=None,
        description="Area of a node, die and memory stacks, or its range; the system's by default.",
    )
    chip_area_mm2: Positive | Literal["rest", "system"] = Field(
        default="rest",
        description=(
            "Area of the die: a number, the system's, or the rest of the node beside the stacks "
            "that the strategy's memory needs (as the authors' program)."
        ),
    )
    reticle_mm2: Positive | None = Field(
        default=858.0,
        description="Largest die under `chip_area_mm2: rest` (26 mm x 33 mm); null is no limit.",
    )
    extra_stacks: Annotated[tuple[int, int], BeforeValidator(_pair)] = Field(
        default=(0, 0),
        description="Memory stacks beyond those needed, under `chip_area_mm2: rest`; or a range.",
    )
    strategies: Literal["all"] | Names = Field(
        default="all",
        description="Parallelism strategies to choose from, such as RC-2-4-d8-p1, or all.",
    )
    pipeline_stages: tuple[Annotated[int, Field(ge=1)], ...] = Field(
        default=(1, 4), min_length=1, description="Pipeline stages that `strategies: all` allows."
    )
    mapping: Literal["best", "searched"] = Field(
        default="best",
        description="Nest the parallel dimensions onto devices in the best order, or search it.",
    )
    fractions: Literal["searched", "system"] = Field(
        default="searched", description="Search the 17 fractions, or take those of the system."
    )
    fixed_fractions: dict[str, Share] = Field(
        default_factory=dict,
        description="Fractions that are given, by name such as area.core or perimeter.DRAM.",
    )
    memory_limit: Literal["hard", "ignored"] = Field(
        default="hard",
        description="Whether a design whose main memory is too small is infeasible.",
    )
    compat: Literal["none", "deepflow"] = Field(
        default="none",
        description="`deepflow` keeps the choices of the authors' program, known faults included.",
    )
    link_release: Literal["held", "authors"] | None = Field(
        default=None,
        description=(
            "Whether a link stays busy until its own transfer ends; as `compat` says by default."
        ),
    )
    element_wise_traffic: Literal["all-levels", "main-memory", "registers"] | None = Field(
        default=None,
        description="Memory that element-wise kernels are charged to; as `compat` by default.",
    )
    tile_candidates: int = Field(
        default=20,
        ge=2,
        le=100_000,
        description="Random tiles per level under `compat: deepflow`.",
    )
    choose_bundles: bool = Field(
        default=True,
        description=(
            "Build as many compute bundles as make the time smallest, instead of all that fit; "
            "slower, and needed for more of a resource never to be slower."
        ),
    )
    precision_bytes: Positive = Field(default=2.0, description="Bytes per number.")
    launch_overhead_s: Annotated[float, Field(ge=0)] = Field(
        default=9e-6, description="Seconds to launch a kernel."
    )

    @model_validator(mode="after")
    def _consistent(self) -> DeepflowOptions:
        unknown = sorted(set(self.fixed_fractions) - set(FRACTION_NAMES))
        if unknown:
            known = ", ".join(FRACTION_NAMES)
            raise ValueError(f"fixed_fractions: no fraction {unknown[0]!r}; there are {known}")
        for name in ("tdp_w", "node_area_mm2", "extra_stacks"):
            pair = getattr(self, name)
            if pair is not None and pair[0] > pair[1]:
                raise ValueError(f"{name}: the range {pair[0]:g} to {pair[1]:g} is empty")
        if self.extra_stacks[0] < 0:
            raise ValueError("extra_stacks: must not be negative")
        if self.extra_stacks != (0, 0) and self.chip_area_mm2 != "rest":
            raise ValueError("extra_stacks: needs chip_area_mm2: rest")
        for name in self.strategies if self.strategies != "all" else ():
            count = Strategy.parse(name, field="strategies").devices
            if count != self.devices:
                raise ValueError(f"strategies: {name} takes {count} devices, not {self.devices}")
        if self.compat == "deepflow" and self.mapping == "searched":
            raise ValueError("mapping: compat tries all of the authors' layouts; leave it at best")
        if self.compat == "none" and self.tile_candidates != 20:
            raise ValueError("tile_candidates: means something under compat: deepflow only")
        return self

    def model(self) -> Model:
        """Return the evaluator's switches."""
        from dataclasses import replace

        base = AUTHORS if self.compat == "deepflow" else CORRECTED
        levels = {"all-levels": -1, "main-memory": 3, "registers": 0}
        changes: dict[str, Any] = {"choose_bundles": self.choose_bundles and base.choose_bundles}
        if self.compat == "deepflow":
            changes["candidates"] = self.tile_candidates
        if self.link_release is not None:
            changes["links_kept"] = self.link_release == "held"
        if self.element_wise_traffic is not None:
            changes["pass_level"] = levels[self.element_wise_traffic]
        return replace(base, **changes)
