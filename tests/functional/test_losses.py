from itertools import product

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st

from openradial import SimplexPrototypes, functional, reference
from openradial.errors import METRIC_NAMES, DTypeError, OptionError, ShapeError
from openradial.functional import eager, losses
from tests.functional.oracle import betas, exact_distance, outputs, point_at, scales


def draw_targets(data: st.DataObject, o: torch.Tensor) -> torch.Tensor:
    return torch.tensor(data.draw(st.lists(st.integers(0, o.shape[1] - 1), min_size=len(o), max_size=len(o))))


REDUCTIONS = ("mean", "sum", "none")


@pytest.mark.parametrize("metric", METRIC_NAMES)
@given(o=outputs(), beta=betas, scale=scales, data=st.data())
def test_loss_and_gradient_equal_the_definition(metric, o, beta, scale, data):
    y = draw_targets(data, o)
    arguments = {"beta": beta, "scale": scale, "metric": metric}
    for reduction in REDUCTIONS:
        expected = reference.radial_loss(o.numpy(), y.numpy(), reduction=reduction, **arguments)
        x = o.clone().requires_grad_()
        loss = functional.radial_loss(x, y, reduction=reduction, **arguments)
        np.testing.assert_allclose(loss.detach(), expected, rtol=1e-9, atol=1e-12, err_msg=reduction)
        loss.sum().backward()
        kind = "sum" if reduction == "none" else reduction
        gradient = reference.radial_loss_grad(o.numpy(), y.numpy(), reduction=kind, **arguments)
        np.testing.assert_allclose(x.grad, gradient, rtol=1e-9, atol=1e-12 * beta, err_msg=reduction)


@given(o=outputs(), data=st.data())
def test_weights_and_ignored_targets_equal_the_definition(o, data):
    y = draw_targets(data, o)
    y[1::2] = -100
    weight = torch.tensor(data.draw(st.lists(st.floats(0.1, 9), min_size=o.shape[1], max_size=o.shape[1])))
    for w, reduction in product((None, weight), REDUCTIONS):
        arguments = {"weight": w, "reduction": reduction}
        expected = reference.radial_loss(o.numpy(), y.numpy(), **arguments)
        np.testing.assert_allclose(functional.radial_loss(o, y, **arguments), expected, rtol=1e-6, atol=1e-12)


def draw_distributions(data: st.DataObject, rows: int, classes: int) -> torch.Tensor:
    logits = data.draw(st.lists(st.floats(-9, 9), min_size=rows * classes, max_size=rows * classes))
    return torch.tensor(logits, dtype=torch.float64).reshape(rows, classes).softmax(-1)


smoothings = st.sampled_from([0.0, 0.1, 0.9, 1.0])


@pytest.mark.parametrize("metric", METRIC_NAMES)
@pytest.mark.parametrize("kind", ["classes", "distributions"])
@given(o=outputs(), beta=betas, scale=scales, smoothing=smoothings, data=st.data())
def test_smoothed_and_soft_targets_equal_the_definition(kind, metric, o, beta, scale, smoothing, data):
    n, k = o.shape
    if kind == "classes":
        target = draw_targets(data, o)
        target[1::2] = -100
    else:
        target = draw_distributions(data, n, k)
    weights = data.draw(st.none() | st.lists(st.floats(0.1, 9), min_size=k, max_size=k))
    weight = None if weights is None else torch.tensor(weights, dtype=torch.float64)
    options = {"beta": beta, "scale": scale, "metric": metric, "label_smoothing": smoothing, "weight": weight}
    for reduction in REDUCTIONS:
        expected = reference.radial_loss(o.numpy(), target.numpy(), reduction=reduction, **options)
        x = o.clone().requires_grad_()
        loss = functional.radial_loss(x, target, reduction=reduction, **options)
        np.testing.assert_allclose(loss.detach(), expected, rtol=1e-9, atol=1e-12, err_msg=reduction)
        if metric == "chebyshev" and (kind == "distributions" or smoothing):
            continue  # ties have many subgradients, and the closed form of all distances takes another one
        loss.sum().backward()
        reduced = "sum" if reduction == "none" else reduction
        gradient = reference.radial_loss_grad(o.numpy(), target.numpy(), reduction=reduced, **options)
        atol = 1e-10 * beta * max(weights or [1.0])
        np.testing.assert_allclose(x.grad, gradient, rtol=1e-8, atol=atol, err_msg=reduction)


