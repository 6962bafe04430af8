"""Unusual data have an exact answer; wrong input has one clear sentence and changes nothing."""

import copy

import numpy as np
import pytest
import torch
from naive_ridge import assert_equal, made_data, naive_fit, naive_leave_one_out, naive_outputs

from openradial.errors import (
    DataError,
    DTypeError,
    HeadError,
    OpenRadialError,
    OptionError,
    ShapeError,
    TargetError,
)
from openradial.heads import ClosedFormRadialHead, SoftmaxHead

NAMES = ("ant", "bee", "cat")


def head_of(alpha=0.7, classes=NAMES, num_features=5, **options):
    return ClosedFormRadialHead(classes, num_features, alpha=alpha, **options)


def check(z, y, k=3, **options):
    """Assert that fit, stream and leave-one-out equal the definition, for a given alpha and a chosen one."""
    for alpha in (0.7, "auto"):
        for is_stream in (False, True):
            head = head_of(alpha, NAMES[:k], z.shape[1], **options)
            head = head.partial_fit(z, y).solve() if is_stream else head.fit(z, y)
            alpha_used, x = head.fitted_alpha, head.expand(z).numpy()
            assert np.isfinite(alpha_used)
            assert alpha_used > 0
            rtol = 1e-8 if alpha == 0.7 else 1e-5  # the smallest alphas to choose from have a condition of 1e9
            assert_equal(head.outputs(z.double()), naive_outputs(naive_fit(x, y, k, alpha_used), x), rtol)
            if len(z) > 1:
                expected = naive_leave_one_out(x, y, k, alpha_used)
                assert_equal(head.leave_one_out(z, y), expected, rtol)


@pytest.mark.parametrize("options", [{}, {"random_features": 7, "width": 3.0}], ids=["plain", "random"])
@pytest.mark.parametrize("value", [0.0, 0.1, -3e5])
def test_constant_columns(options, value):
    z, y = made_data()
    z[:, 2] = value
    check(z, y, **options)
    if not options:
        assert head_of().fit(z, y).weight[:, 2].abs().max() < 1e-8


def test_only_constant_columns():
    z, y = torch.full((30, 5), 3.7, dtype=torch.float64), made_data(n=30)[1]
    check(z, y)
    assert_equal(head_of("auto").fit(z, y).outputs(z[:1])[0], torch.bincount(y) / 30)


