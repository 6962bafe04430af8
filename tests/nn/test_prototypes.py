import copy
import math
import re
import subprocess
import sys

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as TF

from openradial import (
    AxisPrototypes,
    FixedPrototypes,
    LearnedPrototypes,
    RadialLayer,
    RadialLinear,
    SimplexPrototypes,
    functional,
    reference,
)
from openradial.errors import DTypeError, OptionError, ShapeError
from openradial.nn.prototypes import Prototypes

METRICS = ("euclidean", "squared_euclidean", "manhattan", "chebyshev")
RANDOM = torch.randn(5, 3, generator=torch.Generator().manual_seed(0))
ARRANGEMENTS = {
    "axes": lambda: AxisPrototypes(4, 0.3),
    "simplex": lambda: SimplexPrototypes(4, 0.3),
    "two on a line": lambda: SimplexPrototypes(2, 7.0),
    "fixed": lambda: FixedPrototypes(RANDOM),
    "learned": lambda: LearnedPrototypes(4, 3, 0.3),
    "learned on axes": lambda: LearnedPrototypes(3, 4, 0.3),
}
every_arrangement = pytest.mark.parametrize("prototypes", [f() for f in ARRANGEMENTS.values()], ids=ARRANGEMENTS)


@pytest.mark.parametrize(
    ("module", "twin"),
    [(AxisPrototypes, reference.axis_prototypes), (SimplexPrototypes, reference.simplex_prototypes)],
)
@pytest.mark.parametrize("num_classes", [2, 3, 10, 100])
def test_matrix_equals_the_numpy_twin(module, twin, num_classes):
    matrix = module(num_classes, 1.7).matrix()
    np.testing.assert_allclose(matrix.numpy(), twin(num_classes, 1.7), rtol=1e-6)


@settings(deadline=None, max_examples=40)
@given(st.integers(2, 200), st.floats(0.01, 100), st.sampled_from([AxisPrototypes, SimplexPrototypes]))
def test_every_pair_is_sqrt_2_times_scale_apart(num_classes, scale, module):
    points = module(num_classes, scale).matrix().double()
    assert points.shape == (num_classes, num_classes if module is AxisPrototypes else num_classes - 1)
    np.testing.assert_allclose(torch.pdist(points).numpy(), math.sqrt(2) * scale, rtol=1e-6)


def test_golden_simplices():
    # On a line the second point is sqrt(2) left of the first.
    torch.testing.assert_close(SimplexPrototypes(2).matrix(), torch.tensor([[1.0], [1 - math.sqrt(2)]]))
    # In space: (t, t, t) with (1 - t)^2 + 2 t^2 = 2, so 3 t^2 - 2 t - 1 = 0 and t = -1/3.
    torch.testing.assert_close(SimplexPrototypes(4).matrix()[3], torch.full((3,), -1 / 3))


@every_arrangement
@pytest.mark.parametrize("metric", METRICS)
def test_distances_are_those_to_the_rows_of_the_matrix(prototypes, metric):
    o = torch.randn(20, prototypes.num_outputs, generator=torch.Generator().manual_seed(1))
    layer = RadialLayer(prototypes.num_classes, prototypes=prototypes, metric=metric)
    points = prototypes.matrix().detach().double().numpy()
    expected = reference.radial_distances(o.numpy(), prototypes=points, metric=metric)
    np.testing.assert_allclose(layer.distances(o).detach().numpy(), expected, rtol=1e-5)
    for k in range(prototypes.num_classes):
        loss = layer.loss(o, torch.full((20,), k), "none")
        np.testing.assert_allclose(loss.detach().numpy(), expected[:, k], rtol=1e-5)


@every_arrangement
@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_on_a_prototype_distance_is_0_probability_1_and_gradient_0(prototypes, metric, dtype):
    prototypes = copy.deepcopy(prototypes).to(dtype)
    layer = RadialLayer(prototypes.num_classes, prototypes=prototypes, metric=metric)
    if isinstance(prototypes, AxisPrototypes):
        o = torch.from_numpy(reference.axis_prototypes(prototypes.num_classes, prototypes.scale)).to(dtype)
    elif isinstance(prototypes, SimplexPrototypes):
        o = torch.from_numpy(reference.simplex_prototypes(prototypes.num_classes, prototypes.scale)).to(dtype)
    else:
        o = prototypes.matrix().detach().clone()
    o.requires_grad_()
    y = torch.arange(prototypes.num_classes)
    assert (layer.distances(o).diagonal() == 0).all()
    assert (layer.probs(o).diagonal() == 1).all()
    for loss in (layer.loss(o, y, "sum"), layer.loss(o, y), layer.log_probs(o).diagonal().sum()):
        assert loss == 0
        assert (torch.autograd.grad(loss, o)[0] == 0).all()


