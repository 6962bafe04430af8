import json
import re
from functools import partial
from itertools import pairwise

import pytest
import torch
from torch import nn

from openradial.attacks import HeadLoss, Outcomes, accuracy_under_attack, fgsm, losses_for, outcomes, pgd, worst
from openradial.attacks import evaluation as module
from openradial.conformal import Rejector
from openradial.errors import OptionError, TargetError
from openradial.heads import RadialHead, SoftmaxHead

K = 3
HEADS = {"radial": RadialHead(K), "softmax": SoftmaxHead(K)}
every_head = pytest.mark.parametrize("head", HEADS.values(), ids=HEADS)
short = partial(pgd, steps=5)


def blobs(n=60, seed=0):
    noise = torch.Generator().manual_seed(seed)
    y = torch.arange(n) % K
    centres = torch.tensor([[0.2, 0.2], [0.8, 0.3], [0.4, 0.8]], dtype=torch.float64)
    return (centres[y] + 0.08 * torch.randn(n, 2, generator=noise, dtype=torch.float64)).clamp(0, 1), y


def trained(head, steps=150):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, K)).double()
    (x, y), optimiser = blobs(), torch.optim.Adam(net.parameters(), 0.02)
    for _ in range(steps):
        optimiser.zero_grad()
        head.loss(net(x), y).backward()
        optimiser.step()
    return net


NETS = {name: trained(head) for name, head in HEADS.items()}


def net_for(head):
    return NETS["radial" if isinstance(head, RadialHead) else "softmax"]


def accuracy(net, head, x, y):
    return float((head.predict(net(x)) == y).double().mean())


@every_head
def test_the_curve_is_the_accuracy_on_what_each_attack_gives(head):
    net, (x, y), epsilons = net_for(head), blobs(), [0.0, 0.05, 0.15]
    curve = accuracy_under_attack(net, head, x, y, epsilons, attack=short)
    assert curve.epsilons == (0.0, 0.05, 0.15)
    assert curve.count == len(x)
    assert list(curve.accuracies) == [*losses_for(head), "worst"]
    for name, loss in losses_for(head).items():
        expected = tuple(accuracy(net, head, short(net, x, y, e, loss=loss), y) for e in epsilons)
        assert curve.accuracies[name] == pytest.approx(expected)
    clean = accuracy(net, head, x, y)
    assert clean > 0.95
    assert all(values[0] == pytest.approx(clean) for values in curve.accuracies.values())


@every_head
@pytest.mark.parametrize("attack", [fgsm, short])
def test_the_worst_is_never_above_any_loss_and_never_rises(head, attack):
    (x, y), epsilons = blobs(), [0.0, 0.02, 0.1, 0.2, 0.5, 1.0]
    curve = accuracy_under_attack(net_for(head), head, x, y, epsilons, attack=attack)
    lowest = [min(values) for values in zip(*curve.accuracies.values(), strict=True)]
    assert list(curve.accuracies["worst"]) == lowest
    assert all(a >= b for a, b in pairwise(lowest))
    assert lowest[-1] < 0.2


def test_what_is_fooled_at_a_small_epsilon_counts_as_fooled_at_all_larger_ones():
    head, y = RadialHead(2), torch.zeros(4, dtype=torch.long)
    x = torch.tensor([[1.0, 0.0]]).expand(4, 2)

    def attack(net, x, y, epsilon, *, loss):  # fools row 0 at 0.1 alone, and row 1 at 0.2 alone
        rows = torch.arange(len(x)).unsqueeze(1)
        return torch.where(rows == {0.1: 0, 0.2: 1, 0.3: -1}[epsilon], 1 - x, x)

    curve = accuracy_under_attack(nn.Identity(), head, x, y, [0.1, 0.2, 0.3], attack=attack, losses=["margin"])
    assert curve.accuracies == {"margin": (0.75, 0.75, 1.0), "worst": (0.75, 0.5, 0.5)}


@every_head
def test_the_worst_inputs_are_right_only_where_no_attack_succeeds(head):
    net, (x, y), losses = net_for(head), blobs(), losses_for(head)
    found = worst(net, x, y, 0.25, losses, attack=short)
    assert ((found - x).abs() <= 0.25).all()
    right = torch.stack([head.predict(net(short(net, x, y, 0.25, loss=loss))) == y for loss in losses.values()])
    assert torch.equal(head.predict(net(found)) == y, right.all(0))
    assert 0 < right.all(0).double().mean() < 1


