import re
import subprocess
import sys
from importlib import import_module
from importlib.metadata import version
from pathlib import Path

import pytest

import openradial
from openradial import errors

# one line per module: its name and the public names; `python tests/test_public_names.py` writes the file again
PINNED = Path(__file__).with_name("public_names.txt")
PUBLIC = {
    import_module(module): names.split()
    for module, names in (line.split(": ") for line in PINNED.read_text().splitlines())
}
every_module = pytest.mark.parametrize("module", PUBLIC, ids=lambda module: module.__name__)


def run(code):
    result = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    return result.stdout.split()


@every_module
def test_public_names_are_pinned(module):
    assert module.__all__ == PUBLIC[module]


@every_module
def test_public_names_exist_and_are_documented(module):
    for name in PUBLIC[module]:
        assert getattr(module, name).__doc__


@every_module
def test_public_names_are_listed_by_dir(module):
    assert set(PUBLIC[module]) <= set(dir(module))


def test_every_documented_module_is_an_attribute_and_pinned():
    assert [f"openradial.{name}" for name in openradial.MODULES] == [module.__name__ for module in PUBLIC][1:]


def test_names_are_listed_once_and_before_they_are_loaded():
    names = run("import openradial; print(*dir(openradial))")
    assert set(PUBLIC[openradial]) <= set(names)
    assert len(names) == len(set(names))


def test_every_name_loads_first_in_a_fresh_interpreter():
    code = "import openradial, sys\nfor name in openradial.__all__: print(getattr(openradial, name).__name__)"
    loaded = [name.rpartition(".")[2] for name in run(code)]
    assert loaded == PUBLIC[openradial]


def test_star_import_gives_the_public_names():
    names = run("from openradial import *; print(*[name for name in dir() if not name.startswith('__')])")
    assert sorted(names) == sorted(PUBLIC[openradial])


def test_importing_openradial_loads_no_large_package():
    loaded = run("import sys, openradial; print(*{name.partition('.')[0] for name in sys.modules})")
    assert {"torch", "numpy", "matplotlib", "sklearn", "scipy", "rich"}.isdisjoint(loaded)


def test_using_the_layer_loads_no_package_of_the_extras():
    code = (
        "import sys, torch\nbefore = set(sys.modules)\nimport openradial\n"
        "openradial.replace_head(torch.nn.Linear(2, 3), 3)(torch.zeros(1, 2))\n"
        "print(*{name.partition('.')[0] for name in set(sys.modules) - before})"
    )
    assert {"matplotlib", "sklearn", "scipy", "rich", "pandas"}.isdisjoint(run(code))


def test_an_unknown_name_lists_the_public_ones():
    message = f"module 'openradial' has no attribute 'RadialLayr'; public names: {', '.join(PUBLIC[openradial])}"
    with pytest.raises(AttributeError, match=f"^{re.escape(message)}$"):
        openradial.RadialLayr  # noqa: B018


def test_a_missing_name_is_missing_to_hasattr_and_import():
    assert not hasattr(openradial, "softmax")
    with pytest.raises(ImportError, match="softmax"):
        from openradial import softmax  # noqa: F401


def test_version_is_that_of_the_installed_package():
    assert openradial.__version__ == version("openradial")
    assert re.fullmatch(r"\d+\.\d+\.\d+(\.dev\d+|rc\d+)?", openradial.__version__)


@pytest.mark.parametrize(
    ("error", "builtin"),
    [
        (errors.ShapeError, ValueError),
        (errors.DTypeError, TypeError),
        (errors.TargetError, IndexError),
        (errors.OptionError, ValueError),
        (errors.HeadError, ValueError),
        (errors.BundleError, ValueError),
        (errors.ExportError, RuntimeError),
    ],
)
def test_every_error_is_ours_and_the_builtin_it_says(error, builtin):
    assert issubclass(error, openradial.OpenRadialError)
    assert issubclass(error, builtin)
    assert re.search(rf"── {error.__name__} +\({builtin.__name__}\)", errors.__doc__)


def test_the_root_of_the_errors_is_no_builtin_error():
    assert errors.OpenRadialError.__bases__ == (Exception,)
    assert openradial.OpenRadialError is errors.OpenRadialError


if __name__ == "__main__":
    modules = ["openradial", *(f"openradial.{name}" for name in openradial.MODULES)]
    lines = [f"{name}: {' '.join(import_module(name).__all__)}\n" for name in modules]
    PINNED.write_text("".join(lines))
