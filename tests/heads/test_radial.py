import math
import re

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from openradial.errors import DataError, OptionError
from openradial.heads import RadialHead, load_head, save_head
from openradial.nn import RadialLayer
from openradial.nn.prototypes import AxisPrototypes, FixedPrototypes, LearnedPrototypes, Prototypes, SimplexPrototypes
from tests.rounding import tolerance

MATRIX = torch.tensor([[0.0, 0.1], [1.0, 0.0], [0.5, 1.0]], dtype=torch.float64)
ARRANGEMENTS = {
    "axes": lambda: AxisPrototypes(3, 1.3),
    "simplex": lambda: SimplexPrototypes(3, 0.7),
    "fixed": lambda: FixedPrototypes(MATRIX),
    "learned": lambda: LearnedPrototypes(3, 5, 2.5),
}
every_arrangement = pytest.mark.parametrize("name", ARRANGEMENTS)


def distance(row, prototype, metric="euclidean", axis_scale=None):
    """One distance, from the definition."""
    e = [(o - p) / s for o, p, s in zip(row, prototype, axis_scale or [1.0] * len(row), strict=True)]
    if metric == "manhattan":
        return sum(abs(x) for x in e)
    if metric == "chebyshev":
        return max(abs(x) for x in e)
    square = sum(x * x for x in e)
    return square if metric == "squared_euclidean" else math.sqrt(square)


def naive_log_probs(o, prototypes, beta, **options):
    return np.array([[-beta * distance(row, p, **options) for p in prototypes] for row in o])


def naive_scores(o, prototypes, beta, score, cutoff=None, **options):
    scores = []
    for row in o:
        d = min(distance(row, p, **options) for p in prototypes)
        p = 0.0 if cutoff is not None and d >= cutoff else math.exp(-beta * d)
        scores.append(d if score == "distance" else 1 - p)
    return np.array(scores)


def naive_loss(o, y, prototypes, beta, loss, **options):
    d = [distance(row, prototypes[k], **options) for row, k in zip(o, y, strict=True)]
    return float(np.mean([beta * x if loss == "distance" else x * x for x in d]))


