"""What the mapper's compiled functions work on: tables of an architecture, the state of a walk.

Both are structured scalars, so that they pass between compiled functions as one pointer. The
fields of :data:`STATE` that have a row per level hold in row ``l`` what is known once all loops
outside level ``l`` are fixed.
"""

from __future__ import annotations

import numpy as np

MAX_LEVELS = 12
MAX_DIVISORS = 256
MAX_OPTIONS = 2**18
MAX_PRICES = 2**17

N, G, K, C, P, Q, R, S = range(8)
W, I, O = range(3)  # noqa: E741

CLASS = np.array([W, 3, I, O, W, W, O, O])
"""The tensor that each dimension does not address (3: none): loops over it can reuse the tensor."""

IRRELEVANT = np.array([[CLASS[d] == x for d in range(8)] for x in range(3)])

_L, _L1, _V = MAX_LEVELS, MAX_LEVELS + 1, MAX_DIVISORS

TABLES = np.dtype(
    [
        ("depth", "i8"),
        ("decided", "i8"),  # the first level all of whose tiles follow from the decisions
        ("active", "i8", 8),  # dimensions with a bound above 1
        ("actives", "i8"),
        ("stride", "f8", 4),  # indices of I that a step of P, Q, R and S moves
        ("bounds", "f8", 8),
        ("divisors", "f8", (8, _V)),
        ("option_start", "i8", (_L, 8, _V)),
        ("option_count", "i8", (_L, 8, _V)),
        ("option_next", "i4", MAX_OPTIONS),
        ("chains", "f8", (_L1, 8, _V)),
        ("keeps", "i1", (_L, 3)),
        ("matters", "i1", (_L, 3)),  # some level further in keeps the tensor
        ("halo", "i1", (_L, 2)),  # a loop over rows or columns may save part of I further in
        ("parent", "i8", (_L1, 3)),  # next level outside that keeps the tensor, -1 for none
        ("capacity", "f8", _L),
        ("per_access", "f8", _L),
        ("size_unit", "f8", _L),  # words between two entries of the price lists
        ("price_start", "i8", _L),
        ("price_read", "f8", MAX_PRICES),
        ("price_write", "f8", MAX_PRICES),
        ("price_area", "f8", MAX_PRICES),
        ("read_bandwidth", "f8", _L),
        ("write_bandwidth", "f8", _L),
        ("hop_price", "f8", _L),
        ("mac_price", "f8"),
        ("mac_area", "f8"),
        ("free_order", "i1", _L),
        ("order", "i8", (_L, 8)),  # active dimensions innermost first, where it is not free
        ("zero_fill", "i1"),
    ],
    align=True,
)
"""What the kernels know of an architecture and a space; ``exact.tables_of`` fills it."""

STATE = np.dtype(
    [
        ("cycles", "f8"),  # compute cycles of the spatial choice
        ("column", "i8"),  # where they stand in the front's grid
        ("sigma", "f8", (_L, 8)),  # spatial factors below each level
        ("inside", "f8", (_L1, 8)),  # product of the spatial factors at and inside a level
        ("instances", "f8", _L1),
        ("left", "i8", (_L1, 8)),  # divisor index of what is left to a level and those inside
        ("rest", "f8", (_L1, 8)),  # its value
        ("factor", "f8", (_L, 8)),  # temporal factors
        ("step", "f8", (_L, 8)),  # indices that one iteration of a temporal loop advances
        ("classes", "f8", (_L, 4)),  # their products by class of dimension
        ("head", "i8", _L),  # innermost loop above 1, -1 for none
        ("advances", "f8", _L1),  # iterations of all loops outside
        ("reuse", "f8", (_L1, 3)),  # of them, innermost ones that leave the tensor in place
        ("repeats", "f8", (_L1, 3)),  # of them, all that do not address the tensor
        ("words", "f8", (_L1, 3)),  # tile of each tensor
        ("extent", "f8", (_L1, 2)),  # rows and columns of the input tile
        ("energy", "f8", _L1),
        ("chip_area", "f8", _L1),
        ("reads", "f8", (_L1, _L)),  # words per instance of each level, known so far
        ("writes", "f8", (_L1, _L)),
        ("read_price", "f8", _L),  # per row, at the size of the current mapping
        ("write_price", "f8", _L),
        ("least_read", "f8", _L),  # at the least size under the spatial choice
        ("least_write", "f8", _L),
        ("inner_area", "f8", _L1),  # least area of a level and all inside, MACs too
        ("spread", "f8", (_L1, 3)),  # distinct positions between a level and its parent
        ("hops", "f8", (_L1, 3)),  # network energy per word that one instance receives
        ("diagonal", "i1", _L1),  # spread and hops of I depend on the tiles
        ("share", "f8", _L),  # output partition of an instance
        ("child_rows", "f8", (_L1, 3)),  # least rows filled, all instances
        ("parent_rows", "f8", (_L1, 3)),  # least rows moved at the parent, all instances
        ("least_hops", "f8", (_L1, 3)),  # least network energy
        ("edge_fills", "f8", (_L1, 3)),  # words that one instance received last
        ("edge_served", "f8", (_L1, 3)),  # words that its parent sent last
        ("heads", "i8", (_L, 8)),  # innermost loops to try
        ("position", "i8", 9 * _L),  # of each decision: the option being tried
        ("stop", "i8", 9 * _L),  # and where its options end
    ],
    align=True,
)
"""Working arrays of one walk."""
