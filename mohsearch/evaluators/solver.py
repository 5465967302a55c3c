"""The one door to mixed-integer solvers: HiGHS by default, CBC where HiGHS is missing."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from mohsearch.core.errors import MissingExtraError
from mohsearch.core.optional import require

Floats = NDArray[np.float64]
ProgramBackend = Literal["highs", "cbc"]
ProgramStatus = Literal["optimal", "feasible", "infeasible", "unknown"]


@dataclass(frozen=True)
class ProgramResult:
    """What a solver says about a minimisation.

    Attributes
    ----------
    status
        ``optimal`` within the solver's tolerances, ``feasible`` (stopped early), ``infeasible`` or
        ``unknown`` (stopped without a solution).
    objective
        Value of the solution; infinite without one.
    bound
        No solution is below; minus infinite when the solver does not say.
    """

    status: ProgramStatus
    objective: float
    bound: float


def modelling() -> Any:
    """Return the modelling library (PuLP)."""
    return require("pulp", "core")


def has_highs() -> bool:
    """Whether HiGHS can be used."""
    return bool(modelling().HiGHS(msg=False).available())


def _cbc(pulp: Any, options: dict[str, Any]) -> Any:
    """Return CBC: one that is installed, else the one inside PuLP."""
    solver = pulp.COIN_CMD(**options)
    if solver.available():
        return solver
    bundled = getattr(pulp, "PULP_CBC_CMD", None)
    path = getattr(bundled, "pulp_cbc_path", None)
    if path is None:
        raise MissingExtraError("cbcbox", "cbc")
    return pulp.COIN_CMD(**options, path=path)


def minimize(
    program: Any, *, time_limit_s: float, backend: ProgramBackend = "highs"
) -> ProgramResult:
    """Solve a PuLP minimisation; the variables keep the solution's values.

    Parameters
    ----------
    program
        A ``pulp.LpProblem``.
    time_limit_s
        Wall time.
    backend
        ``highs`` falls back to CBC, which PuLP brings along, when HiGHS is not installed.
    """
    pulp = modelling()
    options = {"msg": False, "timeLimit": max(time_limit_s, 0.1)}
    use_highs = backend == "highs" and has_highs()
    solver = pulp.HiGHS(**options, gapRel=0.0) if use_highs else _cbc(pulp, options)
    code = program.solve(solver)
    value = program.objective.value()
    objective = math.inf if value is None else float(value)
    bound = -math.inf
    finished = program.sol_status == pulp.LpSolutionOptimal
    if use_highs:
        bound = float(program.solverModel.getInfo().mip_dual_bound)
    elif finished:
        bound = objective
    if code == pulp.LpStatusInfeasible:
        return ProgramResult("infeasible", math.inf, math.inf)
    if finished:
        return ProgramResult("optimal", objective, bound)
    if program.sol_status == pulp.LpSolutionIntegerFeasible and math.isfinite(objective):
        return ProgramResult("feasible", objective, bound)
    return ProgramResult("unknown", math.inf, bound)


@dataclass(frozen=True)
class RowProgram:
    """A mixed-integer minimisation as arrays.

    Attributes
    ----------
    cost, lower, upper, integer
        Of every variable, shape (variables,).
    starts, columns, values
        The rows' coefficients: row r has ``columns[starts[r]:starts[r + 1]]``.
    row_lower, row_upper
        Shape (rows,).
    """

    cost: Floats
    lower: Floats
    upper: Floats
    integer: NDArray[np.bool_]
    starts: NDArray[np.int32]
    columns: NDArray[np.int32]
    values: Floats
    row_lower: Floats
    row_upper: Floats


def minimize_rows(
    program: RowProgram, *, node_limit: int, time_limit_s: float = math.inf
) -> tuple[ProgramResult, Floats]:
    """Solve a program given as arrays with HiGHS; return what it says and the variables' values.

    With one thread and no time limit the result depends on ``node_limit`` only.

    Parameters
    ----------
    program
        The program; tolerances are absolute (1e-9), so values should not exceed some thousands.
    node_limit
        Nodes of the search tree.
    time_limit_s
        Wall time.
    """
    highspy = require("highspy", "core")
    model = highspy.HighsLp()
    model.num_col_, model.num_row_ = len(program.cost), len(program.row_lower)
    model.col_cost_, model.col_lower_, model.col_upper_ = program.cost, program.lower, program.upper
    model.row_lower_, model.row_upper_ = program.row_lower, program.row_upper
    model.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
    model.a_matrix_.start_ = program.starts
    model.a_matrix_.index_ = program.columns
    model.a_matrix_.value_ = program.values
    kinds = (highspy.HighsVarType.kContinuous, highspy.HighsVarType.kInteger)
    model.integrality_ = [kinds[int(flag)] for flag in program.integer]
    highs = highspy.Highs()
    for option, value in (
        ("output_flag", False),
        ("threads", 1),
        ("parallel", "off"),
        ("mip_rel_gap", 0.0),
        ("mip_feasibility_tolerance", 1e-9),
        ("primal_feasibility_tolerance", 1e-9),
        ("dual_feasibility_tolerance", 1e-9),
        ("mip_max_nodes", node_limit),
        ("time_limit", time_limit_s),
    ):
        highs.setOptionValue(option, value)
    highs.passModel(model)
    highs.run()
    status, info = highs.getModelStatus(), highs.getInfo()
    values = np.array(highs.getSolution().col_value, dtype=np.float64)
    if status == highspy.HighsModelStatus.kInfeasible:
        return ProgramResult("infeasible", math.inf, math.inf), values
    linear = not program.integer.any()
    optimal = status == highspy.HighsModelStatus.kOptimal
    if linear:
        bound = float(info.objective_function_value) if optimal else -math.inf
    else:
        bound = float(info.mip_dual_bound)
    if not math.isfinite(info.objective_function_value) or len(values) == 0:
        return ProgramResult("unknown", math.inf, bound), values
    name: ProgramStatus = "optimal" if optimal else "feasible"
    return ProgramResult(name, float(info.objective_function_value), bound), values
