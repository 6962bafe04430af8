import math
import re

import numpy as np
import pytest
import torch
from torch import nn

from openradial import AxisPrototypes, RadialLayer, RadialLinear, RadialLoss
from openradial.errors import DTypeError, OptionError, ShapeError


@pytest.mark.parametrize(
    ("outputs", "message"),
    [
        (
            10,
            "axis prototypes need one output per class: 12 classes but 10 outputs; widen the last layer to 12 or use "
            "SimplexPrototypes",
        ),
        (
            13,
            "axis prototypes need one output per class: 12 classes but 13 outputs; narrow the last layer to 12 or use "
            "LearnedPrototypes",
        ),
    ],
)
def test_a_wrong_number_of_outputs_names_the_way_out(outputs, message):
    layer, o, y = RadialLayer(12), torch.zeros(2, outputs), torch.zeros(2, dtype=torch.long)
    loss = RadialLoss(prototypes=AxisPrototypes(12))
    calls = (layer.log_probs, layer.probs, layer.distances, layer.nearest)
    for call in (*calls, lambda o: layer.loss(o, y), lambda o: loss(o, y)):
        with pytest.raises(ShapeError, match=f"^{re.escape(message)}$"):
            call(o)


def test_the_outputs_of_a_pixel_wise_loss_are_on_axis_1():
    y = torch.zeros(2, 12, dtype=torch.long)
    message = "axis prototypes need one output per class: 12 classes but 5 outputs"
    with pytest.raises(ShapeError, match=message):
        RadialLayer(12).loss(torch.zeros(2, 5, 12), y)
    with pytest.raises(ShapeError, match=message):
        RadialLoss(prototypes=AxisPrototypes(12))(torch.zeros(2, 5, 12), y)


@pytest.mark.parametrize("wrong", [[[0.0, 1.0]], np.zeros((1, 2))])
def test_outputs_that_are_not_a_tensor_point_to_the_numpy_reference(wrong):
    message = f"outputs must be a torch.Tensor, got {type(wrong).__name__}; for NumPy use openradial.reference"
    y = torch.zeros(1, dtype=torch.long)
    layer = RadialLayer(2)
    for call in (layer.log_probs, lambda o: layer.loss(o, y), lambda o: RadialLoss(prototypes=torch.eye(2))(o, y)):
        with pytest.raises(DTypeError, match=f"^{re.escape(message)}$"):
            call(wrong)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: RadialLayer(0), "num_classes must be a whole number of at least 1, got 0"),
        (lambda: RadialLayer(True), "num_classes must be a whole number of at least 1, got True"),
        (lambda: RadialLayer(2.0), "num_classes must be a whole number of at least 1, got 2.0"),
        (lambda: RadialLayer(2, beta=0), "beta must be a finite number above 0, got 0; the paper uses beta=1.0"),
        (
            lambda: RadialLayer(2, 1.0, -1.0),
            "scale must be a finite number above 0, got -1.0; the paper uses scale=1.0",
        ),
        (lambda: RadialLayer(2, beta="1"), "beta must be a finite number above 0, got '1'; the paper uses beta=1.0"),
        (lambda: RadialLayer(2, cutoff="joint"), "cutoff must be None, a radius above 0 or 'disjoint', got 'joint'"),
        (lambda: RadialLayer(2, cutoff=0.0), "cutoff must be None, a radius above 0 or 'disjoint', got 0.0"),
        (
            lambda: RadialLayer(2, metric="cosine"),
            "metric must be one of 'euclidean', 'squared_euclidean', 'manhattan', 'chebyshev', got 'cosine'",
        ),
        (
            lambda: RadialLayer(2, axis_scale=torch.tensor([1.0, 0.0])),
            "axis_scale must be finite and above 0 on every axis; use 1.0 for an axis left as it is",
        ),
        (
            lambda: RadialLayer(3, prototypes=torch.eye(2)),
            "num_classes and prototypes must agree: num_classes=3 but 2 prototypes; pass num_classes=2",
        ),
        (
            lambda: RadialLayer(2, scale=2.0, prototypes=torch.eye(2)),
            "scale belongs to the axis prototypes, but prototypes are given: got scale=2.0; scale them instead",
        ),
        (
            lambda: RadialLoss(scale=2.0, prototypes=torch.eye(2)),
            "scale belongs to the axis prototypes, but prototypes are given: got scale=2.0; scale them instead",
        ),
        (
            lambda: RadialLayer(2, prototypes=[[0.0, 1.0], [1.0, 0.0]]),
            "prototypes must be None, a (classes, outputs) tensor or a prototypes module, got list; see "
            "openradial.nn.prototypes",
        ),
        (
            lambda: RadialLoss(prototypes="simplex"),
            "prototypes must be None, a (classes, outputs) tensor or a prototypes module, got str; see "
            "openradial.nn.prototypes",
        ),
        (lambda: RadialLoss(reduction="max"), "reduction must be one of 'mean', 'sum', 'none', got 'max'"),
        (lambda: RadialLoss(label_smoothing=2.0), "label_smoothing must lie in 0..1, got 2.0; 0.0 turns it off"),
        (lambda: RadialLoss(beta=math.nan), "beta must be a finite number above 0, got nan; the paper uses beta=1.0"),
        (
            lambda: RadialLoss(scale=math.inf),
            "scale must be a finite number above 0, got inf; the paper uses scale=1.0",
        ),
        (lambda: RadialLinear(0, 3), "in_features must be a whole number of at least 1, got 0"),
    ],
)
def test_a_wrong_setting_is_refused_when_the_module_is_built(build, message):
    with pytest.raises(OptionError, match=f"^{re.escape(message)}$"):
        build()


@pytest.mark.parametrize("build", [lambda s: RadialLayer(3, axis_scale=s), lambda s: RadialLinear(4, 3, axis_scale=s)])
def test_an_axis_scale_of_the_wrong_shape_is_refused_when_the_module_is_built(build):
    with pytest.raises(ShapeError, match="axis_scale must hold one number per output axis: 2 numbers but 3 outputs"):
        build(torch.ones(2))
    with pytest.raises(ShapeError, match="axis_scale must hold one positive number per output axis, got shape"):
        build(torch.ones(3, 3))
    with pytest.raises(TypeError, match="axis_scale"):
        build([1.0, 1.0, 1.0])


def test_weights_of_the_wrong_kind_are_refused_as_in_cross_entropy():
    for build in (RadialLoss, nn.CrossEntropyLoss):
        with pytest.raises(TypeError, match="cannot assign 'list' object to buffer 'weight'"):
            build(weight=[1.0, 2.0])
