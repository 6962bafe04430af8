import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from rounding import tolerance

from openradial import AxisPrototypes, FixedPrototypes, SimplexPrototypes, functional, reference
from openradial.errors import METRIC_NAMES, DTypeError, OptionError, ShapeError
from openradial.functional import eager
from tests.functional.oracle import exact_distance, outputs, point_at, scales

CLOSE = {"rtol": 1e-10, "atol": 1e-10}
EVERY_METRIC = pytest.mark.parametrize("metric", METRIC_NAMES)


@EVERY_METRIC
@given(o=outputs(), scale=scales)
def test_distances_equal_the_definition(metric, o, scale):
    expected = reference.radial_distances(o.numpy(), scale=scale, metric=metric)
    np.testing.assert_allclose(functional.radial_distances(o, scale=scale, metric=metric), expected, **CLOSE)


@EVERY_METRIC
@given(o=outputs(), data=st.data())
def test_distances_with_an_axis_scale_equal_the_definition(metric, o, data):
    unit = torch.tensor(
        data.draw(st.lists(st.floats(0.1, 10), min_size=o.shape[1], max_size=o.shape[1])), dtype=o.dtype
    )
    expected = reference.radial_distances(o.numpy(), metric=metric, axis_scale=unit.numpy())
    np.testing.assert_allclose(functional.radial_distances(o, metric=metric, axis_scale=unit), expected, **CLOSE)


@EVERY_METRIC
@given(o=outputs(), data=st.data())
def test_distances_to_given_prototypes_equal_the_definition(metric, o, data):
    size = 4 * o.shape[1]
    points = torch.tensor(data.draw(st.lists(st.floats(-9, 9), min_size=size, max_size=size)), dtype=o.dtype).reshape(
        4, -1
    )
    expected = reference.radial_distances(o.numpy(), prototypes=points.numpy(), metric=metric)
    for prototypes in (points, FixedPrototypes(points)):
        actual = functional.radial_distances(o, prototypes=prototypes, metric=metric)
        np.testing.assert_allclose(actual, expected, **CLOSE)


@EVERY_METRIC
@given(o=outputs(), scale=scales)
def test_simplex_distances_equal_the_distances_to_its_matrix(metric, o, scale):
    points = reference.simplex_prototypes(o.shape[1] + 1, scale)
    expected = reference.radial_distances(o.numpy(), prototypes=points, metric=metric)
    simplex = SimplexPrototypes(o.shape[1] + 1, scale)
    np.testing.assert_allclose(functional.radial_distances(o, prototypes=simplex, metric=metric), expected, **CLOSE)


@pytest.mark.parametrize("arrangement", ["axes", "simplex", "matrix"])
@pytest.mark.parametrize("num_classes", [3, 1030])
@pytest.mark.parametrize(("dtype", "tiny"), [(torch.float64, 1e-170), (torch.float32, 1e-25)])
def test_all_distances_next_to_a_prototype_are_exact_where_squares_underflow(arrangement, num_classes, dtype, tiny):
    prototypes = {"axes": None, "simplex": SimplexPrototypes(num_classes + 1), "matrix": torch.eye(num_classes)}

    def to_first(o):
        return functional.radial_distances(o, prototypes=prototypes[arrangement])[:, 0].sum()

    o, direction = torch.zeros(2, 2, num_classes, dtype=dtype)
    o[:, 0] = 1.0  # the second row is on the prototype
    o[0, 1], o[0, 2] = 3 * tiny, -4 * tiny
    direction[0, 1], direction[0, 2] = 0.6, -0.8
    assert to_first(o).item() == pytest.approx(5 * tiny, rel=1e-5, abs=0)
    torch.testing.assert_close(torch.autograd.functional.jacobian(to_first, o), direction)
    gradient, distance = torch.func.grad_and_value(to_first)(o)  # the plain form
    assert distance.item() == pytest.approx(5 * tiny, rel=1e-5, abs=0)
    torch.testing.assert_close(gradient, direction)


