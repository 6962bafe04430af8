import re
import shutil
from dataclasses import asdict
from pathlib import Path

from asking import call
from fastapi import FastAPI

from openradial.cli.serve import serve_command
from openradial.server import Limits
from openradial.server.schema import STATUSES

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "service.md").read_text()


def test_the_example_makes_an_application(python_blocks, tmp_path, monkeypatch):
    shutil.copytree(ROOT / "tests" / "bundle" / "data" / "v1", tmp_path / "model")
    monkeypatch.chdir(tmp_path)
    (code,) = python_blocks("service.md")
    names = {}
    exec(code, names)
    assert isinstance(names["app"], FastAPI)
    assert names["app"].state.service.limits.batch == 32


def test_the_page_names_every_status_and_path():
    assert set(map(str, STATUSES)) == set(re.findall(r"^\| (\d{3}) \|", PAGE, re.MULTILINE))
    assert call()[1] in PAGE


def test_the_page_states_the_limits_as_they_are():
    stated = {name: value for name, value in re.findall(r"\| `--max-(\w+)` \| ([\d,]+) \|", PAGE)}
    limits = asdict(Limits())
    assert {name: int(value.replace(",", "")) for name, value in stated.items()} == {
        name: limits[name] for name in stated
    }
    assert {f"max_{name}" for name in stated} == {name for name in serve_command.__annotations__ if name[:4] == "max_"}
    assert f"A client has {limits['reading']:g} seconds to send a request" in PAGE
    assert f"at most {limits['connections']:,}" in PAGE
