import json
import os
import re
import signal
from fractions import Fraction

import numpy as np
import pytest
import torch
from torch import nn
from torch.func import functional_call

from openradial import RadialLoss
from openradial.bayes import (
    BatchCounter,
    BayesLinear,
    ElboObjective,
    GaussianPrior,
    elbo,
    kl_weight,
    posterior,
    to_bayesian,
)
from openradial.data import Batches
from openradial.data.sets.spiral import spiral
from openradial.errors import OptionError, ShapeError
from openradial.models import MLP
from openradial.reference import radial_log_probs
from openradial.training import Settings, checkpoint, fit
from tests.bayes import run_bayes

POINTS = spiral(n=210)


def net(width=8, **options):
    torch.manual_seed(0)
    return to_bayesian(MLP(3, inputs=2, hidden=(width, width)), sigma=0.1, **options)


def batch(n=12):
    return POINTS.inputs[:n], POINTS.labels[:n]


def naive_nll(model, weights, x, y, beta):
    """Minus the sum of log-probabilities of the targets, layer by layer in NumPy."""
    names = ["hidden.fc1", "hidden.fc2", "classifier"]
    h = x.double().numpy()
    for i, name in enumerate(names):
        h = h @ weights[f"{name}.weight"].double().numpy().T + weights[f"{name}.bias"].double().numpy()
        h = np.maximum(h, 0) if i < 2 else h
    log_probs = radial_log_probs(h, beta=beta)
    return -sum(log_probs[i, label] for i, label in enumerate(y.tolist()))


@pytest.mark.parametrize("mode", [True, False], ids=["training", "evaluation"])
def test_the_objective_is_the_papers(mode):
    model, (x, y) = net().train(mode), batch()
    torch.manual_seed(5)
    part = elbo(model, x, y, RadialLoss(beta=5.0), batches=40)
    torch.manual_seed(5)
    q = posterior(model)
    noise = q.noise()
    with torch.no_grad():
        expected = naive_nll(model, q.named(q.weights(noise)), x, y, 5.0)
        assert float(part.nll) == pytest.approx(expected, rel=1e-5)
        assert float(part.kl) == pytest.approx(float(q.kl(noise)), rel=1e-6)
        assert float(part.loss) == pytest.approx(float(q.kl(noise)) / 40 + expected, rel=1e-5)
    assert part.outputs.shape == (12, 3)


def test_several_draws_are_averaged():
    model, (x, y) = net(), batch()
    torch.manual_seed(5)
    single = [elbo(model, x, y, RadialLoss(), batches=3) for _ in range(4)]
    torch.manual_seed(5)
    together = elbo(model, x, y, RadialLoss(), batches=3, samples=4)
    for name in ("loss", "nll", "kl"):
        torch.testing.assert_close(getattr(together, name), sum(getattr(part, name) for part in single) / 4)


@pytest.mark.parametrize("sampling", ["weights", "local", "flipout"])
def test_gradients_are_those_of_finite_differences(sampling):
    model = net(width=3, sampling=sampling).double()
    x, y = batch()
    names = [name for name, _ in model.named_parameters()]
    start = [parameter.detach().clone().requires_grad_() for parameter in model.parameters()]

    class Whole(nn.Module):
        def __init__(self):
            super().__init__()
            self.model = model

        def forward(self):
            return elbo(self.model, x.double(), y, RadialLoss(beta=2.0), batches=40).loss

    def run(*values):
        torch.manual_seed(7)
        state = {f"model.{name}": value for name, value in zip(names, values, strict=True)}
        return functional_call(Whole(), state, ())

    assert torch.autograd.gradcheck(run, start, atol=1e-4)


def test_two_objectives_in_one_graph_do_not_disturb_each_other():
    model, (x, y) = net(), batch()
    slopes = []
    for together in (False, True):
        model.zero_grad()
        torch.manual_seed(5)
        losses = []
        for part in (x[:6], x[6:]):
            losses.append(elbo(model, part, y[:6], RadialLoss(), batches=2).loss)
            if not together:
                losses.pop().backward()
        if together:
            sum(losses).backward()
        slopes.append(torch.cat([parameter.grad.flatten() for parameter in model.parameters()]))
    torch.testing.assert_close(*slopes)


def test_noise_per_example_is_not_drawn_in_evaluation():
    model, (x, y) = net(sampling="local").eval(), batch()
    twice = x[:1].expand(6, 2)
    o = elbo(model, twice, y[:6], RadialLoss(), batches=1).outputs
    torch.testing.assert_close(o, o[:1].expand_as(o))
    o = elbo(model.train(), twice, y[:6], RadialLoss(), batches=1).outputs
    assert not torch.allclose(o, o[:1].expand_as(o))


