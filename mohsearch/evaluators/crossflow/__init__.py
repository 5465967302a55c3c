"""CrossFlow: from technology, resource fractions and parallelism strategy to time per step.

``age`` makes a chip from fractions of area, power and perimeter, ``dpe`` places a parallelism
strategy on devices and links, and the rest predicts time: ``tiling`` and ``gemm`` (hierarchical
roofline), ``collectives``, ``lstm`` (training step of the LSTM language model), ``timeline``
(event-driven simulation) and ``memory``. Everything works on arrays of design points.

Source: Ardalani, Pal and Gupta, "DeepFlow: A Cross-Stack Pathfinding Framework for Distributed AI
Systems" (CrossFlow, sections 4 to 6).
"""
