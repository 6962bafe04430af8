from functools import cache
from itertools import pairwise

import pytest
import torch
from torch import nn

from openradial.attacks import pgd
from openradial.conformal import Rejector
from openradial.heads import RadialHead, SoftmaxHead
from paper import attacks as module
from paper.attacks import HeadLoss, Outcomes, accuracy_under_attack, losses_for, outcomes, worst
from paper.fig8 import single_step as fgsm

K = 3
HEADS = {"radial": RadialHead(K), "softmax": SoftmaxHead(K)}
every_head = pytest.mark.parametrize("head", HEADS.values(), ids=HEADS)


def short(net, x, y, epsilon, loss):
    return pgd(net, x, y, epsilon, loss=loss, fooled=loss.fooled, steps=5)


def blobs(n=60, seed=0):
    noise = torch.Generator().manual_seed(seed)
    y = torch.arange(n) % K
    centres = torch.tensor([[0.2, 0.2], [0.8, 0.3], [0.4, 0.8]], dtype=torch.float64)
    return (centres[y] + 0.08 * torch.randn(n, 2, generator=noise, dtype=torch.float64)).clamp(0, 1), y


@cache
def trained(name, steps=150):
    head = HEADS[name]
    with torch.random.fork_rng():
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, K)).double()
    (x, y), optimiser = blobs(), torch.optim.Adam(net.parameters(), 0.02)
    for _ in range(steps):
        optimiser.zero_grad()
        head.loss(net(x), y).backward()
        optimiser.step()
    return net


def net_for(head):
    return trained("radial" if isinstance(head, RadialHead) else "softmax")


def accuracy(net, head, x, y):
    return float((head.predict(net(x)) == y).double().mean())


@every_head
def test_the_curve_is_the_accuracy_on_what_each_attack_gives(head):
    net, (x, y), epsilons = net_for(head), blobs(), [0.0, 0.05, 0.15]
    curve = accuracy_under_attack(net, head, x, y, epsilons, short)
    assert list(curve) == [*losses_for(head), "worst"]
    for name, loss in losses_for(head).items():
        expected = [accuracy(net, head, short(net, x, y, e, loss), y) for e in epsilons]
        assert curve[name] == pytest.approx(expected)
    clean = accuracy(net, head, x, y)
    assert clean > 0.95
    assert all(values[0] == pytest.approx(clean) for values in curve.values())


@every_head
@pytest.mark.parametrize("attack", [fgsm, short])
def test_the_worst_is_never_above_any_loss_and_never_rises(head, attack):
    (x, y), epsilons = blobs(), [0.0, 0.02, 0.1, 0.2, 0.5, 1.0]
    curve = accuracy_under_attack(net_for(head), head, x, y, epsilons, attack)
    lowest = [min(values) for values in zip(*curve.values(), strict=True)]
    assert curve["worst"] == lowest
    assert all(a >= b for a, b in pairwise(lowest))
    assert lowest[-1] < 0.2


def test_what_is_fooled_at_a_small_epsilon_counts_as_fooled_at_all_larger_ones():
    head, y = RadialHead(2), torch.zeros(4, dtype=torch.long)
    x = torch.tensor([[1.0, 0.0]]).expand(4, 2)

    def attack(net, x, y, epsilon, loss):  # fools row 0 at 0.1 alone, and row 1 at 0.2 alone
        rows = torch.arange(len(x)).unsqueeze(1)
        return torch.where(rows == {0.1: 0, 0.2: 1, 0.3: -1}[epsilon], 1 - x, x)

    curve = accuracy_under_attack(nn.Identity(), head, x, y, [0.1, 0.2, 0.3], attack, ["margin"])
    assert curve == {"margin": [0.75, 0.75, 1.0], "worst": [0.75, 0.5, 0.5]}


@every_head
def test_the_worst_inputs_are_right_only_where_no_attack_succeeds(head):
    net, (x, y), losses = net_for(head), blobs(), losses_for(head)
    found = worst(net, x, y, 0.25, losses, short)
    assert ((found - x).abs() <= 0.25 + 1e-12).all()
    right = torch.stack([head.predict(net(short(net, x, y, 0.25, loss))) == y for loss in losses.values()])
    assert torch.equal(head.predict(net(found)) == y, right.all(0))
    assert 0 < right.all(0).double().mean() < 1