@every_arrangement
def test_rows_of_the_matrix_are_exactly_on_their_prototype(prototypes):
    layer = RadialLayer(prototypes.num_classes, prototypes=prototypes)
    assert (layer.probs(prototypes.matrix()).diagonal() == 1).all()


@every_arrangement
def test_nearest_to_a_prototype_is_its_class(prototypes):
    _, classes = functional.radial_nearest(prototypes.matrix() + 1e-3, prototypes=prototypes)
    assert classes[:, 0].tolist() == list(range(prototypes.num_classes))


def test_a_simplex_of_50_000_classes_needs_memory_for_outputs_only():
    # A matrix of its prototypes would take 10 GB, the outputs take 1.6 MB.
    code = """
import resource, torch
from openradial import RadialLayer, SimplexPrototypes
torch.set_num_threads(1)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
layer = RadialLayer(50_000, prototypes=SimplexPrototypes(50_000))
o = torch.zeros(8, 49_999, requires_grad=True)
y = torch.tensor([0, 1, 2, 3, 4, 5, 6, 49_999])
loss = layer.loss(o, y)
loss.backward()
log_probs = layer.log_probs(o)
assert log_probs.shape == (8, 50_000)
torch.testing.assert_close(layer.loss(o, y, "none"), -log_probs[torch.arange(8), y])
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""
    unit = 1 if sys.platform == "darwin" else 1024
    grown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert int(grown) * unit < 400e6


def train_on_two_blobs(crowding):
    torch.manual_seed(0)
    prototypes = LearnedPrototypes(3, 2)
    head = RadialLinear(2, 3, prototypes=prototypes)
    y = torch.arange(60) % 3
    z = torch.tensor([[2.0, 0.0], [-1.0, 2.0], [-1.0, -2.0]])[y] + 0.1 * torch.randn(60, 2)
    start = prototypes.matrix().detach().clone()
    optimiser = torch.optim.Adam(head.parameters(), 0.04)
    for _ in range(150):
        optimiser.zero_grad()
        (head.layer.loss(head(z), y) + crowding * prototypes.crowding()).backward()
        optimiser.step()
    return head, z, y, start


def test_learned_prototypes_stay_apart_with_crowding_and_separate_the_classes():
    head, z, y, start = train_on_two_blobs(crowding=10.0)
    points = head.layer.prototypes.matrix().detach()
    assert (points - start).norm() > 0.1
    assert torch.pdist(points).min() > 1.2
    assert (head.layer.nearest(head(z))[1].squeeze(1) == y).all()


def test_learned_prototypes_collapse_without_crowding():
    head, *_, start = train_on_two_blobs(crowding=0.0)
    assert torch.pdist(head.layer.prototypes.matrix().detach()).max() < 0.3 * torch.pdist(start).max()


def test_golden_crowding():
    prototypes = LearnedPrototypes(3, 2)
    with torch.no_grad():
        prototypes.points.copy_(torch.tensor([[0.0, 0.0], [1.0, 0.0], [4.0, 0.0]]))
    # pairs are 1, 4 and 3 apart; to a margin of 3.5 lack 2.5, 0 and 0.5, in the mean of squares (6.25 + 0.25) / 3
    torch.testing.assert_close(prototypes.crowding(3.5), torch.tensor(6.5 / 3))
    torch.testing.assert_close(prototypes.crowding(), torch.tensor((math.sqrt(2) - 1) ** 2 / 3))
    prototypes.crowding(3.5).backward()
    # d/dx of mean (3.5 - d)^2: the first two points push each other by 2 * 2.5 / 3, the last two by 2 * 0.5 / 3
    torch.testing.assert_close(prototypes.points.grad[:, 0], torch.tensor([5.0, -5.0 + 1.0, -1.0]) / 3)
    # one pair, sqrt(2) apart, lacks 3 - sqrt(2)
    torch.testing.assert_close(LearnedPrototypes(2, 2).crowding(3), torch.tensor((3 - math.sqrt(2)) ** 2))
    assert LearnedPrototypes(1, 2).crowding() == 0


@pytest.mark.parametrize(("num_classes", "num_outputs"), [(3, 3), (3, 5), (1, 1)])
def test_learned_prototypes_start_on_the_axes_where_they_suffice(num_classes, num_outputs):
    points = LearnedPrototypes(num_classes, num_outputs, 2.0).matrix()
    assert torch.equal(points, 2.0 * torch.eye(num_classes, num_outputs))


def test_learned_prototypes_start_at_random_points_of_length_scale_where_axes_do_not_suffice():
    torch.manual_seed(0)
    prototypes = LearnedPrototypes(7, 3, 2.0)
    torch.testing.assert_close(prototypes.matrix().norm(dim=1), torch.full((7,), 2.0))
    assert torch.pdist(prototypes.matrix()).min() > 1e-3


@pytest.mark.parametrize("num_outputs", [2, 4])
def test_reset_parameters_starts_anew_and_is_reproducible(num_outputs):
    torch.manual_seed(0)
    prototypes = LearnedPrototypes(4, num_outputs)
    first = prototypes.matrix().detach().clone()
    with torch.no_grad():
        prototypes.points.fill_(9.0)
    torch.manual_seed(0)
    prototypes.reset_parameters()
    assert torch.equal(prototypes.matrix(), first)
    assert prototypes.points.requires_grad


def test_learned_prototypes_have_the_asked_device_and_dtype():
    points = LearnedPrototypes(4, 2, device="meta", dtype=torch.float64).points
    assert (points.device.type, points.dtype) == ("meta", torch.float64)
    half = LearnedPrototypes(4, 2, dtype=torch.bfloat16)
    torch.testing.assert_close(half.points.float().norm(dim=1), torch.ones(4), rtol=0.01, atol=0)


def test_state_dict_round_trip():
    torch.manual_seed(0)
    for one, other in [
        (LearnedPrototypes(4, 2), LearnedPrototypes(4, 2)),
        (FixedPrototypes(RANDOM), FixedPrototypes(torch.zeros(5, 3))),
    ]:
        assert list(one.state_dict()) == ["points"]
        assert not torch.equal(one.matrix(), other.matrix())
        other.load_state_dict(one.state_dict())
        assert torch.equal(one.matrix(), other.matrix())
    assert AxisPrototypes(3).state_dict() == SimplexPrototypes(3).state_dict() == {}


def test_only_learned_prototypes_have_parameters():
    counts = {name: len(list(build().parameters())) for name, build in ARRANGEMENTS.items()}
    assert counts == {"axes": 0, "simplex": 0, "two on a line": 0, "fixed": 0, "learned": 1, "learned on axes": 1}


@pytest.mark.parametrize(
    ("given_as", "dtype"),
    [
        ([[0, 1], [1, 0]], torch.float32),
        ([[0.0, 1.0], [1.0, 0.0]], torch.float32),
        (np.array([[0.0, 1.0], [1.0, 0.0]]), torch.float64),
        (torch.tensor([[0.0, 1.0], [1.0, 0.0]], dtype=torch.float16), torch.float16),
    ],
)
def test_fixed_prototypes_take_lists_arrays_and_tensors(given_as, dtype):
    prototypes = FixedPrototypes(given_as)
    assert prototypes.matrix().dtype == dtype
    assert prototypes.matrix().tolist() == [[0, 1], [1, 0]]
    assert (prototypes.num_classes, prototypes.num_outputs) == (2, 2)


def test_fixed_prototypes_are_a_copy_that_does_not_train():
    matrix = torch.eye(2, requires_grad=True)
    prototypes = FixedPrototypes(matrix)
    with torch.no_grad():
        matrix.zero_()
    assert torch.equal(prototypes.matrix(), torch.eye(2))
    assert not prototypes.matrix().requires_grad


def test_learned_prototypes_get_gradients_through_every_function():
    prototypes = LearnedPrototypes(3, 2)
    o, y = torch.tensor([[0.3, -0.2]]), torch.tensor([1])
    layer = RadialLayer(3, prototypes=prototypes)
    for value in (
        layer.loss(o, y),
        TF.nll_loss(layer.log_probs(o), y),
        layer.distances(o)[0, 1],
        layer.nearest(o, 3)[0].sum(),
    ):
        (gradient,) = torch.autograd.grad(value, prototypes.points)
        # the distance falls fastest where the prototype moves towards the output
        towards = (prototypes.points - o).detach()[1]
        torch.testing.assert_close(gradient[1], towards / towards.norm())


def test_a_new_arrangement_needs_only_geometry_and_matrix():
    class Doubled(Prototypes):
        def __init__(self):
            super().__init__()
            self.num_classes, self.num_outputs = 2, 2

        def geometry(self):
            return AxisPrototypes(2, 2.0).geometry()

        def matrix(self):
            return 2.0 * torch.eye(2)

    layer = RadialLayer(2, prototypes=Doubled())
    assert torch.equal(layer.probs(2.0 * torch.eye(2)).diagonal(), torch.ones(2))
    with pytest.raises(ShapeError, match=r"^Doubled for 2 classes need 2 outputs, got 3; make the last layer 2 wide$"):
        layer.log_probs(torch.zeros(1, 3))
    with pytest.raises(TypeError, match="abstract"):
        Prototypes()


def test_repr_tells_the_settings():
    assert repr(AxisPrototypes(3, 0.5)) == "AxisPrototypes(num_classes=3, scale=0.5)"
    assert repr(SimplexPrototypes(3)) == "SimplexPrototypes(num_classes=3, scale=1)"
    assert repr(FixedPrototypes(RANDOM)) == "FixedPrototypes(num_classes=5, num_outputs=3)"
    assert repr(LearnedPrototypes(3, 2)) == "LearnedPrototypes(num_classes=3, num_outputs=2)"


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: AxisPrototypes(0), OptionError, "num_classes must be a whole number of at least 1, got 0"),
        (lambda: SimplexPrototypes(1), OptionError, "num_classes must be a whole number of at least 2, got 1"),
        (
            lambda: SimplexPrototypes(3, 0.0),
            OptionError,
            "scale must be a finite number above 0, got 0.0; the paper uses scale=1.0",
        ),
        (lambda: LearnedPrototypes(3, 0), OptionError, "num_outputs must be a whole number of at least 1, got 0"),
        (
            lambda: LearnedPrototypes(3, 2).crowding(margin=-1.0),
            OptionError,
            "margin must be a finite number above 0, got -1.0",
        ),
        (
            lambda: FixedPrototypes(torch.zeros(3)),
            ShapeError,
            "prototypes must be a matrix with one row per class, got shape (3,); pass a tensor of shape "
            "(classes, outputs)",
        ),
        (
            lambda: FixedPrototypes(torch.zeros(0, 3)),
            ShapeError,
            "prototypes must be a matrix with one row per class, got shape (0, 3); pass a tensor of shape "
            "(classes, outputs)",
        ),
        (
            lambda: FixedPrototypes(torch.eye(2).long()),
            DTypeError,
            "prototypes must be floating point, got torch.int64; call .float() on them",
        ),
        (
            lambda: RadialLayer(5, prototypes=SimplexPrototypes(5)).log_probs(torch.zeros(2, 5)),
            ShapeError,
            "SimplexPrototypes for 5 classes need 4 outputs, got 5; make the last layer 4 wide",
        ),
        (
            lambda: RadialLayer(5, prototypes=LearnedPrototypes(5, 2)).log_probs(torch.zeros(2, 5)),
            ShapeError,
            "LearnedPrototypes for 5 classes need 2 outputs, got 5; make the last layer 2 wide",
        ),
        (
            lambda: RadialLayer(3, prototypes=SimplexPrototypes(3), cutoff="disjoint", metric="manhattan").probs(
                torch.zeros(1, 2)
            ),
            OptionError,
            "a simplex is equidistant in the euclidean metric only, so cutoff='disjoint' has no one radius here; give "
            "cutoff as a number",
        ),
    ],
)
def test_messages_say_what_was_expected_what_came_and_the_way_out(call, error, message):
    with pytest.raises(error, match=f"^{re.escape(message)}$"):
        call()
