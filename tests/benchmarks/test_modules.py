"""Benchmarks use the names that the package has now; `make check` has their types."""

import importlib
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MODULES = sorted(path.stem for path in (ROOT / "benchmarks").glob("[!_]*.py"))


@pytest.mark.parametrize("name", MODULES)
def test_a_benchmark_can_be_imported(name):
    module = importlib.import_module(f"benchmarks.{name}")
    assert Path(module.__file__) == ROOT / "benchmarks" / f"{name}.py"


def test_the_type_checker_reads_every_folder_with_code():
    checked = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["mypy"]["files"]
    with_code = {path.parent.name for path in ROOT.glob("*/*.py")} - {"docs", "tests"}
    assert with_code <= set(checked)
