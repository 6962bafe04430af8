import re
from itertools import pairwise

import pytest
import torch
from torch import nn

from openradial import RadialLoss
from openradial.attacks import fgsm, pgd
from openradial.errors import DTypeError, OptionError, ShapeError

K = 3
RADIAL, SOFTMAX = RadialLoss(reduction="none"), nn.CrossEntropyLoss(reduction="none")
every_loss = pytest.mark.parametrize("loss", [RADIAL, SOFTMAX], ids=["radial", "softmax"])
every_attack = pytest.mark.parametrize("attack", [fgsm, pgd])


def images(n=24, *, shape=(1, 4, 4), seed=0):
    x = torch.rand((n, *shape), generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return x, torch.arange(n) % K


def network(*extra, width=16, seed=0):
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        layers = [nn.Flatten(), nn.Linear(16, width), nn.Tanh(), *extra, nn.Linear(width, K)]
        return nn.Sequential(*layers).double().eval()


def values(net, x, y, loss):
    with torch.no_grad():
        return loss(net(x), y)


def linear_loss(o, y):
    return o.gather(1, y.unsqueeze(1)).squeeze(1)


def test_a_linear_loss_grows_by_epsilon_times_the_sum_of_its_gradient():
    weight = torch.randn(K, 16, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    (x, y), epsilon = images(), 0.07
    limits = {"low": -torch.inf, "high": torch.inf}

    def net(x):
        return x.flatten(1) @ weight.T

    for attack in (fgsm, pgd):
        grown = values(net, attack(net, x, y, epsilon, loss=linear_loss, **limits), y, linear_loss)
        torch.testing.assert_close(
            grown - values(net, x, y, linear_loss), epsilon * weight.abs().sum(1)[y], rtol=1e-9, atol=1e-12
        )


def test_fgsm_on_a_linear_softmax_is_its_closed_form():
    weight = torch.randn(K, 16, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    x, y = images()
    p = (x.flatten(1) @ weight.T).softmax(1)
    gradient = (p - nn.functional.one_hot(y, K)) @ weight  # of the cross-entropy
    expected = (x + 0.1 * gradient.sign().view_as(x)).clamp(0, 1)
    torch.testing.assert_close(fgsm(lambda x: x.flatten(1) @ weight.T, x, y, 0.1, loss=SOFTMAX), expected)


def test_fgsm_through_the_radial_loss_is_its_closed_form():
    weight = torch.randn(K, 16, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    x, y = images()
    away = x.flatten(1) @ weight.T - nn.functional.one_hot(y, K)  # from the target's prototype
    expected = (x + 0.1 * (away @ weight).sign().view_as(x)).clamp(0, 1)
    torch.testing.assert_close(fgsm(lambda x: x.flatten(1) @ weight.T, x, y, 0.1, loss=RADIAL), expected)


@every_loss
def test_fgsm_follows_the_gradient_of_finite_differences(loss):
    (x, y), net, h = images(4), network(), 1e-6
    signs = torch.zeros_like(x).flatten(1)
    for place in range(16):
        step = torch.zeros(16, dtype=x.dtype).index_fill(0, torch.tensor(place), h).view(1, 4, 4)
        signs[:, place] = (values(net, x + step, y, loss) - values(net, x - step, y, loss)).sign()
    expected = (x + 0.05 * signs.view_as(x)).clamp(0, 1)
    torch.testing.assert_close(fgsm(net, x, y, 0.05, loss=loss), expected)


@every_loss
@pytest.mark.parametrize("settings", [{"steps": 1}, {"steps": 7, "restarts": 2}])
def test_pgd_is_never_weaker_than_fgsm_or_nothing_with_the_same_loss(loss, settings):
    (x, y), net = images(), network()
    many = values(net, pgd(net, x, y, 0.2, loss=loss, **settings), y, loss)
    for other in (x, fgsm(net, x, y, 0.2, loss=loss)):
        assert (many >= values(net, other, y, loss) - 1e-12).all()


@every_loss
def test_pgd_finds_a_higher_loss_than_fgsm_on_a_bent_network(loss):
    (x, y), net = images(60), network()
    net[1].weight.data.mul_(6)
    single, many = (values(net, attack(net, x, y, 0.3, loss=loss), y, loss) for attack in (fgsm, pgd))
    assert (many > single + 1e-6).double().mean() > 0.5


@every_loss
def test_the_loss_under_attack_grows_with_epsilon(loss):
    (x, y), net = images(), network()
    means = [values(net, pgd(net, x, y, e, loss=loss), y, loss).mean() for e in (0.0, 0.01, 0.1, 0.4)]
    assert all(a < b for a, b in pairwise(means))


def test_more_restarts_never_find_less():
    (x, y), net = images(), network()
    few, many = (values(net, pgd(net, x, y, 0.3, loss=RADIAL, steps=5, restarts=n), y, RADIAL) for n in (1, 4))
    assert (many >= few).all()
    assert (many > few).any()


def test_what_fools_comes_first_and_then_the_highest_loss():
    # far up the axis the loss is highest but class 0 still wins; only a small region below fools
    def net(x):
        return torch.stack([torch.where(x[:, 0] < 0.49, -x[:, 0], x[:, 0] * 10), torch.zeros(len(x))], 1)

    def fooled(o, y):
        return o.argmax(1) != y

    x, y = torch.tensor([[0.5]]), torch.tensor([0])
    assert pgd(net, x, y, 0.4, loss=lambda o, y: o[:, 0], fooled=fooled, restarts=5) < 0.49
    assert pgd(net, x, y, 0.4, loss=lambda o, y: o[:, 0], restarts=5) > 0.8


def test_a_random_start_leaves_the_prototype_where_the_radial_loss_has_no_gradient():
    x, y = torch.tensor([[1.0, 0.0]]), torch.tensor([0])
    net, limits = nn.Identity(), {"low": -2.0, "high": 2.0}
    assert torch.equal(fgsm(net, x, y, 0.3, loss=RADIAL, **limits), x)
    moved = pgd(net, x, y, 0.3, loss=RADIAL, **limits)
    torch.testing.assert_close((moved - x).abs(), torch.full((1, 2), 0.3))


@every_attack
@every_loss
def test_attacks_stay_within_epsilon_and_in_range(loss, attack):
    (x, y), net = images(), network().float()
    x = x.float().round()  # on the edges of the range
    moved = attack(net, x, y, 0.1, loss=loss)
    assert 0 < (moved - x).abs().max() <= 0.1 + torch.finfo(torch.float32).eps
    assert moved.min() >= 0
    assert moved.max() <= 1


@every_attack
def test_normalised_inputs_are_attacked_as_those_they_were_made_from(attack):
    mean, std = torch.tensor([0.4, 0.6]).double().view(2, 1, 1), torch.tensor([0.2, 0.5]).double().view(2, 1, 1)
    (x, y), inner = images(12, shape=(2, 2, 4)), network()
    plain = attack(lambda x: inner((x - mean) / std), x, y, 0.1, loss=RADIAL)
    limits = {"low": (0 - mean) / std, "high": (1 - mean) / std}
    made = attack(inner, (x - mean) / std, y, 0.1 / std, loss=RADIAL, **limits)
    torch.testing.assert_close(made * std + mean, plain, rtol=1e-9, atol=1e-9)


@every_attack
def test_what_happens_to_an_input_does_not_depend_on_its_batch(attack):
    (x, y), net = images(8), network()
    complete = attack(net, x, y, 0.1, loss=RADIAL)
    single = torch.cat([attack(net, x[i : i + 1], y[i : i + 1], 0.1, loss=RADIAL) for i in range(len(x))])
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(2))
    torch.testing.assert_close(single, complete, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(attack(net, x[order], y[order], 0.1, loss=RADIAL), complete[order])


def test_the_seed_decides_the_random_starts():
    (x, y), net = images(), network()
    one, again, other = (pgd(net, x, y, 0.3, loss=RADIAL, steps=1, seed=seed) for seed in (1, 1, 2))
    assert torch.equal(one, again)
    assert not torch.equal(one, other)


@every_attack
@every_loss
def test_epsilon_zero_changes_nothing(loss, attack):
    (x, y), net = images(), network()
    same = attack(net, x, y, 0.0, loss=loss)
    assert torch.equal(same, x)
    assert same.data_ptr() != x.data_ptr()


@every_attack
def test_no_inputs_give_none(attack):
    x, y = images(0)
    assert attack(network(), x, y, 0.1, loss=RADIAL).shape == (0, 1, 4, 4)


@every_attack
def test_the_network_and_the_inputs_are_left_as_they_were(attack):
    (x, y), net = images(), network(nn.BatchNorm1d(16), nn.Dropout(0.5)).double().train()
    net[3].eval()
    net[1].weight.requires_grad_(False)
    net(x).sum().backward()
    x.requires_grad_()
    before = {name: value.clone() for name, value in net.state_dict().items()}
    gradients = [None if p.grad is None else p.grad.clone() for p in net.parameters()]
    random, copy = torch.get_rng_state(), x.detach().clone()
    attacked = attack(net, x, y, 0.1, loss=RADIAL)
    assert [module.training for module in net] == [True, True, True, False, True, True]
    assert [p.requires_grad for p in net.parameters()] == [False] + [True] * 5
    for p, gradient in zip(net.parameters(), gradients, strict=True):
        assert (p.grad is None and gradient is None) or torch.equal(p.grad, gradient)
    for name, value in net.state_dict().items():
        assert torch.equal(value, before[name])
    assert torch.equal(torch.get_rng_state(), random)
    assert torch.equal(x, copy)
    assert x.requires_grad
    assert x.grad is None
    assert not attacked.requires_grad


def test_dropout_is_off_while_attacking_and_back_on_after_an_error():
    (x, y), net, loss = images(), network(nn.Dropout(0.9)).train(), RADIAL
    in_training = fgsm(net, x, y, 0.1, loss=loss)
    assert torch.equal(in_training, fgsm(net.eval(), x, y, 0.1, loss=loss))
    with pytest.raises(ZeroDivisionError):
        fgsm(net.train(), x, y, 0.1, loss=lambda o, y: 1 / 0)
    assert all(module.training for module in net.modules())


def test_a_network_that_draws_random_numbers_leaves_the_random_state():
    x, y = images()
    state = torch.get_rng_state()
    pgd(lambda x: x.flatten(1)[:, :K] + torch.rand(K), x, y, 0.1, loss=RADIAL, steps=2)
    assert torch.equal(torch.get_rng_state(), state)


@every_attack
@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_attacks_work_where_gradients_are_off(attack, mode):
    (x, y), net, loss = images(), network(), RADIAL
    with mode():
        attacked = attack(net, x + 0, y + 0, 0.1, loss=loss)
    assert torch.equal(attacked, attack(net, x, y, 0.1, loss=loss))


@every_attack
def test_gradients_that_are_not_finite_are_named(attack):
    x, y = torch.tensor([[0.5, 0.2], [0.0, 0.3]]), torch.tensor([0, 0])
    message = (
        "the gradient of the loss is nan or infinite for 1 of 2 inputs, the first is row 1; without it the "
        "network would look too robust: use another loss or float64"
    )
    with pytest.raises(OptionError, match=f"^{message}$"):
        attack(torch.sqrt, x, y, 0.1, loss=RADIAL)


@every_attack
@pytest.mark.parametrize("net", [torch.detach, lambda x: torch.ones(len(x), 3, requires_grad=True)])
def test_a_network_without_gradient_is_named(attack, net):
    x, y = torch.rand(2, 3), torch.tensor([0, 1])
    message = (
        "the loss has no gradient with respect to the inputs; look for detach(), no_grad() or rounding in the network"
    )
    with pytest.raises(OptionError, match=f"^{re.escape(message)}$"):
        attack(net, x, y, 0.1, loss=RADIAL)


def test_a_loss_that_was_averaged_names_the_way_out():
    (x, y), net = images(6), network()
    message = "loss must give one value per input, shape (6,), got (); use reduction='none' with losses of torch"
    with pytest.raises(ShapeError, match=f"^{re.escape(message)}$"):
        fgsm(net, x, y, 0.1, loss=nn.CrossEntropyLoss())


def test_labels_are_one_per_input():
    x, _ = images(4)
    with pytest.raises(
        ShapeError, match=r"expected inputs \(b, \.\.\.\) and labels \(b,\), got \(4, 1, 4, 4\) and \(3,\)"
    ):
        fgsm(network(), x, torch.zeros(3, dtype=torch.long), 0.1, loss=RADIAL)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"steps": 0}, "steps must be a whole number of at least 1, got 0"),
        ({"restarts": 0}, "restarts must be a whole number of at least 1, got 0"),
    ],
)
def test_options_out_of_range_are_named(options, message):
    x, y = images(2)
    with pytest.raises(OptionError, match=f"^{re.escape(message)}$"):
        pgd(network(), x, y, 0.1, loss=RADIAL, **options)


