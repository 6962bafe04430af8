import copy
import io
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as TF

from openradial import (
    AxisPrototypes,
    FixedPrototypes,
    LearnedPrototypes,
    RadialLayer,
    RadialLinear,
    RadialLoss,
    SimplexPrototypes,
    reference,
)

METRICS = ("euclidean", "squared_euclidean", "manhattan", "chebyshev")
POINTS = torch.tensor([[0.0, 2.0, 1.0, 0.0], [1.0, 0.0, 0.0, -1.0], [3.0, 0.0, 0.0, 0.0]])

ARRANGEMENTS = {
    "axes": lambda: None,
    "axis module": lambda: AxisPrototypes(3, scale=0.7),
    "simplex": lambda: SimplexPrototypes(3, scale=2.0),
    "matrix": lambda: POINTS,
    "fixed": lambda: FixedPrototypes(POINTS.double()),
    "learned": lambda: LearnedPrototypes(3, 5),
}


def twin_options(layer):
    """The arguments of the NumPy twin for a layer."""
    points = layer.prototypes
    if isinstance(points, AxisPrototypes):
        matrix = reference.axis_prototypes(points.num_classes, points.scale)
    elif isinstance(points, SimplexPrototypes):
        matrix = reference.simplex_prototypes(points.num_classes, points.scale)
    else:
        matrix = points.matrix().detach().double().numpy()
    unit = None if layer.axis_scale is None else layer.axis_scale.numpy()
    return {"prototypes": matrix, "metric": layer.metric, "axis_scale": unit}


def random_outputs(layer, *shape):
    return torch.randn(*shape, layer.prototypes.num_outputs, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("with_axis_scale", [False, True])
@pytest.mark.parametrize("arrangement", ARRANGEMENTS)
def test_layer_equals_the_numpy_twin(arrangement, metric, with_axis_scale):
    prototypes = ARRANGEMENTS[arrangement]()
    width = RadialLayer(3, prototypes=prototypes).prototypes.num_outputs
    axis_scale = torch.linspace(0.5, 2.0, width) if with_axis_scale else None
    layer = RadialLayer(3, beta=1.7, prototypes=prototypes, metric=metric, axis_scale=axis_scale, cutoff=0.9)
    o, y = random_outputs(layer, 6), torch.tensor([0, 1, 2, 2, 1, 0])
    twin = twin_options(layer)
    numbers = o.numpy()

    def same(ours, theirs):
        np.testing.assert_allclose(ours.detach().numpy(), theirs, rtol=2e-5, atol=1e-6)

    same(layer.log_probs(o), reference.radial_log_probs(numbers, beta=1.7, **twin))
    same(layer.distances(o), reference.radial_distances(numbers, **twin))
    same(layer.probs(o), reference.radial_probs(numbers, beta=1.7, cutoff=0.9, **twin))
    same(layer.loss(o, y), reference.radial_loss(numbers, y.numpy(), beta=1.7, **twin))
    same(layer.nearest(o, 2)[0], reference.radial_nearest(numbers, 2, **twin)[0])
    distances, classes = layer.nearest(o)
    torch.testing.assert_close(distances, layer.distances(o).amin(-1, keepdim=True))
    torch.testing.assert_close(distances, layer.distances(o).gather(-1, classes))


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("arrangement", ARRANGEMENTS)
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_nll_on_the_layer_is_radial_loss_is_the_loss_of_the_layer(arrangement, metric, reduction):
    layer = RadialLayer(3, beta=0.6, prototypes=ARRANGEMENTS[arrangement](), metric=metric)
    loss = RadialLoss(beta=0.6, prototypes=layer.prototypes, metric=metric, reduction=reduction)
    o, y = random_outputs(layer, 5).requires_grad_(), torch.tensor([2, 0, 1, 1, 0])
    results, gradients = [], []
    for value in (nn.NLLLoss(reduction=reduction)(layer.log_probs(o), y), loss(o, y), layer.loss(o, y, reduction)):
        results.append(value)
        gradients.append(torch.autograd.grad(value.sum(), o)[0])
    for result, gradient in zip(results[1:], gradients[1:], strict=True):
        torch.testing.assert_close(result, results[0])
        torch.testing.assert_close(gradient, gradients[0])


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 6), st.lists(st.integers(0, 3), max_size=3), st.floats(0.1, 10), st.floats(0.1, 10))
def test_leading_axes_are_a_batch(num_classes, leading, beta, scale):
    layer = RadialLayer(num_classes, beta, scale)
    o = random_outputs(layer, *leading)
    result = layer.log_probs(o)
    assert result.shape == (*leading, num_classes)
    rows = [layer.log_probs(row) for row in o.reshape(-1, num_classes)]
    for row, expected in zip(result.reshape(-1, num_classes), rows, strict=True):
        torch.testing.assert_close(row, expected)


