"""Compilers, function transforms and higher derivatives see the same function as eager first-order autograd."""

import copy
import shutil

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd import gradcheck, gradgradcheck
from torch.func import grad, hessian, jacfwd, jacrev, jvp, vjp, vmap

import openradial
from openradial import functional
from openradial.errors import METRIC_NAMES
from openradial.functional import eager

N, K = 5, 4
TARGETS = torch.tensor([0, 1, 2, 3, -100])
DISTRIBUTIONS = torch.linspace(-1, 1, N * K, dtype=torch.float64).reshape(N, K).softmax(-1)


def random_outputs(*shape: int, requires_grad: bool = False) -> torch.Tensor:
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).requires_grad_(
        requires_grad
    )


FUNCTIONS = {
    **{f"distances, {m}": lambda o, m=m: functional.radial_distances(o, metric=m) for m in METRIC_NAMES},
    "distances, axis scale": lambda o: functional.radial_distances(o, axis_scale=torch.arange(1.0, 1.0 + o.shape[-1])),
    "distances, simplex": lambda o: functional.radial_distances(
        o, prototypes=openradial.SimplexPrototypes(o.shape[-1] + 1)
    ),
    **{
        f"distances, matrix, {m}": lambda o, m=m: functional.radial_distances(o, prototypes=points(o), metric=m)
        for m in METRIC_NAMES
    },
    "log_probs": lambda o: functional.radial_log_probs(o, beta=2.0, scale=1.5),
    "probs": lambda o: functional.radial_probs(o, beta=2.0),
    "probs, disjoint": lambda o: functional.radial_probs(o, beta=2.0, cutoff="disjoint"),
    "nearest": lambda o: functional.radial_nearest(o)[0],
    "nearest two": lambda o: functional.radial_nearest(o, 2)[0],
    "loss": lambda o: functional.radial_loss(o, TARGETS.clamp_min(0), beta=2.0),
    "loss with an ignored target": lambda o: functional.radial_loss(
        o, TARGETS, weight=torch.arange(1.0, 1.0 + o.shape[-1])
    ),
    "loss of distributions": lambda o: functional.radial_loss(o, DISTRIBUTIONS, label_smoothing=0.1),
    "loss, smoothed": lambda o: functional.radial_loss(o, TARGETS, beta=2.0, label_smoothing=0.2),
    "loss, none": lambda o: functional.radial_loss(o, TARGETS.clamp_min(0), reduction="none"),
}
EVERY_FUNCTION = pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS.keys())


def points(o: torch.Tensor) -> torch.Tensor:
    return torch.linspace(-1, 1, 3 * o.shape[-1], dtype=o.dtype).reshape(3, -1)


@EVERY_FUNCTION
def test_first_and_second_derivatives_agree_with_finite_differences(function):
    o = random_outputs(N, K, requires_grad=True)
    assert gradcheck(function, o, check_forward_ad=True, check_batched_grad=True)
    assert gradgradcheck(function, o)


def test_derivatives_by_prototypes_agree_with_finite_differences():
    together = random_outputs(N + 4, 3)
    o, p = together[:N].clone().requires_grad_(), together[N:].clone().requires_grad_()
    for metric in METRIC_NAMES:

        def measure(o, p, metric=metric):
            return functional.radial_distances(o, prototypes=p, metric=metric)

        assert gradcheck(measure, (o, p), check_forward_ad=True)
        assert gradgradcheck(measure, (o, p))
        assert gradgradcheck(measure, (o.detach(), p))
    assert gradcheck(lambda o, p: functional.radial_loss(o, TARGETS, prototypes=p), (o, p))


def test_many_classes_have_second_derivatives():
    o = random_outputs(2, 1100, requires_grad=True)
    y = torch.tensor([3, 1099])
    for loss in (functional.radial_loss(o, y), functional.radial_log_probs(o).square().mean()):
        (first,) = torch.autograd.grad(loss, o, create_graph=True)
        (second,) = torch.autograd.grad(first.square().sum(), o)
        assert second.isfinite().all()
        assert second.abs().max() > 0
    expected = torch.autograd.functional.hvp(
        lambda o: eager.plain_target_distances(o, y, 1.0).mean(), o, torch.ones_like(o)
    )[1]
    actual = torch.autograd.functional.hvp(lambda o: functional.radial_loss(o, y), o, torch.ones_like(o))[1]
    torch.testing.assert_close(actual, expected)


