"""Tiny runs of the experiments on the spiral, and what their figures show."""

import re

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import PathCollection
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from openradial.evaluation.plots.colors import CLASSES
from paper import find
from paper.spiral_nets import FAR
from paper.spiral_plots import inset_histogram

SPIRAL = ("fig1", "fig2", "fig3", "fig4", "fig5", "sup1", "sup2")


def dots(ax):
    return np.concatenate([group.get_offsets() for group in ax.collections if isinstance(group, PathCollection)])


def alphas(ax):
    return np.asarray(ax.images[0].get_array())[..., 3]


@pytest.mark.parametrize("id", SPIRAL)
def test_an_experiment_runs_at_its_tiny_size(id, tiny_record):
    record = tiny_record(id)
    assert record["experiment"] == find(id).id == id
    assert record["size"] == "tiny"
    assert record["settings"]["seeds"] == 2


@pytest.mark.parametrize("id", SPIRAL)
def test_a_caption_is_two_sentences(id):
    assert len(re.findall(r"\.(?:\s|$)", find(id).caption)) == 2


@pytest.mark.parametrize("id", ["fig1", "fig3", "fig4"])
def test_the_full_size_has_the_papers_epochs(id):
    assert find(id).settings["full"].epochs == 25_000


def test_claims_about_far_away_points_rest_on_ten_seeds():
    assert all(find(id).settings["full"].seeds >= 10 for id in ("fig1", "fig3", "fig2", "fig5"))
    assert find("fig4").settings["full"].seeds >= 5


def test_figure_1_marks_the_point_far_away_in_all_panels(tiny_figure):
    numbers, figure = tiny_figure("fig1")
    data, plane, hidden = figure.axes
    places = [tuple(ax.lines[0].get_xydata()[0]) for ax in (data, plane, hidden)]
    assert places == [FAR, FAR, tuple(numbers["hidden"]["far"])]
    np.testing.assert_allclose(alphas(plane), numbers["map"]["probs"])
    assert len(dots(hidden)) == len(numbers["hidden"]["points"])


def test_figure_2_shows_every_sample_and_their_distribution(tiny_figure):
    numbers, figure = tiny_figure("fig2")
    for ax, point in zip(figure.axes, numbers["points"], strict=True):
        samples = ax.collections[-1].get_offsets()
        np.testing.assert_allclose(samples, point["z"])
        (inset,) = ax.child_axes
        assert sum(bar.get_height() for bar in inset.patches) == pytest.approx(100)


@pytest.mark.parametrize(
    ("points", "corner"), [([], (0.55, 0.58)), ([(8, 8)], (0.55, 0.17)), ([(8, 8), (8, 2)], (0.14, 0.58))]
)
def test_a_histogram_hides_as_few_points_as_it_can(points, corner):
    figure = Figure()
    FigureCanvasAgg(figure)
    ax = figure.subplots()
    ax.set(xlim=(0, 10), ylim=(0, 10))
    inset = inset_histogram(ax, [0.5], beside=points)
    figure.draw_without_rendering()
    left, bottom = ax.transAxes.inverted().transform(inset.get_window_extent().min)
    assert (left, bottom) == pytest.approx(corner)


def test_figure_3_fades_where_the_distance_grows(tiny_figure):
    numbers, figure = tiny_figure("fig3")
    distances = np.array(numbers["map"]["distances"])
    panels = figure.axes[: len(numbers["betas"])]
    for ax, beta in zip(panels, numbers["betas"], strict=True):
        np.testing.assert_allclose(alphas(ax), np.exp(-beta * distances))
        assert ax.get_title() == f"$\\beta$ = {beta:g}"


def test_figure_3_has_a_dot_per_ring_head_and_seed(tiny_figure):
    numbers, figure = tiny_figure("fig3")
    shown = [100 * share for head in ("softmax", "radial") for ring in numbers["rings"] for share in ring[head]]
    ax = figure.axes[-1]
    np.testing.assert_allclose(dots(ax)[:, 1], shown)
    assert [label.get_text() for label in ax.get_xticklabels()] == [ring["name"] for ring in numbers["rings"]]


def test_figure_4_rings_the_points_with_wrong_labels(tiny_figure):
    numbers, figure = tiny_figure("fig4")
    data = numbers["data"]
    for ax in figure.axes[:2]:
        rings = ax.collections[-1]
        assert rings.get_label() == "wrong label"
        expected = [point for point, wrong in zip(data["points"], data["wrong"], strict=True) if wrong]
        np.testing.assert_allclose(rings.get_offsets(), expected)


def test_figure_4_shows_what_every_seed_learned_by_heart(tiny_figure):
    numbers, figure = tiny_figure("fig4")
    shares = [100 * s for head in ("softmax", "radial") for case in numbers["cases"] for s in case[head]["memorised"]]
    np.testing.assert_allclose(dots(figure.axes[2])[:, 0], shares)


def test_figure_5_keeps_distances_between_prototypes(tiny_figure):
    numbers, figure = tiny_figure("fig5")
    for ax, point in zip(figure.axes, numbers["points"], strict=False):
        stars = np.array([line.get_xydata()[0] for line in ax.lines])
        gaps = [np.linalg.norm(stars[i] - stars[j]) for i, j in ((0, 1), (0, 2), (1, 2))]
        np.testing.assert_allclose(gaps, np.sqrt(2))
        assert [to_hex(line.get_color()) for line in ax.lines] == [color.lower() for color in CLASSES[:3]]
        assert len(dots(ax)) == len(point["o"])


def test_figure_5_has_a_dot_per_network(tiny_figure):
    numbers, figure = tiny_figure("fig5")
    expected = [
        pair for found in numbers["told"].values() for pair in zip(found["winning"], found["spread"], strict=True)
    ]
    np.testing.assert_allclose(dots(figure.axes[2]), expected)


def test_supplement_1_shows_six_samples_on_the_same_axes(tiny_figure):
    numbers, figure = tiny_figure("sup1")
    assert [ax.get_title() for ax in figure.axes] == [f"sample {i}" for i in range(1, 7)]
    assert len({(ax.get_xlim(), ax.get_ylim()) for ax in figure.axes}) == 1
    for ax, layer in zip(figure.axes, numbers["samples"], strict=True):
        assert tuple(ax.lines[0].get_xydata()[0]) == tuple(layer["far"])


def test_supplement_2_shows_the_mean_and_six_samples(tiny_figure):
    numbers, figure = tiny_figure("sup2")
    assert figure.axes[0].get_title() == "mean of all samples"
    for ax, plane in zip(figure.axes, [numbers["mean"], *numbers["samples"]], strict=True):
        np.testing.assert_allclose(alphas(ax), plane["probs"])
