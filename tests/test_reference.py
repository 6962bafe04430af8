"""The twin is the oracle of other tests, so here it is held against numbers worked out by hand and against loops."""

import math
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from openradial import reference

METRICS = ("euclidean", "squared_euclidean", "manhattan", "chebyshev")
NUMBERS = st.floats(-10, 10).map(lambda v: round(v, 3))


def outputs():
    return st.tuples(st.integers(1, 4), st.integers(1, 5)).flatmap(
        lambda shape: hnp.arrays(np.float64, shape, elements=NUMBERS)
    )


def naive_distance(o, p, metric):
    differences = [abs(float(a) - float(b)) for a, b in zip(o, p, strict=True)]
    if metric == "euclidean":
        return math.sqrt(sum(e * e for e in differences))
    if metric == "squared_euclidean":
        return sum(e * e for e in differences)
    return sum(differences) if metric == "manhattan" else max(differences)


@settings(deadline=None)
@given(outputs(), st.sampled_from(METRICS), st.floats(0.1, 10))
def test_distances_equal_a_loop_over_the_definition(o, metric, scale):
    expected = [[naive_distance(row, scale * np.eye(o.shape[1])[k], metric) for k in range(o.shape[1])] for row in o]
    np.testing.assert_allclose(reference.radial_distances(o, scale=scale, metric=metric), expected, rtol=1e-14)


def test_golden_distances():
    # o = (3, 4), prototypes (1, 0) and (0, 1): differences (2, 4) and (3, 3)
    o = np.array([3.0, 4.0])
    golden = {
        "euclidean": [math.sqrt(20), math.sqrt(18)],
        "squared_euclidean": [20, 18],
        "manhattan": [6, 6],
        "chebyshev": [4, 3],
    }
    for metric, expected in golden.items():
        np.testing.assert_allclose(reference.radial_distances(o, metric=metric), expected, rtol=1e-15)


def test_golden_distances_in_units_of_the_axes():
    # differences (2, 4) and (3, 3) over (2, 0.5): (1, 8) and (1.5, 6)
    d = reference.radial_distances([3.0, 4.0], axis_scale=[2.0, 0.5])
    np.testing.assert_allclose(d, [math.sqrt(65), math.sqrt(38.25)], rtol=1e-15)


def test_golden_distances_to_given_points():
    # from (1, 1) to (1, 1), (4, 5), (1, 0): 0, 5 and 1
    d = reference.radial_distances([[1.0, 1.0]], prototypes=[[1, 1], [4, 5], [1, 0]])
    np.testing.assert_array_equal(d, [[0.0, 5.0, 1.0]])


def test_golden_probabilities():
    # (0, 0) is one scale from both prototypes; with beta = ln 2 / scale each has probability one half
    p = reference.radial_probs([0.0, 0.0], beta=math.log(2) / 3, scale=3.0)
    np.testing.assert_allclose(p, [0.5, 0.5], rtol=1e-15)
    np.testing.assert_allclose(reference.radial_log_probs([0.0, 0.0], beta=2.0, scale=3.0), [-6.0, -6.0])


def test_golden_cutoffs():
    # (0.75, 0): 0.25 from (1, 0); 1.25 from (0, 1)
    o = np.array([0.75, 0.0])
    assert reference.radial_probs(o, cutoff=1.25)[1] == 0.0  # the radius itself is outside
    assert reference.radial_probs(o, cutoff=1.2500001)[1] == pytest.approx(math.exp(-1.25), rel=1e-15)
    assert reference.radial_probs(o, cutoff=0.25).sum() == 0.0
    assert reference.radial_probs(o, cutoff="disjoint") == pytest.approx([math.exp(-0.25), 0.0], rel=1e-15, abs=0)