def test_golden_values():
    # o = (3, 4): distances to (1, 0) and (0, 1) are sqrt(4 + 16) and sqrt(9 + 9)
    layer = RadialLayer(2, beta=0.5)
    o = torch.tensor([3.0, 4.0])
    torch.testing.assert_close(layer.distances(o), torch.tensor([20.0, 18.0]).sqrt())
    torch.testing.assert_close(layer.log_probs(o), -0.5 * torch.tensor([20.0, 18.0]).sqrt())
    torch.testing.assert_close(layer.probs(o), torch.exp(-0.5 * torch.tensor([20.0, 18.0]).sqrt()))


@pytest.mark.parametrize("arrangement", ["axes", "axis module", "simplex", "matrix", "fixed"])
@pytest.mark.parametrize("beta", [1e-3, 1.0])
def test_disjoint_cutoff_leaves_no_sum_above_one(arrangement, beta):
    layer = RadialLayer(3, beta, cutoff="disjoint", prototypes=ARRANGEMENTS[arrangement]())
    points = layer.prototypes.matrix().float()
    midpoints = (points[:, None] + points[None]).reshape(-1, points.shape[1]) / 2
    o = torch.cat([midpoints, points, random_outputs(layer, 50), points.mean(0, keepdim=True)])
    assert (layer.probs(o).sum(-1) <= 1).all()
    assert torch.equal(layer.probs(points), torch.eye(3))


def test_cutoff_acts_on_probabilities_and_not_on_log_probabilities():
    o = torch.tensor([[1.0, 0.0], [0.0, 0.2]])
    layer = RadialLayer(2, cutoff=1.0)
    assert torch.equal(layer.log_probs(o), RadialLayer(2).log_probs(o))
    # (0, 0.2) is sqrt(1.04) from the first prototype, beyond the radius, and 0.8 from the second
    torch.testing.assert_close(layer.probs(o), torch.tensor([[1.0, 0.0], [0.0, math.exp(-0.8)]]))


@pytest.mark.parametrize("arrangement", ARRANGEMENTS)
def test_deepcopy_and_state_dict_round_trip(arrangement):
    def build():
        prototypes = ARRANGEMENTS[arrangement]()
        width = RadialLayer(3, prototypes=prototypes).prototypes.num_outputs
        return RadialLayer(3, prototypes=prototypes, axis_scale=torch.linspace(1, 2, width))

    layer, other = build(), build()
    with torch.no_grad():
        for tensor in layer.state_dict().values():
            tensor.mul_(1.5)
    o = random_outputs(layer, 4)
    expected = layer.log_probs(o)
    assert not torch.equal(other.log_probs(o), expected)
    twin = copy.deepcopy(layer)
    file = io.BytesIO()
    torch.save(layer.state_dict(), file)
    file.seek(0)
    other.load_state_dict(torch.load(file))
    with torch.no_grad():
        for tensor in layer.state_dict().values():
            tensor.mul_(1.5)
    assert torch.equal(twin.log_probs(o), expected)
    assert torch.equal(other.log_probs(o), expected)
    assert not torch.equal(layer.log_probs(o), expected)


