import pytest
import torch
import torch.nn.functional as F
from rounding import tolerance
from torch import nn

from openradial import RadialLoss
from openradial.bayes import ElboObjective, posterior, to_bayesian
from openradial.data import Batches, Examples, load
from openradial.errors import TrainingError
from openradial.functional import radial_loss
from openradial.models import MLP
from openradial.training import Objective
from paper import ensemble_training
from paper.ensemble_training import train_ensemble

POINTS = load("spiral", n=130)  # the last batch of 25 has 5 points


def small():
    return MLP(3, inputs=2, hidden=(8, 7))


def plain_loop(build, objective, seed, epochs, dtype):
    """One network alone: autograd and torch.optim."""
    torch.manual_seed(seed)
    net = build().to(dtype)
    optimiser = torch.optim.RMSprop(net.parameters(), lr=5e-4, alpha=0.9)
    losses = []
    for epoch in range(epochs):
        for x, y in Batches(POINTS, 25, shuffle=True, seed=seed).epoch(epoch):
            optimiser.zero_grad()
            loss, _ = objective(net, x.to(dtype), y)
            loss.backward()
            optimiser.step()
            losses.append(loss.detach())
    return net, torch.stack(losses)


@pytest.mark.parametrize(
    "loss", [radial_loss, RadialLoss(5.0, 2.0), F.cross_entropy], ids=["radial", "scaled radial", "softmax"]
)
@pytest.mark.parametrize("seeds", [(3, 0), (7,)])
def test_each_network_is_trained_as_a_plain_loop_trains_it_alone(loss, seeds):
    networks, losses = train_ensemble(
        small, Objective(loss), POINTS, seeds, epochs=3, batch_size=25, dtype=torch.float64, compile=False
    )
    assert losses.shape == (18, len(seeds))
    for i, seed in enumerate(seeds):
        net, expected = plain_loop(small, Objective(loss), seed, 3, torch.float64)
        torch.testing.assert_close(losses[:, i], expected, rtol=1e-9, atol=1e-9)
        for name, value in net.state_dict().items():
            torch.testing.assert_close(networks[i].state_dict()[name], value, rtol=1e-9, atol=1e-9)


def test_the_first_steps_in_float32_are_those_of_a_plain_loop():
    _, losses = train_ensemble(small, Objective(radial_loss), POINTS, [0, 1], epochs=1, batch_size=25, compile=False)
    for seed in (0, 1):
        expected = plain_loop(small, Objective(radial_loss), seed, 1, torch.float32)[1]
        torch.testing.assert_close(losses[:, seed], expected, **tolerance(1000))


@pytest.mark.skipif(not ensemble_training.has_compiler(), reason="torch.compile needs a C++ compiler")
def test_a_compiled_step_trains_the_same_networks():
    """One hidden layer and one size of batch: compiling C++ takes long."""
    options = {"epochs": 2, "batch_size": 25, "dtype": torch.float64}
    build, few = lambda: MLP(3, inputs=2, hidden=(8,)), POINTS.select(torch.arange(50))
    runs = [train_ensemble(build, Objective(radial_loss), few, [0, 1], **options, compile=c) for c in (False, True)]
    torch.testing.assert_close(runs[1][1], runs[0][1], rtol=1e-9, atol=1e-9)
    for plain, compiled in zip(runs[0][0], runs[1][0], strict=True):
        for name, value in plain.state_dict().items():
            torch.testing.assert_close(compiled.state_dict()[name], value, rtol=1e-9, atol=1e-9)


@torch._dynamo.config.patch(recompile_limit=2)  # setattr of monkeypatch would hide the setting afterwards
def test_one_process_can_compile_more_ensembles_than_the_limit_of_recompilations(monkeypatch):
    """Each ensemble has two sizes of batches. The limit is that of the captured graphs: no C++ is compiled here."""
    compiled, few = torch.compile, POINTS.select(torch.arange(9))
    names = ("fullgraph", "dynamic")
    monkeypatch.setattr(
        torch, "compile", lambda f, **all_: compiled(f, backend="eager", **{k: all_[k] for k in names if k in all_})
    )
    for seeds in ([0], [0, 1]):
        runs = [
            train_ensemble(
                lambda: nn.Linear(2, 3), Objective(radial_loss), few, seeds, epochs=1, batch_size=5, compile=c
            )
            for c in (True, False)
        ]
        torch.testing.assert_close(runs[0][1], runs[1][1])


def test_bayesian_networks_of_several_seeds_learn_together():
    objective = ElboObjective(RadialLoss(beta=5.0), 6, 25)
    networks, losses = train_ensemble(
        lambda: to_bayesian(small()), objective, POINTS, [0, 1, 2], epochs=8, batch_size=25, learning_rate=1e-2
    )
    assert (losses[-6:].mean(0) < losses[:6].mean(0)).all()
    assert len({float(posterior(network).mean.detach().sum()) for network in networks}) == 3


def test_threads_and_random_numbers_are_restored():
    torch.manual_seed(5)
    expected, threads = torch.rand(1), torch.get_num_threads()
    torch.manual_seed(5)
    train_ensemble(small, Objective(radial_loss), POINTS, [0], epochs=1)
    assert torch.rand(1) == expected
    assert torch.get_num_threads() == threads
    assert torch.tensor([1e-39]).mul(1.0).item() > 0  # denormal numbers are numbers again


@pytest.mark.parametrize(("epochs", "compiled"), [(79, False), (80, True)])
def test_long_runs_are_compiled_where_a_compiler_exists(monkeypatch, epochs, compiled):
    calls = []
    monkeypatch.setattr(ensemble_training, "COMPILE_FROM", 80)
    monkeypatch.setattr(ensemble_training, "has_compiler", lambda: True)
    monkeypatch.setattr(torch, "compile", lambda step, **options: calls.append(options) or step)
    few = POINTS.select(torch.arange(9))
    train_ensemble(lambda: nn.Linear(2, 3), Objective(radial_loss), few, [0], epochs=epochs)
    assert bool(calls) == compiled


def test_a_loss_that_is_not_finite_stops_the_run():
    broken = Examples(torch.full((10, 2), float("inf")), torch.zeros(10, dtype=torch.int64), ("a", "b", "c"))
    with pytest.raises(TrainingError, match=r"^a loss became infinite or NaN in epoch 1; lower the learning rate$"):
        train_ensemble(small, Objective(radial_loss), broken, [0], epochs=2)