@pytest.mark.parametrize(
    ("metric", "axis_scale", "radius"),
    [
        ("euclidean", None, 2 / math.sqrt(2)),
        ("squared_euclidean", None, 2.0),
        ("manhattan", None, 2.0),
        ("chebyshev", None, 1.0),
        # the two widest axes have units 2 and 1, so their prototypes are (1, 0) and (0, 2)
        ("euclidean", [0.5, 1.0, 2.0], math.sqrt(5) / 2),
        ("chebyshev", [0.5, 1.0, 2.0], 1.0),
        ("manhattan", [0.5, 1.0, 2.0], 1.5),
    ],
)
def test_golden_radius_of_disjoint_balls(metric, axis_scale, radius):
    unit = np.ones(3) if axis_scale is None else np.array(axis_scale)
    reach = math.sqrt(radius) if metric == "squared_euclidean" else radius
    for factor, expected in [(1 - 1e-9, True), (1 + 1e-9, False)]:
        o = np.array([0.0, 0.0, 2.0])
        o[2] += factor * reach * unit[2]
        p = reference.radial_probs(o, scale=2.0, cutoff="disjoint", metric=metric, axis_scale=axis_scale)
        assert (p[2] > 0) == expected


@settings(deadline=None)
@given(outputs(), st.floats(1e-4, 10), st.floats(0.01, 100), st.sampled_from(METRICS))
def test_with_disjoint_balls_no_sum_exceeds_one(o, beta, scale, metric):
    classes = o.shape[1]
    midpoints = scale * (np.eye(classes)[:, None] + np.eye(classes)).reshape(-1, classes) / 2
    p = reference.radial_probs(np.concatenate([o, midpoints]), beta=beta, scale=scale, cutoff="disjoint", metric=metric)
    assert (p.sum(-1) <= 1).all()


def test_midway_between_two_prototypes_rounding_puts_no_point_into_two_balls():
    points = np.array([[2.1, 0.3], [0.7, 2.31]])
    middle = points.mean(0)
    half = reference.radial_distances(points, prototypes=points)[0, 1] / 2
    assert (reference.radial_distances(middle, prototypes=points) < half).all()  # by rounding
    assert reference.radial_probs(middle, beta=1e-3, prototypes=points, cutoff="disjoint").sum() <= 1


def test_disjoint_balls_of_one_class_or_of_coinciding_prototypes():
    assert reference.radial_probs([1.7], cutoff="disjoint") == pytest.approx(math.exp(-(1.7 - 1.0)), rel=1e-15)
    assert reference.radial_probs([1.8], cutoff="disjoint") == 0.0  # farther than 1 / sqrt(2)
    far = reference.radial_probs([9.0], prototypes=[[1.0]], cutoff="disjoint")
    assert far == pytest.approx(math.exp(-8.0), rel=1e-15)
    assert reference.radial_probs([1.0], prototypes=[[1.0], [1.0]], cutoff="disjoint").sum() == 0.0


def test_nearest_prototypes_come_first_and_ties_in_order():
    distances, classes = reference.radial_nearest([[0.0, 3.0, 0.0, 1.0]], 3)
    np.testing.assert_array_equal(classes, [[1, 3, 0]])
    np.testing.assert_allclose(distances, np.sqrt([[4 + 1, 9 + 0, 1 + 9 + 1]]))


def test_prototypes_on_axes_and_on_a_simplex():
    np.testing.assert_array_equal(reference.axis_prototypes(2, 3.0), [[3, 0], [0, 3]])
    # three points of the plane: the last is (t, t) with (1 - t)^2 + t^2 = 2, so t = (1 - sqrt 3) / 2
    t = (1 - math.sqrt(3)) / 2
    np.testing.assert_allclose(reference.simplex_prototypes(3), [[1, 0], [0, 1], [t, t]], rtol=1e-15)


def test_golden_loss():
    # distances to the targets' prototypes: (1, 0) to (1, 0) is 0; (0, 0) to (0, 1) is 1; (3, 4) to (1, 0) is sqrt 20
    o, y = np.array([[1.0, 0.0], [0.0, 0.0], [3.0, 4.0]]), np.array([0, 1, 0])
    np.testing.assert_allclose(reference.radial_loss(o, y, beta=2.0, reduction="none"), [0, 2, 2 * math.sqrt(20)])
    assert reference.radial_loss(o, y, reduction="sum") == pytest.approx(1 + math.sqrt(20), rel=1e-15)
    assert reference.radial_loss(o, y) == pytest.approx((1 + math.sqrt(20)) / 3, rel=1e-15)
    # weights 1 and 3: the mean divides by 1 + 3 + 1
    assert reference.radial_loss(o, y, weight=[1.0, 3.0]) == pytest.approx((3 + math.sqrt(20)) / 5, rel=1e-15)
    # class 0 ignored: only the second counts
    assert reference.radial_loss(o, y, ignore_index=0) == 1.0
    np.testing.assert_array_equal(reference.radial_loss(o, y, ignore_index=0, reduction="none"), [0, 1, 0])


