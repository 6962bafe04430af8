import dataclasses
import functools
import sys

import pytest
import torch
import torch.nn.functional as F
from rounding import tolerance
from torch import nn

from openradial.data.batches import Batches
from openradial.data.examples import Examples
from openradial.data.sets.spiral import spiral
from openradial.errors import DataError, OptionError, ShapeError, TargetError, TrainingError
from openradial.functional import radial_loss
from openradial.models.mlp import MLP
from openradial.nn import RadialLayer, RadialLoss
from openradial.nn.objective import Objective
from openradial.training import stacked
from openradial.training.optimisers import learning_rate_factor, make_optimiser
from openradial.training.settings import Settings
from openradial.training.stacked import train_stacked
from openradial.training.stacks import FunctionalStack, LinearStack, linear_chain, make_slope

POINTS = spiral(130)
RADIAL = Objective(radial_loss)
SOFTMAX = Objective(F.cross_entropy)
SETTINGS = Settings(
    epochs=3, batch_size=25, optimiser="rmsprop", learning_rate=5e-4, precision="float64"
)  # the last batch of an epoch has 5


@pytest.fixture(autouse=True)
def one_thread():
    """A second thread gains the plain loops nothing, and waits for ever where other programs want its core."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def small():
    return MLP(3, inputs=2, hidden=(8, 7))


def paper():
    return MLP(3, inputs=2, hidden=(50, 50, 50))


def tanh():
    return nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 3))


def normed():
    return nn.Sequential(nn.Linear(2, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))


def tied(activation):
    twice = nn.Linear(8, 8)
    return nn.Sequential(nn.Linear(2, 8), activation(), twice, activation(), twice, activation(), nn.Linear(8, 3))


def dropping():
    return MLP(3, inputs=2, hidden=(8,), dropout=0.5)


def plain_loop(build, objective, examples, settings, seed):
    """The oracle: one seed, eager autograd, torch.optim."""
    torch.manual_seed(seed)
    net = build().to(getattr(torch, settings.precision))
    optimiser = make_optimiser(net.parameters(), settings)
    source = Batches(examples, settings.batch_size, shuffle=True, seed=seed)
    losses = []
    for epoch in range(settings.epochs):
        for x, y in source.epoch(epoch):
            factor = learning_rate_factor(settings, len(losses), len(source))
            optimiser.param_groups[0]["lr"] = settings.learning_rate * factor
            optimiser.zero_grad()
            loss, _ = objective(net, x.to(getattr(torch, settings.precision)), y)
            loss.backward()
            if settings.clip_norm is not None:
                nn.utils.clip_grad_norm_(net.parameters(), settings.clip_norm)
            optimiser.step()
            losses.append(loss.detach())
    return net, torch.stack(losses)


def assert_equal_to_plain_loops(build, objective, settings, seeds=(3, 0), examples=POINTS, rtol=1e-9):
    run = train_stacked(build, objective, examples, settings, seeds)
    for i, seed in enumerate(seeds):
        net, losses = plain_loop(build, objective, examples, settings, seed)
        torch.testing.assert_close(run.losses[:, i], losses, rtol=rtol, atol=rtol)
        for name, value in net.state_dict().items():
            torch.testing.assert_close(run.networks[i].state_dict()[name], value, rtol=rtol, atol=rtol)


def test_two_layers_with_one_matrix_share_it_after_training_too():
    def build():
        net = nn.Sequential(nn.Linear(2, 2), nn.Tanh(), nn.Linear(2, 2), nn.Tanh(), nn.Linear(2, 3))
        net[2].weight = net[0].weight
        return net

    assert_equal_to_plain_loops(build, RADIAL, SETTINGS)


@pytest.mark.parametrize("activation", [nn.ReLU, nn.Tanh])
def test_a_layer_that_is_used_twice_is_trained_as_one(activation):
    assert_equal_to_plain_loops(functools.partial(tied, activation), RADIAL, SETTINGS)


OPTIMISERS = [
    {"optimiser": "sgd", "learning_rate": 0.1},
    {"optimiser": "sgd", "learning_rate": 0.1, "momentum": 0.9, "weight_decay": 0.01},
    {"optimiser": "rmsprop"},
    {"optimiser": "rmsprop", "momentum": 0.8, "weight_decay": 0.01, "decay": 0.95},
    {"optimiser": "adam"},
    {"optimiser": "adam", "weight_decay": 0.01, "betas": (0.8, 0.99)},
    {"optimiser": "adamw", "weight_decay": 0.1},
]


@pytest.mark.parametrize("build", [small, tanh])
@pytest.mark.parametrize("options", OPTIMISERS, ids=lambda options: "-".join(map(str, options.values())))
def test_whole_runs_equal_a_plain_loop_with_torch_optim(build, options):
    assert_equal_to_plain_loops(build, RADIAL, dataclasses.replace(SETTINGS, **options))


@pytest.mark.parametrize(
    "options",
    [
        {"schedule": "linear"},
        {"schedule": "cosine", "warmup_epochs": 0.5},
        {"schedule": "step", "step_epochs": 1, "step_factor": 0.5},
        {"clip_norm": 0.01},
        {"clip_norm": 0.3},
        {"clip_norm": 100.0},
        {"batch_size": 26},
        {"batch_size": 500},
    ],
    ids=str,
)
def test_schedules_clipping_and_rests_equal_a_plain_loop(options):
    settings = dataclasses.replace(SETTINGS, optimiser="sgd", learning_rate=0.1, **options)
    assert_equal_to_plain_loops(small, RADIAL, settings)


@pytest.mark.parametrize(
    "loss",
    [
        functools.partial(radial_loss, beta=5.0, scale=2.0),
        functools.partial(radial_loss, metric="squared_euclidean"),
        functools.partial(radial_loss, weight=torch.tensor([1.0, 2.0, 5.0])),
        RadialLoss(beta=3.0, scale=2.0),
        RadialLoss(beta=3.0, weight=torch.tensor([1.0, 2.0, 5.0])),
        RadialLayer(3, beta=2.0).loss,
        F.cross_entropy,
        nn.CrossEntropyLoss(),
        nn.CrossEntropyLoss(weight=torch.tensor([1.0, 2.0, 5.0]).double()),
        functools.partial(F.cross_entropy, label_smoothing=0.1),
        lambda o, y: F.multi_margin_loss(o, y),
    ],
    ids=lambda loss: type(loss).__name__,
)
def test_every_loss_equals_a_plain_loop(loss):
    settings = dataclasses.replace(SETTINGS, epochs=1)
    assert_equal_to_plain_loops(small, Objective(loss), settings)


@pytest.mark.parametrize("objective", [RADIAL, SOFTMAX])
def test_in_float32_the_first_40_losses_equal_those_of_a_plain_loop(objective):
    # Not RMSprop: it divides a gradient by its own size, so a gradient that is rounding alone becomes a whole step.
    settings = Settings(epochs=1, batch_size=50, optimiser="sgd", learning_rate=0.1, momentum=0.9)
    examples = spiral(2000)
    run = train_stacked(paper, objective, examples, settings, [0, 1])
    for i in (0, 1):
        _, losses = plain_loop(paper, objective, examples, settings, i)
        # Sums over 50 units; the momentum keeps the rounding of about ten steps.
        torch.testing.assert_close(run.losses[:, i], losses, **tolerance(50 * 10))


def test_the_result_of_a_seed_does_not_depend_on_its_company():
    alone = train_stacked(small, RADIAL, POINTS, SETTINGS, [4])
    beside = train_stacked(small, RADIAL, POINTS, SETTINGS, [7, 4, 9])
    torch.testing.assert_close(alone.losses[:, 0], beside.losses[:, 1], rtol=1e-10, atol=1e-10)
    assert not torch.allclose(beside.losses[:, 0], beside.losses[:, 1], rtol=1e-3)


def test_hand_written_gradients_equal_autograd():
    torch.manual_seed(0)
    networks = [MLP(3, inputs=2, hidden=(6, 5, 4)).double() for _ in range(3)]
    by_hand = LinearStack([linear_chain(net) for net in networks], make_slope(radial_loss))
    x, y = torch.randn(3, 11, 2).double(), torch.randint(3, (3, 11))
    losses, _ = by_hand.gradients(torch.cat([x, torch.ones(3, 11, 1)], 2), y)
    for s, net in enumerate(networks):
        loss = radial_loss(net(x[s]), y[s])
        loss.backward()
        torch.testing.assert_close(losses[s].mean(), loss.detach())
        for layer, slope in zip(linear_chain(net), by_hand.slopes, strict=True):
            torch.testing.assert_close(slope[s, :-1], layer.weight.grad.t())
            torch.testing.assert_close(slope[s, -1], layer.bias.grad)


@pytest.mark.parametrize("loss", [radial_loss, functools.partial(radial_loss, beta=7.0)])
def test_on_a_prototype_the_gradient_is_zero(loss):
    o, y = torch.tensor([[[0.0, 1.0], [3.0, 0.0]]]), torch.tensor([[1, 0]])
    _, slopes = make_slope(loss)(o, y)
    assert slopes[0, 0].tolist() == [0, 0]
    assert slopes.isfinite().all()


def test_running_statistics_and_frozen_parameters_stay_with_their_network():
    assert_equal_to_plain_loops(normed, SOFTMAX, SETTINGS, rtol=1e-7)

    def frozen():
        net = small()
        net.hidden.fc1.requires_grad_(False)
        return net

    assert_equal_to_plain_loops(frozen, RADIAL, dataclasses.replace(SETTINGS, weight_decay=0.1))


def test_an_objective_may_use_the_parameters():
    def penalised(model, x, y):
        o = model(x)
        return radial_loss(o, y) + 0.01 * sum(p.square().sum() for p in model.parameters()), o

    assert_equal_to_plain_loops(small, penalised, SETTINGS)


def test_plain_networks_take_the_fast_form_and_only_they():
    def hooked():
        net = small()
        net.hidden.register_forward_hook(lambda *_: None)
        return net

    def made(build, objective=RADIAL, examples=POINTS):
        return type(stacked.make_stack([build(), build()], objective, examples))

    assert made(small) is LinearStack
    assert made(lambda: nn.Sequential(nn.Linear(2, 4), nn.ReLU(), nn.Linear(4, 3))) is LinearStack
    for build in (tanh, normed, hooked, dropping):
        assert made(build) is FunctionalStack
    assert made(lambda: nn.Sequential(nn.Linear(2, 3, bias=False))) is FunctionalStack
    assert made(lambda: nn.Sequential(nn.Linear(2, 3), nn.ReLU())) is FunctionalStack
    assert made(small, lambda model, x, y: (model(x).sum(), x)) is FunctionalStack


def test_dropout_differs_between_networks_and_repeats_with_the_seeds():
    first, second = (train_stacked(dropping, RADIAL, POINTS, SETTINGS, [1, 2]) for _ in range(2))
    assert torch.equal(first.losses, second.losses)
    assert not torch.equal(first.losses[:, 0], first.losses[:, 1])


def test_random_numbers_threads_and_rounding_of_the_caller_are_left_alone():
    torch.manual_seed(5)
    torch.set_num_threads(2)
    state = torch.get_rng_state()
    try:
        for flush in (True, False):
            torch.set_flush_denormal(flush)
            train_stacked(small, RADIAL, POINTS, SETTINGS, [1])
            assert (torch.tensor(1e-39) * 1 == 0) == flush
    finally:
        torch.set_flush_denormal(False)
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.get_num_threads() == 2


def test_compiled_steps_equal_a_plain_loop(monkeypatch):
    if not stacked.has_compiler(torch.device("cpu")):
        pytest.skip("no C++ compiler here")
    monkeypatch.setattr(stacked, "COMPILE_FROM", 1)
    compiled = []
    original = FunctionalStack.compile

    def compile_(self, batch_size, *, strict):
        original(self, batch_size, strict=True)
        compiled.append(batch_size)

    monkeypatch.setattr(FunctionalStack, "compile", compile_)
    assert_equal_to_plain_loops(tanh, RADIAL, SETTINGS)
    assert compiled == [25]


def test_short_runs_never_compile(monkeypatch):
    compiled: list[object] = []
    monkeypatch.setattr(torch, "compile", lambda *given, **_: compiled.append(given))
    made = [train_stacked(tanh, RADIAL, POINTS, SETTINGS, [1], compile=asked) for asked in (None, False)]
    assert (len(made), compiled) == (2, [])


def test_long_runs_go_on_without_a_compiler(monkeypatch):
    monkeypatch.setattr(stacked, "COMPILE_FROM", 1)
    monkeypatch.setenv("CXX", "no-such-compiler")
    assert_equal_to_plain_loops(tanh, RADIAL, SETTINGS)
    with pytest.raises(TrainingError) as caught:
        train_stacked(tanh, RADIAL, POINTS, SETTINGS, [1], compile=True)
    assert str(caught.value) == (
        "no C++ compiler was found; install one or set CXX, or leave compile=True out: it is optional"
    )


def test_a_compiler_that_fails_is_as_none_unless_it_was_asked_for(monkeypatch):
    def failing(*_, **__):
        def call(*_):
            raise RuntimeError("no space left\nand more")

        return call

    monkeypatch.setattr(stacked, "COMPILE_FROM", 1)
    monkeypatch.setattr(stacked, "has_compiler", lambda device: True)
    monkeypatch.setattr(torch, "compile", failing)
    assert_equal_to_plain_loops(tanh, RADIAL, SETTINGS)
    with pytest.raises(TrainingError, match=r"^torch.compile failed: no space left; leave compile=True out"):
        train_stacked(tanh, RADIAL, POINTS, SETTINGS, [1], compile=True)


def test_sets_larger_than_a_chunk_give_the_same(monkeypatch):
    whole = train_stacked(small, RADIAL, POINTS, SETTINGS, [1, 2])
    monkeypatch.setattr(stacked, "CHUNK", 2 * 25 * 3 * 2)
    torch.testing.assert_close(train_stacked(small, RADIAL, POINTS, SETTINGS, [1, 2]).losses, whole.losses)


def test_nan_names_seed_epoch_batch_and_learning_rate():
    inputs = POINTS.inputs.clone()
    order = Batches(POINTS, 25, shuffle=True, seed=8).order(0)
    inputs[order[60]] = torch.nan  # batch 3 of seed 8
    broken = Examples(inputs, POINTS.labels, POINTS.classes)
    with pytest.raises(TrainingError) as caught:
        train_stacked(small, RADIAL, broken, SETTINGS, [8])
    assert str(caught.value) == (
        "the loss of seed 8 became nan in epoch 1, batch 3, at learning rate 0.0005; "
        "lower the learning rate, set clip_norm, or look at the inputs"
    )


def test_an_explosion_is_noticed():
    settings = Settings(epochs=9, batch_size=25, optimiser="sgd", learning_rate=1e4, explosion=100, schedule="linear")
    with pytest.raises(TrainingError, match=r"^the loss of seed [12] became \S+ in epoch 1, batch 2, at learning rate"):
        train_stacked(small, Objective(F.cross_entropy), POINTS, settings, [1, 2])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"ema": 0.9}, "networks trained together know no ema; leave it out or train them with fit"),
        ({"patience": 3}, "networks trained together know no patience; leave it out or train them with fit"),
        (
            {"precision": "bfloat16"},
            "networks are trained together in float32 or float64, got bfloat16; train them with fit",
        ),
    ],
)
def test_settings_that_do_not_apply_are_refused(options, message):
    with pytest.raises(OptionError) as caught:
        train_stacked(small, RADIAL, POINTS, dataclasses.replace(SETTINGS, **options), [1])
    assert str(caught.value) == message


@pytest.mark.parametrize("seeds", [[], [1, 1]])
def test_seeds_must_differ(seeds):
    with pytest.raises(OptionError, match=r"^seeds must be one or more different numbers, got \["):
        train_stacked(small, RADIAL, POINTS, SETTINGS, seeds)


def test_a_negative_seed_is_refused():
    with pytest.raises(OptionError, match=r"^each seed must be a whole number of at least 0, got -1$"):
        train_stacked(small, RADIAL, POINTS, SETTINGS, [-1])


def test_networks_that_differ_are_refused():
    widths = iter([4, 5])
    with pytest.raises(OptionError) as caught:
        train_stacked(lambda: MLP(3, inputs=2, hidden=(next(widths),)), RADIAL, POINTS, SETTINGS, [1, 2])
    assert str(caught.value) == (
        "build must give the same architecture for every seed, but seeds 1 and 2 differ; train them apart"
    )


def test_networks_that_cannot_be_stacked_are_refused():
    class Branching(nn.Linear):
        def forward(self, x):
            return super().forward(x) * (2 if self.weight.sum() > 0 else 1)

    with pytest.raises(
        OptionError, match=r"^these networks cannot be trained together: vmap: .*; train each with fit$"
    ):
        train_stacked(lambda: Branching(2, 3), RADIAL, POINTS, SETTINGS, [1, 2])


@pytest.mark.parametrize("build", [small, tanh])
def test_a_loss_per_example_is_refused(build):
    objective = Objective(functools.partial(radial_loss, reduction="none"))
    with pytest.raises(OptionError) as caught:
        train_stacked(build, objective, POINTS, SETTINGS, [1, 2])
    assert str(caught.value) == "the loss of a batch must be one number, got shape (25,); use reduction='mean'"


def test_data_errors_are_told():
    with pytest.raises(DataError, match=r"^training needs at least one example, got none$"):
        train_stacked(small, RADIAL, POINTS.select(torch.tensor([], dtype=torch.long)), SETTINGS, [1])
    unknown = Examples(POINTS.inputs, torch.full_like(POINTS.labels, -1), POINTS.classes)
    with pytest.raises(TargetError, match=r"targets must lie in 0\.\.2"):
        train_stacked(small, RADIAL, unknown, SETTINGS, [1])


def test_wrong_options_of_a_loss_are_told():
    with pytest.raises(OptionError, match="beta must be a finite number above 0, got -1"):
        train_stacked(small, Objective(functools.partial(radial_loss, beta=-1)), POINTS, SETTINGS, [1])


def test_inputs_that_do_not_fit_are_told_by_the_network():
    wide = Examples(torch.zeros(9, 4), torch.zeros(9, dtype=torch.long), ("a", "b", "c"))
    with pytest.raises(ShapeError, match=r"^expected inputs of shape \(b, 2\)"):
        train_stacked(small, RADIAL, wide, SETTINGS, [1])


def test_the_environment_decides_about_the_compiler(monkeypatch):
    monkeypatch.setenv("CXX", "no-such-compiler")
    assert not stacked.has_compiler(torch.device("cpu"))
    monkeypatch.setenv("CXX", sys.executable)
    assert stacked.has_compiler(torch.device("cpu"))
