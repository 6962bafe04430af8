import ast
import shutil
import subprocess
import sys
from pathlib import Path

import grimp
import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture
def source_copy(tmp_path):
    shutil.copytree(ROOT / "src" / "openradial", tmp_path / "openradial", ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path


def lint_imports(folder):
    """Check the contracts of pyproject.toml against the package in `folder`."""
    command = [sys.executable, "-c", "from importlinter.cli import lint_imports_command; lint_imports_command()"]
    options = ["--config", str(ROOT / "pyproject.toml"), "--no-cache"]
    return subprocess.run(command + options, cwd=folder, capture_output=True, text=True)


def test_the_contracts_are_kept(source_copy):
    result = lint_imports(source_copy)
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.parametrize(
    ("module", "line", "contract"),
    [
        ("errors", "import openradial.reference", "Imports only go down"),
        ("reference", "import openradial.functional", "Imports only go down"),
        ("conformal", "from openradial import heads", "Imports only go down"),
        ("nn", "def f():\n    import openradial.evaluation.plots", "Imports only go down"),
        ("utils", "", "Imports only go down"),
        ("nn", "import numpy", "The layer needs torch alone"),
        ("functional", "import scipy.special", "The layer needs torch alone"),
        ("reference", "import torch", "The reference needs NumPy alone"),
        ("errors", "import torch", "The reference needs NumPy alone"),
    ],
)
def test_a_broken_contract_is_found(source_copy, module, line, contract):
    folder = source_copy / "openradial" / module
    with (folder / "__init__.py" if folder.is_dir() else folder.with_suffix(".py")).open("a") as file:
        file.write(f"\n{line}\n")
    result = lint_imports(source_copy)
    assert result.returncode == 1
    assert f"{contract} BROKEN" in result.stdout


@pytest.mark.parametrize(
    ("room", "allowed"),
    [("functional", "torch"), ("nn", "torch"), ("reference", "numpy"), ("errors", None)],
)
def test_a_room_of_the_core_imports_no_other_third_party_package(room, allowed):
    graph = grimp.build_graph("openradial", include_external_packages=True, cache_dir=None)
    modules = {f"openradial.{room}"} | graph.find_descendants(f"openradial.{room}")
    imported = {name.split(".")[0] for module in modules for name in graph.find_modules_directly_imported_by(module)}
    assert imported - set(sys.stdlib_module_names) - {"openradial", allowed} == set()


def test_importing_openradial_loads_nothing_of_the_extras():
    code = "import sys, openradial; print(*{name.split('.')[0] for name in sys.modules})"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert {"matplotlib", "sklearn", "scipy", "rich", "pandas"}.isdisjoint(loaded)


def test_a_type_has_one_definition():
    paths = {}
    for path in [*(ROOT / "src").rglob("*.py"), *(ROOT / "paper").rglob("*.py")]:
        for node in ast.parse(path.read_text()).body:
            is_alias = isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
            name = node.targets[0].id if is_alias else getattr(node, "name", "")
            if name[:1].isupper() and not name.isupper():
                paths.setdefault(name, []).append(str(path.relative_to(ROOT)))
    assert {name: found for name, found in paths.items() if len(found) > 1} == {}