SOFT_CASES = {
    "classes": ((5, 4), torch.tensor([0, 3, 1, 1, 2])),
    "an ignored class": ((5, 4), torch.tensor([0, -100, 1, 1, 2])),
    "distributions": ((5, 4), torch.arange(20.0).reshape(5, 4).sin().softmax(-1)),
    "distributions of images": ((2, 4, 3, 2), torch.arange(48.0).reshape(2, 4, 3, 2).sin().softmax(1)),
    "one distribution": ((4,), torch.tensor([0.1, 0.2, 0.3, 0.4])),
}


@pytest.mark.parametrize("smoothing", [0.0, 0.3])
@pytest.mark.parametrize("weight", [None, torch.tensor([1.0, 2.0, 0.5, 3.0])])
@pytest.mark.parametrize("case", SOFT_CASES)
def test_targets_are_weighed_as_cross_entropy_weighs_them(case, weight, smoothing):
    """Cross-entropy is linear in log-probabilities; without its normalisation it is the radial loss."""
    shape, target = SOFT_CASES[case]
    o = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    axis = 0 if o.ndim == 1 else 1
    options = {"weight": weight, "label_smoothing": smoothing}
    log_probs = functional.radial_log_probs(o.movedim(axis, -1)).movedim(-1, axis)
    per_unit = F.cross_entropy(torch.zeros(shape), target, reduction="none", **options) / np.log(4)
    expected = F.cross_entropy(log_probs, target, reduction="none", **options) - log_probs.logsumexp(axis) * per_unit
    actual = functional.radial_loss(o, target, reduction="none", **options)
    torch.testing.assert_close(actual, expected, rtol=1e-5, atol=1e-5)
    total, mean = (F.cross_entropy(torch.zeros(shape), target, reduction=r, **options) for r in ("sum", "mean"))
    torch.testing.assert_close(functional.radial_loss(o, target, **options), expected.sum() * mean / total)
    torch.testing.assert_close(functional.radial_loss(o, target, reduction="sum", **options), expected.sum())


def test_a_one_hot_distribution_is_its_class():
    o, y = torch.randn(6, 4, dtype=torch.float64, requires_grad=True), torch.tensor([0, 1, 2, 3, 3, 0])
    both = [functional.radial_loss(o, target) for target in (y, F.one_hot(y, 4).double())]
    torch.testing.assert_close(*both)
    torch.testing.assert_close(*(torch.autograd.grad(loss, o)[0] for loss in both))


@pytest.mark.parametrize("distance", [1e-6, 1e-3, 1.0, 1e6])
def test_soft_targets_keep_the_exactness_of_distances_next_to_a_prototype(distance):
    row = point_at(np.random.default_rng(0), 10, 1, 1.0, distance)
    target = torch.tensor([[0.0, 0.5, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]])
    loss = functional.radial_loss(row[None], target).item()
    assert loss == pytest.approx(0.5 * exact_distance(row.numpy(), 1, 1.0), rel=1e-5, abs=0)


@pytest.mark.parametrize("num_classes", [2, 10, 1000])
def test_smoothing_up_to_0_58_keeps_the_minimum_on_the_prototype_and_more_moves_it(num_classes):
    p, y = torch.eye(num_classes, dtype=torch.float64)[:1], torch.tensor([0])
    to_centre = p.new_full((1, num_classes), 1 / num_classes) - p
    near = torch.cat([p + 1e-4 * to_centre, p + 1e-4 * torch.randn(50, num_classes, dtype=torch.float64)])

    def losses_at(o, smoothing):
        return functional.radial_loss(o, y.expand(len(o)), label_smoothing=smoothing, reduction="none")

    assert (losses_at(near, 0.58) > losses_at(p, 0.58)).all()
    assert num_classes == 2 or losses_at(near, 0.9)[0] < losses_at(p, 0.9)


