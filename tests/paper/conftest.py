"""Tiny results of experiments, each computed once."""

import json

import pytest

from paper import Plan, find
from paper.runner import run_one


@pytest.fixture(scope="session")
def tiny_plan(tmp_path_factory):
    return Plan(tmp_path_factory.mktemp("tiny"), "tiny")


@pytest.fixture(scope="session")
def tiny_record(tiny_plan, fetched):
    """The record of an experiment at its tiny size, as its file has it."""

    def record(id):
        path = tiny_plan.folder / f"{id}.json"
        if not path.exists():
            fetched(run_one, id, tiny_plan)
        return json.loads(path.read_text())

    return record


@pytest.fixture(scope="session")
def tiny_figure(tiny_record):
    """The numbers of an experiment at its tiny size, and the figure drawn from them."""

    def figure(id):
        numbers = tiny_record(id)["numbers"]
        return numbers, find(id).draw(numbers)

    return figure