def test_state_dict_keys_are_stable():
    assert list(RadialLayer(3).state_dict()) == []
    layer = RadialLayer(3, prototypes=POINTS, axis_scale=torch.ones(4))
    assert list(layer.state_dict()) == ["axis_scale", "prototypes.points"]
    assert list(RadialLoss(weight=torch.ones(3)).state_dict()) == ["weight"]
    head = RadialLinear(2, 3, prototypes=LearnedPrototypes(3, 3))
    assert set(head.state_dict()) == {"layer.prototypes.points", "affine.weight", "affine.bias"}


def test_a_given_matrix_is_copied():
    matrix = torch.eye(2)
    layer = RadialLayer(2, prototypes=matrix)
    matrix.zero_()
    assert torch.equal(layer.prototypes.matrix(), torch.eye(2))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("arrangement", ARRANGEMENTS)
def test_half_precision_is_computed_and_returned_in_float32(arrangement, dtype):
    layer = RadialLayer(3, prototypes=ARRANGEMENTS[arrangement](), cutoff=1.0)
    o, y = random_outputs(layer, 4).to(dtype), torch.tensor([0, 1, 2, 0])
    methods = (layer.log_probs, layer.probs, layer.distances, lambda o: layer.loss(o, y), lambda o: layer.nearest(o)[0])
    for method in methods:
        result = method(o)
        assert result.dtype == torch.float32
        torch.testing.assert_close(result, method(o.float()), rtol=0, atol=0)


@pytest.mark.parametrize("arrangement", ARRANGEMENTS)
def test_to_float64_computes_in_float64(arrangement):
    layer = RadialLayer(3, prototypes=ARRANGEMENTS[arrangement]()).to(torch.float64)
    o = random_outputs(layer, 4).double() / 3
    assert all(tensor.dtype == torch.float64 for tensor in layer.state_dict().values())
    expected = reference.radial_log_probs(o.numpy(), **twin_options(layer))
    np.testing.assert_allclose(layer.log_probs(o).detach().numpy(), expected, rtol=1e-13)


@pytest.fixture
def float64_by_default():
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(before)


@pytest.mark.usefixtures("float64_by_default")
def test_default_dtype_reaches_parameters_and_matrices():
    head = RadialLinear(4, 3, prototypes=LearnedPrototypes(3, 2))
    assert {p.dtype for p in head.parameters()} == {torch.float64}
    assert AxisPrototypes(3).matrix().dtype == SimplexPrototypes(3).matrix().dtype == torch.float64
    assert FixedPrototypes([[0, 1]]).matrix().dtype == torch.float64
    assert head(torch.randn(2, 4)).dtype == torch.float64
    assert RadialLayer(3).log_probs(torch.randn(2, 3, dtype=torch.float32)).dtype == torch.float32


@pytest.mark.parametrize("arrangement", ARRANGEMENTS)
def test_meta_tensors_have_the_right_shape(arrangement):
    layer = RadialLayer(3, prototypes=ARRANGEMENTS[arrangement]()).to("meta")
    o = random_outputs(layer, 4).to("meta").requires_grad_()
    assert layer.log_probs(o).shape == layer.probs(o).shape == layer.distances(o).shape == (4, 3)
    loss = layer.loss(o, torch.zeros(4, dtype=torch.long, device="meta"))
    loss.backward()
    assert o.grad.shape == o.shape


def test_a_head_can_be_built_on_the_meta_device():
    with torch.device("meta"):
        head = RadialLinear(4, 3, axis_scale=torch.ones(2), prototypes=LearnedPrototypes(3, 2))
    assert {t.device.type for t in head.state_dict().values()} == {"meta"}
    assert head(torch.zeros(5, 4, device="meta")).shape == (5, 2)
    on_meta = RadialLinear(4, 3, prototypes=torch.eye(3), device="meta")
    assert {t.device.type for t in on_meta.state_dict().values()} == {"meta"}