@pytest.mark.parametrize("num_classes", [2, 3, 10, 1000, 1023, 1024, 1025, 5000, 100_000])
@pytest.mark.parametrize("scale", [0.01, 1.0, 100.0])
def test_float32_distances_are_exact_to_1e_5_from_next_to_a_prototype_to_far_away(num_classes, scale):
    rng = np.random.default_rng(num_classes)
    scale = float(np.float32(scale))
    for exponent in range(-6, 7):
        k = int(rng.integers(num_classes))
        o = point_at(rng, num_classes, k, scale, 10.0**exponent * scale)
        others = rng.integers(num_classes, size=3)
        all_distances = functional.radial_distances(o, scale=scale)
        plain = eager.plain_all_distances(o[None], scale, 1.0)[0]
        for j in (k, *others):
            expected = exact_distance(o.numpy(), j, scale)
            assert all_distances[j].item() == pytest.approx(expected, rel=1e-5, abs=0)
            assert plain[j].item() == pytest.approx(expected, rel=1e-5, abs=0)
        nearest, _ = functional.radial_nearest(o, scale=scale)
        best = exact_distance(o.numpy(), int(o.argmax()), scale)
        assert nearest.item() == pytest.approx(best, rel=1e-5, abs=0)


@EVERY_METRIC
@pytest.mark.parametrize("scale", [0.01, 1.0, 100.0])
def test_every_metric_is_exact_next_to_a_prototype_in_float32(metric, scale):
    rng = np.random.default_rng(0)
    scale = float(np.float32(scale))
    for exponent in (-6, -4, -2, 0, 3):
        o = point_at(rng, 50, 7, scale, 10.0**exponent * scale)
        expected = reference.radial_distances(o.double().numpy(), scale=scale, metric=metric)
        np.testing.assert_allclose(functional.radial_distances(o, scale=scale, metric=metric), expected, rtol=1e-5)


def test_the_plain_closed_form_would_fail_the_exactness_test():
    o = point_at(np.random.default_rng(0), 10, 3, 1.0, 1e-3)
    naive = (o.square().sum() - 2 * o[3] + 1).clamp_min(0).sqrt().item()
    assert abs(naive / exact_distance(o.numpy(), 3, 1.0) - 1) > 0.01


@pytest.mark.parametrize("num_classes", [2, 10, 3000])
@EVERY_METRIC
def test_on_a_prototype_the_distance_is_exactly_zero(num_classes, metric):
    for scale in (0.1, 1.0, 7.3):
        o = torch.zeros(3, num_classes)
        o[:, 1] = scale
        assert (functional.radial_distances(o, scale=scale, metric=metric)[:, 1] == 0).all()
        assert (functional.radial_nearest(o, scale=scale, metric=metric)[0] == 0).all()


@given(o=outputs(), scale=scales, data=st.data())
def test_permuting_the_axes_permutes_the_classes(o, scale, data):
    order = torch.tensor(data.draw(st.permutations(range(o.shape[1]))))
    expected = functional.radial_distances(o, scale=scale)[:, order]
    torch.testing.assert_close(functional.radial_distances(o[:, order], scale=scale), expected, rtol=1e-12, atol=1e-12)


@given(o=outputs(), factor=st.sampled_from([0.25, 2.0, 64.0]))
def test_scaling_outputs_and_prototypes_together_scales_the_distances(o, factor):
    expected = functional.radial_distances(o) * factor
    torch.testing.assert_close(functional.radial_distances(o * factor, scale=factor), expected, rtol=1e-12, atol=1e-12)


@EVERY_METRIC
@given(o=outputs(), scale=scales, data=st.data())
def test_the_nearest_prototypes_are_the_smallest_distances(metric, o, scale, data):
    k = data.draw(st.integers(1, o.shape[1]))
    distances, classes = functional.radial_nearest(o, k, scale=scale, metric=metric)
    expected, _ = reference.radial_nearest(o.numpy(), k, scale=scale, metric=metric)
    np.testing.assert_allclose(distances, expected, **CLOSE)
    chosen = functional.radial_distances(o, scale=scale, metric=metric).gather(1, classes)
    np.testing.assert_allclose(chosen, expected, **CLOSE)
    assert all(len(set(row.tolist())) == k for row in classes)


