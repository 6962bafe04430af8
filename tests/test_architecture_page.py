"""The page on the architecture: its code runs, and its map and import order are those of the package."""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "openradial"
PAGE = (ROOT / "docs" / "architecture.md").read_text()


def modules():
    names = {path.stem for path in PACKAGE.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}
    return names - {"__init__", "__main__"}


def test_the_code_of_the_page_runs(python_blocks, capsys):
    names = {}
    for code in python_blocks("architecture.md"):
        exec(code, names)
    assert "unknown" in capsys.readouterr().out


def test_the_map_lists_every_module():
    assert set(re.findall(r"^\| `(\w+)` \|", PAGE, re.MULTILINE)) == modules()


def test_the_package_has_at_most_24_modules():
    assert len(modules()) <= 24


def test_the_import_order_is_the_contract():
    contract = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"][0]
    page = re.search(r"```text\n(cli\n.*?)```", PAGE, re.DOTALL).group(1).split("\n")
    assert [line for line in page if line] == [layer for layer in contract["layers"] if layer != "__main__"]


def test_no_file_is_longer_than_400_lines():
    for path in PACKAGE.rglob("*.py"):
        assert len(path.read_text().splitlines()) <= 400, path
