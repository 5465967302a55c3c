"""Time of a kernel on a real device: thread blocks, waves, caches and throttling.

A product is cut into blocks of output (times slices of k); the library is assumed to take the
block shape that is fastest. Few physical constants per device and class of kernel are calibrated
on measured kernels; everything else is from the data sheet. Unlike the hierarchical roofline of
the chip generator, this model is for devices that exist.
"""

from __future__ import annotations

from typing import Annotated

import numpy as np
from pydantic import Field

from mohsearch.core.cards import Card, read_card
from mohsearch.core.catalog import Catalog
from mohsearch.evaluators.crossflow.layout import FloatArray
from mohsearch.hardware.systems import SystemCard

Positive = Annotated[float, Field(gt=0)]

BLOCKS = np.array(
    [
        (256, 128), (128, 256), (128, 128), (128, 64), (64, 128), (64, 64), (128, 32), (32, 128),
        (64, 32), (32, 64), (32, 32),
    ],
    dtype=np.float64,
)  # fmt: skip
"""Rows and columns of output per thread block that matrix libraries offer."""
SLICES = np.array([1.0, 2.0, 4.0, 8.0, 16.0])
"""Ways to split k over blocks that add up their results."""


class GemmConstants(Card):
    """Calibrated constants of products on one device in one number format.

    Attributes
    ----------
    efficiency
        Share of the peak that a large block reaches.
    block_half
        Block size (rows x columns / (rows + columns)) at which a block reaches half of that.
    memory_efficiency
        Share of the data sheet's memory bandwidth that products reach.
    launch_us
        Launch, in microseconds.
    fill_k
        Steps of k that filling and draining a block costs.
    cache_ratio
        L2 bandwidth over memory bandwidth.
    cache_share
        Share of L2 that keeps an operand.
    span
        Columns at which memory and cache run at half speed, for what far strides cost.
    boost_ms, throttle
        After this long at full clock, time grows by this share (power limit).
    """

    efficiency: Positive
    block_half: Positive
    memory_efficiency: Positive
    launch_us: Positive
    fill_k: Positive
    cache_ratio: Positive
    cache_share: Positive
    span: Positive
    boost_ms: Positive
    throttle: Positive


class PassConstants(Card):
    """Calibrated constants of element-wise kernels and normalisations."""

    launch_us: Annotated[float, Field(ge=0)]
    memory_efficiency: Positive


class KernelConstants(Card):
    """``evaluators/reference/deepflow/kernel_constants.yaml``.

    Keys are ``device|format|class`` and ``device|op``; ``default`` serves what was never measured.
    """

    source: str
    gemm: dict[str, GemmConstants]
    passes: dict[str, PassConstants]
    gemm_default: GemmConstants
    pass_default: PassConstants

    def gemm_for(self, card: SystemCard, number: str, kind: str) -> tuple[GemmConstants, str]:
        """Return constants for a class, and the key they come from (nearest that exists)."""
        parts = [key.split("|") for key in self.gemm]
        near = (
            [card.name, number, kind],
            [card.name, number, None],
            [card.name, None, None],
        )
        for device, want_number, want_kind in near:
            for p in parts:
                if p[0] == device and want_number in (None, p[1]) and want_kind in (None, p[2]):
                    return self.gemm["|".join(p)], "|".join(p)
        return self.gemm_default, "default"

    def pass_for(self, card: SystemCard, op: str) -> tuple[PassConstants, str]:
        """Return constants for an element-wise op, and the key they come from."""
        for key in (f"{card.name}|{op}", *(k for k in self.passes if k.endswith(f"|{op}"))):
            if key in self.passes:
                return self.passes[key], key
        return self.pass_default, "default"


def load_constants(catalog: Catalog | None = None) -> KernelConstants:
    """Return the calibrated constants."""
    path = (catalog or Catalog()).find(
        "evaluators", "kernel_constants", folder="reference/deepflow", kind="calibration"
    )
    return read_card(KernelConstants, path)


def peak_rate(card: SystemCard, number: str) -> float:
    """Return the flop/s of products in a number format, tensor engines included.

    ``fp32`` means the ordinary units (matrix units on devices whose libraries use them).
    """
    peaks = card.peak_flop_per_s
    wanted = {
        "fp16": ("fp16_tensor", "fp16", "bf16_tensor", "fp32"),
        "bf16": ("bf16_tensor", "fp16_tensor", "fp16", "fp32"),
        "tf32": ("tf32_tensor", "fp32"),
        "fp32": ("fp32_matrix", "fp32", "bf16_tensor"),
        "mixed": ("fp32", "bf16_tensor"),
    }[number]
    return next(peaks[name] for name in wanted if name in peaks)


def gemm_milliseconds(
    card: SystemCard, constants: GemmConstants, number: str, batch: FloatArray, m: FloatArray,
    n: FloatArray, k: FloatArray,
) -> FloatArray:  # fmt: skip
    """Return (r,) milliseconds of r batches of m x k by k x n products."""
    c, processors = constants, card.multiprocessors
    size = 4.0 if number in ("fp32", "tf32") else 2.0
    rows, columns, slices = BLOCKS[:, 0][:, None], BLOCKS[:, 1][:, None], SLICES[None, :]
    b, m, n, k = (np.asarray(x, dtype=np.float64)[:, None, None] for x in (batch, m, n, k))
    high, wide = np.ceil(m / rows), np.ceil(n / columns)
    deep = np.ceil(k / slices / 8.0) * 8.0
    blocks = b * high * wide * slices
    reuse = rows * columns / (rows + columns)
    rate = peak_rate(card, number) / processors * c.efficiency * reuse / (reuse + c.block_half)
    compute = np.ceil(blocks / processors) * 2.0 * rows * columns * (deep + c.fill_k) / rate
    # A wave of resident blocks shares panels of both operands through L2.
    wave = np.minimum(blocks, processors * 2.0)
    own = wave / np.minimum(b * slices, wave)
    tall = np.minimum(high, np.maximum(1.0, np.sqrt(own) * np.sqrt(columns / rows)))
    broad = np.minimum(wide, np.maximum(1.0, own / tall))
    cache = card.l2_bytes * c.cache_share
    again_a = np.where(m * k * size <= cache, 1.0, np.ceil(wide / broad))
    again_b = np.where(k * n * size <= cache, 1.0, np.ceil(high / tall))
    written = b * m * n * (2.0 * slices - 1.0)
    moved = (b * m * k * again_a + b * k * n * again_b + written) * size
    bandwidth = card.memory_bandwidth_bytes_per_s
    stride = 1.0 + n / c.span
    memory = moved / (bandwidth * c.memory_efficiency) * stride
    cached = (b * m * k * wide + b * k * n * high) * size / (bandwidth * c.cache_ratio) * stride
    time = np.maximum(np.maximum(compute, memory), cached)
    time = time + np.maximum(time - c.boost_ms * 1e-3, 0.0) * c.throttle
    time = time + c.launch_us * 1e-6 * np.where(slices > 1.0, 1.5, 1.0)
    best: FloatArray = time.reshape(time.shape[0], -1).min(axis=1)
    return best * 1e3


def pass_milliseconds(
    card: SystemCard, constants: PassConstants, size_bytes: FloatArray
) -> FloatArray:
    """Return milliseconds of element-wise kernels that move ``size_bytes``."""
    rate = card.memory_bandwidth_bytes_per_s * constants.memory_efficiency
    return constants.launch_us * 1e-3 + np.asarray(size_bytes, dtype=np.float64) / rate * 1e3
