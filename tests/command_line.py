"""The program as a test calls it."""

from __future__ import annotations

from click.testing import CliRunner, Result

from mohsearch.cli.main import cli


def run(*arguments: object, code: int = 0) -> Result:
    """Call the program in this process; its exit code must be the one that is expected."""
    done = CliRunner().invoke(cli, [str(argument) for argument in arguments], prog_name="mohsearch")
    assert done.exit_code == code, done.output
    return done
