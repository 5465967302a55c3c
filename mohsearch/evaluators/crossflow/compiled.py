"""How CrossFlow's kernels are compiled.

A compiled function usually carries all that it calls: the compiler optimises and translates the
callees again for every caller, so that a large function at the bottom of a chain of calls is
translated once per link of the chain. Large functions are therefore :class:`Outlined`: they are
translated once, and called through their address, which Python hands to the entry function.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

import numba as nb
import numpy as np
from numba.core import sigutils, types
from numba.core.errors import TypingError
from numba.extending import intrinsic


def entry(function: Callable[..., Any]) -> Any:
    """Compile a function that Python calls."""
    return nb.njit(cache=True, nogil=True)(function)


def inner(function: Callable[..., Any]) -> Any:
    """Compile a function that only compiled ones call: no wrappers, which take time to compile."""
    options: dict[str, bool] = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}
    return nb.njit(cache=True, nogil=True, **options)(function)  # type: ignore[call-overload]


def codes(count: int) -> Any:
    """Return 0 to count - 1 as NumPy integers.

    The compiler specialises a function on every plain integer constant among its arguments.
    """
    return np.arange(count)


class Outlined:
    """A function that compiled code calls through its address.

    Parameters
    ----------
    function
        What to compile; it returns a number.
    signature
        Its type, such as ``float64(float64[::1], int64)``. Arrays of callers must be of exactly
        these types, numbers are converted.

    Attributes
    ----------
    call
        For compiled code: ``call(address, arguments)`` with a tuple of arguments.
    """

    def __init__(self, function: Callable[..., Any], signature: str) -> None:
        self.compiled = nb.njit(cache=True, nogil=True, no_cfunc_wrapper=True)(function)  # type: ignore[call-overload]
        self.signature = sigutils.normalize_signature(signature)  # type: ignore[no-untyped-call]
        self.call = _caller(function.__name__, *self.signature)

    def __call__(self, *arguments: Any) -> Any:
        """Call the function from Python."""
        return self.compiled(*arguments)

    @cached_property
    def address(self) -> int:
        """Address of the machine code, which is made (or read from the cache) at first use."""
        arguments, _ = self.signature
        self.compiled.compile(arguments)
        found = self.compiled.overloads[arguments]
        return int(found.library.get_pointer_to_function(found.fndesc.llvm_func_name))


def outlined(signature: str) -> Callable[[Callable[..., Any]], Outlined]:
    """Decorate a function to be an :class:`Outlined` one."""
    return lambda function: Outlined(function, signature)


def _caller(name: str, arguments: tuple[Any, ...], result: Any) -> Any:
    """Return what compiled code calls to jump to an address with arguments of given types."""

    def typed(typing: Any, address: Any, given: Any) -> Any:
        if len(given) != len(arguments):
            raise TypingError(f"{name} takes {len(arguments)} arguments, got {len(given)}")
        for place, (have, want) in enumerate(zip(given, arguments, strict=True)):
            number = isinstance(want, types.Number | types.Boolean)
            fits = typing.can_convert(have, want) if number else have == want
            if fits is None or fits is False:
                raise TypingError(f"argument {place + 1} of {name} is {have}, not {want}")

        def generate(context: Any, builder: Any, sig: Any, values: Any) -> Any:
            have, packed = sig.args[1], values[1]
            parts = [
                context.cast(builder, builder.extract_value(packed, i), have[i], want)
                for i, want in enumerate(arguments)
            ]
            kind = context.call_conv.get_function_type(result, arguments)
            pointer = builder.inttoptr(values[0], kind.as_pointer())
            status, value = context.call_conv.call_function(
                builder, pointer, result, arguments, parts
            )
            with builder.if_then(status.is_error, likely=False):
                context.call_conv.return_status_propagate(builder, status)
            return value

        return result(types.int64, given), generate

    @intrinsic
    def jump(typing: Any, address: Any, given: Any) -> Any:
        return typed(typing, address, given)

    return jump
