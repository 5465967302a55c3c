"""Micro-architecture generator: a chip from fractions of area, power and perimeter.

Source: DeepFlow paper, section 4.4 (equations 1 to 4). ``compat=True`` keeps the choices of the
authors' program; the default differs in these points, each of which keeps "more of a resource is
never slower" true:

- the number of MCU bundles is a choice up to what the area holds (a chip need not fill its area);
- leakage is paid from a reserved share of each memory's power instead of from its bandwidth;
- a DRAM stack is built only if the perimeter holds all its links (equation 4, third term);
- a network without power has no bandwidth.
"""

from __future__ import annotations

import math

import numpy as np

from mohsearch.evaluators.crossflow.compiled import entry, inner, outlined
from mohsearch.evaluators.crossflow.layout import (
    A_AREA,
    A_CHIP_AREA,
    A_EDGE,
    A_NODE_AREA,
    A_POWER,
    A_TDP,
    ALLOCATION_COLUMNS,
    C_AREA,
    C_AREA_NOM,
    C_BUNDLE,
    C_FLOPS,
    C_FLOW,
    C_FREQ,
    C_MARGIN,
    C_POWER,
    C_UTIL,
    C_VMAX,
    C_VOLT,
    C_VT,
    C_WIDTH1,
    C_WIDTH2,
    CHIP_COLUMNS,
    D_AREA,
    D_CAPACITY,
    D_CTRL,
    D_ENERGY,
    D_FREQ,
    D_LATENCY,
    D_MARGIN,
    D_PER_MM,
    D_PER_STACK,
    D_STATIC,
    D_UTIL,
    D_VMAX,
    D_VOLT,
    D_VT,
    K_AREA_USED,
    K_BUNDLES,
    K_DRAM_FREQ,
    K_DRAM_LINKS,
    K_DRAM_VOLT,
    K_FLOP_ENERGY,
    K_FLOPS,
    K_FLOW,
    K_FREQ,
    K_LEVEL,
    K_LINK_BANDWIDTH,
    K_LINK_ENERGY,
    K_LINK_FREQ,
    K_LINK_LATENCY,
    K_LINK_VOLT,
    K_LINKS,
    K_MCUS,
    K_NET,
    K_PEAK,
    K_POWER_USED,
    K_VOLT,
    K_WIDTH1,
    K_WIDTH2,
    L_BANDWIDTH,
    L_BANKS,
    L_DYNAMIC,
    L_ENERGY,
    L_LATENCY,
    L_SHARE,
    L_SIZE,
    L_STATIC,
    LEVEL_FIELDS,
    LINK_FIELDS,
    N_AREA,
    N_ENERGY,
    N_FREQ,
    N_LATENCY,
    N_MARGIN,
    N_PER_MM,
    N_UTIL,
    N_VMAX,
    N_VOLT,
    N_VT,
    N_VZERO,
    NET,
    NET_FIELDS,
    S_AREA,
    S_BANK,
    S_CTRL,
    S_ENERGY,
    S_LATENCY,
    S_OVERHEAD,
    S_SCOPE,
    S_STATIC,
    S_UTIL,
    SRAM,
    SRAM_FIELDS,
    TECHNOLOGY_COLUMNS,
    FloatArray,
)  # fmt: skip

LEAKAGE_RESERVE = 0.01
"""Share of a memory's power that pays for leakage in the default model; the rest moves data."""

_SRAM_AREA = np.array([A_AREA + 4, A_AREA + 3, A_AREA + 2])
_SRAM_POWER = np.array([A_POWER + 4, A_POWER + 3, A_POWER + 2])
_NET_SHARE = np.array([5, 6])
_NET_EDGE = np.array([A_EDGE + 2, A_EDGE + 1])


@entry
def overdrive(c: float, vt: float) -> float:
    """Return u = V - Vt of the largest root of ``V (V - Vt)^2 = c`` by Newton's method.

    The left side is convex to the right of the root, so the iteration from above falls
    monotonically; it stops when it no longer falls.
    """
    if c <= 0.0:
        return 0.0
    u = c ** (1.0 / 3.0)
    if vt > 0.0:
        u = min(u, math.sqrt(c / vt))
    u *= 1.0 + 1e-12
    for _ in range(60):
        step = (u * u * (u + vt) - c) / (u * (3.0 * u + 2.0 * vt))
        if not step > 1e-17 * u:
            break
        u -= step
    return u  # type: ignore[no-any-return]