@settings(deadline=None)
@given(st.data(), st.sampled_from(METRICS), st.sampled_from(["mean", "sum", "none"]))
def test_loss_equals_a_loop_with_the_meaning_of_cross_entropy(data, metric, reduction):
    o = data.draw(outputs())
    n, classes = o.shape
    y = np.array(data.draw(st.lists(st.integers(-1, classes - 1), min_size=n, max_size=n)))
    weight = np.array(data.draw(st.lists(st.floats(0.1, 3), min_size=classes, max_size=classes)))
    losses, shares = [], []
    for row, target in zip(o, y, strict=True):
        kept = target != -1
        share = weight[target] if kept else 0.0
        losses.append(share * 1.5 * naive_distance(row, np.eye(classes)[target], metric) if kept else 0.0)
        shares.append(share)
    result = reference.radial_loss(o, y, beta=1.5, weight=weight, ignore_index=-1, reduction=reduction, metric=metric)
    if reduction == "none":
        np.testing.assert_allclose(result, losses, rtol=1e-13)
    elif reduction == "sum":
        assert result == pytest.approx(sum(losses), rel=1e-13)
    elif sum(shares):
        assert result == pytest.approx(sum(losses) / sum(shares), rel=1e-13)
    else:
        assert math.isnan(result)


def test_a_mean_over_nothing_is_nan_and_has_no_gradient():
    o = np.ones((2, 3))
    assert math.isnan(reference.radial_loss(o, [-100, -100]))
    assert reference.radial_loss(o, [-100, -100], reduction="sum") == 0.0
    np.testing.assert_array_equal(reference.radial_loss_grad(o, [-100, -100]), np.zeros((2, 3)))
    assert math.isnan(reference.radial_loss(np.ones((0, 3)), np.zeros(0, int)))


def test_an_ignored_example_may_hold_anything_and_others_may_not():
    o = np.array([[np.nan, 1.0], [1.0, 0.0]])
    assert reference.radial_loss(o, [-100, 0]) == 0.0
    assert (reference.radial_loss_grad(o, [-100, 0])[0] == 0).all()
    assert math.isnan(reference.radial_loss(o, [0, 0]))
    assert math.isnan(reference.radial_loss(o, [0, 1], weight=[0.0, 1.0]))
    assert np.isnan(reference.radial_loss_grad(o, [0, 0])[0]).all()


@pytest.mark.parametrize("shape", [(), (3,), (3, 2), (2, 3, 4)])
def test_classes_of_the_loss_are_on_axis_1_as_in_cross_entropy(shape):
    rng = np.random.default_rng(0)
    o, y = rng.normal(size=(*shape[:1], 4, *shape[1:])), rng.integers(0, 4, shape)
    loss = reference.radial_loss(o, y, reduction="none")
    gradient = reference.radial_loss_grad(o, y, reduction="sum")
    assert loss.shape == shape
    assert gradient.shape == o.shape
    for index in np.ndindex(shape):
        at = (*index[:1], slice(None), *index[1:])
        expected = o[at] - np.eye(4)[y[index]]
        assert loss[index] == pytest.approx(np.linalg.norm(expected))
        np.testing.assert_allclose(gradient[at], expected / np.linalg.norm(expected))


def central_difference(function, o, step=1e-6):
    gradient = np.zeros_like(o)
    for index in np.ndindex(o.shape):
        up, down = o.copy(), o.copy()
        up[index] += step
        down[index] -= step
        gradient[index] = (function(up) - function(down)) / (2 * step)
    return gradient


