import json
import re

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from openradial.conformal import PredictionSets, Rejector, false_reject_report, fit_beta, operating_point
from openradial.errors import DataError, DTypeError, OptionError, ShapeError
from openradial.files import read_tensors, write_tensors

RANDOM = np.random.default_rng(0)
SCORES, LABELS = RANDOM.normal(size=300), RANDOM.integers(0, 3, 300)
NAMES = np.array(["ox", "ram", "größe"])[LABELS]
ASKED = RANDOM.normal(size=100)

FITTED = {
    "one group": Rejector(0.05).fit(SCORES),
    "numbers": Rejector(0.1, per_class=True).fit(SCORES, LABELS),
    "names": Rejector(1 / 30, per_class=True).fit(SCORES, NAMES),
    "sets": PredictionSets(0.05).fit(np.abs(RANDOM.normal(size=(300, 3))), LABELS),
    "sets per class": PredictionSets(0.1, per_class=True).fit(np.abs(RANDOM.normal(size=(300, 3))), LABELS),
}
every_kind = pytest.mark.parametrize("fitted", FITTED.values(), ids=FITTED)


def is_same(one, other):
    """Every bit of every number: JSON text tells 0.0 from -0.0 too."""
    same = json.dumps(one.to_dict()) == json.dumps(other.to_dict())
    return same and all(torch.equal(one.tensors()[name], other.tensors()[name]) for name in one.tensors())


@every_kind
def test_plain_json_gives_the_same_decision(fitted):
    text = json.dumps(fitted.to_dict(), allow_nan=False)
    assert is_same(type(fitted).from_dict(json.loads(text)), fitted)


@every_kind
def test_a_safetensors_file_gives_the_same_decision(fitted, tmp_path):
    write_tensors(tmp_path / "decision.safetensors", fitted.tensors(), {})
    tensors, _ = read_tensors(tmp_path / "decision.safetensors")
    assert is_same(type(fitted).from_tensors(tensors), fitted)


@given(scores=st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=30))
def test_every_float_comes_back_bit_by_bit(scores):
    rejector = Rejector(0.5).fit(scores)
    assert is_same(Rejector.from_dict(json.loads(json.dumps(rejector.to_dict()))), rejector)
    assert is_same(Rejector.from_tensors(rejector.tensors()), rejector)


def test_thinned_scores_come_back_with_their_ranks(monkeypatch):
    monkeypatch.setattr("openradial.conformal.calibration.KEEP", 50)
    rejector = Rejector(0.05).fit(SCORES)
    (group,) = rejector.to_dict()["groups"]
    assert group["examples"] == 300
    assert len(group["scores"]) == len(group["ranks"]) <= 50
    for other in (Rejector.from_dict(rejector.to_dict()), Rejector.from_tensors(rejector.tensors())):
        assert is_same(other, rejector)
        assert other.p_values(ASKED).tolist() == rejector.p_values(ASKED).tolist()


def test_what_comes_back_decides_alike_at_every_rate():
    rejector = FITTED["names"]
    other = Rejector.from_dict(rejector.to_dict())
    assert other.false_reject_rate == 1 / 30
    for rate in (None, 0.05, 0.5):
        assert other.decide(ASKED, NAMES[:100], rate).tolist() == rejector.decide(ASKED, NAMES[:100], rate).tolist()


def test_sets_come_back_with_their_number_of_classes():
    for other in (
        PredictionSets.from_dict(FITTED["sets"].to_dict()),
        PredictionSets.from_tensors(FITTED["sets"].tensors()),
    ):
        with pytest.raises(ValueError, match=r"distances must have the shape \(b, 3\)"):
            other.sets([[1.0, 2.0]])


def changed(fitted, *path_and_value):
    """A record with one value changed."""
    record = json.loads(json.dumps(fitted.to_dict()))
    *path, last, value = path_and_value
    inner = record
    for step in path:
        inner = inner[step]
    inner[last] = value
    return record


def refused(message, record, kind=Rejector):
    with pytest.raises(DataError, match=f"^{re.escape(message)}$"):
        kind.from_dict(record)


@pytest.mark.parametrize("version", [2, 0, None, "1"])
def test_another_format_is_refused(version):
    message = (
        f"a Rejector must be of format 1, got {version!r}; "
        "read it with the version of openradial that wrote it, and fit again"
    )
    refused(message, changed(FITTED["one group"], "format", version))


def test_another_kind_is_refused():
    message = "a Rejector must be read from a Rejector, got 'PredictionSets'; use the class of that name"
    refused(message, FITTED["sets"].to_dict())
    with pytest.raises(DataError, match=f"^{re.escape(message)}$"):
        Rejector.from_tensors(FITTED["sets"].tensors())
    refused("a Rejector must be read from a dict, got list", [])


COUNT = "the number of its scores is not the one it states"
ORDER = "its scores are not finite and in ascending order"
DAMAGED = "this Rejector is incomplete or damaged: {}; use another copy, or fit again"