def test_under_autocast_the_layer_computes_in_float32():
    torch.manual_seed(0)
    head = RadialLinear(8, 3, beta=2.0)
    z, y = torch.randn(16, 8), torch.arange(16) % 3
    with torch.autocast("cpu", torch.bfloat16):
        o = head(z)
        log_probs, loss = head.layer.log_probs(o), head.layer.loss(o, y)
    assert o.dtype == torch.bfloat16
    assert log_probs.dtype == loss.dtype == torch.float32
    torch.testing.assert_close(log_probs, head.layer.log_probs(o.float()), rtol=0, atol=0)
    loss.backward()
    assert head.affine.weight.grad.dtype == torch.float32
    assert head.affine.weight.grad.abs().sum() > 0


@pytest.mark.parametrize("arrangement", ARRANGEMENTS)
def test_gradients_of_the_loss_equal_the_numpy_twin(arrangement):
    layer = RadialLayer(3, beta=1.3, prototypes=ARRANGEMENTS[arrangement]())
    o, y = random_outputs(layer, 6).requires_grad_(), torch.tensor([0, 1, 2, 2, 1, 0])
    layer.loss(o, y).backward()
    twin = reference.radial_loss_grad(o.detach().numpy(), y.numpy(), beta=1.3, **twin_options(layer))
    np.testing.assert_allclose(o.grad.numpy(), twin, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("loss_of", [RadialLayer.loss, lambda layer, o, y: TF.nll_loss(layer.log_probs(o), y)])
def test_training_reaches_every_example_of_separable_blobs(loss_of):
    torch.manual_seed(0)
    y = torch.arange(90) % 3
    z = torch.tensor([[4.0, 0.0], [-4.0, 4.0], [-4.0, -4.0]])[y] + 0.3 * torch.randn(90, 2)
    head = RadialLinear(16, 3, beta=2.0)
    model = nn.Sequential(nn.Linear(2, 16), nn.ReLU(), head)
    before = copy.deepcopy(head.affine.state_dict())
    optimiser = torch.optim.Adam(model.parameters(), 0.02)
    for _ in range(100):
        optimiser.zero_grad()
        loss_of(head.layer, model(z), y).backward()
        optimiser.step()
    log_probs = head.layer.log_probs(model(z))
    assert (log_probs.argmax(1) == y).all()
    assert log_probs.exp()[torch.arange(90), y].mean() > 0.5
    assert all(not torch.equal(value, before[name]) for name, value in head.affine.state_dict().items())


def test_repr_tells_the_settings():
    assert repr(RadialLayer(3, beta=2, scale=0.5)) == (
        "RadialLayer(\n  num_classes=3, beta=2, metric='euclidean'\n"
        "  (prototypes): AxisPrototypes(num_classes=3, scale=0.5)\n)"
    )
    assert RadialLayer(3, cutoff="disjoint", metric="manhattan").extra_repr() == (
        "num_classes=3, beta=1, metric='manhattan', cutoff='disjoint'"
    )
    assert repr(RadialLoss(2.0, 3.0, reduction="sum")) == (
        "RadialLoss(beta=2, scale=3, metric='euclidean', reduction='sum')"
    )
    assert RadialLoss(label_smoothing=0.1).extra_repr().endswith("reduction='mean', label_smoothing=0.1")
    assert "(affine): Linear(in_features=4, out_features=3, bias=True)" in repr(RadialLinear(4, 3))


@pytest.mark.parametrize("shape", [(), (5,), (5, 2), (2, 3, 4)])
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_radial_loss_takes_the_forms_of_cross_entropy(shape, reduction):
    generator = torch.Generator().manual_seed(1)
    o = torch.randn(*shape[:1], 4, *shape[1:], generator=generator)
    y = torch.randint(0, 4, shape, generator=generator)
    if shape:
        y.view(-1)[0] = 3
        y.view(-1)[-1] = 2
    weight = torch.tensor([0.5, 1.0, 2.0, 4.0])
    for settings_of in ({}, {"weight": weight}, {"ignore_index": 3}, {"weight": weight, "ignore_index": 2}):
        if not shape and int(y) == settings_of.get("ignore_index"):
            continue
        loss = RadialLoss(reduction=reduction, **settings_of)(o, y)
        theirs = nn.CrossEntropyLoss(reduction=reduction, **settings_of)(o, y)
        assert loss.shape == theirs.shape
        log_probs = RadialLayer(4).log_probs(o.movedim(1, -1) if o.ndim > 1 else o)
        log_probs = log_probs.movedim(-1, 1) if o.ndim > 1 else log_probs
        torch.testing.assert_close(loss, TF.nll_loss(log_probs, y, reduction=reduction, **settings_of))


def test_settings_of_radial_loss_arrive():
    o, y = torch.tensor([[0.0, 0.0]]), torch.tensor([1])
    assert RadialLoss(2.0, 3.0)(o, y) == 6.0  # beta 2 times a distance of 3
    assert RadialLoss(metric="squared_euclidean", scale=3.0)(o, y) == 9.0
    assert RadialLoss(axis_scale=torch.tensor([1.0, 4.0]))(o, y) == 0.25
    assert RadialLoss(prototypes=torch.tensor([[0.0, 0.0], [3.0, 4.0]]))(o, y) == 5.0
    assert RadialLoss(prototypes=torch.tensor([[0.0, 0.0], [3.0, 4.0]]), label_smoothing=0.2)(o, y) == 4.5
    assert RadialLoss(scale=3.0)(o, torch.tensor([[0.5, 0.5]])) == 3.0


def test_radial_loss_moves_its_matrix_and_weights_with_it():
    loss = RadialLoss(weight=torch.ones(2), prototypes=torch.eye(2), axis_scale=torch.ones(2)).to(torch.float64)
    assert {t.dtype for t in loss.state_dict().values()} == {torch.float64}
    assert set(loss.state_dict()) == {"weight", "axis_scale", "prototypes.points"}


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("arrangement", ARRANGEMENTS)
def test_radial_linear_is_an_affine_map_to_the_outputs_of_its_layer(arrangement, bias):
    head = RadialLinear(4, 3, beta=2.0, bias=bias, cutoff=0.8, prototypes=ARRANGEMENTS[arrangement]())
    z = torch.randn(2, 5, 4)
    o = z @ head.affine.weight.T + (head.affine.bias if bias else 0)
    assert (head.affine.bias is not None) == bias
    torch.testing.assert_close(head(z), o)
    assert head.layer.probs(head(z)).shape == (2, 5, 3)
    assert (head.layer.beta, head.layer.cutoff) == (2.0, 0.8)
    assert (head.in_features, head.num_classes) == (4, 3)


def test_radial_linear_has_the_asked_device_and_dtype():
    head = RadialLinear(4, 3, device="meta", dtype=torch.float16)
    assert {(p.device.type, p.dtype) for p in head.parameters()} == {("meta", torch.float16)}


def test_numbers_of_numpy_are_numbers():
    layer = RadialLayer(np.int64(3), beta=np.float32(2.0), scale=np.float64(0.5), cutoff=np.float32(0.25))
    o = torch.tensor([[0.5, 0.0, 0.1]])
    torch.testing.assert_close(layer.probs(o), RadialLayer(3, 2.0, 0.5, cutoff=0.25).probs(o))


def test_a_changed_beta_is_used():
    layer, o = RadialLayer(2), torch.tensor([3.0, 4.0])
    before = layer.log_probs(o)
    layer.beta = 2.0
    torch.testing.assert_close(layer.log_probs(o), 2 * before)
