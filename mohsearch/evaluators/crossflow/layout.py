"""Column layout of the arrays that CrossFlow's compiled kernels share.

A *technology row* holds what a component can do per unit of area, power or perimeter, an
*allocation row* how much of each it gets, a *chip row* what results. All values are SI except
areas (mm2), lengths (mm) and voltages (V); sizes are bytes and rates bytes or flop per second.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]

LEVELS = ("L0", "L1", "L2", "L3")
"""Registers, first-level memory, second-level memory, main memory."""
COMPONENTS = ("core", "DRAM", "L2", "L1", "reg_mem", "intra", "inter")
"""Order of the area and power fractions."""
EDGE_USERS = ("DRAM", "inter", "intra")
"""Order of the perimeter fractions."""

# --- technology row -------------------------------------------------------------------------
CORE = 0
(
    C_POWER, C_FLOPS, C_AREA_NOM, C_AREA, C_FREQ, C_VOLT, C_VT, C_MARGIN, C_BUNDLE, C_WIDTH1,
    C_WIDTH2, C_FLOW, C_UTIL, C_VMAX,
) = range(14)  # fmt: skip
DRAM = 14
(
    D_ENERGY, D_STATIC, D_CAPACITY, D_AREA, D_LATENCY, D_CTRL, D_FREQ, D_VOLT, D_VT, D_MARGIN,
    D_VMAX, D_PER_MM, D_PER_STACK, D_UTIL,
) = range(14, 28)  # fmt: skip
SRAM = 28
"""First of three blocks (registers, L1, L2) of ``SRAM_FIELDS`` columns."""
S_ENERGY, S_STATIC, S_AREA, S_BANK, S_CTRL, S_LATENCY, S_OVERHEAD, S_UTIL, S_SCOPE = range(9)
SRAM_FIELDS = 9
NET = SRAM + 3 * SRAM_FIELDS
"""First of two blocks (intra-package, inter-package) of ``NET_FIELDS`` columns."""
(
    N_LATENCY, N_FREQ, N_VOLT, N_VT, N_MARGIN, N_ENERGY, N_AREA, N_PER_MM, N_UTIL, N_VMAX, N_VZERO,
) = range(11)  # fmt: skip
NET_FIELDS = 11
TECHNOLOGY_COLUMNS = NET + 2 * NET_FIELDS

FLOWS = ("none", "wst", "ast", "ost", "best")
"""Dataflow codes: none, weight, activation and output stationary, best of the three."""
SCOPES = ("global", "mcu-bundle", "mcu")
"""Who shares one instance of a memory level."""

# --- allocation row -------------------------------------------------------------------------
A_NODE_AREA, A_CHIP_AREA, A_TDP = range(3)
A_AREA = 3
A_POWER = A_AREA + len(COMPONENTS)
A_EDGE = A_POWER + len(COMPONENTS)
ALLOCATION_COLUMNS = A_EDGE + len(EDGE_USERS)

# --- chip row -------------------------------------------------------------------------------
K_MCUS, K_BUNDLES, K_VOLT, K_FREQ, K_PEAK, K_FLOPS = range(6)
K_LEVEL = 6
"""First of four blocks (L0..L3) of ``LEVEL_FIELDS`` columns."""
L_BANKS, L_SIZE, L_SHARE, L_DYNAMIC, L_BANDWIDTH, L_LATENCY, L_STATIC, L_ENERGY = range(8)
LEVEL_FIELDS = 8
K_DRAM_LINKS = K_LEVEL + 4 * LEVEL_FIELDS
K_DRAM_FREQ = K_DRAM_LINKS + 1
K_DRAM_VOLT = K_DRAM_LINKS + 2
K_NET = K_DRAM_LINKS + 3
"""First of two blocks (intra, inter) of ``LINK_FIELDS`` columns."""
K_LINKS, K_LINK_VOLT, K_LINK_FREQ, K_LINK_BANDWIDTH, K_LINK_LATENCY, K_LINK_ENERGY = range(6)
LINK_FIELDS = 6
K_FLOP_ENERGY = K_NET + 2 * LINK_FIELDS
K_WIDTH1 = K_FLOP_ENERGY + 1
K_WIDTH2 = K_FLOP_ENERGY + 2
K_FLOW = K_FLOP_ENERGY + 3
K_AREA_USED = K_FLOP_ENERGY + 4
K_POWER_USED = K_FLOP_ENERGY + 5
CHIP_COLUMNS = K_POWER_USED + 1

CHIP_NAMES: dict[str, int] = {
    "num_mcu": K_MCUS,
    "num_bundle": K_BUNDLES,
    "core_voltage_v": K_VOLT,
    "core_frequency_hz": K_FREQ,
    "peak_flop_per_s": K_PEAK,
    "flop_per_s": K_FLOPS,
    **{
        f"{level}_{name}": K_LEVEL + i * LEVEL_FIELDS + column
        for i, level in enumerate(LEVELS)
        for name, column in (
            ("banks", L_BANKS),
            ("size_bytes", L_SIZE),
            ("size_per_sharer_bytes", L_SHARE),
            ("peak_bandwidth_bytes_per_s", L_DYNAMIC),
            ("bandwidth_bytes_per_s", L_BANDWIDTH),
            ("latency_s", L_LATENCY),
            ("static_power_w", L_STATIC),
            ("energy_j_per_byte", L_ENERGY),
        )
    },
    "dram_links": K_DRAM_LINKS,
    "dram_frequency_hz": K_DRAM_FREQ,
    "dram_voltage_v": K_DRAM_VOLT,
    **{
        f"{net}_{name}": K_NET + i * LINK_FIELDS + column
        for i, net in enumerate(("intra", "inter"))
        for name, column in (
            ("links", K_LINKS),
            ("voltage_v", K_LINK_VOLT),
            ("frequency_hz", K_LINK_FREQ),
            ("bandwidth_bytes_per_s", K_LINK_BANDWIDTH),
            ("latency_s", K_LINK_LATENCY),
            ("energy_j_per_byte", K_LINK_ENERGY),
        )
    },
    "flop_energy_j": K_FLOP_ENERGY,
    "area_used_mm2": K_AREA_USED,
    "power_used_w": K_POWER_USED,
}
"""Public names of the chip row's columns, units as suffixes."""


def chip_record(row: FloatArray) -> dict[str, float]:
    """Return one chip row as a record with united names."""
    return {name: float(row[column]) for name, column in CHIP_NAMES.items()}
