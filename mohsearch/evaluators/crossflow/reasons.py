"""Reason codes: why a design point has no time, or may not be built."""

from __future__ import annotations

OK = 0
NO_CORE = 1
NO_REGISTERS = 2
NO_L1 = 3
NO_L2 = 4
NO_MEMORY = 5
NO_NETWORK = 6
TOO_FEW_TILES = 7
INDIVISIBLE = 8
MEMORY_OVERFLOW = 9
OVER_BUDGET = 10
UNSUPPORTED_PIPELINE = 11
NO_WAFER = 12

REASONS: dict[int, str] = {
    OK: "feasible",
    NO_CORE: "no MCU bundle fits the core's area, or it has no power",
    NO_REGISTERS: "the registers hold less than one tile, or have no power",
    NO_L1: "the first-level memory holds less than one tile, or has no power",
    NO_L2: "the second-level memory holds less than one tile, or has no power",
    NO_MEMORY: "no main-memory stack fits, or it has no power or no links",
    NO_NETWORK: "the strategy needs a network that has no bandwidth",
    TOO_FEW_TILES: "too few distinct tiles for the authors' random tiling",
    INDIVISIBLE: "the strategy does not divide the model's dimensions",
    MEMORY_OVERFLOW: "a device needs more main memory than it has",
    OVER_BUDGET: "the fractions of area, power or perimeter sum to more than one",
    UNSUPPORTED_PIPELINE: "pipelines have 1 or at least 4 stages",
    NO_WAFER: "its die or package fits no wafer, so that it has no price",
}
