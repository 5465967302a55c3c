"""The deepflow genome as variables that may each vary on their own: logits, logarithms, numbers."""

from __future__ import annotations

import numpy as np

from mohsearch.evaluators.crossflow.design_space import (
    G_LOGIC,
    G_MEMORY,
    G_NODE_AREA,
    G_STACKS,
    G_TDP,
    GENE_NAMES,
    WHOLE,
    DeepflowSpace,
)
from mohsearch.evaluators.crossflow.layout import FloatArray
from mohsearch.problems.base import Box, BoxKind

LOGIT_RANGE = 4.0
"""Logits lie in plus and minus this; the largest share is at most e^8 times the smallest."""
FIRST_STEP = 0.7
"""First step of a local method in a logit or in the logarithm of a budget."""


def independent_variables(space: DeepflowSpace) -> Box:
    """Return the box of a space: every budget is given out whole.

    One logit per free fraction (the shares of a class are its softmax), the logarithm of each free
    budget, and the whole-number genes as they are. A method that starts somewhere starts at the
    system's own fractions.
    """
    names: list[str] = []
    lower: list[float] = []
    upper: list[float] = []
    kinds: list[BoxKind] = []
    start: list[float] = []
    known = space.known

    def add(name: str, low: float, high: float, kind: BoxKind, at: float) -> None:
        names.append(name)
        lower.append(low)
        upper.append(high)
        kinds.append(kind)
        start.append(float(np.clip(at, low, high)))

    for part in space.classes:
        logit = np.log(np.maximum(known[part.genes], 1e-6))
        logit -= logit.mean()
        for gene, value in zip(part.genes, logit, strict=True):
            add(f"logit of {GENE_NAMES[gene]}", -LOGIT_RANGE, LOGIT_RANGE, "real", float(value))
    for gene in (G_TDP, G_NODE_AREA):
        low, high = np.log(space.lower[gene]), np.log(space.upper[gene])
        add(f"log of {GENE_NAMES[gene]}", low, high, "real", (low + high) / 2.0)
    for gene in WHOLE:
        ordered = gene in (G_LOGIC, G_MEMORY, G_STACKS)
        low, high = space.lower[gene], space.upper[gene]
        add(GENE_NAMES[gene], low, high, "integer" if ordered else "categorical", low)
    step = np.where(np.array(kinds) == "real", FIRST_STEP, 1.0)
    step = np.maximum(np.minimum(step, (np.array(upper) - np.array(lower)) / 2.0), 1e-12)

    def genomes(Z: FloatArray) -> FloatArray:
        """Return the genomes of variables (n, d)."""
        Z = np.atleast_2d(np.asarray(Z, dtype=np.float64))
        X = np.tile(space.lower, (len(Z), 1))
        at = 0
        for part in space.classes:
            logits = Z[:, at : at + len(part.genes)]
            share = np.exp(logits - logits.max(axis=1, keepdims=True))
            X[:, part.genes] = part.total * share / share.sum(axis=1, keepdims=True)
            at += len(part.genes)
        for gene in (G_TDP, G_NODE_AREA):
            X[:, gene] = np.clip(np.exp(Z[:, at]), space.lower[gene], space.upper[gene])
            at += 1
        X[:, WHOLE] = np.clip(np.round(Z[:, at:]), space.lower[WHOLE], space.upper[WHOLE])
        return X

    return Box(
        tuple(names), np.array(lower), np.array(upper), tuple(kinds), genomes, np.array(start), step
    )
