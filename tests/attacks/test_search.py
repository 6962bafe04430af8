import re
from itertools import pairwise

import pytest
import torch
from torch import nn

from openradial.attacks import LOSSES, HeadLoss, fgsm, pgd
from openradial.errors import OptionError, ShapeError
from openradial.heads import RadialHead, SoftmaxHead

K = 3
HEADS = {"radial": RadialHead(K), "softmax": SoftmaxHead(K)}
every_head = pytest.mark.parametrize("head", HEADS.values(), ids=HEADS)
every_norm = pytest.mark.parametrize("norm", ["linf", "l2"])
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


@every_norm
def test_a_linear_loss_grows_by_epsilon_times_the_dual_norm_of_its_gradient(norm):
    weight = torch.randn(K, 16, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    (x, y), epsilon = images(), 0.07
    limits = {"low": -torch.inf, "high": torch.inf, "norm": norm}
    dual = weight.abs().sum(1) if norm == "linf" else weight.norm(dim=1)

    def net(x):
        return x.flatten(1) @ weight.T

    for attack in (fgsm, pgd):
        grown = values(net, attack(net, x, y, epsilon, loss=linear_loss, **limits), y, linear_loss)
        torch.testing.assert_close(grown - values(net, x, y, linear_loss), epsilon * dual[y], rtol=1e-9, atol=1e-12)


def test_fgsm_on_a_linear_softmax_is_its_closed_form():
    weight = torch.randn(K, 16, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    x, y = images()
    p = (x.flatten(1) @ weight.T).softmax(1)
    gradient = (p - nn.functional.one_hot(y, K)) @ weight  # of the cross-entropy
    expected = (x + 0.1 * gradient.sign().view_as(x)).clamp(0, 1)
    loss = HeadLoss("cross_entropy", SoftmaxHead(K))
    torch.testing.assert_close(fgsm(lambda x: x.flatten(1) @ weight.T, x, y, 0.1, loss=loss), expected)


def test_fgsm_through_the_radial_loss_is_its_closed_form():
    weight = torch.randn(K, 16, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    x, y = images()
    away = x.flatten(1) @ weight.T - nn.functional.one_hot(y, K)  # from the target's prototype
    expected = (x + 0.1 * (away @ weight).sign().view_as(x)).clamp(0, 1)
    loss = HeadLoss("target", RadialHead(K))
    torch.testing.assert_close(fgsm(lambda x: x.flatten(1) @ weight.T, x, y, 0.1, loss=loss), expected)


@every_head
def test_fgsm_follows_the_gradient_of_finite_differences(head):
    (x, y), net, h = images(4), network(), 1e-6
    for name in LOSSES:
        loss = HeadLoss(name, head)
        signs = torch.zeros_like(x).flatten(1)
        for place in range(16):
            step = torch.zeros(16, dtype=x.dtype).index_fill(0, torch.tensor(place), h).view(1, 4, 4)
            signs[:, place] = (values(net, x + step, y, loss) - values(net, x - step, y, loss)).sign()
        expected = (x + 0.05 * signs.view_as(x)).clamp(0, 1)
        torch.testing.assert_close(fgsm(net, x, y, 0.05, loss=loss), expected)


@every_norm
@every_head
@pytest.mark.parametrize("name", LOSSES)
def test_pgd_is_never_weaker_than_fgsm_or_nothing_with_the_same_loss(name, head, norm):
    (x, y), net, loss = images(), network(), HeadLoss(name, head)
    single = fgsm(net, x, y, 0.2, loss=loss, norm=norm)
    for settings in ({"steps": 1}, {"steps": 7, "restarts": 2}, {"steps": 7, "random_start": False}):
        many = pgd(net, x, y, 0.2, loss=loss, norm=norm, **settings)
        for other in (x, single):
            before, after = loss.fooled(net(other), y), loss.fooled(net(many), y)
            assert not (before & ~after).any()
            same = before == after
            assert (values(net, many, y, loss) >= values(net, other, y, loss) - 1e-12)[same].all()


@every_head
def test_pgd_finds_a_higher_loss_than_fgsm_on_a_bent_network(head):
    (x, y), net, loss = images(60), network(), HeadLoss("margin", head)
    net[1].weight.data.mul_(6)
    single, many = (values(net, attack(net, x, y, 0.3, loss=loss), y, loss) for attack in (fgsm, pgd))
    assert (many > single + 1e-6).double().mean() > 0.5


@every_norm
@every_head
def test_the_loss_under_attack_grows_with_epsilon(head, norm):
    (x, y), net, loss = images(), network(), HeadLoss("target", head)
    means = [values(net, pgd(net, x, y, e, loss=loss, norm=norm), y, loss).mean() for e in (0.0, 0.01, 0.1, 0.4)]
    assert all(a < b for a, b in pairwise(means))


def test_more_restarts_never_find_less():
    (x, y), net = images(), network()
    loss = HeadLoss("target", RadialHead(K))
    few, many = (values(net, pgd(net, x, y, 0.3, loss=loss, steps=5, restarts=n), y, loss) for n in (1, 4))
    assert (many >= few).all()
    assert (many > few).any()


def test_restarts_keep_first_what_fools_the_head_and_then_the_highest_loss():
    # far up the axis the loss is highest but class 0 still wins; only a small region below fools the head
    def net(x):
        return torch.stack([torch.where(x[:, 0] < 0.49, -x[:, 0], x[:, 0] * 10), torch.zeros(len(x))], 1)

    class Loss(HeadLoss):
        def __call__(self, o, y):
            return o[:, 0]

    x, y = torch.tensor([[0.5]]), torch.tensor([0])
    assert pgd(net, x, y, 0.4, loss=Loss("margin", SoftmaxHead(2)), restarts=5) < 0.49
    assert pgd(net, x, y, 0.4, loss=lambda o, y: o[:, 0], restarts=5) > 0.8


def test_a_random_start_leaves_the_prototype_where_the_radial_loss_has_no_gradient():
    loss, x, y = HeadLoss("target", RadialHead(2)), torch.tensor([[1.0, 0.0]]), torch.tensor([0])
    net, limits = nn.Identity(), {"low": -2.0, "high": 2.0}
    assert torch.equal(fgsm(net, x, y, 0.3, loss=loss, **limits), x)
    moved = pgd(net, x, y, 0.3, loss=loss, **limits)
    torch.testing.assert_close((moved - x).abs(), torch.full((1, 2), 0.3))


@every_norm
@every_attack
@every_head
def test_attacks_stay_in_the_ball_and_in_range(head, attack, norm):
    (x, y), net = images(), network().float()
    x = x.float().round()  # on the edges of the range
    for name in LOSSES:
        moved = attack(net, x, y, 0.1, loss=HeadLoss(name, head), norm=norm) - x
        far = moved.double().abs().amax() if norm == "linf" else moved.double().flatten(1).norm(dim=1).amax()
        assert 0 < far <= 0.1
        assert (x + moved).min() >= 0
        assert (x + moved).max() <= 1


@every_norm
@every_attack
def test_normalised_inputs_are_attacked_as_those_they_were_made_from(attack, norm):
    mean, std = torch.tensor([0.4, 0.6]).double().view(2, 1, 1), torch.tensor([0.2, 0.5]).double().view(2, 1, 1)
    (x, y), inner = images(12, shape=(2, 2, 4)), network()
    loss = HeadLoss("margin", RadialHead(K))
    plain = attack(lambda x: inner((x - mean) / std), x, y, 0.1, loss=loss, norm=norm)
    limits = {"low": (0 - mean) / std, "high": (1 - mean) / std}
    made = attack(inner, (x - mean) / std, y, 0.1 / std, loss=loss, norm=norm, **limits)
    torch.testing.assert_close(made * std + mean, plain, rtol=1e-9, atol=1e-9)


@every_norm
@every_attack
def test_what_happens_to_an_input_does_not_depend_on_its_batch(attack, norm):
    (x, y), net, loss = images(8), network(), HeadLoss("cross_entropy", RadialHead(K))
    whole = attack(net, x, y, 0.1, loss=loss, norm=norm)
    single = torch.cat([attack(net, x[i : i + 1], y[i : i + 1], 0.1, loss=loss, norm=norm) for i in range(len(x))])
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(2))
    torch.testing.assert_close(single, whole, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(attack(net, x[order], y[order], 0.1, loss=loss, norm=norm), whole[order])


def test_the_seed_decides_the_random_starts():
    (x, y), net, loss = images(), network(), HeadLoss("target", RadialHead(K))
    one, again, other = (pgd(net, x, y, 0.3, loss=loss, steps=1, seed=seed) for seed in (1, 1, 2))
    assert torch.equal(one, again)
    assert not torch.equal(one, other)


@every_attack
@every_head
def test_epsilon_zero_changes_nothing(head, attack):
    (x, y), net = images(), network()
    same = attack(net, x, y, 0.0, loss=HeadLoss("target", head))
    assert torch.equal(same, x)
    assert same.data_ptr() != x.data_ptr()


@every_attack
def test_no_inputs_give_none(attack):
    x, y = images(0)
    assert attack(network(), x, y, 0.1, loss=HeadLoss("target", RadialHead(K))).shape == (0, 1, 4, 4)


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
    attacked = attack(net, x, y, 0.1, loss=HeadLoss("margin", RadialHead(K)))
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
    (x, y), net = images(), network(nn.Dropout(0.9)).train()
    loss = HeadLoss("margin", RadialHead(K))
    in_training = fgsm(net, x, y, 0.1, loss=loss)
    assert torch.equal(in_training, fgsm(net.eval(), x, y, 0.1, loss=loss))
    with pytest.raises(ZeroDivisionError):
        fgsm(net.train(), x, y, 0.1, loss=lambda o, y: 1 / 0)
    assert all(module.training for module in net.modules())


def test_a_network_that_draws_random_numbers_leaves_the_random_state():
    x, y = images()
    state = torch.get_rng_state()
    pgd(lambda x: x.flatten(1)[:, :K] + torch.rand(K), x, y, 0.1, loss=HeadLoss("margin", RadialHead(K)), steps=2)
    assert torch.equal(torch.get_rng_state(), state)


@every_attack
@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_attacks_work_where_gradients_are_off(attack, mode):
    (x, y), net, loss = images(), network(), HeadLoss("margin", RadialHead(K))
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
        attack(torch.sqrt, x, y, 0.1, loss=HeadLoss("margin", RadialHead(2)))


@every_attack
@pytest.mark.parametrize("net", [torch.detach, lambda x: torch.ones(len(x), 3, requires_grad=True)])
def test_a_network_without_gradient_is_named(attack, net):
    x, y = torch.rand(2, 3), torch.tensor([0, 1])
    message = (
        "the loss has no gradient with respect to the inputs; look for detach(), no_grad() or rounding in the network"
    )
    with pytest.raises(OptionError, match=f"^{re.escape(message)}$"):
        attack(net, x, y, 0.1, loss=HeadLoss("margin", RadialHead(3)))


def test_a_loss_that_was_averaged_names_the_way_out():
    (x, y), net = images(6), network()
    message = "loss must give one value per input, shape (6,), got (); use reduction='none' with losses of torch"
    with pytest.raises(ShapeError, match=f"^{re.escape(message)}$"):
        fgsm(net, x, y, 0.1, loss=nn.CrossEntropyLoss())
    loss = nn.CrossEntropyLoss(reduction="none")
    same = fgsm(net, x, y, 0.1, loss=HeadLoss("cross_entropy", SoftmaxHead(K)))
    assert torch.equal(fgsm(net, x, y, 0.1, loss=loss), same)


def test_labels_are_one_per_input():
    x, _ = images(4)
    with pytest.raises(ShapeError, match=re.escape("labels must have the shape (4,), one per input, got (3,)")):
        fgsm(network(), x, torch.zeros(3, dtype=torch.long), 0.1, loss=HeadLoss("target", RadialHead(K)))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"steps": 0}, "steps must be a whole number of at least 1, got 0"),
        ({"restarts": 0}, "restarts must be a whole number of at least 1, got 0"),
        ({"step": 0.0}, "step must be a finite number above 0, got 0.0"),
        (
            {"restarts": 3, "random_start": False},
            "restarts=3 would all start at the input; set random_start=True or restarts=1",
        ),
    ],
)
def test_options_out_of_range_are_named(options, message):
    x, y = images(2)
    with pytest.raises(OptionError, match=f"^{re.escape(message)}$"):
        pgd(network(), x, y, 0.1, loss=HeadLoss("target", RadialHead(K)), **options)
