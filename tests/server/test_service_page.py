import re
import shutil
import sys
from dataclasses import asdict
from pathlib import Path

import pytest
from asking import call
from fastapi import FastAPI

from openradial import server
from openradial.cli.serve import serve_command
from openradial.errors import MissingError
from openradial.server import Limits
from openradial.server.schemas import STATUSES

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "service.md").read_text()


def test_the_example_makes_an_application(python_blocks, tmp_path, monkeypatch):
    shutil.copytree(ROOT / "tests" / "bundle" / "data" / "digits", tmp_path / "model")
    monkeypatch.chdir(tmp_path)
    (code,) = python_blocks("service.md")
    names = {}
    exec(code, names)
    assert isinstance(names["app"], FastAPI)
    assert names["app"].state.service.limits.batch == 32


def test_the_public_names_are_pinned_and_documented():
    assert server.__all__ == ["Batcher", "Limits", "RequestError", "Service", "create_app", "listen", "serve"]
    assert all(getattr(server, name).__doc__ for name in server.__all__)


@pytest.mark.parametrize(
    "package", ["fastapi", "uvicorn", "httptools", "python_multipart", "prometheus_client", "jinja2"]
)
def test_a_missing_package_is_named_with_the_extra_that_brings_it(package, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)
    sentence = (
        f"the service needs the package {package}, which is not installed; run: pip install 'openradial\\[serve\\]'"
    )
    with pytest.raises(MissingError, match=f"^{sentence}$"):
        server.create_app  # noqa: B018


def test_the_page_names_every_status_and_path():
    assert set(map(str, STATUSES)) == set(re.findall(r"^\| (\d{3}) \|", PAGE, re.MULTILINE))
    assert call()[1] in PAGE


def test_the_page_states_the_limits_as_they_are():
    stated = dict(re.findall(r"\| `--max-(\w+)` \| ([\d,]+) \|", PAGE))
    limits = asdict(Limits())
    assert {name: int(value.replace(",", "")) for name, value in stated.items()} == {
        name: limits[name] for name in stated
    }
    assert {f"max_{name}" for name in stated} == {name for name in serve_command.__annotations__ if name[:4] == "max_"}
    assert f"A request must arrive within {limits['read_timeout']:g} seconds" in PAGE
    assert f"at most {limits['connections']:,}" in PAGE