@pytest.mark.parametrize("num_classes", [511, 512, 513, 575, 1000, 1023, 1024, 4000])
@pytest.mark.parametrize("shift", [0.0, -50.0])
def test_the_nearest_of_many_classes_is_the_first_largest_output(num_classes, shift):
    o = torch.randn(64, num_classes, generator=torch.Generator().manual_seed(0)).round(decimals=1) + shift
    o[0] = -1.0
    o[1, -1] = 99.0
    o[2, 5], o[2, 500] = 77.0, 77.0
    classes = functional.radial_nearest(o)[1][:, 0]
    assert torch.equal(classes, o.argmax(-1))
    assert classes[0] == 0
    assert classes[1] == num_classes - 1
    assert classes[2] == 5


@pytest.mark.parametrize("shape", [(4,), (0, 4), (2, 3, 4), (2, 0, 4)])
def test_leading_axes_are_kept(shape):
    o = torch.randn(shape)
    assert functional.radial_distances(o).shape == shape
    assert functional.radial_log_probs(o).shape == shape
    assert functional.radial_probs(o, cutoff="disjoint").shape == shape
    distances, classes = functional.radial_nearest(o, 2)
    assert distances.shape == classes.shape == (*shape[:-1], 2)


@pytest.mark.parametrize("num_classes", [3, 2000])
def test_one_input_does_not_depend_on_its_batch(num_classes):
    o = torch.randn(9, num_classes, generator=torch.Generator().manual_seed(0))
    together = functional.radial_distances(o)
    for i in range(9):
        torch.testing.assert_close(functional.radial_distances(o[i]), together[i], **tolerance(num_classes))


@pytest.mark.parametrize("num_classes", [4, 2000])
@EVERY_METRIC
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
def test_nan_and_inf_are_not_swallowed(num_classes, metric, bad):
    o = torch.zeros(2, num_classes)
    o[1, 2] = bad
    distances = functional.radial_distances(o, metric=metric)
    assert distances[0].isfinite().all()
    assert not distances[1].isfinite().any()
    assert not functional.radial_nearest(o, metric=metric)[0][1].isfinite().any()


@pytest.mark.parametrize("num_classes", [3, 2000])
@EVERY_METRIC
@pytest.mark.parametrize("size", [1e15, 1e19, 1e30, 3.4e38])
def test_huge_outputs_neither_overflow_nor_become_nan(num_classes, metric, size):
    o = torch.full((2, num_classes), -size)
    o[1, 1:] = 0.0
    for beta in (1e-3, 1.0, 1e6):
        assert functional.radial_log_probs(o, beta=beta, metric=metric).isfinite().all()
    if metric == "euclidean" and size < 1e38:
        expected = exact_distance(o[1].double().numpy(), 2, 1.0)
        assert functional.radial_distances(o)[1, 2].item() == pytest.approx(expected, rel=1e-5)


def test_prototypes_and_a_metric_with_axis_scale_know_their_nearest():
    o = torch.tensor([[0.9, 0.8, 0.0]])
    unit = torch.tensor([0.01, 10.0, 1.0])
    distances, classes = functional.radial_nearest(o, 3, axis_scale=unit)
    expected, order = reference.radial_nearest(o.numpy(), 3, axis_scale=unit.numpy())
    np.testing.assert_allclose(distances, expected, rtol=1e-5)
    np.testing.assert_array_equal(classes, order)


def test_golden_values():
    o = torch.tensor([[3.0, 4.0]], dtype=torch.float64)
    golden = {"euclidean": [20**0.5, 18**0.5], "squared_euclidean": [20, 18], "manhattan": [6, 6], "chebyshev": [4, 3]}
    for metric, expected in golden.items():
        assert functional.radial_distances(o, metric=metric)[0].tolist() == pytest.approx(expected)