@every_head
def test_the_worst_input_is_the_one_with_the_largest_lead_of_a_wrong_class(head):
    net, (x, y), losses = net_for(head), blobs(), losses_for(head)
    lead = HeadLoss("margin", head)
    found = lead(net(worst(net, x, y, 0.12, losses, fgsm)), y)
    each = torch.stack([lead(net(fgsm(net, x, y, 0.12, loss)), y) for loss in losses.values()])
    torch.testing.assert_close(found, each.amax(0))


@every_head
def test_the_size_of_a_batch_changes_nothing(head, monkeypatch):
    net, (x, y), losses = net_for(head), blobs(15), losses_for(head)
    complete, curve = worst(net, x, y, 0.1, losses, short), accuracy_under_attack(net, head, x, y, [0.1], short)
    monkeypatch.setattr(module, "BATCH", 7)
    torch.testing.assert_close(worst(net, x, y, 0.1, losses, short), complete, rtol=1e-9, atol=1e-9)
    assert accuracy_under_attack(net, head, x, y, [0.1], short) == curve


def rejector_for(head):
    x, _ = blobs(300, seed=1)
    o = net_for(head)(x).detach()
    return Rejector(0.05).fit(head.unknown_score(o))


def naive_outcomes(net, head, rejector, x, y):
    counts = {"right": 0, "wrong": 0, "rejected": 0}
    for one, label in zip(x, y.tolist(), strict=True):
        o = net(one.unsqueeze(0)).detach()
        if float(head.unknown_score(o)) > rejector.threshold():
            counts["rejected"] += 1
        else:
            counts["right" if int(head.predict(o)) == label else "wrong"] += 1
    return [count / len(x) for count in counts.values()]


@every_head
def test_outcomes_are_counted_one_by_one(head):
    net, rejector, (x, y) = net_for(head), rejector_for(head), blobs()
    for epsilon in (0.0, 0.1, 0.3):
        attacked = worst(net, x, y, epsilon, losses_for(head), short)
        found = outcomes(net, head, rejector, attacked, y)
        shares = [found.accepted_right, found.accepted_wrong, found.rejected]
        assert shares == pytest.approx(naive_outcomes(net, head, rejector, attacked, y))
        assert sum(shares) == pytest.approx(1)


@every_head
def test_an_attack_that_knows_the_rejector_gets_at_least_as_many_past_it(head):
    net, rejector, (x, y) = net_for(head), rejector_for(head), blobs()
    blind = worst(net, x, y, 0.3, losses_for(head), short)
    aware = worst(net, x, y, 0.3, losses_for(head, rejector), short)
    shares = [outcomes(net, head, rejector, made, y).accepted_wrong for made in (blind, aware)]
    assert shares[0] <= shares[1]


def test_an_attack_that_does_not_know_the_rejector_goes_too_far():
    head, rejector = RadialHead(2), Rejector(0.1).fit(torch.arange(1, 20) / 180)  # accepts up to 0.1
    net, x, y = nn.Identity(), torch.tensor([[0.7, 0.5]]), torch.tensor([0])

    def free(net, x, y, epsilon, loss):
        return pgd(net, x, y, epsilon, loss=loss, fooled=loss.fooled, low=-2.0, high=2.0)

    blind = worst(net, x, y, 1.0, losses_for(head), free)
    aware = worst(net, x, y, 1.0, losses_for(head, rejector), free)
    assert outcomes(net, head, rejector, blind, y) == Outcomes(0.0, 0.0, 1.0)
    assert outcomes(net, head, rejector, aware, y) == Outcomes(0.0, 1.0, 0.0)


def test_attacks_work_on_the_rejector_of_each_class():
    head, (x, y) = HEADS["radial"], blobs()
    scores = head.unknown_score(trained("radial")(x).detach())
    rejector = Rejector(0.1, per_class=True).fit(scores, y)
    attacked = worst(trained("radial"), x, y, 0.3, losses_for(head, rejector), short)
    assert outcomes(trained("radial"), head, rejector, attacked, y).accepted_wrong > 0