def test_on_a_prototype_second_derivatives_are_finite():
    o = torch.zeros(1, 3, dtype=torch.float64)
    o[0, 1] = 1.0
    o.requires_grad_()
    (first,) = torch.autograd.grad(functional.radial_loss(o, torch.tensor([1])), o, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), o)
    assert (first == 0).all()
    assert second.isfinite().all()


@EVERY_FUNCTION
def test_function_transforms_agree_with_autograd(function):
    o = random_outputs(N, K)
    jacobian = torch.autograd.functional.jacobian(function, o)
    torch.testing.assert_close(jacrev(function)(o), jacobian)
    torch.testing.assert_close(jacfwd(function)(o), jacobian)
    tangent = torch.ones_like(o)
    value, pushed = jvp(function, (o,), (tangent,))
    torch.testing.assert_close(value, function(o))
    torch.testing.assert_close(pushed, torch.tensordot(jacobian, tangent, 2))
    value, pull = vjp(function, o)
    torch.testing.assert_close(pull(torch.ones_like(value))[0], jacobian.reshape(-1, N, K).sum(0))


@EVERY_FUNCTION
def test_vmap_agrees_with_a_loop(function):
    batch = random_outputs(3, N, K)
    torch.testing.assert_close(vmap(function)(batch), torch.stack([function(o) for o in batch]))
    scalar = lambda o: function(o).sum()  # noqa: E731
    torch.testing.assert_close(vmap(grad(scalar))(batch), torch.stack([grad(scalar)(o) for o in batch]))


def test_vmap_over_targets_and_hessians_work():
    o, targets = random_outputs(N, K), torch.tensor([[0, 1, 2, 3, 0], [1, 1, 1, 1, 1]])
    both = vmap(lambda y: functional.radial_loss(o, y))(targets)
    torch.testing.assert_close(both, torch.stack([functional.radial_loss(o, y) for y in targets]))
    one = lambda row: functional.radial_loss(row[None], torch.tensor([1]))  # noqa: E731
    e = o[0] - torch.eye(K, dtype=o.dtype)[1]
    d = e.norm()
    expected = (torch.eye(K, dtype=o.dtype) - torch.outer(e, e) / d**2) / d
    torch.testing.assert_close(hessian(one)(o[0]), expected)


@pytest.mark.compile
@EVERY_FUNCTION
def test_one_graph_without_breaks_gives_the_same_values_and_gradients(function):
    o = random_outputs(N, K, requires_grad=True)
    compiled = torch.compile(function, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(o), function(o))
    (expected,) = torch.autograd.grad(function(o).sum(), o)
    (actual,) = torch.autograd.grad(compiled(o).sum(), o)
    torch.testing.assert_close(actual, expected)


@pytest.mark.compile
@pytest.mark.skipif(shutil.which("c++") is None, reason="needs a C++ compiler")
@pytest.mark.parametrize("num_classes", [4, 3000])
def test_inductor_compiles_layer_and_loss(num_classes):
    layer = openradial.RadialLayer(num_classes, beta=2.0)
    o = torch.randn(N, num_classes, requires_grad=True)
    both = lambda o: (layer.log_probs(o), functional.radial_loss(o, TARGETS))  # noqa: E731
    compiled = torch.compile(both, fullgraph=True)
    torch.testing.assert_close(compiled(o), both(o), rtol=1e-5, atol=1e-5)
    (expected,) = torch.autograd.grad(sum(t.sum() for t in both(o)), o)
    (actual,) = torch.autograd.grad(sum(t.sum() for t in compiled(o)), o)
    torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-4)


class LogProbs(torch.nn.Module):
    """A layer as the end of a network that is exported with its log-probabilities."""

    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, o):
        return self.layer.log_probs(o)


