"""The tiling search against a simulation of every tiling, and against SCALE-Sim."""

import csv
import itertools
from pathlib import Path

import numpy as np
import pytest

from mohsearch.core.catalog import builtin_root
from mohsearch.evaluators.op_cost_tiling import LEAST_TILE, search_products
from mohsearch.evaluators.systolic import systolic_cycles

FLOWS = ("os", "ws", "is")
SYSTOLIC = builtin_root() / "evaluators" / "reference" / "moham" / "systolic_gemm.csv"


def search(
    dims: tuple[int, int, int, int],
    *,
    height: int = 4,
    width: int = 4,
    cores: int = 1,
    buffer: int = 256,
    room: int = 8192,
    glb_rate: float = 1e12,
    memory_rate: float = 1e12,
    extra: tuple[int, int] = (0, 0),
) -> tuple[int, tuple[int, int, int]]:
    """Return latency and traffic of one product on one accelerator."""
    cycles, traffic = np.zeros(1, np.int64), np.zeros((1, 3), np.int64)
    whole = (np.array([value], dtype=np.int64) for value in (height, width, cores, buffer, 0))
    rates = (np.array([float(value)]) for value in (glb_rate, memory_rate))
    rooms = np.array([room], dtype=np.int64)
    search_products(*dims, *extra, rooms, *whole, *rates, 1, cycles, traffic)
    return int(cycles[0]), tuple(int(x) for x in traffic[0])  # type: ignore[return-value]


# --- the simulation: loops over tiles, cores, folds and strips, word by word ---


def sides(size: int) -> list[int]:
    found = [LEAST_TILE * 2**power for power in range(12) if LEAST_TILE * 2**power < size]
    return [*found, size]


def pieces(size: int, tile: int) -> list[int]:
    return [min(tile, size - start) for start in range(0, size, tile)]