@every_head
def test_the_worst_input_is_the_one_with_the_largest_lead_of_a_wrong_class(head):
    net, (x, y), losses = net_for(head), blobs(), losses_for(head)
    lead = HeadLoss("margin", head)
    found = lead(net(worst(net, x, y, 0.12, losses, attack=fgsm)), y)
    each = torch.stack([lead(net(fgsm(net, x, y, 0.12, loss=loss)), y) for loss in losses.values()])
    torch.testing.assert_close(found, each.amax(0))


@every_head
@pytest.mark.parametrize("size", [1, 7, 1000])
def test_the_size_of_a_batch_changes_nothing(head, size):
    net, (x, y), losses = net_for(head), blobs(15), losses_for(head, ["target", "margin"])
    whole = worst(net, x, y, 0.1, losses, attack=short)
    torch.testing.assert_close(
        worst(net, x, y, 0.1, losses, attack=short, batch_size=size), whole, rtol=1e-9, atol=1e-9
    )
    curves = [
        accuracy_under_attack(net, head, x, y, [0.1], attack=short, losses=["margin"], batch_size=n) for n in (15, size)
    ]
    assert curves[0] == curves[1]


def test_no_more_than_a_batch_passes_the_network_at_once():
    sizes, head, (x, y) = [], HEADS["radial"], blobs()

    def net(x):
        sizes.append(len(x))
        return NETS["radial"](x)

    worst(net, x, y, 0.1, losses_for(head), attack=short, batch_size=16)
    accuracy_under_attack(net, head, x, y, [0.1, 0.2], attack=short, batch_size=16)
    outcomes(net, head, rejector_for(head), x, y, batch_size=16)
    assert max(sizes) == 16


def test_epsilon_may_be_meant_before_the_inputs_were_normalised():
    head, (x, y) = HEADS["radial"], blobs()
    mean, std = torch.tensor([0.3, 0.6]).double(), torch.tensor([0.2, 0.4]).double()
    plain = accuracy_under_attack(NETS["radial"], head, x, y, [0.05, 0.15], attack=short)
    limited = partial(short, low=(0 - mean) / std, high=(1 - mean) / std)
    net = nn.Sequential(Undo(mean, std), NETS["radial"])
    assert accuracy_under_attack(net, head, (x - mean) / std, y, [0.05, 0.15], attack=limited, unit=1 / std) == plain


class Undo(nn.Module):
    def __init__(self, mean, std):
        super().__init__()
        self.mean, self.std = mean, std

    def forward(self, x):
        return x * self.std + self.mean


def test_rows_are_plain_numbers_one_per_epsilon_and_loss():
    head, (x, y) = HEADS["radial"], blobs(9)
    rows = accuracy_under_attack(NETS["radial"], head, x, y, [0.0, 0.1], attack=fgsm, losses=["target"]).rows()
    assert [(row["epsilon"], row["loss"]) for row in rows] == [
        (0.0, "target"),
        (0.0, "worst"),
        (0.1, "target"),
        (0.1, "worst"),
    ]
    assert json.loads(json.dumps(rows)) == rows


def test_the_bar_is_advanced_once_per_input_loss_and_epsilon(monkeypatch):
    told = []

    class Bar:
        def __init__(self, title, total, *, unit):
            told.append([title, total, unit, 0])

        def __enter__(self):
            return lambda amount: told[-1].__setitem__(3, told[-1][3] + amount)

        def __exit__(self, *error):
            pass

    monkeypatch.setattr(module, "bar", Bar)
    head, (x, y) = HEADS["radial"], blobs(10)
    accuracy_under_attack(NETS["radial"], head, x, y, [0.0, 0.1], attack=fgsm, batch_size=4)
    worst(NETS["radial"], x, y, 0.1, losses_for(head), attack=fgsm, batch_size=4)
    assert told == [["attacking", 80, "inputs", 80], ["attacking", 40, "inputs", 40]]


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
        attacked = worst(net, x, y, epsilon, losses_for(head), attack=short)
        found = outcomes(net, head, rejector, attacked, y, batch_size=17)
        shares = [found.accepted_right, found.accepted_wrong, found.rejected]
        assert shares == pytest.approx(naive_outcomes(net, head, rejector, attacked, y))
        assert sum(shares) == pytest.approx(1)
        assert found.count == len(x)


@every_head
def test_an_attack_that_knows_the_rejector_gets_at_least_as_many_past_it(head):
    net, rejector, (x, y) = net_for(head), rejector_for(head), blobs()
    blind = worst(net, x, y, 0.3, losses_for(head), attack=short)
    aware = worst(net, x, y, 0.3, losses_for(head, rejector=rejector), attack=short)
    shares = [outcomes(net, head, rejector, made, y).accepted_wrong for made in (blind, aware)]
    assert shares[0] <= shares[1]


