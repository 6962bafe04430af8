"""When an export counts as equal, and what cannot be exported; nothing is written here."""

import dataclasses

import numpy as np
import pytest
import torch
from made_bundles import RAW, image_bundle, pixels

from openradial.errors import ExportError
from openradial.export.verification import compare, random_inputs


@pytest.fixture(scope="module")
def bundle():
    return image_bundle()


def changed(bundle, **change):
    """A prediction in which some arrays are changed."""

    def predict(x, rate):
        own = bundle.predict(x, rate)
        return dataclasses.replace(own, **{name: how(getattr(own, name)) for name, how in change.items()})

    return predict


def test_a_bundle_agrees_with_itself(bundle):
    agreement = compare(bundle, bundle.predict, pixels(20, seed=9))
    assert (agreement.examples, agreement.real, agreement.ties) == (20, True, 0)
    assert agreement.probability == agreement.unknown_score == agreement.distance == agreement.p_value == 0


def test_random_inputs_are_reported_as_such(bundle):
    agreement = compare(bundle, bundle.predict)
    assert not agreement.real
    assert str(agreement).startswith("64 random inputs: all decisions equal; largest differences: probability 0,")


@pytest.mark.parametrize("make", RAW, ids=lambda make: make.__name__)
def test_random_inputs_are_prepared_ones(make):
    own = make()
    x = random_inputs(own.preprocessing)
    own.preprocessing.check(x)
    assert torch.equal(x.nan_to_num(), random_inputs(own.preprocessing).nan_to_num())
    assert compare(own, own.predict).ties == 0


CHANGES = {
    "score": ({"unknown_score": lambda s: s * 1.01}, r"unknown score \S+, expected \S+; export to another"),
    "nan": ({"unknown_score": lambda s: np.full_like(s, np.nan)}, "decisions differ|finite unknown score"),
    "probability": ({"probability": lambda p: p + 0.01}, r"probability \S+, expected"),
    "distance": ({"distance": lambda d: None}, "does not return a distance for every input"),
    "shape": ({"p_values": lambda p: p[:-1]}, "does not return a p-value for every input"),
    "decision": (
        {"labels": lambda y: np.full_like(y, -1)},
        r"of 20 decisions differ, the first is 'unknown', expected",
    ),
    "class": ({"nearest": lambda y: (y + 1) % 3, "labels": lambda y: y}, "of 20 decisions differ"),
}


@pytest.mark.parametrize(("change", "message"), CHANGES.values(), ids=CHANGES)
def test_what_differs_by_more_than_rounding_is_refused(bundle, change, message):
    with pytest.raises(ExportError, match=message):
        compare(bundle, changed(bundle, **change), pixels(20, seed=9))


def test_a_decision_on_the_border_is_a_tie_and_counted(bundle):
    """Scores of calibration data are thresholds themselves; the last bit of one decides."""
    limit = bundle.rejector.threshold(0.1)

    def predict(x, rate):
        own = bundle.predict(x, rate)
        above = np.nextafter(own.unknown_score, np.float32(np.inf))
        border = np.isclose(own.unknown_score, limit, rtol=1e-6)
        scores = np.where(border, above, own.unknown_score)
        decided = bundle.rejector.decide(torch.from_numpy(scores), torch.from_numpy(own.nearest), rate)
        return dataclasses.replace(own, unknown_score=scores, labels=decided.numpy())

    agreement = compare(bundle, predict, pixels())
    assert agreement.ties == 1
    assert "all decisions equal but 1 within rounding" in str(agreement)


def test_an_export_is_checked_on_something(bundle):
    with pytest.raises(
        ExportError, match=r"^an export is checked on at least one input, got none; give some, or leave"
    ):
        compare(bundle, bundle.predict, [])