def rows(n, width, seed=0):
    return 2 * torch.randn(n, width, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


@every_arrangement
@pytest.mark.parametrize("metric", ["euclidean", "squared_euclidean", "manhattan", "chebyshev"])
@settings(max_examples=15)
@given(beta=st.floats(0.1, 20), seed=st.integers(0, 99), scaled=st.booleans())
def test_all_answers_equal_the_definition(name, metric, beta, seed, scaled):
    prototypes = ARRANGEMENTS[name]()
    axis_scale = [0.5 + i for i in range(prototypes.num_outputs)] if scaled else None
    options = {"metric": metric, "axis_scale": axis_scale}
    o, y = rows(4, prototypes.num_outputs, seed), torch.tensor([0, 1, 2, 1])
    points, numbers = prototypes.matrix().tolist(), o.tolist()
    for score, loss, cutoff in [("distance", "distance", None), ("probability", "squared", 1.5)]:
        head = RadialHead(
            3,
            beta,
            cutoff=cutoff,
            metric=metric,
            axis_scale=None if axis_scale is None else torch.tensor(axis_scale),
            prototypes=prototypes,
            score=score,
            loss=loss,
        )
        with torch.no_grad():
            found = head.log_probs(o), head.unknown_score(o), head.loss(o, y)
        np.testing.assert_allclose(found[0], naive_log_probs(numbers, points, beta, **options), rtol=1e-6, atol=1e-6)
        expected = naive_scores(numbers, points, beta, score, cutoff, **options)
        np.testing.assert_allclose(found[1], expected, rtol=1e-6, atol=1e-6)
        expected = naive_loss(numbers, y.tolist(), points, beta, loss, **options)
        np.testing.assert_allclose(found[2], expected, rtol=1e-6)


def test_it_says_what_its_layer_says():
    head, layer, o = RadialHead(4, 3.0, 0.5, cutoff="disjoint"), RadialLayer(4, 3.0, 0.5, cutoff="disjoint"), rows(9, 4)
    torch.testing.assert_close(head.log_probs(o), layer.log_probs(o), **tolerance(4, o.dtype))
    assert torch.equal(head.distances(o), layer.distances(o))
    assert torch.equal(head.unknown_score(o), layer.nearest(o)[0][:, 0])
    assert torch.equal(head.loss(o, torch.arange(9) % 4), layer.loss(o, torch.arange(9) % 4))


def test_on_a_prototype_nothing_is_unknown():
    for score in ("distance", "probability"):
        head = RadialHead(3, beta=5.0, scale=2.0, score=score)
        assert head.unknown_score(2 * torch.eye(3)).tolist() == [0, 0, 0]


def test_overshooting_a_prototype_is_unknown():
    head = RadialHead(4)
    near, far = head.unknown_score(torch.tensor([[1.0, 0.0, 0.0, 0.0], [1000.0, 0.0, 0.0, 0.0]]))
    assert (near, far) == (0.0, 999.0)


def test_outside_the_cutoff_the_unknown_score_is_exactly_one():
    head = RadialHead(2, beta=0.1, cutoff="disjoint", score="probability")
    score = head.unknown_score(torch.tensor([[1.0, 0.0], [0.5, 0.5], [0.0, 0.0], [9.0, 9.0]]))
    assert score.tolist() == [0.0, 1.0, 1.0, 1.0]


def test_the_cutoff_changes_neither_log_probabilities_nor_loss():
    plain, cut, o = RadialHead(3), RadialHead(3, cutoff=0.1), rows(5, 3)
    y = torch.arange(5) % 3
    assert torch.equal(plain.log_probs(o), cut.log_probs(o))
    assert torch.equal(plain.loss(o, y), cut.loss(o, y))


def test_a_far_output_on_the_last_axis_is_of_the_last_class():
    assert RadialHead(3).predict(torch.tensor([[0.0, 0.0, 1e9]])).tolist() == [2]


def test_the_squared_loss_is_free_of_beta_and_has_the_gradient_of_a_square():
    o, y = rows(4, 3).requires_grad_(), torch.tensor([0, 1, 2, 2])
    losses = [RadialHead(3, beta, loss="squared").loss(o, y) for beta in (0.5, 8.0)]
    torch.testing.assert_close(losses[0], losses[1])
    (gradient,) = torch.autograd.grad(losses[1], o)
    torch.testing.assert_close(gradient, 2 * (o.detach() - torch.eye(3)[y]) / 4)


@every_arrangement
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_files_keep_every_option(name, dtype, tmp_path):
    prototypes = ARRANGEMENTS[name]().to(dtype)
    head = RadialHead(
        3,
        1.7,
        cutoff=0.9,
        metric="manhattan",
        axis_scale=torch.full((prototypes.num_outputs,), 0.3, dtype=dtype),
        prototypes=prototypes,
        score="probability",
        loss="squared",
    )
    save_head(head, tmp_path / "head")
    loaded = load_head(tmp_path / "head")
    layer, other = head.layer, loaded.layer
    assert (other.beta, other.cutoff, other.metric) == (1.7, 0.9, "manhattan")
    assert (loaded.score, loaded.loss_name) == ("probability", "squared")
    assert type(other.prototypes) is type(prototypes)
    assert torch.equal(other.prototypes.matrix(), prototypes.matrix())
    assert torch.equal(other.axis_scale, layer.axis_scale)
    assert {n: p.dtype for n, p in loaded.state_dict().items()} == {n: p.dtype for n, p in head.state_dict().items()}
    assert len(list(loaded.parameters())) == len(list(head.parameters()))


def test_a_matrix_of_prototypes_is_saved(tmp_path):
    save_head(RadialHead(3, prototypes=MATRIX), tmp_path / "head")
    assert torch.equal(load_head(tmp_path / "head").layer.prototypes.matrix(), MATRIX)


def test_learned_prototypes_move_after_loading(tmp_path):
    save_head(RadialHead(3, prototypes=LearnedPrototypes(3, 3)), tmp_path / "head")
    head = load_head(tmp_path / "head")
    head.loss(torch.zeros(1, 3), torch.tensor([1])).backward()
    assert head.layer.prototypes.points.grad.abs().sum() > 0


class Circle(Prototypes):
    """Prototypes of a user's own."""

    num_classes, num_outputs = 3, 2

    def matrix(self):
        return MATRIX

    def geometry(self):
        return FixedPrototypes(MATRIX).geometry()


def test_prototypes_of_ones_own_work_but_name_the_way_to_save_them(tmp_path):
    head = RadialHead(3, prototypes=Circle())
    assert head.unknown_score(MATRIX).tolist() == [0, 0, 0]
    assert "score='distance'" in repr(head)
    message = (
        "a head can be saved with the prototypes of openradial.nn.prototypes, got Circle; "
        "use FixedPrototypes(prototypes.matrix())"
    )
    with pytest.raises(OptionError, match=f"^{re.escape(message)}$"):
        save_head(head, tmp_path / "head")


@pytest.mark.parametrize(
    ("tensors", "given"), [({}, "{}"), ({"prototypes.points": torch.zeros(2, 2)}, "{'prototypes.points': (2, 2)}")]
)
def test_tensors_of_another_head_are_refused(tensors, given):
    message = f"this RadialHead takes tensors of the shapes {{'prototypes.points': (3, 2)}}, got {given}"
    with pytest.raises(DataError, match=f"^{re.escape(message)}$"):
        RadialHead(3, prototypes=MATRIX).restore(tensors)


def test_restore_takes_what_tensors_gave():
    head, other = RadialHead(3, prototypes=MATRIX), RadialHead(3, prototypes=torch.zeros(3, 2, dtype=torch.float64))
    assert torch.equal(other.restore(head.tensors()).layer.prototypes.matrix(), MATRIX)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"score": "energy"}, "score must be one of 'distance', 'probability', 'projection', got 'energy'"),
        ({"loss": "hinge"}, "loss must be one of 'distance', 'squared', 'rescaled', got 'hinge'"),
        ({"beta": 0}, "beta must be a finite number above 0, got 0; the paper uses beta=1.0"),
        ({"prototypes": MATRIX[:2]}, "num_classes and prototypes must agree: num_classes=3 but 2 prototypes"),
        ({"cutoff": "joint"}, "cutoff must be None, a radius above 0 or 'disjoint', got 'joint'"),
    ],
)
def test_wrong_options_are_named(options, message):
    with pytest.raises(OptionError, match=f"^{re.escape(message)}"):
        RadialHead(3, **options)


