"""The shape of one tensor layer: the eight-loop nest every mapped op reduces to."""

from __future__ import annotations

from dataclasses import dataclass

DIMS = ("N", "G", "K", "C", "P", "Q", "R", "S")
"""Loop dimensions: batch or rows N, groups G, output channels K and input channels C *per group*,
output rows P and columns Q, filter rows R and columns S."""

TENSORS = ("W", "I", "O")

RELEVANT: dict[str, tuple[str, ...]] = {
    "W": ("G", "K", "C", "R", "S"),
    "I": ("N", "G", "C", "P", "Q", "R", "S"),
    "O": ("N", "G", "K", "P", "Q"),
}
"""The dimensions that address each tensor. I is read at rows P*stride_h + R*dilation_h and columns
Q*stride_w + S*dilation_w."""


@dataclass(frozen=True, slots=True)
class LayerShape:
    """Bounds of the loop nest of one layer, with strides and dilations.

    ``O[n,g,k,p,q] += W[g,k,c,r,s] * I[n,g,c,p*stride_h+r*dilation_h,q*stride_w+s*dilation_w]``

    A convolution has G=1; a depthwise one G=channels, K=C=1 (or K=multiplier); a linear layer has
    N=rows, K=outputs, C=inputs and P=Q=R=S=1; a batched product of G matrices has G=batch, N=rows,
    C=inner, K=columns, the second operand standing as W.

    Raises
    ------
    ValueError
        If any bound, stride or dilation is not a positive integer.

    Examples
    --------
    >>> LayerShape(K=64, C=3, P=112, Q=112, R=7, S=7, stride_h=2, stride_w=2).macs
    118013952
    """

    N: int = 1
    G: int = 1
    K: int = 1
    C: int = 1
    P: int = 1
    Q: int = 1
    R: int = 1
    S: int = 1
    stride_h: int = 1
    stride_w: int = 1
    dilation_h: int = 1
    dilation_w: int = 1

    def __post_init__(self) -> None:
        for name in (*DIMS, "stride_h", "stride_w", "dilation_h", "dilation_w"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ValueError(f"{name} must be a positive integer, got {value!r}")

    def bounds(self) -> tuple[int, ...]:
        """Return the eight bounds in the order of :data:`DIMS`."""
        return (self.N, self.G, self.K, self.C, self.P, self.Q, self.R, self.S)

    @property
    def macs(self) -> int:
        """Multiply-accumulates: the product of all bounds."""
        product = 1
        for bound in self.bounds():
            product *= bound
        return product

    @property
    def weight_elements(self) -> int:
        """Elements of W."""
        return self.G * self.K * self.C * self.R * self.S

    @property
    def input_elements(self) -> int:
        """Elements of the smallest box of I that holds every address, padding included.

        Strides larger than the filter, or dilation, leave elements of the box unread; they count.
        """
        rows = (self.P - 1) * self.stride_h + (self.R - 1) * self.dilation_h + 1
        columns = (self.Q - 1) * self.stride_w + (self.S - 1) * self.dilation_w + 1
        return self.N * self.G * self.C * rows * columns

    @property
    def output_elements(self) -> int:
        """Elements of O."""
        return self.N * self.G * self.K * self.P * self.Q