LAYERS = {
    "axis": lambda: openradial.RadialLayer(4),
    "axis scale": lambda: openradial.RadialLayer(4, axis_scale=torch.arange(1.0, 5.0), metric="manhattan"),
    "simplex": lambda: openradial.RadialLayer(4, prototypes=openradial.SimplexPrototypes(4)),
    "learned": lambda: openradial.RadialLayer(4, prototypes=openradial.LearnedPrototypes(4, 3)),
}
EVERY_LAYER = pytest.mark.parametrize("make", LAYERS.values(), ids=LAYERS.keys())


@EVERY_LAYER
def test_layers_export_with_a_dynamic_batch(make):
    layer = make()
    net = torch.nn.Sequential(torch.nn.Linear(6, layer.prototypes.num_outputs), LogProbs(layer))
    exported = torch.export.export(net, (torch.randn(2, 6),), dynamic_shapes=({0: torch.export.Dim("batch")},))
    for rows in (1, 2, 9):
        x = torch.randn(rows, 6)
        torch.testing.assert_close(exported.module()(x), net(x))


@EVERY_LAYER
def test_layers_copy_and_restore(make):
    layer = make()
    o = torch.randn(3, layer.prototypes.num_outputs, requires_grad=True)
    layer.log_probs(o).sum().backward()
    twin = copy.deepcopy(layer)
    fresh = make()
    fresh.load_state_dict(layer.state_dict())
    for other in (twin, fresh):
        assert torch.equal(other.log_probs(o), layer.log_probs(o))


def test_meta_tensors_have_shapes_and_gradients():
    o = torch.empty(N, K, device="meta", requires_grad=True)
    y = torch.empty(N, dtype=torch.int64, device="meta")
    loss = functional.radial_loss(o, y)
    assert loss.shape == ()
    (loss + functional.radial_log_probs(o).sum()).backward()
    assert o.grad.shape == (N, K)
    assert functional.radial_probs(o, cutoff="disjoint").shape == (N, K)
    assert functional.radial_nearest(o, 3)[1].shape == (N, 3)


def test_fake_tensors_are_not_asked_for_values():
    with FakeTensorMode():
        o, y = torch.randn(N, 2000, requires_grad=True), torch.zeros(N, dtype=torch.int64)
        (functional.radial_loss(o, y) + functional.radial_log_probs(o).sum()).backward()
        assert o.grad.shape == (N, 2000)
        assert functional.radial_nearest(o)[1].shape == (N, 1)


def test_the_default_dtype_does_not_leak_in():
    torch.set_default_dtype(torch.float64)
    try:
        o = torch.randn(N, K, dtype=torch.float32)
        assert functional.radial_log_probs(o).dtype == torch.float32
        assert functional.radial_probs(o, cutoff="disjoint").dtype == torch.float32
        assert functional.radial_loss(o, TARGETS).dtype == torch.float32
        assert functional.radial_distances(o, prototypes=openradial.SimplexPrototypes(K + 1)).dtype == torch.float32
        assert functional.radial_log_probs(torch.randn(N, K)).dtype == torch.float64
    finally:
        torch.set_default_dtype(torch.float32)


def test_without_the_private_question_to_torch_the_plain_form_serves(monkeypatch):
    o = random_outputs(N, K, requires_grad=True)
    fast = functional.radial_log_probs(o)
    monkeypatch.setattr(eager, "functorch_is_active", lambda: True)
    plain = functional.radial_log_probs(o)
    assert type(fast.grad_fn) is not type(plain.grad_fn)
    torch.testing.assert_close(plain, fast)


def test_loss_saves_nothing_but_its_input_for_many_classes():
    o = torch.randn(8, 50_000, requires_grad=True)
    saved = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: saved.append(t.untyped_storage()) or t, lambda t: t):
        functional.radial_loss(o, torch.arange(8))
    extra = {s.data_ptr(): s.nbytes() for s in saved if s.data_ptr() != o.untyped_storage().data_ptr()}
    assert sum(extra.values()) < 0.01 * o.nbytes
