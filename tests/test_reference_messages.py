import re

import numpy as np
import pytest

from openradial import reference
from openradial.errors import DTypeError, OptionError, ShapeError, TargetError

TWO = np.zeros((2, 3))


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (
            lambda: reference.radial_distances(np.zeros((2, 3), int)),
            DTypeError,
            "outputs must be floating point, got int64; pass the last affine layer's result as it is",
        ),
        (
            lambda: reference.radial_distances(1.0),
            ShapeError,
            "outputs must have at least one number per input on their last axis, got shape (); expected (..., outputs)",
        ),
        (
            lambda: reference.radial_distances(np.zeros((2, 0))),
            ShapeError,
            "outputs must have at least one number per input on their last axis, got shape (2, 0); expected "
            "(..., outputs)",
        ),
        (
            lambda: reference.radial_distances(TWO, prototypes=np.eye(2)),
            ShapeError,
            "prototypes must be a (classes, 3) matrix for 3 outputs, got shape (2, 2); pass one row per class",
        ),
        (
            lambda: reference.radial_distances(TWO, prototypes=np.zeros((0, 3))),
            ShapeError,
            "prototypes must be a (classes, 3) matrix for 3 outputs, got shape (0, 3); pass one row per class",
        ),
        (
            lambda: reference.radial_loss(TWO, [0, 0], scale=2.0, prototypes=np.eye(3)),
            OptionError,
            "scale belongs to the axis prototypes, but prototypes are given: got scale=2.0; scale them instead",
        ),
        (
            lambda: reference.radial_distances(TWO, metric="cosine"),
            OptionError,
            "metric must be one of 'euclidean', 'squared_euclidean', 'manhattan', 'chebyshev', got 'cosine'",
        ),
        (
            lambda: reference.radial_distances(TWO, axis_scale=[1.0, 1.0]),
            ShapeError,
            "axis_scale must hold one number per output axis: expected shape (3,), got (2,); use 1.0 for an "
            "axis left as it is",
        ),
        (
            lambda: reference.radial_distances(TWO, axis_scale=[1.0, 0.0, 1.0]),
            OptionError,
            "axis_scale must be finite and above 0 on every axis; use 1.0 for an axis left as it is",
        ),
        (
            lambda: reference.radial_log_probs(TWO, beta=0.0),
            OptionError,
            "beta must be a finite number above 0, got 0.0; the paper uses beta=1.0",
        ),
        (
            lambda: reference.radial_distances(TWO, scale=-1),
            OptionError,
            "scale must be a finite number above 0, got -1; the paper uses scale=1.0",
        ),
        (
            lambda: reference.radial_probs(TWO, cutoff="joint"),
            OptionError,
            "cutoff must be None, a radius above 0 or 'disjoint', got 'joint'",
        ),
        (
            lambda: reference.radial_probs(TWO, cutoff=-1.0),
            OptionError,
            "cutoff must be None, a radius above 0 or 'disjoint', got -1.0",
        ),
        (
            lambda: reference.radial_nearest(TWO, 4),
            OptionError,
            "k must lie in 1..3, the number of classes, got 4",
        ),
        (
            lambda: reference.radial_nearest(TWO, 1.5),
            OptionError,
            "k must lie in 1..3, the number of classes, got 1.5",
        ),
        (
            lambda: reference.radial_loss(TWO, [0, 1, 2]),
            ShapeError,
            "outputs of shape (2, 3) need targets of shape (2,), got (3,); classes are on axis 1 of the outputs",
        ),
        (
            lambda: reference.radial_loss(TWO, [0.0, 1.0]),
            ShapeError,
            "outputs of shape (2, 3) need distributions of shape (2, 3) as targets, got (2,); "
            "call .astype(int) on targets that are classes",
        ),
        (
            lambda: reference.radial_loss(TWO, [True, False]),
            DTypeError,
            "targets must be classes of an integer dtype or distributions of floating point, got bool; "
            "call .astype(int) on classes",
        ),
        (
            lambda: reference.radial_loss(TWO, TWO, ignore_index=1),
            OptionError,
            "ignore_index names a class, but targets are distributions: got ignore_index=1; "
            "give examples to ignore a target of zeros, or pass classes",
        ),
        (
            lambda: reference.radial_loss(TWO, [0, 1], label_smoothing=-0.1),
            OptionError,
            "label_smoothing must lie in 0..1, got -0.1; 0.0 turns it off",
        ),
        (
            lambda: reference.radial_loss(TWO, [0, 3]),
            TargetError,
            "targets must lie in 0..2 or be ignore_index=-100, got 3; map your labels to 0..classes-1 or "
            "widen the last layer",
        ),
        (
            lambda: reference.radial_loss_grad(TWO, [-1, 0], ignore_index=7),
            TargetError,
            "targets must lie in 0..2 or be ignore_index=7, got -1; map your labels to 0..classes-1 or "
            "widen the last layer",
        ),
        (
            lambda: reference.radial_loss(TWO, [0, 1], weight=[1.0, 2.0]),
            ShapeError,
            "weight must hold one factor per class: expected shape (3,), got (2,); use 1.0 for classes "
            "that are not special",
        ),
        (
            lambda: reference.radial_loss(TWO, [0, 1], reduction="max"),
            OptionError,
            "reduction must be one of 'mean', 'sum', 'none', got 'max'",
        ),
        (
            lambda: reference.radial_loss_grad(TWO, [0, 1], reduction="none"),
            OptionError,
            "reduction must be one of 'mean', 'sum', got 'none'",
        ),
        (
            lambda: reference.simplex_prototypes(1),
            OptionError,
            "num_classes must be a whole number of at least 2, got 1",
        ),
        (
            lambda: reference.axis_prototypes(0),
            OptionError,
            "num_classes must be a whole number of at least 1, got 0",
        ),
    ],
)
def test_messages_say_what_was_expected_what_came_and_the_way_out(call, error, message):
    with pytest.raises(error, match=f"^{re.escape(message)}$"):
        call()
