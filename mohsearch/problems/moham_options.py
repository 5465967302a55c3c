"""Options of the moham problem, as a study file gives them."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from mohsearch.core.cards import Card
from mohsearch.evaluators.package_network import PackageNetwork, Placement, Sharing

Positive = Annotated[float, Field(gt=0)]


class MohamOptions(Card):
    """Hardware that may be built, and how it is modelled.

    Examples
    --------
    >>> MohamOptions(interface_bandwidth_gb_per_s=8).network().interface_bandwidth_bytes_per_s
    8000000000.0
    """

    templates: tuple[str, ...] = Field(
        default=("eyeriss", "simba", "shidiannao"),
        min_length=1,
        description="Templates that instances may have; `mohsearch template list` shows them.",
    )
    variant: str | None = Field(
        default=None,
        description="Variant of every template's card; each card's own default if not given.",
    )
    register_file_area: Literal["physical", "accelergy"] = Field(
        default="physical",
        description="Count every stored bit of a register file, or one row as Accelergy does.",
    )
    omit_levels: dict[str, tuple[str, ...]] = Field(
        default_factory=dict,
        description="By template: optional levels to leave out, such as RegisterOut of shidiannao.",
    )
    memory_words_per_cycle: Positive | None = Field(
        default=None,
        description=(
            "Memory bandwidth that the layer mapper counts with, read and write each; that of the "
            "template if not given."
        ),
    )
    clock_ghz: Positive = Field(default=1.0, description="Clock of every instance.")
    max_instances: int = Field(
        default=16, ge=1, le=256, description="Most sub-accelerator instances in a package."
    )
    fixed_hardware: dict[str, Annotated[int, Field(ge=1)]] | None = Field(
        default=None,
        description=(
            "Number of instances of each template in a given package, every level at its capacity "
            "and every fan-out at its limit. Mapping, assignment, order and the instances' tiles "
            "are searched; `templates` and `max_instances` do not count then."
        ),
    )
    mapper_effort: int | None = Field(
        default=20_000_000,
        ge=1000,
        le=2**62,
        description=(
            "Most lower bounds that the layer mapper works out for a layer on a template, about "
            "million a second. Where a space needs more, its Pareto set is proven up to a factor "
            "that the certificate states; null always completes."
        ),
    )
    mappings_per_layer: int | None = Field(
        default=32,
        ge=1,
        description="Mappings kept of each layer's Pareto set per template; null keeps all.",
    )
    mapping_rule: Literal["diverse", "paper"] = Field(
        default="diverse",
        description="Which are kept: spread over the front, or the fastest and the least energy.",
    )
    interface_bandwidth_gb_per_s: Positive = Field(
        default=4.0, description="What one memory interface moves, in 1e9 bytes/s."
    )
    link_bandwidth_gb_per_s: Positive = Field(
        default=16.0, description="What one chiplet moves over the package, in 1e9 bytes/s."
    )
    system_bandwidth_gb_per_s: Positive = Field(
        default=16.0, description="What all memory interfaces move together, in 1e9 bytes/s."
    )
    hop_energy_pj_per_bit: Annotated[float, Field(ge=0)] = Field(
        default=0.82, description="Energy of one bit over one link of the package."
    )
    interfaces: int | None = Field(
        default=None,
        ge=1,
        description="Memory interfaces of a package; if not given 2 up to 4 instances, 4 above.",
    )
    interface_placement: Placement = Field(
        default="corners", description="Where interfaces stand along the left and right edges."
    )
    sharing: Sharing = Field(
        default="proportional",
        description=(
            "How a crowded interface is shared: all its layers slowed alike, or max-min fair, or "
            "the two-pass stretch of the authors' program."
        ),
    )
    compat: Literal["moham"] | None = Field(
        default=None,
        description=(
            "`moham` follows the authors' program: two-pass stretch with demands at full "
            "utilisation, interface ties to the last one, the right edge one hop further out."
        ),
    )

    @model_validator(mode="after")
    def _consistent(self) -> MohamOptions:
        if len(set(self.templates)) < len(self.templates):
            raise ValueError("templates: a name stands twice")
        names = set(self.template_names)
        if unknown := sorted(set(self.omit_levels) - names):
            raise ValueError(f"omit_levels: {unknown[0]!r} is none of the templates")
        if self.fixed_hardware is not None:
            if not self.fixed_hardware:
                raise ValueError("fixed_hardware: name at least one template")
            if sum(self.fixed_hardware.values()) > 256:
                raise ValueError("fixed_hardware: more than 256 instances")
        if self.compat and "sharing" in self.model_fields_set and self.sharing != "two-pass":
            raise ValueError("compat moham means sharing two-pass")
        return self

    @property
    def template_names(self) -> tuple[str, ...]:
        """Templates in use."""
        return self.templates if self.fixed_hardware is None else tuple(self.fixed_hardware)

    @property
    def slots(self) -> int:
        """Instance slots of a genome."""
        if self.fixed_hardware is None:
            return self.max_instances
        return sum(self.fixed_hardware.values())

    def network(self) -> PackageNetwork:
        """Return the network on package that these options describe."""
        authors = self.compat == "moham"
        return PackageNetwork(
            interface_bandwidth_bytes_per_s=self.interface_bandwidth_gb_per_s * 1e9,
            link_bandwidth_bytes_per_s=self.link_bandwidth_gb_per_s * 1e9,
            system_bandwidth_bytes_per_s=self.system_bandwidth_gb_per_s * 1e9,
            hop_energy_pj_per_bit=self.hop_energy_pj_per_bit,
            interfaces=self.interfaces,
            placement=self.interface_placement,
            sharing="two-pass" if authors else self.sharing,
            crowded_ties=authors,
            far_right=authors,
        )
