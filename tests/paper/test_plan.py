import json
import re
import threading
from dataclasses import dataclass

import pytest
import torch

from openradial.errors import OptionError, TrainingError
from paper import Plan
from paper import plan as plans
from paper.plan import claim_folder


@dataclass(frozen=True)
class Few:
    epochs: int
    seeds: int


@dataclass(frozen=True)
class Seedless:
    epochs: int


def never():
    raise AssertionError("a finished part was computed again")


def test_a_part_is_computed_once_and_then_read(tmp_path):
    assert Plan(tmp_path).cached("sum", lambda: {"value": 3}) == {"value": 3}
    assert Plan(tmp_path).cached("sum", never) == {"value": 3}


def test_a_part_looks_the_same_whether_it_was_computed_or_read(tmp_path):
    plan = Plan(tmp_path)
    assert plan.cached("part", lambda: {1: (2, 3)}) == plan.cached("part", never) == {"1": [2, 3]}


def test_tensors_are_computed_once_and_then_read(tmp_path):
    weights = {"0.weight": torch.arange(6.0).view(2, 3)}
    first = Plan(tmp_path).cached_tensors("net", lambda: weights)
    again = Plan(tmp_path).cached_tensors("net", never)
    assert torch.equal(first["0.weight"], weights["0.weight"])
    assert torch.equal(again["0.weight"], weights["0.weight"])


def test_a_part_remembers_how_long_it_took_without_the_parts_inside_it(tmp_path, monkeypatch):
    clock = iter([0.0, 10.0, 17.0, 20.0])
    monkeypatch.setattr(plans.time, "monotonic", lambda: next(clock))
    plan = Plan(tmp_path)
    plan.cached("outer", lambda: plan.cached("inner", lambda: 1))
    assert plan.computed == {"inner.json": 7.0, "outer.json": 13.0}
    monkeypatch.undo()
    again = Plan(tmp_path)
    assert again.cached("inner", never) == 1
    assert (again.computed, again.reused) == ({}, {"inner.json": 7.0})


def test_a_part_that_fails_leaves_no_file_and_is_computed_next_time(tmp_path):
    plan = Plan(tmp_path)
    with pytest.raises(AssertionError):
        plan.cached("part", never)
    assert plan.cached("part", lambda: 1) == 1


def test_a_number_that_is_not_finite_is_never_kept(tmp_path):
    with pytest.raises(ValueError, match="JSON compliant"):
        Plan(tmp_path).cached("part", lambda: float("nan"))
    assert Plan(tmp_path).cached("part", lambda: 1) == 1


def test_two_that_need_the_same_part_make_it_once(tmp_path):
    made, inside, go_on = [], threading.Event(), threading.Event()

    def slow():
        made.append(1)
        inside.set()
        assert go_on.wait(300)
        return 7

    found = []
    first = threading.Thread(target=lambda: found.append(Plan(tmp_path).cached("part", slow)))
    first.start()
    assert inside.wait(300)
    second = threading.Thread(target=lambda: found.append(Plan(tmp_path).cached("part", slow)))
    second.start()
    go_on.set()
    first.join()
    second.join()
    assert (made, found) == ([1], [7, 7])


@pytest.mark.parametrize("name", ["part.json", "part.safetensors"])
def test_a_damaged_part_is_named_with_the_way_out(tmp_path, name):
    path = tmp_path / "parts" / name
    path.parent.mkdir()
    path.write_text("half of")
    plan = Plan(tmp_path)
    read = plan.cached if name.endswith("json") else plan.cached_tensors
    with pytest.raises(
        TrainingError, match=rf"^{re.escape(str(path))} is damaged \(.*\); delete it and continue with --resume$"
    ):
        read("part", never)


def test_settings_are_those_of_the_size(tmp_path):
    table = {"tiny": Few(1, 2), "quick": Few(3, 4), "full": Few(5, 6)}
    assert Plan(tmp_path, "quick").settings(table) == Few(3, 4)


def test_the_plan_can_say_how_many_seeds(tmp_path):
    assert Plan(tmp_path, "full", seeds=9).settings({"full": Few(5, 6)}) == Few(5, 9)
    assert Plan(tmp_path, "full", seeds=9).settings({"full": Seedless(5)}) == Seedless(5)


def test_notes_reach_the_listener(tmp_path):
    heard = []
    Plan(tmp_path, listener=heard.append).note("training")
    assert heard == ["training"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"size": "small"}, "size must be one of 'tiny', 'quick', 'full', got 'small'"),
        ({"jobs": 0}, "jobs must be at least 1, got 0"),
        ({"seeds": 0}, "seeds must be at least 1, got 0"),
    ],
)
def test_a_plan_that_makes_no_sense_is_refused(tmp_path, options, message):
    with pytest.raises(OptionError, match=f"^{re.escape(message)}$"):
        Plan(tmp_path, **options)


def test_a_folder_with_results_is_kept_unless_asked_to_go_on(tmp_path):
    claim_folder(Plan(tmp_path, "quick"), resume=False)
    message = f"{tmp_path} already holds results; add --resume to continue or choose another folder"
    with pytest.raises(TrainingError, match=f"^{re.escape(message)}$"):
        claim_folder(Plan(tmp_path, "quick"), resume=False)
    claim_folder(Plan(tmp_path, "quick", jobs=2), resume=True)


def test_another_plan_does_not_go_on_in_the_same_folder(tmp_path):
    claim_folder(Plan(tmp_path, "quick"), resume=False)
    message = (
        f"{tmp_path} was started with size quick, not with size full, 3 seeds, tiny_imagenet /data; "
        "use the same options, or choose another folder"
    )
    with pytest.raises(OptionError, match=f"^{re.escape(message)}$"):
        claim_folder(Plan(tmp_path, "full", seeds=3, options={"tiny_imagenet": "/data"}), resume=True)
    assert json.loads((tmp_path / "plan.json").read_text())["size"] == "quick"


def test_a_folder_that_cannot_be_made_is_refused(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(OptionError, match=r"cannot create the folder .* \(Not a directory\); choose another one"):
        claim_folder(Plan(tmp_path / "file" / "out"), resume=False)