@pytest.mark.parametrize("batches", [1, 2, 3, 40, 60])
def test_blundells_shares_are_his_and_sum_to_one(batches):
    exact = [Fraction(2 ** (batches - i), 2**batches - 1) for i in range(1, batches + 1)]
    found = [kl_weight(batches, i) for i in range(1, batches + 1)]
    assert found == pytest.approx([float(share) for share in exact], rel=1e-14)
    assert sum(found) == pytest.approx(1, rel=1e-12)
    assert batches * kl_weight(batches) == pytest.approx(1)


def test_very_many_batches_do_not_overflow():
    assert kl_weight(100_000, 1) == 0.5
    assert kl_weight(100_000, 100_000) == 0


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: kl_weight(0), "batches must be a whole number of at least 1, got 0"),
        (lambda: kl_weight(4, 0), "batch must be a whole number of at least 1, got 0"),
        (lambda: kl_weight(4, 5), "batch must be at most batches = 4, got 5; batches are counted from 1"),
        (lambda: ElboObjective(RadialLoss(), 40, 0), "batch_size must be a whole number of at least 1, got 0"),
        (lambda: ElboObjective(RadialLoss(), 0, 50), "batches must be a whole number of at least 1, got 0"),
        (
            lambda: elbo(net(), *batch(), RadialLoss(), batches=1, samples=0),
            "samples must be a whole number of at least 1, got 0",
        ),
    ],
)
def test_impossible_options_are_refused(call, message):
    with pytest.raises(OptionError, match=f"^{re.escape(message)}$"):
        call()


def test_outputs_that_are_no_matrix_are_refused():
    objective = ElboObjective(lambda o, y: o.mean(), 1, 4)
    with pytest.raises(ShapeError, match=re.escape("the network must give outputs of shape (b, k), got (4, 2, 3)")):
        objective(BayesLinear(5, 3), torch.zeros(4, 2, 5), torch.zeros(4).long())


def test_the_objective_of_the_loop_is_the_papers_per_example():
    model, (x, y) = net(), batch(50)
    objective = ElboObjective(RadialLoss(beta=5.0), batches=40, batch_size=50)
    torch.manual_seed(5)
    loss, o = objective(model, x, y)
    torch.manual_seed(5)
    part = elbo(model, x, y, RadialLoss(beta=5.0), batches=40)
    torch.testing.assert_close(loss, part.loss / 50)
    measured = {name: metric(o.detach(), y).mean() for name, metric in objective.metrics.items()}
    torch.testing.assert_close(measured["nll"], part.nll.detach() / 50)
    torch.testing.assert_close(measured["kl"], part.kl.detach() / 2000)
    torch.testing.assert_close(measured["accuracy"], (part.outputs.argmax(-1) == y).float().mean())


def trained(folder=None, *, epochs=3, resume=False, counter=False, stop_at=-1, **options):
    model = net(**options)
    source = Batches(POINTS, 30, shuffle=True, seed=3)
    counting = BatchCounter(source) if counter else None
    objective = Trap(RadialLoss(beta=5.0), 7, 30, counting)
    object.__setattr__(objective, "steps", iter(range(10**6)))
    object.__setattr__(objective, "stop_at", stop_at)
    chosen = Settings(epochs=epochs, batch_size=30, learning_rate=0.01, seed=3, checkpoint_seconds=1000.0)
    history = fit(
        model, objective, counting or source, Batches(spiral(n=60, seed=1), 60), settings=chosen, folder=folder,
        resume=resume, show_progress=False,
    )  # fmt: skip
    return model, history


class Trap(ElboObjective):
    """Asks its own process to stop at a given step."""

    def __call__(self, model, x, y):
        if model.training and next(self.steps) == self.stop_at:
            os.kill(os.getpid(), signal.SIGTERM)
        return super().__call__(model, x, y)


def test_the_loop_logs_the_two_parts():
    _, history = trained(epochs=4)
    for record in history.records:
        for prefix in ("", "validation_"):
            parts = record[f"{prefix}nll"] + record[f"{prefix}kl"]
            assert record[f"{prefix}loss"] == pytest.approx(parts, rel=1e-6)
            assert 0 <= record[f"{prefix}accuracy"] <= 1
    assert history.records[-1]["loss"] < history.records[0]["loss"]


