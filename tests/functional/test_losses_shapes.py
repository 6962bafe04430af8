"""Outputs and targets have the forms that cross-entropy takes."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from openradial import functional, reference
from openradial.errors import TargetError


def test_images_have_their_classes_on_axis_one():
    o = torch.randn(2, 4, 3, 5, dtype=torch.float64, requires_grad=True)
    y = torch.randint(4, (2, 3, 5))
    y[0, 0, 0] = -100
    rows, flat = o.movedim(1, -1).reshape(-1, 4), y.reshape(-1)
    for reduction in ("mean", "sum", "none"):
        expected = functional.radial_loss(rows, flat, reduction=reduction)
        actual = functional.radial_loss(o, y, reduction=reduction)
        torch.testing.assert_close(actual.reshape(expected.shape), expected)
    assert functional.radial_loss(o, y, reduction="none").shape == y.shape


CASES = {
    "a batch": ((5, 4), (5,), {}),
    "one input": ((4,), (), {}),
    "a sequence": ((3, 4, 6), (3, 6), {}),
    "a volume": ((2, 4, 2, 3, 2), (2, 2, 3, 2), {}),
    "weights": ((5, 4), (5,), {"weight": torch.tensor([1.0, 2.0, 0.5, 0.0])}),
    "another index to ignore": ((5, 4), (5,), {"ignore_index": 2}),
    "no input": ((0, 4), (0,), {}),
}


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("case", CASES)
def test_calls_take_and_give_the_shapes_of_cross_entropy(case, reduction):
    outputs_shape, target_shape, options = CASES[case]
    o, y = torch.randn(outputs_shape), torch.randint(4, target_shape)
    expected = F.cross_entropy(o, y, reduction=reduction, **options)
    actual = functional.radial_loss(o, y, reduction=reduction, **options)
    assert actual.shape == expected.shape
    assert torch.equal(actual.isnan(), expected.isnan())
    assert torch.equal(actual == 0, expected == 0)


def test_all_targets_ignored_is_nan_as_for_cross_entropy():
    o, y = torch.randn(3, 4), torch.full((3,), -100)
    assert F.cross_entropy(o, y).isnan()
    assert functional.radial_loss(o, y).isnan()
    assert functional.radial_loss(o, y, reduction="sum") == 0


def test_uint8_targets_work():
    o, y = torch.randn(3, 4), torch.tensor([0, 3, 1])
    torch.testing.assert_close(functional.radial_loss(o, y.byte()), functional.radial_loss(o, y))


@pytest.mark.parametrize("target", [[0, 4], [-1, 0], [0, 7]])
@pytest.mark.parametrize("reduction", ["mean", "none"])
def test_targets_out_of_range_are_an_index_error_as_for_cross_entropy(target, reduction):
    o, y = torch.randn(2, 4), torch.tensor(target)
    with pytest.raises(IndexError):
        F.cross_entropy(o, y, reduction=reduction)
    with pytest.raises(TargetError) as caught:
        functional.radial_loss(o, y, reduction=reduction)
    wrong = next(t for t in target if not 0 <= t < 4)
    assert str(caught.value) == (
        f"targets must lie in 0..3 or be ignore_index=-100, got {wrong}; "
        "map your labels to 0..classes-1 or widen the last layer"
    )


def test_non_contiguous_outputs_and_targets_work():
    o = torch.randn(4, 6, dtype=torch.float64).t().requires_grad_()
    y = torch.arange(12)[::2] % 4
    expected = reference.radial_loss_grad(o.detach().numpy(), y.numpy())
    functional.radial_loss(o, y).backward()
    np.testing.assert_allclose(o.grad, expected)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_nan_and_inf_outputs_show_in_the_loss(bad):
    o, y = torch.zeros(2, 3), torch.tensor([0, 1])
    o[1, 2] = bad
    assert not functional.radial_loss(o, y).isfinite()
    assert functional.radial_loss(o, y, reduction="none").isfinite().tolist() == [True, False]