@settings(max_examples=25)
@given(o=outputs(dtype=torch.float32))
def test_half_precision_is_computed_in_float32(o):
    for dtype in (torch.bfloat16, torch.float16):
        half = o.clamp(-1e3, 1e3).to(dtype)
        expected = functional.radial_distances(half.float())
        actual = functional.radial_distances(half)
        assert actual.dtype == torch.float32
        torch.testing.assert_close(actual, expected, rtol=0, atol=0)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: functional.radial_distances(torch.ones(2, 3), scale=0.0), OptionError,
         "scale must be a finite number above 0, got 0.0; the paper uses scale=1.0"),
        (lambda: functional.radial_distances(torch.ones(2, 3), scale=float("nan")), OptionError,
         "scale must be a finite number above 0, got nan; the paper uses scale=1.0"),
        (lambda: functional.radial_distances(torch.ones(2, 3, dtype=torch.int64)), DTypeError,
         "outputs must be floating point, got torch.int64; pass the last affine layer's result as it is"),
        (lambda: functional.radial_distances(np.ones((2, 3))), DTypeError,
         "outputs must be a torch.Tensor, got ndarray; for NumPy use openradial.reference"),
        (lambda: functional.radial_distances(torch.tensor(1.0)), ShapeError,
         "outputs must have at least one number per input on their last axis, got shape (); expected (..., outputs)"),
        (lambda: functional.radial_distances(torch.ones(2, 0)), ShapeError,
         "outputs must have at least one number per input on their last axis, got shape (2, 0); "
         "expected (..., outputs)"),
        (lambda: functional.radial_distances(torch.ones(2, 3), metric="cosine"), OptionError,
         "metric must be one of 'euclidean', 'squared_euclidean', 'manhattan', 'chebyshev', got 'cosine'"),
        (lambda: functional.radial_distances(torch.ones(2, 3), prototypes=torch.ones(5, 4)), ShapeError,
         "prototypes and outputs must have the same width: 4 axes but 3 outputs; make the last layer 4 wide"),
        (lambda: functional.radial_distances(torch.ones(2, 3), prototypes=torch.ones(5)), ShapeError,
         "prototypes must be a matrix with one row per class, got shape (5,); "
         "pass a tensor of shape (classes, outputs)"),
        (lambda: functional.radial_distances(torch.ones(2, 3), prototypes=torch.ones(5, 3).int()), DTypeError,
         "prototypes must be floating point, got torch.int32; call .float() on them"),
        (lambda: functional.radial_distances(torch.ones(2, 3), prototypes=torch.eye(3), scale=2.0), OptionError,
         "scale belongs to the axis prototypes, but prototypes are given: got scale=2.0; scale them instead"),
        (lambda: functional.radial_distances(torch.ones(2, 3), prototypes="axes"), OptionError,
         "prototypes must be None, a (classes, outputs) tensor or a prototypes module, got str; "
         "see openradial.nn.prototypes"),
        (lambda: functional.radial_distances(torch.ones(2, 3), axis_scale=torch.ones(4)), ShapeError,
         "axis_scale must hold one number per output axis: 4 numbers but 3 outputs; pass a tensor of shape (3,)"),
        (lambda: functional.radial_distances(torch.ones(2, 3), axis_scale=torch.ones(3, 1)), ShapeError,
         "axis_scale must hold one positive number per output axis, got shape (3, 1); "
         "pass a tensor of shape (outputs,)"),
        (lambda: functional.radial_nearest(torch.ones(2, 3), 4), OptionError,
         "k must lie in 1..3, the number of classes, got 4"),
        (lambda: functional.radial_nearest(torch.ones(2, 3), 0), OptionError,
         "k must be a whole number of at least 1, got 0"),
        (lambda: functional.radial_nearest(torch.ones(2, 3), 1.5), OptionError,
         "k must be a whole number of at least 1, got 1.5"),
        (lambda: functional.radial_distances(torch.ones(2, 10), prototypes=AxisPrototypes(12)), ShapeError,
         "axis prototypes need one output per class: 12 classes but 10 outputs; "
         "widen the last layer to 12 or use SimplexPrototypes"),
        (lambda: functional.radial_distances(torch.ones(2, 10), prototypes=SimplexPrototypes(4)), ShapeError,
         "SimplexPrototypes for 4 classes need 3 outputs, got 10; make the last layer 3 wide"),
    ],
)  # fmt: skip
def test_bad_input_gets_one_clear_sentence(call, error, message):
    with pytest.raises(error) as caught:
        call()
    assert str(caught.value) == message
