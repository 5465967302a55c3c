"""Rows of one design point around its chip: hierarchy, overrides, results; and what they say.

The hierarchy decides the links that each parallel dimension sees, overrides replace what the chip
was built with, and a chip may not compute at all.
"""

from __future__ import annotations

from mohsearch.evaluators.crossflow.compiled import inner
from mohsearch.evaluators.crossflow.layout import (
    A_AREA,
    A_EDGE,
    A_POWER,
    K_FLOPS,
    K_LEVEL,
    K_LINK_BANDWIDTH,
    K_LINK_LATENCY,
    K_NET,
    L_BANDWIDTH,
    L_SHARE,
    L_SIZE,
    LEVEL_FIELDS,
    LINK_FIELDS,
    FloatArray,
)  # fmt: skip
from mohsearch.evaluators.crossflow.lstm import P_DP, P_H1, P_H2, P_LP
from mohsearch.evaluators.crossflow.reasons import NO_CORE, NO_MEMORY, NO_REGISTERS, OK

# Hierarchy row.
H_WORKERS, H_PACKAGES, H_INTER, H_INTRA, H_KP1, H_KP2, H_DP, H_LP, H_HACK = range(9)
H_NEAR, H_FAR = 9, 13
HIERARCHY_COLUMNS = 17
"""Devices, packages, sharing of the links between and inside packages, which dimensions leave
the package, whether the authors' V100 link scaling applies, and per dimension how many links
inside and between packages a message crosses on average."""

GEMM, LSTM, OPS = range(3)
"""Kinds of workload."""

# Override row; negative means none.
V_DRAM, V_SIZE, V_INTER, V_INTRA, V_FLOPS = range(5)
OVERRIDE_COLUMNS = 5

# Result row.
(
    X_TIME, X_FORWARD, X_BACKWARD, X_REASON, X_MEMORY, X_CAPACITY, X_BUNDLES, X_ENERGY, X_POWER,
    X_FLOPS,
) = range(10)  # fmt: skip
RESULT_COLUMNS = 10


@inner
def scaled_link(bandwidth: float, size: float) -> float:
    """Return the link bandwidth after the authors' scaling for a DGX-1 of V100."""
    if size <= 4.0:
        return bandwidth / 2.0
    if size <= 8.0:
        return bandwidth / 5.0
    return bandwidth / 4.0


@inner
def link_row(chip: FloatArray, place: FloatArray, plan: FloatArray, net: FloatArray) -> None:
    """Fill the bandwidth and latency that each parallel dimension sees."""
    intra = chip[K_NET + K_LINK_BANDWIDTH]
    inter = chip[K_NET + LINK_FIELDS + K_LINK_BANDWIDTH]
    far = near = 0.0
    if place[H_WORKERS] > 1.0:
        if place[H_INTRA] > 0.0:
            near = intra / place[H_INTRA]
        if place[H_PACKAGES] > 1.0:
            far = inter / max(place[H_INTER], 1.0)
            if place[H_INTRA] > 0.0:
                far = min(far, near)
    sizes = (plan[P_H1], plan[P_H2], plan[P_DP], plan[P_LP])
    for i in range(4):
        leaves = place[H_KP1 + i] != 0.0
        net[i] = far if leaves else near
        if place[H_HACK] != 0.0:
            net[i] = scaled_link(net[i], sizes[i])
        which = 1 if leaves else 0
        net[4 + i] = chip[K_NET + which * LINK_FIELDS + K_LINK_LATENCY]


@inner
def override(chip: FloatArray, over: FloatArray) -> None:
    """Replace what the chip offers by the override row's entries that are not negative."""
    k = K_LEVEL + 3 * LEVEL_FIELDS
    if over[V_DRAM] >= 0.0:
        chip[k + L_BANDWIDTH] = over[V_DRAM]
    if over[V_SIZE] >= 0.0:
        chip[k + L_SIZE] = chip[k + L_SHARE] = over[V_SIZE]
    if over[V_INTRA] >= 0.0:
        chip[K_NET + K_LINK_BANDWIDTH] = over[V_INTRA]
    if over[V_INTER] >= 0.0:
        chip[K_NET + LINK_FIELDS + K_LINK_BANDWIDTH] = over[V_INTER]
    if over[V_FLOPS] >= 0.0:
        chip[K_FLOPS] = over[V_FLOPS]


@inner
def chip_reason(chip: FloatArray, precision: float, exact: bool) -> int:
    """Return why a chip computes nothing, or ``OK``."""
    if chip[K_FLOPS] <= 0.0:
        return NO_CORE
    least = 3.0 if exact else 1.0
    for level in range(3):
        k = K_LEVEL + level * LEVEL_FIELDS
        if chip[k + L_SHARE] / precision < least or chip[k + L_BANDWIDTH] <= 0.0:
            return NO_REGISTERS + level
    if chip[K_LEVEL + 3 * LEVEL_FIELDS + L_BANDWIDTH] <= 0.0:
        return NO_MEMORY
    return OK


@inner
def over_budget(alloc: FloatArray) -> bool:
    """Tell whether the fractions of area, power or perimeter sum to more than one."""
    area = power = edge = 0.0
    for i in range(7):
        area += alloc[A_AREA + i]
        power += alloc[A_POWER + i]
    for i in range(3):
        edge += alloc[A_EDGE + i]
    return max(area, power, edge) > 1.0 + 1e-9