def test_a_head_is_a_module_whose_layer_moves_with_it():
    net = nn.ModuleList([RadialHead(3, prototypes=LearnedPrototypes(3, 3), axis_scale=torch.ones(3))]).double()
    assert {tensor.dtype for tensor in net.state_dict().values()} == {torch.float64}


def test_the_projection_is_the_largest_output_along_its_axis():
    head = RadialHead(3, scale=2.0, score="projection")
    o = torch.tensor([[2.0, 0.0, 0.0], [0.0, 4.0, 1.0], [-1.0, -2.0, -3.0]], dtype=torch.float64)
    naive = torch.tensor([math.exp(-1.0), math.exp(-2.0), math.exp(0.5)], dtype=torch.float64)
    torch.testing.assert_close(head.unknown_score(o), naive)
    torch.testing.assert_close(head.compute(o).unknown_score, naive)
    assert RadialHead.from_parts(head.settings(), head.tensors()).score == "projection"


def test_the_projection_needs_axis_prototypes():
    head = RadialHead(2, prototypes=torch.eye(2), score="projection")
    with pytest.raises(OptionError, match="score='projection' needs axis prototypes; use score='distance'"):
        head.unknown_score(torch.zeros(1, 2))


@pytest.mark.parametrize("metric", ["euclidean", "squared_euclidean", "manhattan", "chebyshev"])
@pytest.mark.parametrize("score", ["distance", "probability", "projection"])
def test_a_far_axis_is_one_more_coordinate_without_a_prototype(metric, score):
    generator = torch.Generator().manual_seed(0)
    o, far = torch.randn(30, 3, generator=generator).double(), 4 * torch.rand(30, generator=generator).double()
    head, points = RadialHead(3, 2.0, 1.5, metric=metric, score=score), 1.5 * torch.eye(3, 4)
    wide = RadialHead(3, 2.0, metric=metric, prototypes=points.double())
    expected = wide.compute(torch.cat([o, far.unsqueeze(1)], 1))
    found = head.compute(o, far)
    torch.testing.assert_close(found.distances, expected.distances)
    torch.testing.assert_close(found.log_probs, expected.log_probs)
    assert torch.equal(found.labels, o.argmax(1))
    if score != "probability":
        assert (found.unknown_score >= far * (1 - 1e-12)).all() or metric == "squared_euclidean"


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_far_axis_of_zero_changes_no_bit(dtype):
    o = torch.randn(50, 4, generator=torch.Generator().manual_seed(0)).to(dtype)
    o[:4], o[4] = torch.eye(4), 1e30
    head = RadialHead(4, 3.0)
    for mine, theirs in zip(head.compute(o, torch.zeros(50)), head.compute(o), strict=True):
        assert torch.equal(mine, theirs)


@pytest.mark.parametrize("size", [1e-30, 1e-3, 1.0, 1e10, 1e30, 3e38])
def test_no_probability_exceeds_the_bound_of_the_far_axis_in_float32(size):
    o = torch.eye(3).repeat(4, 1) * torch.tensor([1.0, 2.0, 1e20, 0.0]).repeat_interleave(3).unsqueeze(1)
    far = torch.full((12,), size)
    result = RadialHead(3, 0.7).compute(o, far)
    bound = -0.7 * far.double()
    assert (result.log_probs.double().amax(1) <= bound * (1 - 4 * torch.finfo(torch.float32).eps)).all()
    assert not result.log_probs.isnan().any()
    assert torch.equal(result.labels[:9], o.argmax(1)[:9])


def test_the_gradient_is_finite_with_a_far_axis():
    o = torch.tensor([[1.0, 0.0], [1e30, 0.0], [0.3, 0.4]], requires_grad=True)
    far = torch.tensor([0.0, 1e30, 2.0], requires_grad=True)
    result = RadialHead(2).compute(o, far)
    result.distances.amin(1).sum().backward()
    assert o.grad.isfinite().all()
    assert far.grad.isfinite().all()
