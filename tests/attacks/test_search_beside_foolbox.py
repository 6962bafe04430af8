"""Foolbox attacks plain softmax networks through the cross-entropy: ours must then do the same."""

import warnings

import pytest
import torch
from torch import nn

from openradial.attacks import HeadLoss, accuracy_under_attack, fgsm, pgd
from openradial.heads import SoftmaxHead

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # foolbox 3.3 imports from old places of scipy
    import foolbox

K = 4
LOSS = HeadLoss("cross_entropy", SoftmaxHead(K))
every_norm = pytest.mark.parametrize("norm", ["linf", "l2"])


def images(n=64):
    x = torch.rand(n, 1, 6, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return x, torch.arange(n) % K


def network(*layers):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Sequential(*(make() for make in layers)).double().eval()


def bent():
    layers = (lambda: nn.Conv2d(1, 8, 3), nn.ReLU, nn.Flatten, lambda: nn.Linear(128, 32), nn.ReLU)
    return trained(network(*layers, lambda: nn.Linear(32, K)))


def straight():
    return trained(network(nn.Flatten, lambda: nn.Linear(36, K)))


def trained(net, steps=60):
    (x, y), optimiser = images(), torch.optim.Adam(net.parameters(), 0.01)
    for _ in range(steps):
        optimiser.zero_grad()
        LOSS(net(x), y).mean().backward()
        optimiser.step()
    return net


def theirs(attack, net, x, y, epsilon):
    model = foolbox.PyTorchModel(net, bounds=(0, 1), device="cpu")
    return attack(model, x, y, epsilons=epsilon)[1]


@pytest.mark.parametrize("epsilon", [0.02, 0.1, 0.3])
@pytest.mark.parametrize("make", [straight, bent])
@every_norm
def test_fgsm_is_that_of_foolbox(norm, make, epsilon):
    (x, y), net = images(), make()
    attack = foolbox.attacks.LinfFastGradientAttack() if norm == "linf" else foolbox.attacks.L2FastGradientAttack()
    ours = fgsm(net, x, y, epsilon, loss=LOSS, norm=norm)
    torch.testing.assert_close(ours, theirs(attack, net, x, y, epsilon), rtol=0, atol=1e-7)


def iterated(norm, net, x, y, epsilon):
    """The inputs that ours and theirs find in the same 20 steps."""
    kind = {"linf": foolbox.attacks.LinfPGD, "l2": foolbox.attacks.L2PGD}[norm]
    ours = pgd(net, x, y, epsilon, loss=LOSS, norm=norm, step=0.1, steps=20, random_start=False)
    return ours, theirs(kind(rel_stepsize=0.1, steps=20, random_start=False), net, x, y, epsilon)


@pytest.mark.parametrize("epsilon", [0.02, 0.1, 0.3])
@every_norm
def test_iterated_steps_on_a_linear_network_are_those_of_foolbox(norm, epsilon):
    (x, y), net = images(), straight()  # the last step is the worst there, so both return it
    ours, expected = iterated(norm, net, x, y, epsilon)
    torch.testing.assert_close(ours, expected, rtol=0, atol=1e-9)


@pytest.mark.parametrize("epsilon", [0.02, 0.1, 0.3])
def test_accuracy_under_fgsm_is_that_of_foolbox(epsilon):
    (x, y), net = images(), bent()
    attacked = theirs(foolbox.attacks.LinfFastGradientAttack(), net, x, y, epsilon)
    expected = float((net(attacked).argmax(1) == y).double().mean())
    found = accuracy_under_attack(net, SoftmaxHead(K), x, y, [epsilon], attack=fgsm, losses=["cross_entropy"])
    assert found.accuracies["cross_entropy"] == (expected,)


def test_random_starts_and_restarts_are_never_weaker_than_those_of_foolbox():
    (x, y), net = images(), bent()
    attack = foolbox.attacks.LinfPGD(rel_stepsize=0.1, steps=20, random_start=True)
    theirs_right = min(int((net(theirs(attack, net, x, y, 0.2)).argmax(1) == y).sum()) for _ in range(3))
    ours = pgd(net, x, y, 0.2, loss=LOSS, step=0.1, steps=20, restarts=3)
    assert int((net(ours).argmax(1) == y).sum()) <= theirs_right


@pytest.mark.parametrize("epsilon", [0.02, 0.1, 0.3])
@every_norm
def test_iterated_steps_are_never_weaker_than_those_of_foolbox(norm, epsilon):
    (x, y), net = images(), bent()
    ours, expected = iterated(norm, net, x, y, epsilon)
    assert (LOSS(net(ours), y) >= LOSS(net(expected), y) - 1e-9).all()
    assert (net(ours).argmax(1) == y).sum() <= (net(expected).argmax(1) == y).sum()
    if epsilon == 0.3:
        assert (net(ours).argmax(1) == y).sum() < 10 < (net(x).argmax(1) == y).sum()