@inner
def operating_point(
    power: float, nominal_power: float, freq: float, vnom: float, vt: float, margin: float,
    vmax: float, u_zero: float,
) -> tuple[float, float]:  # fmt: skip
    """Return (voltage, frequency) that spend ``power``, by f ~ (V-Vt)^2/V and P ~ f V^2.

    Below Vt + margin the voltage stays there and the frequency falls to keep the power; above
    ``vmax`` the voltage stays there and power is left over.
    """
    c = power / nominal_power * vnom * (vnom - vt) ** 2
    u = overdrive(c, vt)
    if u == 0.0:
        u = u_zero
    volt = vt + u
    if volt <= 0.0:
        return 0.0, 0.0
    f = freq * ((u * u / volt) / ((vnom - vt) ** 2 / vnom))
    if volt < vt + margin:
        low = vt + margin
        return low, f * (volt / low) ** 2
    if volt > vmax:
        return vmax, freq * (((vmax - vt) ** 2 / vmax) / ((vnom - vt) ** 2 / vnom))
    return volt, f


@inner
def max_bundles(tech: FloatArray, alloc: FloatArray) -> int:
    """Return how many MCU bundles the core's area holds."""
    mcus = alloc[A_AREA] * alloc[A_CHIP_AREA] // tech[C_AREA]
    return int(mcus // tech[C_BUNDLE])


@inner
def _core(
    tech: FloatArray, alloc: FloatArray, bundles: int, compat: bool, chip: FloatArray
) -> None:
    scaling = tech[C_AREA] / tech[C_AREA_NOM]
    if compat:
        mcus = alloc[A_AREA] * alloc[A_CHIP_AREA] // tech[C_AREA]
        chip[K_BUNDLES] = mcus // tech[C_BUNDLE]
    else:
        mcus = bundles * tech[C_BUNDLE]
        chip[K_BUNDLES] = bundles
    chip[K_MCUS] = mcus
    power = alloc[A_POWER] * alloc[A_TDP]
    nominal = tech[C_POWER] * mcus * scaling
    volt = freq = 0.0
    if power > 0.0 and nominal > 0.0:
        volt, freq = operating_point(
            power, nominal, tech[C_FREQ], tech[C_VOLT], tech[C_VT], tech[C_MARGIN], tech[C_VMAX],
            0.0,
        )  # fmt: skip
    chip[K_VOLT] = volt
    chip[K_FREQ] = freq
    chip[K_PEAK] = tech[C_FLOPS] * scaling * freq * mcus
    chip[K_FLOPS] = chip[K_PEAK] * tech[C_UTIL]
    chip[K_FLOP_ENERGY] = (
        tech[C_POWER] / (tech[C_FLOPS] * tech[C_FREQ]) * (volt / tech[C_VOLT]) ** 2
    )
    chip[K_WIDTH1] = tech[C_WIDTH1]
    chip[K_WIDTH2] = tech[C_WIDTH2]
    chip[K_FLOW] = tech[C_FLOW]
    chip[K_AREA_USED] += mcus * tech[C_AREA]
    chip[K_POWER_USED] += nominal * (freq / tech[C_FREQ]) * (volt / tech[C_VOLT]) ** 2


@inner
def _sram(tech: FloatArray, alloc: FloatArray, level: int, compat: bool, chip: FloatArray) -> None:
    t = SRAM + level * SRAM_FIELDS
    k = K_LEVEL + level * LEVEL_FIELDS
    area = alloc[_SRAM_AREA[level]] * alloc[A_CHIP_AREA]
    power = alloc[_SRAM_POWER[level]] * alloc[A_TDP]
    cell = 1.0 - tech[t + S_OVERHEAD]
    bank = tech[t + S_BANK]
    bank_area = bank * (tech[t + S_AREA] * 8.0)
    links_area = cell * chip[K_BUNDLES] * tech[t + S_CTRL]
    banks = math.floor(cell * area // (bank_area + links_area))
    leak = tech[t + S_STATIC] * 8.0
    if compat:
        static = leak * banks * bank
        dynamic = power - static if power >= static else 0.0
    else:
        if leak > 0.0:
            banks = min(banks, math.floor(LEAKAGE_RESERVE * power / (leak * bank)))
        static = leak * banks * bank
        dynamic = (1.0 - LEAKAGE_RESERVE) * power
    rate = 0.0 if banks == 0 else dynamic / (tech[t + S_ENERGY] * 8.0)
    if rate <= 0.0:
        banks = 0
        rate = 0.0
    size = banks * bank
    sharers = 1.0
    if tech[t + S_SCOPE] == 1.0:
        sharers = chip[K_BUNDLES]
    elif tech[t + S_SCOPE] == 2.0:
        sharers = chip[K_MCUS]
    chip[k + L_BANKS] = banks
    chip[k + L_SIZE] = size
    chip[k + L_SHARE] = 0.0 if sharers == 0.0 else size / sharers
    chip[k + L_DYNAMIC] = rate
    chip[k + L_BANDWIDTH] = rate * tech[t + S_UTIL]
    chip[k + L_LATENCY] = tech[t + S_LATENCY]
    chip[k + L_STATIC] = static if banks > 0 else 0.0
    chip[k + L_ENERGY] = tech[t + S_ENERGY] * 8.0
    chip[K_AREA_USED] += banks * (bank_area / cell + chip[K_BUNDLES] * tech[t + S_CTRL])
    chip[K_POWER_USED] += chip[k + L_STATIC] + rate * tech[t + S_ENERGY] * 8.0


@inner
def _dram(tech: FloatArray, alloc: FloatArray, compat: bool, chip: FloatArray) -> None:
    k = K_LEVEL + 3 * LEVEL_FIELDS
    edge = 4.0 * math.sqrt(alloc[A_CHIP_AREA]) * alloc[A_EDGE] * tech[D_PER_MM]
    stacks = min(
        (alloc[A_NODE_AREA] - alloc[A_CHIP_AREA]) // tech[D_AREA],
        alloc[A_CHIP_AREA] * alloc[A_AREA + 1] // tech[D_CTRL],
    )
    stacks = max(math.floor(stacks), 0)
    power = alloc[A_POWER + 1] * alloc[A_TDP]
    leak = tech[D_STATIC] * 8.0 * tech[D_CAPACITY]
    if compat:
        links = min(math.floor(edge), tech[D_PER_STACK] * stacks)
        static = leak * stacks
        dynamic = power - static if power >= static else 0.0
    else:
        stacks = min(stacks, math.floor(edge / tech[D_PER_STACK]))
        if leak > 0.0:
            stacks = min(stacks, math.floor(LEAKAGE_RESERVE * power / leak))
        links = stacks * tech[D_PER_STACK]
        dynamic = (1.0 - LEAKAGE_RESERVE) * power
    nominal = tech[D_ENERGY] * links * tech[D_FREQ]
    volt = freq = 0.0
    if dynamic > 0.0 and nominal > 0.0:
        volt, freq = operating_point(
            dynamic, nominal, tech[D_FREQ], tech[D_VOLT], tech[D_VT], tech[D_MARGIN],
            tech[D_VMAX], 0.0,
        )  # fmt: skip
    rate = links * freq / 8.0 if stacks > 0 else 0.0
    if rate <= 0.0:
        stacks = 0
        rate = 0.0
    size = stacks * tech[D_CAPACITY]
    energy = tech[D_ENERGY] * (volt / tech[D_VOLT]) ** 2 * 8.0
    chip[k + L_BANKS] = stacks
    chip[k + L_SIZE] = size
    chip[k + L_SHARE] = size
    chip[k + L_DYNAMIC] = rate
    chip[k + L_BANDWIDTH] = rate * tech[D_UTIL]
    chip[k + L_LATENCY] = tech[D_LATENCY]
    chip[k + L_STATIC] = leak * stacks
    chip[k + L_ENERGY] = energy
    chip[K_DRAM_LINKS] = links
    chip[K_DRAM_FREQ] = freq
    chip[K_DRAM_VOLT] = volt
    chip[K_AREA_USED] += stacks * tech[D_CTRL]
    chip[K_POWER_USED] += leak * stacks + rate * energy


@inner
def _network(
    tech: FloatArray, alloc: FloatArray, which: int, compat: bool, chip: FloatArray
) -> None:
    t = NET + which * NET_FIELDS
    k = K_NET + which * LINK_FIELDS
    share = _NET_SHARE[which]
    area = alloc[A_AREA + share] * alloc[A_CHIP_AREA]
    power = alloc[A_POWER + share] * alloc[A_TDP]
    edge = alloc[_NET_EDGE[which]] * (4.0 * math.sqrt(alloc[A_CHIP_AREA])) * tech[t + N_PER_MM]
    links = math.floor(min(area / tech[t + N_AREA], edge))
    volt = freq = 0.0
    if links > 0 and (compat or power > 0.0):
        u_zero = tech[t + N_VZERO] - tech[t + N_VT] if compat else 0.0
        volt, freq = operating_point(
            power, tech[t + N_ENERGY] * links * tech[t + N_FREQ], tech[t + N_FREQ],
            tech[t + N_VOLT], tech[t + N_VT], tech[t + N_MARGIN], tech[t + N_VMAX], u_zero,
        )  # fmt: skip
    degree = 4.0 if which == 0 else 1.0
    energy = tech[t + N_ENERGY] * (volt / tech[t + N_VOLT]) ** 2 * 8.0
    chip[k + K_LINKS] = links
    chip[k + K_LINK_VOLT] = volt
    chip[k + K_LINK_FREQ] = freq
    chip[k + K_LINK_BANDWIDTH] = links * freq * tech[t + N_UTIL] / (8.0 * degree)
    chip[k + K_LINK_LATENCY] = tech[t + N_LATENCY]
    chip[k + K_LINK_ENERGY] = energy
    chip[K_AREA_USED] += links * tech[t + N_AREA]
    chip[K_POWER_USED] += links * freq * energy / 8.0


@outlined("float64(float64[::1], float64[::1], int64, boolean, float64[::1])")
def build_chip(
    tech: FloatArray, alloc: FloatArray, bundles: int, compat: bool, chip: FloatArray
) -> float:
    """Fill one chip row and return its flop/s.

    ``bundles`` is ignored under ``compat`` (all that fit are built).
    """
    chip[:] = 0.0
    _core(tech, alloc, bundles, compat, chip)
    for level in range(3):
        _sram(tech, alloc, level, compat, chip)
    _dram(tech, alloc, compat, chip)
    for which in range(2):
        _network(tech, alloc, which, compat, chip)
    return chip[K_FLOPS]  # type: ignore[no-any-return]


_build = build_chip.call


@entry
def _build_all(
    tech: FloatArray, alloc: FloatArray, bundles: np.ndarray, compat: bool, chips: FloatArray,
    address: int,
) -> None:  # fmt: skip
    for i in range(alloc.shape[0]):
        row = tech[i if tech.shape[0] > 1 else 0]
        count = bundles[i]
        if count < 0:
            count = max_bundles(row, alloc[i])
        _build(address, (row, alloc[i], count, compat, chips[i]))


def generate(
    technology: FloatArray,
    allocation: FloatArray,
    *,
    compat: bool = False,
    bundles: np.ndarray | None = None,
) -> FloatArray:
    """Make chips from allocations.

    Parameters
    ----------
    technology : (t, TECHNOLOGY_COLUMNS) or (TECHNOLOGY_COLUMNS,)
        One technology row for all points, or one per point.
    allocation : (n, ALLOCATION_COLUMNS)
        Budgets and fractions, see :mod:`~mohsearch.evaluators.crossflow.layout`.
    compat
        Keep the choices of the authors' program.
    bundles : (n,) int, optional
        Bundles to build; default all that fit.

    Returns
    -------
    (n, CHIP_COLUMNS) chip rows.
    """
    tech = np.atleast_2d(np.ascontiguousarray(technology, dtype=np.float64))
    alloc = np.atleast_2d(np.ascontiguousarray(allocation, dtype=np.float64))
    if tech.shape[1] != TECHNOLOGY_COLUMNS or alloc.shape[1] != ALLOCATION_COLUMNS:
        raise ValueError(
            f"expected rows of {TECHNOLOGY_COLUMNS} and {ALLOCATION_COLUMNS} columns, "
            f"got {tech.shape[1]} and {alloc.shape[1]}"
        )
    if tech.shape[0] not in (1, alloc.shape[0]):
        raise ValueError("give one technology row, or one per allocation")
    count = np.full(alloc.shape[0], -1) if bundles is None else np.asarray(bundles, dtype=np.int64)
    chips = np.zeros((alloc.shape[0], CHIP_COLUMNS))
    _build_all(tech, alloc, count.astype(np.int64), compat, chips, build_chip.address)
    return chips
