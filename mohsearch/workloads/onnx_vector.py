"""ONNX op types that run on no MAC array, by what they do to the graph."""

from __future__ import annotations

from mohsearch.workloads.onnx_node import Shape

VIEWS = frozenset("Identity Reshape Flatten Squeeze Unsqueeze Dropout OptionalGetElement".split())
"""They move no data and add no op: their readers depend on what they read."""

SHAPE_QUERIES = frozenset({"Shape", "Size", "OptionalHasElement"})
"""They read the shape, not the data: no dependency comes out of them."""

CONTROL_FLOW = frozenset({"If", "Loop", "Scan", "SequenceMap"})

SEQUENCES = frozenset(
    "SequenceAt SequenceConstruct SequenceEmpty SequenceErase SequenceInsert SequenceLength "
    "ConcatFromSequence SplitToSequence Optional StringNormalizer TfIdfVectorizer StringConcat "
    "StringSplit RegexFullMatch ImageDecoder".split()
)
"""Sequences, optionals and strings: not tensors of numbers."""

DATA_DEPENDENT = frozenset("NonMaxSuppression NonZero Unique Compress".split())
"""Their output sizes depend on the data."""

_ELEMENTWISE = """
Abs Acos Acosh Add And Asin Asinh Atan Atanh BitCast BitShift BitwiseAnd BitwiseNot BitwiseOr
BitwiseXor Cast CastLike Ceil Celu Clip Cos Cosh DequantizeLinear Div DynamicQuantizeLinear Elu
Equal Erf Exp Floor Gelu Greater GreaterOrEqual HardSigmoid HardSwish IsInf IsNaN LeakyRelu Less
LessOrEqual Log Max Mean Min Mish Mod Mul Neg Not Or PRelu Pow QuantizeLinear Reciprocal Relu Round
Selu Shrink Sigmoid Sign Sin Sinh Softplus Softsign Sqrt Sub Sum Swish Tan Tanh ThresholdedRelu
Where Xor
"""

_REDUCING = """
ArgMax ArgMin AveragePool CumProd CumSum GlobalAveragePool GlobalLpPool GlobalMaxPool Hardmax
LogSoftmax LpPool MaxPool MaxRoiPool MaxUnpool NegativeLogLikelihoodLoss ReduceL1 ReduceL2
ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum ReduceSumSquare
RoiAlign Softmax SoftmaxCrossEntropyLoss TopK BatchNormalization GroupNormalization
InstanceNormalization LayerNormalization LpNormalization LRN MeanVarianceNormalization
RMSNormalization
"""

_MOVING = """
AffineGrid CenterCropPad Col2Im Concat Constant ConstantOfShape DepthToSpace Expand EyeLike Gather
GatherElements GatherND GridSample OneHot Pad Range Resize ReverseSequence RotaryEmbedding Scatter
ScatterElements ScatterND Slice SpaceToDepth Split TensorScatter Tile Transpose Trilu Upsample
Bernoulli Multinomial RandomNormal RandomNormalLike RandomUniform RandomUniformLike
BlackmanWindow HammingWindow HannWindow
"""

_MICROSOFT_SAME = """
Gelu FastGelu BiasGelu QuickGelu SkipLayerNormalization SimplifiedLayerNormalization
SkipSimplifiedLayerNormalization LayerNormalization RotaryEmbedding QLinearLeakyRelu QLinearSigmoid
QLinearSoftmax QuantizeLinear DequantizeLinear BiasAdd BiasDropout NhwcMaxPool
"""

_MICROSOFT_OTHER = """
QLinearAdd QLinearMul QLinearConcat QLinearAveragePool QLinearGlobalAveragePool
EmbedLayerNormalization
"""

MICROSOFT = "com.microsoft"

KNOWN = frozenset(
    {("", t) for t in f"{_ELEMENTWISE} {_REDUCING} {_MOVING}".split()}
    | {("", t) for t in DATA_DEPENDENT}
    | {(MICROSOFT, t) for t in f"{_MICROSOFT_SAME} {_MICROSOFT_OTHER}".split()}
)
"""Domain and type of every vector op."""

SAME_SHAPE = frozenset((MICROSOFT, t) for t in _MICROSOFT_SAME.split())
"""Ops outside ONNX's own shape inference whose output has the shape of their first input."""


def broadcast(*shapes: Shape) -> Shape | None:
    """Return the shape that shapes broadcast to, or None where they do not.

    Examples
    --------
    >>> broadcast((4, 1, 3), (5, 1))
    (4, 5, 3)
    """
    rank = max(len(s) for s in shapes)
    padded = [(1,) * (rank - len(s)) + tuple(s) for s in shapes]
    out: list[int | str | None] = []
    for axis in zip(*padded, strict=True):
        sizes = {size for size in axis if size != 1}
        if len(sizes) > 1:
            return None
        out.append(sizes.pop() if sizes else 1)
    return tuple(out)