def parts(size: int, count: int) -> list[int]:
    return [len(range(size)[k * -(-size // count) :][: -(-size // count)]) for k in range(count)]


def simulated_memory_words(m: list[int], n: list[int], k: list[int]) -> int:
    """Walk the tiles in each of the six orders; each operand holds one tile."""
    best = None
    for order in itertools.permutations(range(3)):
        words, held, written = 0, {}, set()
        ranges = [range(len(m)), range(len(n)), range(len(k))]
        for walked in itertools.product(*(ranges[axis] for axis in order)):
            i, j, q = (walked[order.index(axis)] for axis in range(3))
            if held.get("a") != (i, q):
                words, held["a"] = words + m[i] * k[q], (i, q)
            if held.get("b") != (q, j):
                words, held["b"] = words + k[q] * n[j], (q, j)
            if held.get("c") != (i, j):
                if "c" in held:
                    words += m[held["c"][0]] * n[held["c"][1]]
                    written.add(held["c"])
                if (i, j) in written:
                    words += m[i] * n[j]
                held["c"] = (i, j)
        words += m[held["c"][0]] * n[held["c"][1]]
        best = words if best is None else min(best, words)
    assert best is not None
    return best


def policies(
    full: tuple[int, int, int], pm: int, pn: int, height: int, width: int, flow: str, room: int
) -> list[tuple[str, int]]:
    """Return what a core's buffer may hold: which strip, of how many folds, for a whole tile."""
    m, n, k = full if flow != "is" else (full[1], full[0], full[2])
    pm, pn = (pm, pn) if flow != "is" else (pn, pm)
    own_m, own_n = max(parts(m, pm)), max(parts(n, pn))
    found = [("none", 0)]
    if flow == "os":
        sizes = {"left": min(height, own_m) * k, "right": min(width, own_n) * k}
        return found + [(w, s) for w in sizes for s in range(1, 99) if s * sizes[w] <= room]
    fold_k, fold_n = min(height, k), min(width, own_n)
    found += [("results", 0)] * (own_m * fold_n <= room)
    found += [("left", 0)] * (own_m * fold_k <= room)
    for strip in range(1, 99):
        found += [("results", strip)] * (strip * own_m * fold_n + own_m * fold_k <= room)
        found += [("left", strip)] * (strip * own_m * fold_k + own_m * fold_n <= room)
    return found


def simulated_tile(
    m: int, n: int, k: int, pm: int, pn: int, height: int, width: int, flow: str,
    policy: tuple[str, int],
) -> tuple[int, int]:  # fmt: skip
    """Return cycles and words between global buffer and cores of one tile, no partial sums before.

    All cores walk their folds in step; words that a row (column) of cores shares are sent once.
    """
    if flow == "is":  # the mirror image: the other operand is held
        m, n, pm, pn = n, m, pn, pm
    own_m, own_n = max(parts(m, pm)), max(parts(n, pn))
    kept, strip = policy
    left = right = results = 0
    if flow == "os":
        cycles = systolic_cycles(own_m, own_n, k, height, width, "os") + 1
        outer, inner = pieces(own_m, height), pieces(own_n, width)
        if kept == "right":
            left += m * k * len(pieces(len(inner), strip))
            right += n * k
        elif kept == "left":
            left += m * k
            right += n * k * len(pieces(len(outer), strip))
        else:
            left += m * k * len(inner)
            right += n * k * len(outer)
        return cycles, left + right + m * n
    cycles = systolic_cycles(own_m, own_n, k, height, width, "ws") + 1
    depth, across = pieces(k, height), pieces(own_n, width)
    sums = 2 * len(depth) - 1
    left, results = {
        ("none", False): (len(across), sums),
        ("results", False): (len(across), 1),
        ("results", True): (len(pieces(len(across), max(1, strip))), 1),
        ("left", False): (1, sums),
        ("left", True): (1, 2 * len(pieces(len(depth), max(1, strip))) - 1),
    }[kept, strip > 0]
    return cycles, m * k * left + m * n * results + k * n


def simulate(
    dims: tuple[int, int, int, int],
    *,
    height: int,
    width: int,
    cores: int,
    buffer: int,
    room: int,
    glb_rate: float,
    memory_rate: float,
) -> int:
    """Return the latency of the best of all tilings."""
    batch, m, n, k = dims
    best = np.inf
    powers = [2**p for p in range(13) if 2**p <= cores]
    for tile in itertools.product(sides(m), sides(n), sides(k)):
        cut = [pieces(size, t) for size, t in zip((m, n, k), tile, strict=True)]
        words = batch * simulated_memory_words(*cut)
        footprint = tile[0] * tile[2] + tile[2] * tile[1] + tile[0] * tile[1]
        for pb, pm in itertools.product(powers, powers):
            if pb * pm > cores or pb * footprint > room or pb >= 2 * batch:
                continue
            pn = cores // (pb * pm)
            for flow, policy in (
                (each, policy)
                for each in FLOWS
                for policy in policies(tile, pm, pn, height, width, each, buffer)
            ):
                cycles = sent = 0
                for tm, tn in itertools.product(*cut[:2]):
                    for number, tk in enumerate(cut[2]):
                        shape = (tm, tn, tk, pm, pn)
                        work, moved = simulated_tile(*shape, height, width, flow, policy)
                        cycles += work
                        sent += moved + (tm * tn if number else 0)
                rounds = -(-batch // pb)
                memory = words / memory_rate
                best = min(best, max(rounds * cycles, batch * sent / glb_rate, memory))
    return int(np.ceil(best))


def cases() -> list[tuple[tuple[int, int, int, int], dict[str, float]]]:
    rng = np.random.default_rng(20)
    found = []
    for _ in range(40):
        dims = (int(rng.choice([1, 1, 2, 5])), *(int(x) for x in 8 * rng.integers(1, 10, 3)))
        found.append(
            (
                dims,
                {
                    "height": int(rng.choice([2, 4, 8])),
                    "width": int(rng.choice([2, 4, 8, 16])),
                    "cores": int(rng.choice([1, 2, 4])),
                    "buffer": int(rng.choice([16, 128, 600, 4096])),
                    "room": int(rng.choice([16_000, 32_000])),
                    "glb_rate": float(rng.choice([2.0, 8.0, 1e9])),
                    "memory_rate": float(rng.choice([0.5, 4.0, 1e9])),
                },
            )
        )
    return found


@pytest.mark.parametrize(("dims", "hardware"), cases())
def test_the_search_finds_the_best_of_all_simulated_tilings(
    dims: tuple[int, int, int, int], hardware: dict[str, float]
) -> None:
    expected = simulate(dims, **hardware)  # type: ignore[arg-type]
    assert search(dims, **hardware)[0] == expected  # type: ignore[arg-type]


@pytest.mark.parametrize("row", list(csv.DictReader(SYSTOLIC.read_text().splitlines())), ids=str)
def test_where_nothing_else_binds_cycles_are_those_of_scalesim(row: dict[str, str]) -> None:
    m, n, k, height, width = (int(row[name]) for name in ("M", "N", "K", "H", "W"))
    found, _ = search((1, m, n, k), height=height, width=width, room=2**50, buffer=2**40)
    each = {flow: systolic_cycles(m, n, k, height, width, flow) for flow in FLOWS}  # type: ignore[arg-type]
    assert each[row["dataflow"]] == int(row["cycles"])
    assert found == min(each.values()) + 1  # ours is a number of cycles, theirs the last one's


def test_the_reference_table_is_there() -> None:
    assert Path(SYSTOLIC).is_file()
    assert len(SYSTOLIC.read_text().splitlines()) > 40


@pytest.mark.parametrize("axis", ["buffer", "room", "glb_rate", "memory_rate", "cores"])
def test_more_of_anything_is_never_slower(axis: str) -> None:
    rng = np.random.default_rng(7)
    strict = 0
    for _ in range(60):
        dims = (int(rng.choice([1, 3, 8])), *(int(x) for x in rng.integers(1, 400, 3)))
        hardware = {
            "height": int(2 ** rng.integers(1, 6)),
            "width": int(2 ** rng.integers(1, 6)),
            "cores": int(2 ** rng.integers(0, 5)),
            "buffer": int(2 ** rng.integers(4, 14)),
            "room": int(2 ** rng.integers(12, 17)),
            "glb_rate": float(2.0 ** rng.integers(0, 8)),
            "memory_rate": float(2.0 ** rng.integers(-2, 6)),
        }
        less, _ = search(dims, **hardware)  # type: ignore[arg-type]
        more, _ = search(dims, **{**hardware, axis: 2 * hardware[axis]})  # type: ignore[arg-type]
        assert 0 < more <= less
        strict += more < less
    assert strict > 3


def test_traffic_is_at_least_every_operand_once_and_extras_are_added() -> None:
    dims = (3, 100, 70, 50)
    cycles, (memory, sent, fed) = search(dims, memory_rate=1.0, glb_rate=1.0)
    operands = 3 * (100 * 50 + 50 * 70 + 100 * 70)
    assert memory >= operands
    assert min(sent, fed) >= operands
    more, (with_extra, through, _) = search(dims, memory_rate=1.0, glb_rate=1.0, extra=(500, 900))
    assert with_extra - memory == 500
    assert through >= sent + 900 or more < cycles
    assert more >= cycles + 500


def test_a_product_that_does_not_fit_at_all_is_marked() -> None:
    assert search((1, 64, 64, 64), room=100)[0] == -1