def test_distributions_have_gradients_and_take_any_prototypes():
    o, t = torch.randn(5, 3, dtype=torch.float64), torch.rand(5, 4, dtype=torch.float64, requires_grad=True)
    prototypes = SimplexPrototypes(4)
    expected = reference.radial_loss(o, t.detach(), prototypes=prototypes.matrix().double())
    loss = functional.radial_loss(o, t, prototypes=prototypes)
    assert loss.item() == pytest.approx(expected, rel=1e-6)
    (gradient,) = torch.autograd.grad(loss, t)
    torch.testing.assert_close(gradient, functional.radial_distances(o, prototypes=prototypes) / 5)


def test_an_out_of_memory_error_surfaces():
    o = torch.zeros(1, 1).expand(1, 2**45)  # its copy has more bytes than a process has addresses
    with pytest.raises(RuntimeError, match="allocate"):
        functional.radial_loss(o, torch.tensor([0]))
    with pytest.raises(RuntimeError, match="allocate"):
        functional.radial_log_probs(o)


def test_the_fast_path_is_for_plain_batches_with_targets_in_range():
    o, y = torch.randn(3, 4), torch.tensor([0, 1, 2])
    applies = losses._fast_path_applies
    assert applies(o, y)
    assert applies(torch.nn.Parameter(o.double()), y)
    assert applies(o.t(), torch.tensor([0, 1, 2, 0]))
    others = [
        (o, y - 1), (o, y + 2), (o, torch.tensor([0, 1, -100])), (o, y[:2]), (o[:0], y[:0]), (o[:, :0], y),
        (o[0], y[0]), (o[None], y[None]), (o.half(), y), (o.int(), y), (o, y.int()), (o, y.byte()), (o, o),
        (o, [0, 1, 2]), (o.numpy(), y), (o.to("meta"), y.to("meta")),
    ]  # fmt: skip
    assert not any(applies(*pair) for pair in others)


@pytest.mark.parametrize("num_classes", [2, 3, 10, 1023, 1024, 1025, 100_000])
@pytest.mark.parametrize("scale", [0.01, 1.0, 100.0])
def test_float32_losses_are_exact_to_1e_5_from_next_to_a_prototype_to_far_away(num_classes, scale):
    rng = np.random.default_rng(num_classes)
    scale = float(np.float32(scale))
    exponents = range(-6, 7)
    targets = torch.from_numpy(rng.integers(num_classes, size=len(exponents)))
    rows = [
        point_at(rng, num_classes, k, scale, 10.0**e * scale) for k, e in zip(targets.tolist(), exponents, strict=True)
    ]
    expected = [exact_distance(row.numpy(), k, scale) for row, k in zip(rows, targets.tolist(), strict=True)]
    each = functional.radial_loss(torch.stack(rows), targets, scale=scale, reduction="none")
    assert each.tolist() == pytest.approx(expected, rel=1e-5, abs=0)
    alone = [
        functional.radial_loss(row[None], k[None], scale=scale).item() for row, k in zip(rows, targets, strict=True)
    ]
    assert alone == pytest.approx(expected, rel=1e-5, abs=0)


@pytest.mark.parametrize("num_classes", [2, 10, 3000])
@pytest.mark.parametrize("distance", [1e-6, 1e-3, 1.0, 1e6])
def test_float32_gradients_are_unit_vectors_from_next_to_a_prototype_to_far_away(num_classes, distance):
    rng = np.random.default_rng(0)
    rows = torch.stack([point_at(rng, num_classes, 1, 1.0, distance) for _ in range(8)]).requires_grad_()
    y = torch.ones(8, dtype=torch.int64)
    gradient = reference.radial_loss_grad(rows.detach().double().numpy(), y.numpy(), reduction="sum")
    functional.radial_loss(rows, y, reduction="sum").backward()
    np.testing.assert_allclose(rows.grad, gradient, rtol=1e-5, atol=1e-7)
    rows.grad = None
    (-functional.radial_log_probs(rows)[:, 1]).sum().backward()
    np.testing.assert_allclose(rows.grad, gradient, rtol=2e-5, atol=1e-6)


