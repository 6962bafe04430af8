import math

import numpy as np
import pytest
import torch

from openradial.conformal import Rejector
from openradial.heads import CACHead, DOCHead, OpenMaxHead, RadialHead, SoftmaxHead
from openradial.nn import LearnedPrototypes
from paper.attacks import LOSSES, HeadLoss, losses_for, target

BETA, SCALE, K = 2.5, 1.5, 4


def rows(n=12, k=K, seed=3):
    o = torch.randn(n, k, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return o, torch.arange(n) % k


def heads():
    o, y = rows(80)
    o = o + 4 * torch.nn.functional.one_hot(y, K)
    return {
        "radial": RadialHead(K, BETA, SCALE),
        "radial, learned": RadialHead(K, prototypes=LearnedPrototypes(K, K, dtype=torch.float64)),
        "radial, probability": RadialHead(K, score="probability", cutoff="disjoint"),
        "softmax": SoftmaxHead(K),
        "softmax, energy": SoftmaxHead(K, score="energy", temperature=2.0),
        "doc": DOCHead(K).fit(o, y),
        "cac": CACHead(K).fit(o, y),
        "openmax": OpenMaxHead(K).fit(o, y),
    }


def naive_radial(name, o, y):
    """From the definitions, for one output."""
    d = [math.sqrt(sum((o[i] - (SCALE if i == k else 0.0)) ** 2 for i in range(K))) for k in range(K)]
    others = [d[k] for k in range(K) if k != y]
    return {
        "target": BETA * d[y],
        "cross_entropy": -math.log(math.exp(-BETA * d[y]) / sum(math.exp(-BETA * one) for one in d)),
        "margin": BETA * (d[y] - min(others)),
        "accepted": -BETA * min(others),
    }[name]


def naive_softmax(name, o, y):
    p = [math.exp(one) / sum(math.exp(other) for other in o) for one in o]
    best = max(p[k] for k in range(K) if k != y)
    return {
        "target": -math.log(p[y]),
        "cross_entropy": -math.log(p[y]),
        "margin": math.log(best) - math.log(p[y]),
        "accepted": math.log(best) - (1 - max(p)),
    }[name]


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize(
    ("head", "naive"), [(RadialHead(K, BETA, SCALE), naive_radial), (SoftmaxHead(K), naive_softmax)]
)
def test_losses_are_those_of_the_definitions(name, head, naive):
    o, y = rows()
    expected = [naive(name, one, label) for one, label in zip(o.tolist(), y.tolist(), strict=True)]
    np.testing.assert_allclose(HeadLoss(name, head)(o, y).numpy(), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("kind", heads())
def test_every_loss_of_every_head_has_the_gradient_of_finite_differences(name, kind):
    loss, (o, y) = HeadLoss(name, heads()[kind]), rows(6)
    o.requires_grad_()
    (gradient,) = torch.autograd.grad(loss(o, y).sum(), o)
    h = 1e-6
    for k in range(K):
        step = h * torch.eye(K, dtype=torch.float64)[k]
        slope = (loss(o.detach() + step, y) - loss(o.detach() - step, y)) / (2 * h)
        torch.testing.assert_close(gradient[:, k], slope, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("kind", heads())
def test_a_loss_never_depends_on_the_batch(name, kind):
    loss, (o, y) = HeadLoss(name, heads()[kind]), rows()
    single = torch.cat([loss(o[i : i + 1], y[i : i + 1]) for i in range(len(o))])
    torch.testing.assert_close(loss(o, y), single, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("kind", heads())
def test_the_margin_is_above_zero_where_a_wrong_class_wins(kind):
    head, (o, y) = heads()[kind], rows(60)
    assert torch.equal(HeadLoss("margin", head)(o, y) > 0, head.predict(o) != y)


@pytest.mark.parametrize("kind", ["radial", "softmax"])
def test_while_the_target_wins_its_loss_is_the_way_to_the_lowest_winning_probability(kind):
    head, (o, _) = heads()[kind], rows()
    y = head.predict(o)
    torch.testing.assert_close(target(head, o, y), -head.log_probs(o).amax(-1))


def test_the_margin_has_a_gradient_where_the_cross_entropy_has_none():
    o, y = torch.tensor([[300.0, 0.0]], requires_grad=True), torch.tensor([0])
    head = SoftmaxHead(2)
    assert not torch.autograd.grad(HeadLoss("cross_entropy", head)(o, y).sum(), o)[0].any()
    torch.testing.assert_close(
        torch.autograd.grad(HeadLoss("margin", head)(o, y).sum(), o)[0], torch.tensor([[-1.0, 1]])
    )


def test_accepted_of_energy_is_the_logit_of_the_best_wrong_class():
    o, y = rows()
    loss = HeadLoss("accepted", SoftmaxHead(K, score="energy"))
    others = o.scatter(1, y.unsqueeze(1), -torch.inf).amax(1)
    torch.testing.assert_close(loss(o, y), others)


def test_with_a_rejector_an_attack_has_fooled_only_what_is_accepted():
    head = RadialHead(2)
    rejector = Rejector(0.1).fit(torch.arange(1, 20) / 10)
    loss = HeadLoss("accepted", head, rejector)
    o, y = torch.tensor([[0.0, 1.0], [0.0, 9.0], [1.0, 0.0]]), torch.tensor([0, 0, 0])
    assert loss.fooled(o, y).tolist() == [True, False, False]
    assert HeadLoss("accepted", head).fooled(o, y).tolist() == [True, True, False]


def test_softmax_has_no_loss_twice():
    assert list(losses_for(SoftmaxHead(2))) == ["cross_entropy", "margin", "accepted"]
    assert list(losses_for(RadialHead(2))) == ["target", "cross_entropy", "margin", "accepted"]
