"""Partition of a graph of ops over the chips of a multi-chip module.

After Xie et al., *A Transferable Approach for Partitioning Machine Learning Models on
Multi-Chip-Modules*: validity (equations 2 to 4), sampling and repair of valid partitions
(algorithms 1 and 2), what a partition costs, and exact optima with their bounds.
"""