OPTIONS = {
    "plain": {},
    "scaled": {"scale": 3.0},
    "axis scale": {"axis_scale": [0.5, 1.0, 3.0]},
    "points": {"prototypes": [[0.0, 2.0, 1.0], [1.0, 0.0, 0.0], [3.0, 0.5, 0.0], [-1.0, -1.0, 2.0]]},
}


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_gradients_equal_central_differences(options, metric):
    rng = np.random.default_rng(0)
    o, y = rng.normal(size=(5, 3)), np.array([0, 1, 2, 2, 0])
    classes = len(options.get("prototypes", range(3)))
    target, weight = rng.normal(size=(5, classes)), rng.uniform(0.5, 2, classes)
    options = {**options, "metric": metric, "beta": 1.3, "weight": weight}

    for reduction in ("mean", "sum"):
        for targets, others in ((y, {"ignore_index": 1}), (target, {})):  # of one distance, and of all of them
            settings_of = {**options, **others, "reduction": reduction}
            gradient = reference.radial_loss_grad(o, targets, **settings_of)
            expected = central_difference(lambda o, y=targets, s=settings_of: reference.radial_loss(o, y, **s), o)
            np.testing.assert_allclose(gradient, expected, atol=1e-6)


def test_axes_that_tie_share_the_chebyshev_gradient():
    # o - e_0 = (2, -2, 1): the first two are largest
    np.testing.assert_array_equal(
        reference.radial_loss_grad([[3.0, -2.0, 1.0]], [0], metric="chebyshev"), [[0.5, -0.5, 0.0]]
    )


@pytest.mark.parametrize("metric", METRICS)
def test_on_a_prototype_probability_is_one_and_gradient_zero(metric):
    points = reference.axis_prototypes(4, 0.3)
    assert (np.diag(reference.radial_probs(points, scale=0.3, metric=metric)) == 1).all()
    assert (reference.radial_loss_grad(points, np.arange(4), scale=0.3, metric=metric) == 0).all()


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("size", [1e-300, 1e-160, 1e160, 1e308])
def test_no_finite_output_overflows_or_vanishes(metric, size):
    o = np.array([[size, -size, size]])
    d = reference.radial_distances(o, metric=metric, prototypes=np.zeros((1, 3)))
    assert np.isfinite(d).all()
    assert np.isfinite(reference.radial_log_probs(o, beta=1e10, metric=metric)).all()
    if metric == "euclidean" and size < 1e308:
        np.testing.assert_allclose(d, math.sqrt(3) * size, rtol=1e-15)


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_is_not_swallowed(metric, bad):
    o = np.array([[bad, 0.0], [0.0, 1.0]])
    log_probs = reference.radial_log_probs(o, metric=metric)
    assert not np.isfinite(log_probs[0]).any()
    assert np.isfinite(log_probs[1]).all()
    if np.isnan(bad):
        assert np.isnan(reference.radial_probs(o, metric=metric, cutoff="disjoint")[0]).any()
        assert np.isnan(reference.radial_loss_grad(o, np.ones((2, 2)), metric=metric)[0]).any()


def test_any_floating_type_and_lists_are_computed_in_float64():
    o = np.array([[0.1, 0.2]], dtype=np.float16)
    for given_as in (o, o.astype(np.float32), o.astype(np.float64).tolist()):
        result = reference.radial_distances(given_as)
        assert result.dtype == np.float64
        np.testing.assert_array_equal(result, reference.radial_distances(o))


def test_inputs_are_left_alone():
    o, points = np.full((2, 2), 0.5), np.eye(2)
    reference.radial_loss(o, [0, 1])
    reference.radial_probs(o, prototypes=points, cutoff="disjoint")
    assert (o == 0.5).all()
    assert (points == np.eye(2)).all()


@pytest.mark.parametrize(
    "code",
    [
        "import sys; import openradial.reference; assert 'torch' not in sys.modules",
        "import sys; from openradial import reference as r; r.radial_loss([[0.5]], [0]); "
        "assert 'torch' not in sys.modules",
        """
import sys

class NoTorch:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "torch":
            raise ImportError("no torch here")

sys.meta_path.insert(0, NoTorch())
import openradial.reference
assert openradial.reference.radial_probs([[1.0, 0.0]])[0, 0] == 1
try:
    openradial.RadialLayer
except ImportError as error:
    assert str(error) == "no torch here"
else:
    raise AssertionError("torch was not blocked")
""",
    ],
    ids=["import", "use", "blocked"],
)
def test_the_twin_needs_no_torch(code):
    result = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