@pytest.mark.parametrize(
    ("record", "problem"),
    [
        (changed(FITTED["one group"], "groups", 0, "examples", 301), COUNT),
        (changed(FITTED["one group"], "groups", 0, "ranks", [1, 2]), COUNT),
        (changed(FITTED["one group"], "groups", 0, "scores", []), COUNT),
        (changed(FITTED["one group"], "groups", 0, "scores", 0, 9.0), ORDER),
        (
            changed(FITTED["one group"], "groups", 0, "scores", -1, np.inf),
            ORDER,
        ),
        (changed(FITTED["one group"], "groups", []), "its classes do not fit its scores"),
        (changed(FITTED["one group"], "classes", [0, 1]), "its classes do not fit its scores"),
        (changed(FITTED["numbers"], "classes", [0, 1]), "its classes do not fit its scores"),
        (changed(FITTED["numbers"], "classes", [0, 2, 1]), "its classes do not fit its scores"),
        (changed(FITTED["numbers"], "classes", [0, 1, "x"]), "its classes do not fit its scores"),
        (changed(FITTED["numbers"], "classes", None), "its classes do not fit its scores"),
        (changed(FITTED["numbers"], "width", "3"), "its classes do not fit its scores"),
    ],
)
def test_contents_that_do_not_fit_are_refused(record, problem):
    refused(DAMAGED.format(problem), record)


@pytest.mark.parametrize("missing", ["settings", "classes", "groups", "width"])
def test_a_missing_part_is_named(missing):
    record = FITTED["one group"].to_dict()
    del record[missing]
    refused(DAMAGED.format(f"it has no '{missing}'"), record)


@pytest.mark.parametrize("value", [None, "text", 7, [1], [[]], {"a": 1}, [None], ["x"]])
@pytest.mark.parametrize("path", [("groups",), ("settings",), ("groups", 0), ("groups", 0, "scores"), ("classes",)])
def test_no_contents_raise_anything_but_our_errors(path, value):
    record = changed(FITTED["numbers"], *path, value)
    with pytest.raises(DataError):
        Rejector.from_dict(record)


def test_settings_of_another_version_are_refused():
    with pytest.raises(DataError, match=r"the settings of a Rejector do not fit this version \(.*'alpha'\); fit again"):
        Rejector.from_dict(changed(FITTED["one group"], "settings", "alpha", 1))
    with pytest.raises(OptionError, match="false_reject_rate must be a number above 0 and below 1, got 7"):
        Rejector.from_dict(changed(FITTED["one group"], "settings", "false_reject_rate", 7))
    message = "this {} is damaged: its classes do not fit its settings; fit again"
    refused(message.format("Rejector"), changed(FITTED["one group"], "settings", "per_class", True))
    refused(message.format("Rejector"), changed(FITTED["numbers"], "settings", "per_class", False))
    refused(message.format("PredictionSets"), changed(FITTED["sets"], "width", None), PredictionSets)
    refused(message.format("PredictionSets"), changed(FITTED["sets per class"], "classes", [0, 1, 5]), PredictionSets)


def test_tensors_that_were_changed_are_refused():
    tensors = FITTED["numbers"].tensors()
    half = {**tensors, "scores": tensors["scores"].half()}
    message = DAMAGED.format("its scores must be float64 as they were written, and are torch.float16")
    with pytest.raises(DataError, match=f"^{re.escape(message)}$"):
        Rejector.from_tensors(half)
    for name in tensors:
        with pytest.raises(DataError, match="this Rejector is incomplete or damaged: it has no"):
            Rejector.from_tensors({other: tensor for other, tensor in tensors.items() if other != name})
        with pytest.raises(DataError, match="this Rejector is incomplete or damaged: "):
            Rejector.from_tensors({**tensors, name: tensors[name][:-1]})


@pytest.mark.parametrize("call", [lambda d, y: PredictionSets(0.1).fit(d, y), fit_beta])
def test_negative_distances_are_refused(call):
    d = np.ones((30, 2))
    d[7, 1] = -0.5
    with pytest.raises(ShapeError, match=r"distances must not be negative, got -0.5 in row 7; use the distances"):
        call(d, np.zeros(30, dtype=int))


def test_a_report_of_something_else_names_what_came():
    with pytest.raises(OptionError, match="the second argument must be a fitted Rejector, got list"):
        false_reject_report([1.0, 2.0], [0.5])


def test_a_confidence_is_explained_as_one():
    with pytest.raises(OptionError, match=r"confidence must be a number above 0 and below 1, got 95; 0.95 means 95 %"):
        operating_point([0.1], [True], confidence=95)
    with pytest.raises(OptionError, match="false_reject_rate must be a number above 0 and below 1, got ndarray"):
        Rejector(np.zeros(1000))


def test_labels_that_are_flags_are_told_how_to_become_numbers():
    with pytest.raises(DTypeError, match=r"labels must be whole numbers or strings, got bool; convert them with"):
        Rejector(0.1).fit(np.arange(20.0)).decide([99.0], [True])
