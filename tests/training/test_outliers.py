import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from openradial.errors import OptionError
from openradial.heads import RadialHead
from openradial.training.outliers import DEFAULTS, MAKERS, OutlierObjective, make_outliers

SHAPES = {"images": (3, 9, 10), "sequences": (11, 2), "table": (6,), "points": (2,), "texts": (12,)}


def batch(kind, n=24, classes=3):
    torch.manual_seed(1)
    shape = (n, *SHAPES[kind])
    x = torch.randint(1, 50, shape) if kind == "texts" else torch.randn(shape)
    return x, torch.arange(n) % classes


@pytest.mark.parametrize("kind", DEFAULTS)
def test_outliers_have_the_shape_and_type_of_the_examples(kind):
    x, y = batch(kind)
    made = make_outliers(x, y, DEFAULTS[kind])
    assert made.shape[1:] == x.shape[1:]
    assert made.dtype == x.dtype
    assert 0 < len(made) <= len(x)
    assert not any(torch.equal(row, example) for row in made for example in x)


def test_no_outlier_is_made_of_two_examples_of_one_class():
    y = torch.tensor([0] * 5 + [1] * 5)
    x = torch.nn.functional.one_hot(y).float()
    for seed in range(20):
        torch.manual_seed(seed)
        assert (make_outliers(x, y, ["mean"]) == 0.5).all()


def test_a_batch_of_one_class_gives_none():
    assert make_outliers(torch.randn(6, 2), torch.zeros(6, dtype=torch.long), ["mean", "columns"]).shape == (0, 2)


def test_a_batch_of_different_classes_gives_one_each():
    assert len(make_outliers(torch.randn(7, 2), torch.arange(7), ["mean", "columns"])) == 7


@given(h=st.integers(4, 12), w=st.integers(4, 12), c=st.integers(1, 3))
def test_shuffled_blocks_keep_every_pixel(h, w, c):
    x = torch.arange(2 * c * h * w).view(2, c, h, w).float()
    made = MAKERS["blocks"](x, x)
    assert torch.equal(made.flatten(2).sort(-1).values, x.flatten(2).sort(-1).values)
    rows, columns = h // 4 * 4, w // 4 * 4
    assert torch.equal(made[:, :, rows:], x[:, :, rows:])
    assert torch.equal(made[..., columns:], x[..., columns:])


def test_blocks_are_moved_whole():
    x = torch.arange(16.0).view(1, 1, 4, 4).repeat_interleave(3, 2).repeat_interleave(3, 3)
    made = MAKERS["blocks"](x, x)
    assert torch.equal(made, made[..., ::3, ::3].repeat_interleave(3, 2).repeat_interleave(3, 3))
    assert not torch.equal(made, x)


def test_each_example_has_its_own_order_of_blocks():
    x = torch.arange(8.0).view(1, 8, 1).expand(50, 8, 1)
    assert len(MAKERS["blocks"](x, x).unique(dim=0)) > 40


@given(seed=st.integers(0, 50))
def test_halves_come_from_two_examples(seed):
    torch.manual_seed(seed)
    x, other = torch.zeros(2, 1, 6, 6), torch.ones(2, 1, 6, 6)
    made = MAKERS["halves"](x, other)
    assert made.mean() == 0.5
    across, along = made[0, 0, :, 0], made[0, 0, 0]
    assert across.tolist() == [0, 0, 0, 1, 1, 1] or along.tolist() == [0, 0, 0, 1, 1, 1]


def padded(length, total, start):
    row = torch.full((total, 2), torch.nan)
    row[:length] = torch.arange(start, start + length, dtype=torch.float32).unsqueeze(1)
    return row


@given(own=st.integers(1, 12), others=st.integers(1, 12))
def test_halves_of_padded_sequences_join_what_they_hold(own, others):
    made = MAKERS["halves"](padded(own, 12, 0)[None], padded(others, 12, 100)[None])[0]
    expected = [*range((own + 1) // 2), *range(100 + others - others // 2, 100 + others)]
    assert made[: len(expected), 0].tolist() == expected
    assert made[len(expected) :].isnan().all()


@given(length=st.integers(1, 20))
def test_pieces_of_a_padded_sequence_stay_before_its_end(length):
    x = padded(length, 20, 0)[None]
    made = MAKERS["blocks"](x, x)[0]
    assert sorted(made[:length, 0].tolist()) == list(range(length))
    assert made[length:].isnan().all()


def test_a_sequence_of_two_steps_can_only_swap_them():
    x = padded(2, 9, 0).expand(40, -1, -1)
    orders = {tuple(row) for row in MAKERS["blocks"](x, x)[:, :2, 0].tolist()}
    assert orders == {(0.0, 1.0), (1.0, 0.0)}


def test_halves_of_short_texts_come_from_both():
    x, other = torch.tensor([[1, 2, 3, 0, 0, 0, 0, 0]]), torch.tensor([[5, 6, 0, 0, 0, 0, 0, 0]])
    assert MAKERS["halves"](x, other).tolist() == [[1, 2, 6, 0, 0, 0, 0, 0]]


def test_mixed_words_are_words_of_one_of_the_texts():
    x, other = torch.tensor([[1, 2, 3, 0, 0]]), torch.tensor([[6, 7, 8, 9, 0]])
    made = MAKERS["words"](x, other)
    assert ((made == x) | (made == other)).all()
    assert made[0, 3:].tolist() == [9, 0]


def test_the_brightest_of_two_is_the_larger_value_everywhere():
    x, other = torch.tensor([[1.0, 5.0]]), torch.tensor([[2.0, 4.0]])
    assert MAKERS["brightest"](x, other).tolist() == [[2.0, 5.0]]


def test_the_objective_adds_the_squared_norm_of_the_outliers_outputs():
    head, net = RadialHead(3, loss="squared"), torch.nn.Linear(6, 3)
    x, y = batch("table")
    objective = OutlierObjective(head.loss, ["mean", "columns"], weight=0.5)
    torch.manual_seed(7)
    loss, o = objective(net, x, y)
    torch.manual_seed(7)
    made = make_outliers(x, y, ["mean", "columns"])
    expected = head.loss(net(x), y) + 0.5 * sum((row**2).sum() for row in net(made)) / len(made)
    torch.testing.assert_close(loss, expected)
    torch.testing.assert_close(o, net(x))


def test_without_training_the_objective_is_the_plain_loss():
    head, net = RadialHead(3), torch.nn.Linear(6, 3).eval()
    x, y = batch("table")
    assert torch.equal(OutlierObjective(head.loss, ["mean"])(net, x, y)[0], head.loss(net(x), y))


def test_a_batch_of_one_class_trains_without_outliers():
    head, net = RadialHead(3), torch.nn.Linear(2, 3)
    loss, _ = OutlierObjective(head.loss, ["mean"])(net, torch.randn(4, 2), torch.zeros(4, dtype=torch.long))
    assert torch.isfinite(loss)


@pytest.mark.parametrize(
    ("kinds", "message"),
    [([], "kinds must be a list of at least one"), ("mean", "kinds must be a list"), (["means"], "must be one of")],
)
def test_kinds_that_do_not_exist_are_refused(kinds, message):
    with pytest.raises(OptionError, match=message):
        OutlierObjective(RadialHead(3).loss, kinds)


@pytest.mark.parametrize("count", [1, 2, 3])
def test_a_batch_with_fewer_examples_than_kinds_makes_what_it_can(count):
    made = make_outliers(torch.rand(count, 1, 8, 8), torch.arange(count), ["brightest", "mean", "halves", "blocks"])
    assert made.shape == (count if count > 1 else 0, 1, 8, 8)
