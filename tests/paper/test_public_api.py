"""The experiments need nothing but public names of openradial: the public API suffices to reproduce the paper."""

import ast
import tomllib
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FILES = sorted((ROOT / "paper").rglob("*.py"))
MODULES = {
    "attacks", "bayes", "bundle", "conformal", "data", "errors", "evaluation", "export", "functional", "heads",
    "metrics", "models", "nn", "reference", "scorers", "training",
}  # fmt: skip
DOCUMENTED = {"openradial", "openradial.evaluation.plots", *(f"openradial.{name}" for name in MODULES)}


def problems(source):
    """Imports of openradial in a source text that are not public, as ``line: name``."""
    bad = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names if alias.name.partition(".")[0] == "openradial"]
            bad += [f"{node.lineno}: {name}" for name in names if name not in DOCUMENTED]
        elif isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "openradial":
            if node.module not in DOCUMENTED:
                bad.append(f"{node.lineno}: {node.module}")
                continue
            public = import_module(node.module).__all__
            bad += [f"{node.lineno}: {node.module}.{alias.name}" for alias in node.names if alias.name not in public]
        elif isinstance(node, ast.Attribute) and node.attr.startswith("_") and not node.attr.startswith("__"):
            owner = node.value.id if isinstance(node.value, ast.Name) else ""
            bad += [] if owner in ("self", "cls", "os") else [f"{node.lineno}: .{node.attr}"]
    return bad


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_experiments_import_public_names_only(path):
    assert problems(path.read_text()) == []


@pytest.mark.parametrize(
    "source",
    [
        "import openradial.data.batches",
        "from openradial.data.batches import Batches",
        "from openradial.data import _cache",
        "from openradial.files import write_text",
        "from openradial.errors import check_count",
        "import openradial\nopenradial.data._cache",
    ],
)
def test_other_names_are_found(source):
    assert len(problems(source)) == 1


def test_public_names_pass():
    assert problems("from openradial.data import Batches, load\nimport openradial\nfrom openradial import models") == []


def test_the_package_imports_nothing_from_the_experiments():
    for path in (ROOT / "src").rglob("*.py"):
        modules = [
            name
            for node in ast.walk(ast.parse(path.read_text()))
            for name in (
                [node.module or ""] if isinstance(node, ast.ImportFrom)
                else [alias.name for alias in node.names] if isinstance(node, ast.Import)
                else []
            )
        ]  # fmt: skip
        assert not any(name.partition(".")[0] in ("paper", "benchmarks", "tests") for name in modules), path


def test_the_wheel_holds_the_package_alone():
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert settings["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"] == ["src/openradial"]
    assert not list((ROOT / "src").rglob("*ilsvrc*"))
