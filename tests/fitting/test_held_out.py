import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from openradial.conformal import Rejector
from openradial.data.examples import Examples
from openradial.errors import DataError, OptionError
from openradial.fitting import HeldOut, hold_out
from openradial.fitting.held_out import MOST, hold_out_nothing
from openradial.recipe import MIN_COMBINATION


def known(counts):
    labels = torch.cat([torch.full((n,), k) for k, n in enumerate(counts)])
    return Examples(torch.arange(len(labels)), labels, tuple(f"c{k}" for k in range(len(counts))))


def parts_of(parts: HeldOut):
    uses = (parts.train, parts.combination, parts.calibration, parts.report)
    return [part.inputs.tolist() for part in uses if part is not None]


@given(
    counts=st.lists(st.integers(2, 60), min_size=2, max_size=8),
    rate=st.sampled_from([0.02, 0.05, 0.1, 0.3]),
    tested=st.booleans(),
    seed=st.integers(0, 3),
)
def test_every_example_has_one_use_and_the_rate_has_its_calibration(counts, rate, tested, seed):
    examples = known(counts)
    try:
        parts = hold_out(examples, rate, has_test_data=tested, seed=seed)
    except (OptionError, DataError):
        return
    used = sorted(index for part in parts_of(parts) for index in part)
    assert used == list(range(len(examples)))
    assert set(parts.train.labels.tolist()) == set(range(len(counts)))
    Rejector(rate).fit(torch.arange(float(len(parts.calibration))))  # raises where there are too few
    assert not (tested and parts.report is not None)


def test_plenty_of_data_is_held_out_in_three_equal_parts_of_every_class():
    parts = hold_out(known([200] * 5), 0.05)
    assert [len(part) for part in (parts.train, parts.combination, parts.calibration, parts.report)] == [
        550,
        150,
        150,
        150,
    ]
    for part in (parts.combination, parts.calibration, parts.report):
        assert part.counts().tolist() == [30] * 5
    assert parts.notes == ()


def test_a_part_never_takes_more_than_it_can_use():
    parts = hold_out(known([50_000, 50_000]), 0.05)
    assert len(parts.calibration) == len(parts.report) == len(parts.combination) == MOST


def test_the_same_seed_gives_the_same_parts():
    first, again, other = (hold_out(known([50] * 3), 0.05, seed=seed) for seed in (1, 1, 2))
    assert parts_of(first) == parts_of(again) != parts_of(other)


def test_with_few_examples_the_calibration_takes_priority():
    parts = hold_out(known([30, 30]), 0.05)
    assert parts.combination is None
    assert parts.report is not None
    assert "the score of the head alone decides" in parts.notes[0]
    parts = hold_out(known([4] * 15), 0.05)
    assert parts.combination is parts.report is None
    assert "none is left for a report; keep some and run openradial evaluate" in parts.notes[1]


def test_a_combination_needs_enough_rows_to_learn_from():
    assert len(hold_out(known([55, 55]), 0.05).combination) == MIN_COMBINATION
    assert hold_out(known([50, 50]), 0.05).combination is None


def test_a_rate_that_the_data_cannot_keep_names_one_that_they_can():
    message = (
        "a false-reject rate of 0.05 takes 19 examples to calibrate with, and of 30 known examples at most 12 can be "
        "held out; use a rate of at least 0.077, or add examples"
    )
    with pytest.raises(OptionError, match=message):
        hold_out(known([15, 15]), 0.05)
    assert len(hold_out(known([15, 15]), 0.077).calibration) >= 12


@pytest.mark.parametrize(
    ("counts", "message"),
    [
        ([50], "a classifier needs two known classes or more, got 1"),
        ([50, 0], "every known class needs examples, 'c1' has none"),
        ([1] * 50, "19 different examples must be held out for calibration, but most of the 50"),
    ],
)
def test_data_without_anything_to_hold_out_are_refused(counts, message):
    with pytest.raises(DataError, match=message):
        hold_out(known(counts), 0.05)


def test_the_only_example_of_a_class_is_used_for_training():
    assert hold_out(known([80, 80, 1]), 0.05).train.counts()[2] == 1


def test_nothing_is_held_out_where_every_example_is_scored_without_its_fold():
    parts = hold_out_nothing(known([30, 30, 1]))
    assert parts_of(parts) == [list(range(61))]
    assert parts.notes == ()
    assert "the score of the head alone decides" in hold_out_nothing(known([9, 9])).notes[0]
    with pytest.raises(DataError, match="two known classes or more, got 1"):
        hold_out_nothing(known([50]))
    with pytest.raises(DataError, match="'c1' has none"):
        hold_out_nothing(known([50, 0]))