def test_an_attack_that_does_not_know_the_rejector_goes_too_far():
    head, rejector = RadialHead(2), Rejector(0.1).fit(torch.arange(1, 20) / 180)  # accepts up to 0.1
    net, x, y = nn.Identity(), torch.tensor([[0.7, 0.5]]), torch.tensor([0])
    free = partial(pgd, low=-2.0, high=2.0)
    blind = worst(net, x, y, 1.0, losses_for(head), attack=free)
    aware = worst(net, x, y, 1.0, losses_for(head, rejector=rejector), attack=free)
    assert outcomes(net, head, rejector, blind, y) == Outcomes(0.0, 0.0, 1.0, 1)
    assert outcomes(net, head, rejector, aware, y) == Outcomes(0.0, 1.0, 0.0, 1)


def test_attacks_work_on_the_rejector_of_each_class():
    head, (x, y) = HEADS["radial"], blobs()
    scores = head.unknown_score(NETS["radial"](x).detach())
    rejector = Rejector(0.1, per_class=True).fit(scores, y)
    attacked = worst(NETS["radial"], x, y, 0.3, losses_for(head, rejector=rejector), attack=short)
    assert outcomes(NETS["radial"], head, rejector, attacked, y).accepted_wrong > 0


def test_outcomes_read_as_a_sentence():
    text = "accepted and right 0.5000, accepted and wrong 0.1250, rejected 0.3750 of 8 inputs"
    assert str(Outcomes(0.5, 0.125, 0.375, 8)) == text


def test_attacks_work_in_inference_mode():
    head, (x, y) = HEADS["radial"], blobs(6)
    expected = worst(NETS["radial"], x, y, 0.1, losses_for(head), attack=short)
    with torch.inference_mode():
        found = worst(NETS["radial"], x + 0, y + 0, 0.1, losses_for(head), attack=short)
    assert torch.equal(found, expected)


def test_the_mode_of_the_network_is_given_back():
    head, (x, y) = HEADS["radial"], blobs(6)
    net = nn.Sequential(NETS["radial"], nn.Dropout(0.5)).train()
    attacked = worst(net, x, y, 0.1, losses_for(head), attack=short)
    assert torch.equal(attacked, worst(NETS["radial"], x, y, 0.1, losses_for(head), attack=short))
    outcomes(net, head, rejector_for(head), x, y)
    accuracy_under_attack(net, head, x, y, [0.1], attack=short)
    assert net.training
    assert net[1].training


def test_no_inputs_have_no_worst():
    x, y = blobs(6)
    assert worst(NETS["radial"], x[:0], y[:0], 0.1, losses_for(HEADS["radial"])).shape == (0, 2)


@pytest.mark.parametrize("epsilons", [[], [0.2, 0.1], [0.1, 0.1]])
def test_epsilons_rise(epsilons):
    message = f"epsilons must be at least one number, in ascending order, got {epsilons}"
    with pytest.raises(OptionError, match=f"^{re.escape(message)}$"):
        accuracy_under_attack(NETS["radial"], HEADS["radial"], *blobs(3), epsilons)


def test_shares_of_nothing_are_refused():
    x, y = blobs(3)
    with pytest.raises(OptionError, match=r"^an accuracy needs at least one input, got none$"):
        accuracy_under_attack(NETS["radial"], HEADS["radial"], x[:0], y[:0], [0.1])
    with pytest.raises(OptionError, match=r"^outcomes need at least one input, got none$"):
        outcomes(NETS["radial"], HEADS["radial"], rejector_for(HEADS["radial"]), x[:0], y[:0])


def test_unknown_labels_are_refused():
    x, y = blobs(3)
    with pytest.raises(TargetError, match="got -1 in row 0"):
        outcomes(NETS["radial"], HEADS["radial"], rejector_for(HEADS["radial"]), x, y - 1)


@pytest.mark.parametrize("losses", [{}, {"plain": nn.CrossEntropyLoss(reduction="none")}])
def test_attacks_are_compared_by_their_head(losses):
    message = "losses must be at least one HeadLoss by name, as losses_for(head) returns"
    with pytest.raises(OptionError, match=f"^{re.escape(message)}$"):
        worst(NETS["radial"], *blobs(3), 0.1, losses)


def test_attacks_on_two_heads_are_not_compared():
    losses = {name: HeadLoss("margin", head) for name, head in HEADS.items()}
    with pytest.raises(OptionError, match=r"^losses must all have the same head and the same rejector to be compared$"):
        worst(NETS["radial"], *blobs(3), 0.1, losses)