@pytest.mark.parametrize("d", [20, 60])
def test_more_features_than_examples(d):
    z, y = made_data(n=15, d=d)
    z += 3 * torch.randn(15, d, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    check(z, y)


def test_more_random_features_than_examples():
    check(*made_data(n=15), random_features=40, width=3.0)


def test_one_example_of_each_class():
    check(torch.eye(3, 5, dtype=torch.float64), torch.arange(3))


def test_one_class():
    z, y = made_data(k=1)
    check(z, y, k=1)
    assert_equal(head_of("auto", ["ant"]).fit(z, y).outputs(z), torch.ones(60, 1))


def test_one_example():
    z = torch.ones(1, 5)
    check(z, torch.tensor([1]))
    with pytest.raises(OptionError, match="leave-one-out needs at least two examples, got one"):
        head_of().fit(z, torch.tensor([1])).leave_one_out(z, torch.tensor([1]))


def test_duplicates_with_equal_and_different_labels():
    z, y = made_data(n=20)
    z, y = torch.cat([z, z, z[:6]]), torch.cat([y, y, (y[:6] + 1) % 3])
    check(z, y)
    head = head_of().fit(z, y).remove(z[:20], y[:20])
    assert_equal(head.outputs(z), head_of().fit(z[20:], y[20:]).outputs(z))


def test_classes_without_examples():
    z, y = made_data(k=2)
    check(z, y)
    for weight in ("balanced", "auto"):
        assert head_of(class_weight=weight).fit(z, y).outputs(z)[:, 2].abs().max() == 0


@pytest.mark.parametrize("size", [1e-12, 1e12, 1e100])
def test_very_small_and_large_features(size):
    z, y = made_data()
    head = head_of("auto").fit(size * z, y)
    assert_equal(head.outputs(size * z), head_of("auto").fit(z, y).outputs(z))
    assert_equal(head.leave_one_out(size * z, y), head_of("auto").fit(z, y).leave_one_out(z, y))


def test_labels_of_any_whole_dtype_and_features_with_gradients():
    z, y = made_data()
    expected = head_of("auto").fit(z, y).outputs(z)
    for dtype in (torch.uint8, torch.int16, torch.int32):
        head = head_of("auto").fit(z.clone().requires_grad_(), y.to(dtype))
        assert torch.equal(head.outputs(z), expected)
        assert not head.weight.requires_grad
        assert head.remove(z.clone().requires_grad_(), y.to(dtype)).is_fitted is False


def test_a_head_without_its_last_example_is_as_new():
    z, y = made_data()
    head = head_of().fit(z, y).remove(z, y)
    with pytest.raises(HeadError, match="must be fitted first"):
        head.outputs(z)
    assert_equal(head.partial_fit(z, y).outputs(z), head_of().fit(z, y).outputs(z))


def state(head):
    """Everything a head knows."""
    parts = dict(head.sums.tensors()) | {name: value.clone() for name, value in head.named_buffers()}
    facts = head.settings(), head.classes, head.fitted_alpha, head._kept_alpha, head.num_classes, head.is_fitted
    return facts, {name: value.clone() for name, value in parts.items()}


def refuses(head, call, error, message):
    """Assert that a call raises our error, and that the head is as before."""
    (facts, parts), layer = state(head), head.layer.num_classes
    with pytest.raises(error, match=message) as caught:
        call(head)
    assert isinstance(caught.value, OpenRadialError)
    assert "\n" not in str(caught.value)
    facts_after, parts_after = state(head)
    assert facts_after == facts
    assert parts_after.keys() == parts.keys()
    assert all(torch.equal(parts[name], parts_after[name]) for name in parts)
    assert head.layer.num_classes == layer


Z, Y = made_data()
HALF = torch.full((2, 5), 60000.0).half()
EXAMPLES = {
    "infinity": (HALF * 2, Y[:2], ShapeError, "must be finite, got nan or infinity in 2 rows, the first is row 0"),
    "nan": (Z.clone().fill_(torch.nan), Y, ShapeError, "must be finite, got nan or infinity in 60 rows"),
    "empty": (Z[:0], Y[:0], ShapeError, "must hold at least one example to learn from, got none"),
    "width": (Z[:, :4], Y, ShapeError, r"must have the shape \(b, 5\), got \(60, 4\)"),
    "axes": (Z[0], Y[:1], ShapeError, r"must have the shape \(b, 5\), got \(5,\)"),
    "integers": (Z.long(), Y, DTypeError, "must be floating point, got torch.int64"),
    "list": (Z.tolist(), Y, DTypeError, "must be a torch.Tensor, got list"),
    "label": (Z, Y + 1, TargetError, "labels must be classes from 0 to 2, got 3"),
    "negative label": (Z, Y - 1, TargetError, "labels must be classes from 0 to 2, got -1"),
    "labels": (Z, Y[:9], ShapeError, r"labels must have the shape \(60,\), one per row, got \(9,\)"),
    "float labels": (Z, Y.double(), DTypeError, "labels must be whole numbers, got torch.float64"),
    "bool labels": (Z, Y > 0, DTypeError, "labels must be whole numbers, got torch.bool"),
    "label list": (Z, Y.tolist(), DTypeError, "labels must be a torch.Tensor, got list"),
}


@pytest.mark.parametrize("method", ["fit", "partial_fit", "remove", "leave_one_out", "macro_error", "sums_of"])
@pytest.mark.parametrize("case", EXAMPLES.values(), ids=EXAMPLES)
@pytest.mark.parametrize("options", [{}, {"class_weight": "auto"}], ids=["plain", "auto"])
def test_examples_that_cannot_be_used_are_refused(method, case, options):
    z, y, error, message = case
    refuses(head_of(**options).fit(Z, Y), lambda head: getattr(head, method)(z, y), error, message)


@pytest.mark.parametrize("options", [{}, {"class_weight": "auto"}], ids=["plain", "auto"])
def test_features_whose_squares_overflow_are_refused(options):
    message = "the squares of the features are too large for float64; scale the features first"
    for call in (
        lambda h: h.fit(1e200 * Z, Y),
        lambda h: h.partial_fit(1e200 * Z, Y),
        lambda h: h.add_class("dog", 1e200 * Z),
    ):
        refuses(head_of(**options).fit(Z, Y), call, DataError, message)


@pytest.mark.parametrize("name", ["infinity", "empty", "width", "axes", "integers", "list"])
def test_a_class_of_examples_that_cannot_be_used_is_refused(name):
    z, _, error, message = EXAMPLES[name]
    refuses(head_of().fit(Z, Y), lambda head: head.add_class("dog", z), error, message)
    refuses(
        head_of().fit(Z, Y),
        lambda head: head.drop_class("ant", z),
        (error, OptionError),
        f"{message}|all {int((Y == 0).sum())} examples of 'ant' are needed",
    )


def far(z):
    return z + 1000


CALLS = {
    "never added": (lambda h: h.remove(far(Z[:3]), Y[:3]), "all examples must have been added before, but 3 of 3 were"),
    "one of them": (lambda h: h.remove(torch.cat([Z[:3], far(Z[:1])]), Y[[0, 1, 2, 0]]), "but 1 of 4 were never added"),
    "wrong label": (lambda h: h.remove(Z[:3], (Y[:3] + 1) % 3), "but 3 of 3 were never added with this label"),
    "twice": (lambda h: h.remove(Z[[0, 0]], Y[[0, 0]]), "but 1 of 2 were never added with this label, or are removed"),
    "rounded": (lambda h: h.remove(Z[:3].float(), Y[:3]), "but 3 of 3 were never added"),
    "too many": (lambda h: h.without(h.sums_of(far(Z), Y)), "but 60 of 60 were never added"),
    "left out": (lambda h: h.leave_one_out(far(Z), Y), "but 60 of 60 were never added"),
    "existing class": (lambda h: h.add_class("bee", Z), "there is a class 'bee' already; add examples to it with part"),
    "class name": (lambda h: h.add_class(3, Z), "class names must be strings, got 3; convert them with str"),
    "class weight": (lambda h: h.add_class("dog", Z, weight=0), "weight must be a finite number above 0, got 0"),
    "too few": (lambda h: h.drop_class("ant", Z[Y == 0][1:]), "all 16 examples of 'ant' are needed to drop it, got 15"),
    "others": (lambda h: h.drop_class("ant", far(Z[Y == 0])), "but 16 of 16 were never added"),
    "unknown class": (lambda h: h.drop_class("cart", Z), "there is no class 'cart'; did you mean 'cat'?"),
    "index": (lambda h: h.drop_class(0, Z), "there is no class 0"),
    "unknown old name": (lambda h: h.rename_class("be", "x"), "there is no class 'be'; did you mean 'bee'?"),
    "name in use": (lambda h: h.rename_class("ant", "bee"), "class names must differ, got 'bee' twice"),
    "new name": (lambda h: h.rename_class("ant", None), "class names must be strings, got None"),
    "another head": (lambda h: h.merge(SoftmaxHead(3)), "a closed-form head is merged with another one, got SoftmaxHe"),
    "features": (
        lambda h: h.merge(head_of(num_features=4)),
        "must have the same num_features to be merged, got 5 and 4",
    ),
    "random features": (
        lambda h: h.merge(head_of(random_features=5, width=1.0)),
        "must have the same random_features to be merged, got 0 and 5",
    ),
    "squares": (
        lambda h: h.merge(head_of(squares=True)),
        "must have the same squares to be merged, got False and True",
    ),
    "scale": (lambda h: h.merge(head_of(scale=2.0)), "must have the same scale to be merged, got 1.0 and 2.0"),
    "weights": (
        lambda h: h.merge(head_of(class_weight=[1, 2, 3]).fit(Z, Y)),
        "must give their common classes the same class weights to be merged",
    ),
}


@pytest.mark.parametrize("case", CALLS.values(), ids=CALLS)
def test_a_call_that_is_not_possible_changes_nothing(case):
    call, message = case
    refuses(head_of("auto").fit(Z, Y), call, OptionError, message.replace("?", r"\?"))
    refuses(head_of("auto").partial_fit(Z, Y).solve(), call, OptionError, message.replace("?", r"\?"))


def test_the_only_class_is_not_dropped():
    z, y = made_data(k=1)
    refuses(head_of(classes=["ant"]).fit(z, y), lambda h: h.drop_class("ant", z), OptionError, "is the only class")


def test_a_second_removal_is_refused():
    head = head_of().fit(Z, Y).remove(Z[:5], Y[:5])
    refuses(head, lambda h: h.remove(Z[:5], Y[:5]), OptionError, "5 of 5 were never added")
    assert_equal(head.partial_fit(Z[:5], Y[:5]).remove(Z[:5], Y[:5]).outputs(Z), head_of().fit(Z[5:], Y[5:]).outputs(Z))


@pytest.mark.parametrize("other", [{"width": 2.0}, {"seed": 1, "width": 1.0}, {"width": "auto"}])
def test_heads_with_other_random_features_are_not_merged(other):
    head = head_of(random_features=6, width=1.0).fit(Z, Y)
    message = "must have the same random features to be merged: give both one width and seed"
    refuses(head, lambda h: h.merge(head_of(random_features=6, **other)), OptionError, message)


def test_what_only_fit_can_choose_is_said():
    message = "the width of the random features is chosen by fit; call fit first, or give a number"
    for call in (
        lambda h: h.partial_fit(Z, Y),
        lambda h: h.remove(Z, Y),
        lambda h: h.add_class("dog", Z),
        lambda h: h.sums_of(Z, Y),
        lambda h: h.expand(Z),
    ):
        refuses(head_of(random_features=6), call, OptionError, message)
    for weight in ("balanced", "auto"):
        message = f"class_weight='{weight}' needs all labels at once: call fit, or give numbers"
        refuses(head_of(class_weight=weight), lambda h: h.partial_fit(Z, Y), OptionError, message)
        refuses(head_of(class_weight=weight), lambda h: h.add_class("dog", Z), OptionError, message)
    refuses(
        head_of(class_weight="auto"), lambda h: h.fit(Z[:1], Y[:1]), OptionError, "needs at least two examples, got one"
    )


def test_an_alpha_too_small_for_dependent_features_is_refused():
    z = torch.cat([Z[:, :2], 1e3 * Z[:, :2], 1e6 * Z[:, :1]], 1)
    for options in ({}, {"class_weight": "auto"}):
        head = head_of(1e-30, **options)
        refuses(
            head, lambda h: h.fit(z, Y), OptionError, "are linearly dependent, and alpha=1e-30 is too small; choose"
        )


@pytest.mark.parametrize("value", [0, -1.0, float("nan"), float("inf"), True, None, "best", [1.0]])
@pytest.mark.parametrize("name", ["alpha", "width"])
def test_wrong_penalties_and_widths_are_refused(name, value):
    with pytest.raises(OptionError, match=rf"^{name} must be (a finite number above 0|one of 'auto')"):
        ClosedFormRadialHead(3, 5, **{name: value})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_features": 0}, "num_features must be a whole number of at least 1, got 0"),
        ({"num_features": 2.5}, "num_features must be a whole number"),
        ({"random_features": -1}, "random_features must be a whole number of at least 0"),
        ({"random_features": True}, "random_features must be a whole number"),
        ({"seed": -1}, "seed must be a whole number of at least 0"),
        ({"score": "entropy"}, "score must be one of"),
        ({"beta": 0.0}, "beta must be a finite number above 0"),
        ({"scale": 0.0}, "scale must be a finite number above 0"),
    ],
)
def test_wrong_settings_are_refused(options, message):
    with pytest.raises(OptionError, match=message):
        ClosedFormRadialHead(**{"classes": 3, "num_features": 5} | options)


def test_a_failed_call_leaves_a_copy_equal():
    head = head_of("auto", random_features=6).fit(Z, Y)
    twin = copy.deepcopy(head)
    with pytest.raises(OptionError):
        head.fit(Z, Y).add_class("dog", Z, weight=float("nan"))
    assert torch.equal(head.outputs(Z), twin.outputs(Z))