@pytest.mark.parametrize("options", [{}, {"counter": True}, {"sampling": "flipout"}], ids=str)
def test_a_run_that_was_stopped_goes_on_with_the_same_draws(tmp_path, options):
    whole, history = trained(**options)
    _, first = trained(tmp_path, stop_at=9, **options)
    assert first.stopped_by == "SIGTERM"
    assert checkpoint.load(tmp_path / "last.safetensors")[1]["position"]["batch"] == 3
    resumed, second = trained(tmp_path, resume=True, **options)
    own, other = whole.state_dict(), resumed.state_dict()
    assert all(torch.equal(own[name], other[name]) for name in own)
    assert [record["kl"] for record in second.records] == [record["kl"] for record in history.records]


def test_blundells_weights_follow_the_batches_of_an_epoch():
    counter = BatchCounter(Batches(POINTS, 30))
    objective = ElboObjective(RadialLoss(), 7, 30, counter)
    model = net(prior=GaussianPrior(1.0))  # whose divergence does not depend on the draw
    shares = [objective(model, x, y)[1][0, -1].item() for x, y in counter.epoch(0)]
    kl = float(posterior(model).kl(torch.zeros(())).detach())
    assert shares == pytest.approx([kl * kl_weight(7, i) / 30 for i in range(1, 8)], rel=1e-5)
    later = [objective(model, x, y)[1][0, -1].item() for x, y in counter.epoch(0, start_batch=4)]
    assert later == pytest.approx(shares[4:])
    even = objective(model.eval(), *batch(30))[1][0, -1].item()
    assert even == pytest.approx(kl / 7 / 30)
    assert len(counter) == 7
    assert counter.labels is POINTS.labels


@pytest.mark.distributed
def test_two_processes_weigh_the_divergence_as_one_does(tmp_path, programs):
    # next to no spread and a divergence in closed form: nothing depends on what each process draws
    run_bayes.train(tmp_path / "one")
    for done in programs.run_two(run_bayes.__file__, tmp_path / "two"):
        assert done.returncode == 0, done.stderr
    logs = [(tmp_path / name / "log.jsonl").read_text().splitlines() for name in ("one", "two")]
    one, two = ([json.loads(line) for line in lines] for lines in logs)
    for part in ("loss", "nll", "kl", "validation_loss"):
        assert [record[part] for record in two] == pytest.approx([record[part] for record in one], rel=1e-4)


def regression(design):
    """Inputs, targets, and the exact posterior of the weights of y = x w + noise: mean and precision."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(64, 3, generator=generator)
    if design == "orthogonal":
        x = torch.linalg.qr(x)[0] * torch.tensor([6.0, 4.0, 2.0])
    else:
        x = x @ torch.tensor([[1.0, 0.6, 0.0], [0.0, 1.0, 0.6], [0.0, 0.0, 0.5]])
    y = x @ torch.tensor([1.0, -0.5, 0.3]) + 0.5 * torch.randn(64, generator=generator)
    precision = x.T @ x / 0.5**2 + torch.eye(3) / 0.7**2
    return x, y, torch.linalg.solve(precision, x.T @ y / 0.5**2), precision


@pytest.mark.parametrize(
    ("design", "sampling"),
    [("orthogonal", "weights"), ("correlated", "local"), ("correlated", "flipout")],
)
def test_a_linear_regression_finds_its_exact_posterior(design, sampling):
    x, y, mean, precision = regression(design)
    # For independent inputs the posterior itself; else the factorised Gaussian that is nearest to it.
    deviations = precision.diagonal().rsqrt()
    if design == "orthogonal":
        torch.testing.assert_close(torch.linalg.inv(precision).diagonal().sqrt(), deviations)
    torch.manual_seed(1)
    layer = BayesLinear(3, 1, bias=False, prior=GaussianPrior(0.7), sigma=0.3, sampling=sampling)
    steps = 1000
    optimiser = torch.optim.Adam(layer.parameters(), 0.05)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimiser, lambda step: (1 - step / steps) ** 2)
    averages = []
    for _ in range(steps):
        optimiser.zero_grad()
        elbo(layer, x, y, lambda o, y: (o[:, 0] - y).square().mean() / 2 / 0.5**2, batches=1).loss.backward()
        optimiser.step()
        schedule.step()
        q = posterior(layer)
        averages.append(torch.stack([q.mean, q.sigma]).detach())
    found_mean, found_deviations = torch.stack(averages[steps // 2 :]).mean(0)
    assert ((found_mean - mean).abs() / deviations).max() < 0.1
    torch.testing.assert_close(found_deviations, deviations, rtol=0.08, atol=0)
