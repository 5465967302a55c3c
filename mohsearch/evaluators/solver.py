"""The one door to mixed-integer solvers: HiGHS by default, CBC where HiGHS is missing."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

from mohsearch.core.errors import MissingExtraError
from mohsearch.core.optional import require

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