@pytest.mark.parametrize("num_classes", [2, 10, 3000])
def test_on_the_prototype_loss_and_gradient_are_exactly_zero(num_classes):
    for scale in (0.1, 1.0, 7.3):
        o = torch.zeros(2, num_classes)
        o[:, 1] = scale
        o.requires_grad_()
        y = torch.ones(2, dtype=torch.int64)
        for reduction in ("mean", "none"):
            loss = functional.radial_loss(o, y, scale=scale, beta=20.0, reduction=reduction)
            (gradient,) = torch.autograd.grad(loss.sum(), o)
            assert (loss == 0).all()
            assert (gradient == 0).all()
        log_probs = functional.radial_log_probs(o, scale=scale, beta=20.0)
        (gradient,) = torch.autograd.grad(log_probs[:, 1].sum(), o)
        assert (gradient == 0).all()


@given(o=outputs(), beta=betas, data=st.data())
def test_the_loss_is_nll_loss_on_the_log_probabilities(o, beta, data):
    y = draw_targets(data, o)
    expected = F.nll_loss(functional.radial_log_probs(o, beta=beta), y)
    torch.testing.assert_close(functional.radial_loss(o, y, beta=beta), expected, rtol=1e-10, atol=1e-12)


@given(o=outputs(), data=st.data())
def test_beta_only_scales_the_loss(o, data):
    y = draw_targets(data, o)
    expected = 3 * functional.radial_loss(o, y)
    torch.testing.assert_close(functional.radial_loss(o, y, beta=3.0), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("num_classes", [1024, 1300, 5000])
def test_many_classes_give_the_gradients_of_the_plain_form(num_classes):
    o = torch.randn(6, num_classes, dtype=torch.float64, generator=torch.Generator().manual_seed(0), requires_grad=True)
    y = torch.tensor([0, 255, 256, 1023, num_classes - 1, 700])
    g = torch.randn(6, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    (expected,) = torch.autograd.grad(eager.plain_target_distances(o, y, 1.3), o, g)
    (actual,) = torch.autograd.grad(functional.radial_loss(o, y, scale=1.3, reduction="none"), o, g)
    torch.testing.assert_close(actual, expected)
    upstream = torch.randn(6, num_classes, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    (expected,) = torch.autograd.grad(eager.plain_all_distances(o, 1.3, -2.0), o, upstream)
    (actual,) = torch.autograd.grad(functional.radial_log_probs(o, scale=1.3, beta=2.0), o, upstream)
    torch.testing.assert_close(actual, expected)


@pytest.mark.parametrize("num_classes", [3, 2000])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_huge_outputs_give_finite_losses_and_gradients(num_classes, dtype):
    size = 1e30 if dtype == torch.float32 else 1e300
    o = torch.full((2, num_classes), size, dtype=dtype, requires_grad=True)
    y = torch.tensor([0, 1])
    loss = functional.radial_loss(o, y)
    loss.backward()
    assert loss.item() == pytest.approx(size * num_classes**0.5, rel=1e-5)
    assert o.grad.norm(dim=1).tolist() == pytest.approx([0.5, 0.5], rel=1e-5)


@pytest.mark.parametrize("num_classes", [3, 2000])
@pytest.mark.parametrize(("dtype", "size"), [(torch.float32, 1e-30), (torch.float64, 1e-194)])
def test_distances_whose_squares_underflow_keep_their_gradient(num_classes, dtype, size):
    o = torch.zeros(2, num_classes, dtype=dtype)
    o[:, 1] = 1.0
    o[0, 2] = size
    o.requires_grad_()
    y = torch.ones(2, dtype=torch.int64)
    for loss in (functional.radial_loss(o, y, reduction="sum"), functional.radial_loss(o, y, reduction="none").sum()):
        (gradient,) = torch.autograd.grad(loss, o)
        assert loss.item() == pytest.approx(size, rel=1e-5, abs=0)
        assert gradient[0].nonzero().tolist() == [[2]]
        assert gradient[0, 2].item() == pytest.approx(1, rel=1e-5)
        assert (gradient[1] == 0).all()


def test_half_precision_is_computed_in_float32():
    o, y = torch.randn(5, 4, requires_grad=True), torch.tensor([0, 1, 2, 3, 0])
    for dtype in (torch.bfloat16, torch.float16):
        half = o.detach().to(dtype).requires_grad_()
        loss = functional.radial_loss(half, y)
        assert loss.dtype == torch.float32
        torch.testing.assert_close(loss, functional.radial_loss(half.float(), y), rtol=0, atol=0)
        loss.backward()
        assert half.grad.dtype == dtype
    with torch.autocast("cpu", torch.bfloat16):
        assert functional.radial_loss(torch.randn(5, 3) @ torch.randn(3, 4), y).dtype == torch.float32


def test_given_and_simplex_prototypes_equal_the_definition():
    o = torch.randn(6, 3, dtype=torch.float64)
    y = torch.tensor([0, 1, 2, 3, 3, 0])
    points = torch.randn(4, 3, dtype=torch.float64)
    expected = reference.radial_loss(o.numpy(), y.numpy(), prototypes=points.numpy())
    assert functional.radial_loss(o, y, prototypes=points).item() == pytest.approx(expected)
    simplex = reference.simplex_prototypes(4, 2.0)
    expected = reference.radial_loss(o.numpy(), y.numpy(), prototypes=simplex)
    assert functional.radial_loss(o, y, prototypes=SimplexPrototypes(4, 2.0)).item() == pytest.approx(expected)


@pytest.mark.parametrize(
    ("arguments", "options", "error", "message"),
    [
        ((torch.ones(2, 3), torch.tensor([0.0, 1.0])), {}, ShapeError,
         "outputs of shape (2, 3) need distributions of shape (2, 3) as targets, got (2,); "
         "call .long() on targets that are classes"),
        ((torch.ones(2, 3, 5), torch.ones(2, 5, 3)), {}, ShapeError,
         "outputs of shape (2, 3, 5) need distributions of shape (2, 3, 5) as targets, got (2, 5, 3); "
         "call .long() on targets that are classes"),
        ((torch.ones(2, 3), torch.tensor([0, 1]).int()), {}, DTypeError,
         "targets must be classes of dtype int64 or uint8, or distributions of floating point, got torch.int32; "
         "call .long() on classes"),
        ((torch.ones(2, 3), [0, 1]), {}, DTypeError,
         "targets must be classes of dtype int64 or uint8, or distributions of floating point, got list; "
         "call .long() on classes"),
        ((torch.ones(2, 3), torch.ones(2, 3)), {"ignore_index": 0}, OptionError,
         "ignore_index names a class, but targets are distributions: got ignore_index=0; "
         "give examples to ignore a target of zeros, or pass classes"),
        ((torch.ones(2, 3), torch.tensor([0, 1])), {"label_smoothing": 1.5}, OptionError,
         "label_smoothing must lie in 0..1, got 1.5; 0.0 turns it off"),
        ((torch.ones(2, 3), torch.tensor([0, 1, 2])), {}, ShapeError,
         "outputs of shape (2, 3) need targets of shape (2,), got (3,); classes are on axis 1 of the outputs"),
        ((torch.ones(2, 3, 5), torch.zeros(2, 4).long()), {}, ShapeError,
         "outputs of shape (2, 3, 5) need targets of shape (2, 5), got (2, 4); classes are on axis 1 of the outputs"),
        ((torch.ones(2, 3).int(), torch.tensor([0, 1])), {}, DTypeError,
         "outputs must be floating point, got torch.int32; pass the last affine layer's result as it is"),
        ((torch.ones(2, 3), torch.tensor([0, 1])), {"weight": torch.ones(2)}, ShapeError,
         "weight must hold one factor per class: expected shape (3,), got (2,); "
         "use 1.0 for classes that are not special"),
        ((torch.ones(2, 3), torch.tensor([0, 1])), {"reduction": "average"}, OptionError,
         "reduction must be one of 'mean', 'sum', 'none', got 'average'"),
        ((torch.ones(2, 3), torch.tensor([0, 1])), {"beta": 0.0}, OptionError,
         "beta must be a finite number above 0, got 0.0; the paper uses beta=1.0"),
        ((torch.ones(2, 3), torch.tensor([0, 1])), {"scale": -1.0}, OptionError,
         "scale must be a finite number above 0, got -1.0; the paper uses scale=1.0"),
    ],
)  # fmt: skip
def test_bad_input_gets_one_clear_sentence(arguments, options, error, message):
    with pytest.raises(error) as caught:
        functional.radial_loss(*arguments, **options)
    assert str(caught.value) == message


RESCALED = {"metric": "squared_euclidean"}


@pytest.mark.parametrize("kind", ["classes", "distributions"])
@given(o=outputs(), factor=st.floats(0.1, 50), scale=scales, smoothing=smoothings, data=st.data())
def test_the_rescaled_square_loss_and_its_gradient_equal_the_definition(kind, o, factor, scale, smoothing, data):
    target = draw_targets(data, o) if kind == "classes" else draw_distributions(data, *o.shape)
    options = RESCALED | {"scale": scale, "target_weight": factor, "label_smoothing": smoothing}
    expected = reference.radial_loss(o.numpy(), target.numpy(), **options)
    o.requires_grad_()
    loss = functional.radial_loss(o, target, **options)
    np.testing.assert_allclose(loss.detach(), expected, rtol=1e-9, atol=1e-12)
    loss.backward()
    gradient = reference.radial_loss_grad(o.detach().numpy(), target.numpy(), **options)
    np.testing.assert_allclose(o.grad, gradient, rtol=1e-8, atol=1e-9 * factor * scale)


def test_the_rescaled_square_loss_is_that_of_hui_and_belkin():
    o, y, factor, length = torch.randn(7, 5, dtype=torch.float64, requires_grad=True), torch.arange(7) % 5, 3.0, 2.0
    options = RESCALED | {"scale": length, "target_weight": factor, "reduction": "none"}
    loss = functional.radial_loss(o, y, **options)
    for row, label, found in zip(o.tolist(), y.tolist(), loss.tolist(), strict=True):
        others = sum(value**2 for j, value in enumerate(row) if j != label)
        assert found == pytest.approx(factor * (row[label] - length) ** 2 + others, rel=1e-12)
    assert torch.autograd.gradcheck(lambda o: functional.radial_loss(o, y, **options), o)
    plain, one = (functional.radial_loss(o, y, **RESCALED, **each) for each in ({}, {"target_weight": 1.0}))
    assert torch.equal(plain, one)


def test_at_60_to_40_the_distance_sits_on_a_prototype_and_the_square_at_the_mean():
    """Why rare classes lose: the distance has its minimum at the geometric median, the square at the mean."""
    probs, p = torch.tensor([0.6, 0.4, 0.0], dtype=torch.float64), torch.eye(3, dtype=torch.float64)
    noise = 1e-3 * torch.randn(50, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))

    def is_minimum(at, **options):  # a local one, and so the global one of a convex function
        o = torch.cat([at + noise, (1 - 1e-3) * at + 1e-3 * p, at[None]])  # around it, towards each prototype, and it
        losses = functional.radial_loss(o, probs.expand_as(o), reduction="none", **options)
        return bool((losses[:-1] > losses[-1] - 1e-15).all())

    assert is_minimum(p[0])
    assert not is_minimum(probs)
    assert is_minimum(probs, **RESCALED)
    assert not is_minimum(p[0], **RESCALED)
    assert is_minimum(p[1], weight=torch.tensor([1.0, 2.0, 1.0]))  # class weights move the majority: 0.6 to 0.8


@given(factor=st.floats(0.5, 20), share=st.floats(0.01, 0.99))
def test_rescaling_multiplies_the_odds_of_every_class(factor, share):
    probs = torch.tensor([[share, 1 - share]], dtype=torch.float64)
    o = (factor * probs / (factor * probs + 1 - probs)).requires_grad_()
    (gradient,) = torch.autograd.grad(functional.radial_loss(o, probs, target_weight=factor, **RESCALED), o)
    assert gradient.abs().max() < 1e-14 * 2 * factor * 10


@pytest.mark.parametrize("of", [functional, reference], ids=lambda of: of.__name__)
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "target_weight=2.0 needs metric='squared_euclidean' and axis prototypes, got metric='euclidean'"),
        (RESCALED | {"prototypes": torch.eye(3)}, "needs metric='squared_euclidean' and axis prototypes"),
        (RESCALED | {"target_weight": 0.0}, "target_weight must be a finite number above 0, got 0.0"),
    ],
)
def test_rescaling_is_refused_where_there_is_no_axis_of_the_target(of, options, message):
    o, y = torch.zeros(2, 3, dtype=torch.float64), torch.tensor([0, 1])
    with pytest.raises(OptionError, match=message):
        of.radial_loss(o, y, **{"target_weight": 2.0} | options)
