"""Foolbox attacks plain softmax networks through the cross-entropy: ours must then do the same."""

import warnings

import pytest
import torch
from torch import nn

from openradial.attacks import fgsm, pgd

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # foolbox 3.3 imports from old places of scipy
    import foolbox

K = 4
LOSS = nn.CrossEntropyLoss(reduction="none")
STEPS = 20


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
def test_fgsm_is_that_of_foolbox(make, epsilon):
    (x, y), net = images(), make()
    expected = theirs(foolbox.attacks.LinfFastGradientAttack(), net, x, y, epsilon)
    torch.testing.assert_close(fgsm(net, x, y, epsilon, loss=LOSS), expected, rtol=0, atol=1e-7)


def test_random_starts_and_restarts_are_never_weaker_than_those_of_foolbox():
    (x, y), net = images(), bent()
    attack = foolbox.attacks.LinfPGD(rel_stepsize=2.5 / STEPS, steps=STEPS, random_start=True)
    theirs_right = min(int((net(theirs(attack, net, x, y, 0.2)).argmax(1) == y).sum()) for _ in range(3))
    ours = pgd(net, x, y, 0.2, loss=LOSS, steps=STEPS, restarts=3)
    assert int((net(ours).argmax(1) == y).sum()) <= theirs_right


@pytest.mark.parametrize("epsilon", [0.02, 0.1, 0.3])
@pytest.mark.parametrize("make", [straight, bent])
def test_many_steps_leave_no_more_right_than_those_of_foolbox(make, epsilon):
    (x, y), net = images(), make()
    attack = foolbox.attacks.LinfPGD(rel_stepsize=2.5 / STEPS, steps=STEPS, random_start=False)
    expected = (net(theirs(attack, net, x, y, epsilon)).argmax(1) == y).sum()
    found = (net(pgd(net, x, y, epsilon, loss=LOSS, steps=STEPS)).argmax(1) == y).sum()
    assert found <= expected
    if epsilon == 0.3:
        assert found < 10 < (net(x).argmax(1) == y).sum()
