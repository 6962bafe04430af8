"""Benchmarks use the names that the package has now; `make check` has their types."""

import importlib.util
import sys
import tomllib
from pathlib import Path

import pytest

from benchmarks import quick_mode, service

ROOT = Path(__file__).parents[2]
MODULES = sorted(path.stem for path in (ROOT / "benchmarks").glob("[!_]*.py"))


@pytest.mark.parametrize("name", MODULES)
def test_a_benchmark_can_be_imported(name):
    module = importlib.import_module(f"benchmarks.{name}")
    assert Path(module.__file__) == ROOT / "benchmarks" / f"{name}.py"


COMMANDS = [
    *map(quick_mode.program, quick_mode.COMMANDS),
    service.serve_command(Path("model")),
    service.plain_command(Path("model")),
]


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: " ".join(command[1:4]))
def test_a_benchmark_starts_modules_that_can_be_run(command):
    python, flag, module, *_ = command
    assert (python, flag) == (sys.executable, "-m")
    is_package = importlib.util.find_spec(module).submodule_search_locations is not None
    assert not is_package or importlib.util.find_spec(f"{module}.__main__")


def test_the_type_checker_reads_every_folder_with_code():
    checked = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["mypy"]["files"]
    with_code = {path.parent.name for path in ROOT.glob("[!.]*/*.py")} - {"docs", "tests"}
    assert with_code <= set(checked)
