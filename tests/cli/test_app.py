import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import openradial
from openradial import cli
from openradial.cli import app
from openradial.cli.app import COMMANDS, load

MODEL = Path(__file__).parents[1] / "bundle" / "data" / "digits"
IMAGES = "nothere.png"


def run(*arguments):
    """The command as a program: its exit code, output and errors."""
    done = subprocess.run([sys.executable, "-m", "openradial", *arguments], capture_output=True, text=True)
    return done.returncode, done.stdout, done.stderr


def call(monkeypatch, capsys, *arguments):
    """The same in this process."""
    monkeypatch.setattr(sys, "argv", ["openradial", *map(str, arguments)])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    printed = capsys.readouterr()
    return ended.value.code or 0, printed.out, printed.err


def test_the_version_is_shown():
    assert run("--version") == (0, f"openradial {openradial.__version__}\n", "")


def test_an_error_is_one_line_without_a_traceback():
    code, out, err = run("data", "get", "mnits")
    assert (code, out, err) == (2, "", "error: there is no data set 'mnits'; did you mean 'mnist'?\n")


def test_wrong_use_is_exit_code_2(monkeypatch, capsys):
    assert call(monkeypatch, capsys, "data", "get")[0] == 2
    assert call(monkeypatch, capsys, "nothing")[0] == 2


def test_a_failure_is_exit_code_1(monkeypatch, capsys, tmp_path):
    monkeypatch.setenv("OPENRADIAL_CACHE", str(tmp_path))
    code, out, err = call(monkeypatch, capsys, "data", "path", "mnist")
    assert (code, out) == (1, "")
    assert err == f"error: mnist is not in {tmp_path}/data/mnist; run: openradial data get mnist\n"


def test_an_interrupted_command_says_so(monkeypatch, capsys):
    from openradial.data import catalog

    def interrupt(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(catalog, "entry", interrupt)
    code, _, err = call(monkeypatch, capsys, "data", "get", "mnist")
    assert (code, err) == (130, "error: interrupted\n")
    monkeypatch.setattr("openradial.fitting.pipeline.as_source", interrupt)
    code, _, err = call(monkeypatch, capsys, "fit", "photos")
    assert code == 130
    assert err.endswith("error: interrupted; no model was written; the same command uses the features in the cache\n")


def test_a_missing_package_names_the_command_that_installs_it(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "typer", None)
    code, _, err = call(monkeypatch, capsys)
    assert code == 1
    assert err.endswith("run: pip install 'openradial[cli]'\n")


def test_without_a_command_the_help_is_shown():
    _, out, err = run()
    assert "data" in out + err


IMPORTS = """
import contextlib, io, sys
from openradial import cli

option, *names = sys.argv[1:]
for name in names:
    sys.argv = ["openradial", name, option]
    code = None
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        try:
            cli.main()
        except SystemExit as ended:
            code = ended.code
    print(name, code, [package for package in ("torch", "numpy", "fastapi", "matplotlib") if package in sys.modules])
"""


@pytest.mark.parametrize(("option", "code"), [("--no-such-option", 2), ("--help", 0)])
def test_options_are_parsed_without_importing_torch(option, code):
    names = [name for name in COMMANDS if name != "train"]
    done = subprocess.run([sys.executable, "-c", IMPORTS, option, *names], capture_output=True, text=True)
    assert done.stdout.splitlines() == [f"{name} {code} []" for name in names], done.stderr


@pytest.mark.parametrize("arguments", [(), *((name,) for name in COMMANDS), ("data", "scan")])
def test_help_shows_no_type_after_flags(monkeypatch, capsys, arguments):
    _, out, _ = call(monkeypatch, capsys, *arguments, "--help")
    assert "--help" in out
    assert "<bool>" not in out


def test_only_the_main_command_has_completion_options(monkeypatch, capsys):
    assert "--install-completion" in call(monkeypatch, capsys, "--help")[1]
    assert "completion" not in call(monkeypatch, capsys, "data", "--help")[1]


@pytest.mark.parametrize("arguments", [["predict", MODEL, IMAGES], ["inspect", MODEL]])
def test_output_to_a_full_disk_is_one_sentence(monkeypatch, capsys, arguments):
    if not Path("/dev/full").exists():
        pytest.skip("this system has no /dev/full")
    with Path("/dev/full").open("w") as stream:  # closing it fails if it still has output
        monkeypatch.setattr(sys, "stdout", stream)
        code, _, err = call(monkeypatch, capsys, *arguments)
    assert (code, err.splitlines()[-1]) == (
        1,
        "error: the output cannot be read or written (No space left on device)",
    )
    assert "Traceback" not in err


def test_a_file_that_cannot_be_written_is_named(monkeypatch, capsys):
    def fail():
        raise PermissionError(13, "Permission denied", "report/report.json")

    monkeypatch.setattr(app, "command", fail)
    code, _, err = call(monkeypatch, capsys)
    assert (code, err) == (1, "error: report/report.json cannot be read or written (Permission denied)\n")


@pytest.mark.parametrize("command", ["fit", "export", "evaluate"])
@pytest.mark.parametrize(("name", "reason"), [("file/below", "Not a directory"), ("n" * 300, "File name too long")])
def test_an_output_is_checked_before_the_model_is_opened(monkeypatch, capsys, tmp_path, command, name, reason):
    (tmp_path / "file").touch()
    table = tmp_path / "t.csv"
    table.write_text("a,kind\n" + "1,x\n2,y\n" * 30)
    inputs = {"fit": [table, "--label", "kind"], "export": ["nothere"]}
    arguments = inputs.get(command, ["nothere", "--known", "digits"])
    code, _, err = call(monkeypatch, capsys, command, *arguments, "--out", tmp_path / name)
    assert code == 2
    assert err.startswith(f"error: {tmp_path / name}")
    assert err.endswith(f" cannot be written ({reason}); choose another path\n")
    assert sorted(os.listdir(tmp_path)) == ["file", "t.csv"]


def options(command):
    """The options of a command and of its subcommands."""
    children = [name for child in getattr(command, "commands", {}).values() for name in options(child)]
    return {option for param in command.params for option in param.opts} | set(children)


def test_messages_offer_only_options_that_the_command_line_has():
    known = {name: options(load(name)) for name in COMMANDS}
    source = Path(openradial.__file__).parent
    for path in source.rglob("*.py"):
        if path.relative_to(source).parts[0] == "cli" or path.name == "clients.py":  # options of npm, pip and apt-get
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                for command, option in re.findall(r"(?:\b(\w+) )?(--[a-z][a-z-]+)", node.value):
                    there = known[command] if command in known else set().union(*known.values())
                    assert option in there, f"{path.name} offers {command} {option}: {node.value!r}"


def test_an_option_of_a_network_has_no_underscore_in_a_number():
    from openradial.cli.fit import _pair

    assert [_pair(f"a={value}") for value in ("10", "1_0", "1.5")] == [("a", 10), ("a", "1_0"), ("a", 1.5)]
