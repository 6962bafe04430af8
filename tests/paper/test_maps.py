import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.colors import to_rgb

from openradial.errors import OptionError, ShapeError
from openradial.evaluation.plots.colors import CLASSES
from paper import maps as plots


@pytest.fixture(autouse=True)
def _close_figures():
    yield
    plt.close("all")


def test_a_map_shows_the_class_as_colour_and_the_probability_as_its_strength():
    ax = plots.plot_prediction_map([[0, 1], [2, 0]], [[1.0, 0.5], [0.25, 0.0]], (-1, 1, -1, 1))
    image = np.asarray(ax.images[0].get_array())
    np.testing.assert_allclose(image[..., 3], [[1.0, 0.5], [0.25, 0.0]])
    np.testing.assert_allclose(image[1, 0, :3], to_rgb(CLASSES[2]))


def test_the_first_row_of_a_map_is_at_the_bottom():
    ax = plots.plot_prediction_map([[0], [1]], [[1.0], [1.0]], (0, 1, 5, 7))
    assert ax.images[0].origin == "lower"
    assert tuple(ax.images[0].get_extent()) == (0, 1, 5, 7)


def test_a_map_refuses_log_probabilities_and_other_shapes():
    with pytest.raises(OptionError, match=r"probs must lie between 0 and 1, got -1\.0 to -1\.0; pass probs, not log"):
        plots.plot_prediction_map([[0]], [[-1.0]], (0, 1, 0, 1))
    with pytest.raises(OptionError, match="probs must lie between 0 and 1, got nan to nan"):
        plots.plot_prediction_map([[0]], [[np.nan]], (0, 1, 0, 1))
    with pytest.raises(ShapeError, match=r"a map needs one winner and one probability per pixel, got shapes \(1,\)"):
        plots.plot_prediction_map([0], [[1.0]], (0, 1, 0, 1))


def test_points_have_a_colour_and_a_mark_per_class():
    ax = plots.plot_points([[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]], [2, 0, 2])
    first, last = ax.collections
    np.testing.assert_allclose(last.get_offsets(), [[0, 1], [4, 5]])
    np.testing.assert_allclose(last.get_facecolor()[0, :3], to_rgb(CLASSES[2]))
    assert len(first.get_paths()[0].vertices) != len(last.get_paths()[0].vertices)


def test_points_need_two_coordinates_and_a_label_each():
    with pytest.raises(ShapeError, match=r"points must be \(n, 2\) with n labels, got \(2, 2\) with \(1,\) labels"):
        plots.plot_points([[0.0, 1.0], [2.0, 3.0]], [0])


def test_maps_and_points_draw_on_the_given_axes():
    figure, ax = plt.subplots()
    assert plots.plot_prediction_map([[0]], [[1.0]], (0, 1, 0, 1), ax=ax) is ax
    assert plots.plot_points([[0.0, 0.0]], [0], ax=ax) is ax
    assert plt.get_fignums() == [figure.number]
