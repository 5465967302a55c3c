import subprocess
import sys

import click
import pytest
from click.testing import CliRunner

from mohsearch import __version__
from mohsearch.cli.main import cli
from mohsearch.cli.program import Program
from mohsearch.core.errors import InputError


def commands(group, path=()):
    for name, command in group.commands.items():
        here = (*path, name)
        yield here, command
        if isinstance(command, click.Group):
            yield from commands(command, here)


ALL = dict(commands(cli))


def run(*args):
    return CliRunner().invoke(cli, args, prog_name="mohsearch")


def process(*args, **options):
    return subprocess.run(
        [sys.executable, "-m", "mohsearch", *args],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        **options,
    )


@pytest.mark.parametrize("path", ALL, ids=" ".join)
def test_every_command_explains_itself_with_an_example(path):
    result = run(*path, "--help")
    assert result.exit_code == 0
    assert "Example" in result.output
    assert f"mohsearch {path[0]}" in result.output.split("Example")[1]
    for option in ALL[path].params:
        if isinstance(option, click.Option):
            assert option.help, f"{path}: {option.name} has no help"


def test_the_commands_in_the_examples_exist_and_take_those_options():
    for path, command in ALL.items():
        for line in (command.epilog or "").splitlines():
            words = line.split("|")[0].split(">")[0].split()
            if words[:1] != ["mohsearch"]:
                continue
            found, rest = cli, words[1:]
            while isinstance(found, click.Group):
                assert rest[0] in found.commands, f"{path}: {line}"
                found, rest = found.commands[rest[0]], rest[1:]
            known = {name for p in found.params for name in p.opts}
            for word in rest:
                if word.startswith("-"):
                    assert word in known, f"{path}: {line}"


def test_the_version_is_the_packages():
    assert run("--version").output == f"mohsearch {__version__}\n"


def test_unknown_commands_are_answered_with_the_nearest_and_all():
    result = run("studi")
    assert result.exit_code == 2
    assert "Did you mean 'study'?" in result.stderr
    assert "doctor" in result.stderr
    result = run("plot", "gant", "x")
    assert "Did you mean 'gantt'? Commands: front, gantt, convergence" in result.stderr


def test_unknown_options_are_answered_with_the_nearest():
    result = run("study", "run", "smoke", "--worker", "2")
    assert result.exit_code == 2
    assert "--workers" in result.stderr


def broken(error):
    @click.group(cls=Program)
    @click.option("--debug", is_flag=True)
    def program(debug):
        """Fail."""

    @program.command()
    def fail():
        raise error

    return program


def test_user_errors_are_one_line_with_exit_code_2():
    wrong = InputError("must be positive", source="a.yaml", field="runs[0].budget")
    result = CliRunner().invoke(broken(wrong), ["fail"])
    assert result.exit_code == 2
    assert result.stderr == "mohsearch: a.yaml: runs[0].budget: must be positive\n"
    assert result.stdout == ""


def test_defects_name_a_file_with_the_traceback_and_exit_with_1(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    result = CliRunner().invoke(broken(ZeroDivisionError("one / zero")), ["fail"])
    assert result.exit_code == 1
    assert "a defect of mohsearch: ZeroDivisionError: one / zero" in result.stderr
    assert "Traceback" not in result.stderr
    (file,) = tmp_path.glob("mohsearch-error-*.txt")
    assert str(file) in result.stderr
    assert "Traceback" in file.read_text()


def test_with_debug_the_traceback_is_shown():
    result = CliRunner().invoke(broken(ZeroDivisionError("one / zero")), ["--debug", "fail"])
    assert isinstance(result.exception, ZeroDivisionError)
    result = CliRunner().invoke(broken(InputError("wrong")), ["--debug", "fail"])
    assert result.exit_code == 2
    assert "Traceback" in result.stderr
    assert result.stderr.endswith("mohsearch: wrong\n")


def test_an_interruption_exits_with_130():
    result = CliRunner().invoke(broken(KeyboardInterrupt()), ["fail"])
    assert result.exit_code == 130
    assert "interrupted" in result.stderr


def test_a_process_without_arguments_shows_the_help_and_exits_with_2():
    result = process()
    assert result.returncode == 2
    assert "Commands:" in result.stdout + result.stderr
    assert "Traceback" not in result.stderr


MISTAKES = [
    ("front", "show", "absent"),
    ("study", "run", "no-such-study"),
    ("workload", "show", "no-such-network"),
    ("study", "run", "broken.yaml"),
    ("plot", "front", "."),
]


@pytest.mark.parametrize("args", MISTAKES, ids=" ".join)
def test_user_errors_have_exit_code_2_and_one_line(tmp_path, monkeypatch, args):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "broken.yaml").write_text("name: [\n")
    result = run(*args)
    assert result.exit_code == 2, result.stderr
    assert len(result.stderr.strip().splitlines()) == 1, result.stderr
    assert result.stderr.startswith("mohsearch: ")


def test_a_user_error_of_a_process_has_exit_code_2_and_no_traceback(tmp_path):
    (tmp_path / "broken.yaml").write_text("name: [\n")
    result = process("study", "run", "broken.yaml", cwd=tmp_path)
    assert result.returncode == 2, result.stderr
    assert len(result.stderr.strip().splitlines()) == 1, result.stderr
    assert result.stderr.startswith("mohsearch: ")


def test_a_reader_that_goes_away_gets_no_complaint():
    script = f"{sys.executable} -m mohsearch study schema | head -c 1 > /dev/null; " + (
        'echo "${PIPESTATUS[0]}"'
    )
    result = subprocess.run(
        ["bash", "-c", script], capture_output=True, text=True, check=False, timeout=120
    )
    assert result.stderr == ""
    assert result.stdout.strip() in {"0", "141"}


def test_help_imports_none_of_the_heavy_libraries():
    code = (
        "import sys; sys.argv = ['mohsearch', '--help']\n"
        "from mohsearch.cli.main import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "heavy = {'numpy', 'pymoo', 'numba', 'xarray', 'zarr', 'matplotlib', 'rich', 'pydantic',"
        " 'yaml', 'networkx', 'pandas', 'moocore', 'onnx', 'optuna'}\n"
        "print('loaded:', sorted(heavy & set(sys.modules)))"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert result.stdout.splitlines()[-1] == "loaded: []"


def test_a_search_whose_reader_goes_away_stops_and_is_no_failure(tmp_path):
    """Both streams into `head`: the run is not marked as failed, and goes on when asked again."""
    script = (
        "import os, sys\n"
        "from mohsearch.cli import progress\n"
        "def echo(text, err): raise BrokenPipeError\n"
        "progress.click.echo = echo\n"
        "from mohsearch.study.events import StudyEvent\n"
        "try:\n"
        "    try:\n"
        "        progress.PlainReporter(1)(StudyEvent('started', 'run'))\n"
        "    except Exception:\n"
        "        sys.exit('taken for the failure of a run')\n"
        "except SystemExit as end:\n"
        "    os._exit(end.code)\n"
    )
    command = [sys.executable, "-c", script]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (result.returncode, result.stdout, result.stderr) == (141, "", "")
