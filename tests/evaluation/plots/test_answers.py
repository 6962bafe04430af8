import matplotlib.pyplot as plt
import numpy as np
import pytest

from openradial.errors import OptionError, ShapeError
from openradial.evaluation import plots


@pytest.fixture(autouse=True)
def _close_figures():
    yield
    plt.close("all")


def area(polygon):
    x, y = polygon.get_xy().T
    return abs(x @ np.roll(y, 1) - y @ np.roll(x, 1)) / 2


def test_each_group_adds_up_to_one_hundred_percent_whatever_its_size():
    known, novel = np.random.default_rng(0).random(300), np.random.default_rng(1).random(7)
    ax = plots.plot_winning_probabilities(known, novel, bins=10)
    np.testing.assert_allclose([area(patch) for patch in ax.patches], 100 * 0.1)
    tallest = [100 * np.histogram(group, 10, (0, 1))[0].max() / group.size for group in (known, novel)]
    np.testing.assert_allclose([patch.get_xy()[:, 1].max() for patch in ax.patches], tallest)


def test_probability_one_and_zero_are_counted():
    ax = plots.plot_winning_probabilities([1.0, 1.0], [0.0])
    assert [patch.get_xy()[:, 1].max() for patch in ax.patches] == [100, 100]


def test_it_draws_on_the_given_axes_and_returns_them():
    figure, (left, right) = plt.subplots(1, 2)
    assert plots.plot_winning_probabilities([0.5], [0.5], ax=left) is left
    assert plots.plot_answers(np.eye(8), {}, ax=right) is right
    assert plt.get_fignums() == [figure.number]


def test_axes_are_labelled_and_groups_named():
    ax = plots.plot_winning_probabilities([0.5], [0.5])
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("winning probability", "share of examples (%)")
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["known", "novel"]


def test_log_probabilities_are_refused():
    with pytest.raises(
        OptionError, match=r"novel must lie between 0 and 1, got -2\.0 to -1\.0; pass probs, not log_probs"
    ):
        plots.plot_winning_probabilities([0.5], [-2.0, -1.0])


def test_nan_is_not_swallowed():
    with pytest.raises(OptionError, match="known must lie between 0 and 1"):
        plots.plot_winning_probabilities([0.5, np.nan], [0.5])


@pytest.mark.parametrize("values", [[], [[0.5]], 0.5])
def test_winning_probabilities_are_one_per_example(values):
    with pytest.raises(ShapeError, match="known needs one winning probability per example, got shape"):
        plots.plot_winning_probabilities(values, [0.5])


def test_answers_stand_below_the_image_in_order():
    ax = plots.plot_answers(np.eye(8), {"softmax": ("3", 0.984), "radial": ("2", 0.0)}, names=False)
    assert [text.get_text() for text in ax.texts] == ["3 (98 %)", "2 (0 %)"]
    assert ax.texts[0].xyann[1] > ax.texts[1].xyann[1]


def test_a_flat_image_is_refused():
    with pytest.raises(ShapeError, match=r"an image has 2 dimensions, got 1; reshape it to \(height, width\)"):
        plots.plot_answers(np.zeros(64), {})
