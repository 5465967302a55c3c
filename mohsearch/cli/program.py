"""Command groups that speak clearly: near misses, one line per error, exit codes.

Exit codes: 0 done; 1 a run or check failed, or a defect of this package; 2 wrong usage or input;
130 interrupted; 143 terminated; 141 the reader of the output went away.
"""

from __future__ import annotations

import difflib
import os
import sys
import tempfile
import traceback
from typing import Any, NoReturn, TextIO

import click

from mohsearch.cli.interruption import exit_code_of
from mohsearch.core.errors import MohsearchError

PIPE_CLOSED = 141


class Group(click.Group):
    """A command group whose unknown commands are answered with the nearest and all known ones."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command, or say which there are."""
        name = args[0]
        if not name.startswith("-") and self.get_command(ctx, name) is None:
            known = self.list_commands(ctx)
            near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            ctx.fail(f"No such command {name!r}.{hint} Commands: {', '.join(known)}")
        return super().resolve_command(ctx, args)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """List commands in the order in which they were added: the order of use."""
        return list(self.commands)


Group.group_class = Group


class Failure(click.ClickException):
    """An error told in one message, without traceback."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code  # type: ignore[misc]  # click reads the instance

    def show(self, file: Any = None) -> None:
        """Print the message to standard error."""
        click.echo(f"mohsearch: {self.format_message()}", err=True)


class Program(Group):
    """The outermost group: the one place where exceptions become messages and exit codes."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command; turn whatever escapes it into a message and an exit code."""
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
            return result
        except (click.exceptions.Exit, click.Abort, click.ClickException):
            raise
        except MohsearchError as error:
            if ctx.params.get("debug"):
                traceback.print_exc()
            raise Failure(str(error), error.exit_code) from None
        except KeyboardInterrupt as interruption:
            click.echo("mohsearch: interrupted", err=True)
            ctx.exit(exit_code_of(interruption))
        except BrokenPipeError:
            leave_closed_pipe()
        except Exception as error:
            if ctx.params.get("debug"):
                raise
            raise Failure(_defect(error), 1) from None


def leave_closed_pipe() -> NoReturn:
    """End without a word: nobody reads any more.

    Raises
    ------
    SystemExit
        Always; no handler of ordinary errors between here and the outermost command takes it.
    """
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            _silence(stream)
    raise SystemExit(PIPE_CLOSED)


def _silence(stream: TextIO) -> None:
    """Send what is still buffered nowhere: it must not fail again while Python shuts down."""
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
    except (OSError, ValueError):
        pass


def _defect(error: Exception) -> str:
    """Keep the traceback in a file and return the message about it."""
    text = "".join(traceback.format_exception(error))
    summary = f"{type(error).__name__}: {error}".splitlines()[0]
    message = f"this should not happen, and is a defect of mohsearch: {summary}\n"
    try:
        with tempfile.NamedTemporaryFile(
            "w", prefix="mohsearch-error-", suffix=".txt", delete=False, encoding="utf-8"
        ) as file:
            file.write(f"command: {' '.join(sys.argv)}\n\n{text}")
    except OSError:
        return message + "Run it again with 'mohsearch --debug ...' and report what it prints."
    return message + f"Please report it with the file {file.name}"


def example(*lines: str) -> str:
    """Return the examples that stand at the end of a command's help."""
    shown = "\n".join(f"  {line}" for line in lines)
    return f"\b\nExample{'s' if len(lines) > 1 else ''}:\n{shown}"