def test_inputs_a_rounding_error_out_of_range_are_taken_and_not_moved_back():
    x = torch.tensor([[1.000001, -0.000001]])
    assert torch.equal(fgsm(nn.Identity(), x, torch.tensor([0]), 0.0, loss=SOFTMAX), x)


@pytest.mark.parametrize("value", [-0.5, 1.5, torch.nan])
def test_inputs_out_of_range_name_the_way_out(value):
    x = torch.tensor([[0.5, 0.5], [0.5, value]])
    message = (
        f"inputs must lie between low and high, got {value:.6g} in row 1; give low and high in the units of the "
        "inputs, for (x - mean) / std: low=(0 - mean) / std, high=(1 - mean) / std"
    )
    with pytest.raises(OptionError, match=f"^{re.escape(message)}$"):
        fgsm(nn.Identity(), x, torch.tensor([0, 0]), 0.1, loss=SOFTMAX)


@pytest.mark.parametrize("epsilon", [-0.1, torch.inf, torch.nan])
def test_epsilon_is_finite_and_not_below_zero(epsilon):
    with pytest.raises(OptionError, match=f"^epsilon must be finite and at least 0, got {epsilon}$"):
        fgsm(nn.Identity(), torch.zeros(1, 2), torch.tensor([0]), epsilon, loss=SOFTMAX)


def test_limits_per_channel_have_the_axes_of_an_input():
    message = (
        "epsilon must be a number or have one axis per axis of an input of shape (3, 8, 3), each equal or 1, got (3,); "
        "for one value per channel of an image call .view(-1, 1, 1)"
    )
    with pytest.raises(ShapeError, match=f"^{re.escape(message)}$"):
        fgsm(nn.Flatten(), torch.zeros(2, 3, 8, 3), torch.tensor([0, 0]), torch.ones(3), loss=SOFTMAX)


def test_words_and_single_inputs_are_refused():
    with pytest.raises(DTypeError, match=r"inputs must be floating point, got torch\.int64; for texts, attack the emb"):
        fgsm(nn.Identity(), torch.zeros(2, 3, dtype=torch.int64), torch.tensor([0, 0]), 0.1, loss=SOFTMAX)
    with pytest.raises(ShapeError, match=r"expected inputs \(b, \.\.\.\)"):
        fgsm(nn.Identity(), torch.zeros(3), torch.tensor([0, 0, 0]), 0.1, loss=SOFTMAX)
