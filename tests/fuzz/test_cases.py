"""Bytes that broke a parser once, and the files that fuzzing starts from."""

from pathlib import Path

import pytest
from targets import TARGETS, check

CASES = sorted(path for path in (Path(__file__).parent / "cases").iterdir())


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.name)
def test_bytes_that_broke_a_parser_are_accepted_or_refused(path):
    check(path.name.partition("-")[0], path.read_bytes())


@pytest.mark.parametrize("name", TARGETS)
def test_a_parser_accepts_or_refuses_the_files_that_fuzzing_starts_from(name):
    for data in TARGETS[name].seeds()[:8]:
        check(name, data)
