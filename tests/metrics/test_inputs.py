import re
import subprocess
import sys

import grimp
import numpy as np
import pytest
import torch

from openradial import metrics
from openradial.errors import DTypeError, OptionError, ShapeError, TargetError

PUBLIC = [
    "Interval",
    "OscrCurve",
    "ReliabilityBins",
    "RiskCoverage",
    "RocCurve",
    "accuracy",
    "aupr",
    "aurc",
    "auroc",
    "bootstrap",
    "brier",
    "confidences",
    "ece",
    "fpr_at_tpr",
    "misclassification_auroc",
    "open_f1",
    "oscr",
    "oscr_curve",
    "reliability_bins",
    "risk_coverage_curve",
    "roc_curve",
    "summary",
    "summary_intervals",
    "top_k_accuracy",
]


def test_the_public_names_are_these():
    assert metrics.__all__ == PUBLIC


def test_metrics_import_numpy_alone():
    graph = grimp.build_graph("openradial", include_external_packages=True, cache_dir=None)
    modules = {"openradial.metrics"} | graph.find_descendants("openradial.metrics")
    imported = {name for module in modules for name in graph.find_modules_directly_imported_by(module)} - modules
    names = {name for name in imported if name.split(".")[0] not in sys.stdlib_module_names}
    assert names == {"numpy", "openradial.errors"}


def test_metrics_run_without_torch_and_scikit_learn():
    code = "import sys; from openradial.metrics import auroc; auroc([1], [2]); print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert {"torch", "sklearn", "scipy"}.isdisjoint(loaded)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64])
def test_tensors_arrays_and_lists_give_the_same(dtype):
    known, novel = torch.tensor([1, 2, 4]).to(dtype), torch.tensor([3, 9]).to(dtype)
    expected = metrics.auroc([1, 2, 4], [3, 9])
    assert metrics.auroc(known, novel) == expected
    assert metrics.auroc(known.to(torch.float64).numpy(), novel) == expected


def test_tensors_that_need_a_gradient_are_taken():
    probs = torch.tensor([[0.5, 0.25]], requires_grad=True)
    assert metrics.brier(probs, torch.tensor([0])) == pytest.approx(0.375)


def test_flags_and_labels_may_be_tensors():
    labels, predictions = torch.tensor([0, 1]), torch.tensor([0, 0], dtype=torch.int32)
    assert metrics.accuracy(labels, predictions) == 0.5
    assert metrics.oscr(torch.zeros(2), torch.ones(1), labels == predictions) == 0.5


def test_results_are_plain_numbers():
    known, novel, correct = np.float32([0, 1]), np.float32([2]), np.array([True, False])
    found = metrics.summary(known, novel, correct)
    assert {type(value) for value in found.values()} == {float}
    assert {type(value) for value in metrics.bootstrap(metrics.auroc, known, novel, samples=2)} == {float}


@pytest.mark.parametrize(
    ("known", "novel", "error", "message"),
    [
        ([], [1.0], ShapeError, r"known must be a list of at least one score, got shape \(0,\)"),
        ([1.0], [[1.0]], ShapeError, r"novel must be a list of at least one score, got shape \(1, 1\)"),
        ([1.0], 1.0, ShapeError, r"novel must be a list of at least one score, got shape \(\)"),
        ([1.0], [0.0, np.nan], ShapeError, "novel must be numbers, got nan at index 1"),
        ([1.0], [np.inf, np.nan], ShapeError, "novel must be numbers, got nan at index 1"),
        ([1.0], [[1.0], [1.0, 2.0]], ShapeError, "novel must be an array, got lists of different lengths"),
        (["a"], [1.0], DTypeError, "known must be real numbers, got <U1"),
        ([1j], [1.0], DTypeError, "known must be real numbers, got complex128"),
        ([True], [1.0], DTypeError, "known must be real numbers, got bool"),
        ([None], [1.0], DTypeError, "known must be real numbers, got object"),
    ],
)
def test_what_is_no_list_of_scores_is_refused(known, novel, error, message):
    for metric in (metrics.auroc, metrics.aupr, metrics.fpr_at_tpr, metrics.roc_curve, metrics.summary):
        with pytest.raises(error, match=message):
            metric(known, novel)


@pytest.mark.parametrize(
    ("correct", "error", "message"),
    [
        ([True], ShapeError, "correct must have one entry per example: 2 examples but 1 correct"),
        ([], ShapeError, r"correct must be a list of at least one True or False, got shape \(0,\)"),
        ([[True, False]], ShapeError, r"correct must be a list of at least one True or False, got shape \(1, 2\)"),
        ([1, 0], DTypeError, "correct must be True or False, got int64; compare: predictions == labels"),
    ],
)
def test_what_does_not_say_right_or_wrong_is_refused(correct, error, message):
    scores = [0.0, 1.0]
    for metric in (metrics.aurc, metrics.risk_coverage_curve, metrics.misclassification_auroc):
        with pytest.raises(error, match=message):
            metric(scores, correct)
    for metric in (metrics.oscr, metrics.oscr_curve, metrics.summary):
        with pytest.raises(error, match=message):
            metric(scores, [1.0], correct)


@pytest.mark.parametrize(
    ("probs", "labels", "error", "message"),
    [
        ([0.5], [0], ShapeError, r"probs must have the shape \(examples, classes\) with at least one each, got \(1,\)"),
        ([[]], [0], ShapeError, r"probs must have the shape .* got \(1, 0\)"),
        ([[0.5], [np.nan]], [0, 0], ShapeError, "probs must be numbers, got nan at row 1"),
        (
            [[0.5], [-0.7]],
            [0, 0],
            OptionError,
            r"probs must be from 0 to 1, got -0.7 in row 1; log-probabilities need ",
        ),
        ([[3.5]], [0], OptionError, "probs must be from 0 to 1, got 3.5 in row 0"),
        ([[0.5]], [0, 0], ShapeError, "labels must have one entry per example: 1 examples but 2 labels"),
        ([[0.5]], [[0]], ShapeError, r"labels must be a list of at least one label, got shape \(1, 1\)"),
        ([[0.5]], [0.0], DTypeError, r"labels must be whole numbers, got float64; convert them with .astype\(int\)"),
        ([[0.5]], [True], DTypeError, "labels must be whole numbers, got bool"),
        ([[0.5]], [1], TargetError, r"labels must be classes from -1 to 0 \(-1 is unknown\), got 1 in row 0"),
        ([[0.5]], [-2], TargetError, r"labels must be classes from -1 to 0 \(-1 is unknown\), got -2 in row 0"),
    ],
)
def test_what_is_no_probability_or_label_is_refused(probs, labels, error, message):
    for metric in (metrics.ece, metrics.brier, metrics.reliability_bins, metrics.confidences):
        with pytest.raises(error, match=message):
            metric(probs, labels)


def test_predictions_are_checked_like_labels():
    with pytest.raises(
        TargetError, match=r"predictions must be classes from -1 to 1 \(-1 is unknown\), got 2 in row 0"
    ):
        metrics.ece([[0.5, 0.5]], [0], [2])
    with pytest.raises(ShapeError, match="predictions must have one entry per example: 1 examples but 2 predictions"):
        metrics.accuracy([0], [0, 1])
    with pytest.raises(TargetError, match=r"labels must be classes from -1 \(-1 is unknown\), got -7 in row 1"):
        metrics.accuracy([0, -7], [0, 1])
    with pytest.raises(TargetError, match=r"predictions must be classes from -1 to 2 .*, got 3 in row 1"):
        metrics.open_f1([0, 1], [0, 3], num_classes=3)
    with pytest.raises(OptionError, match="num_classes must be a whole number of at least 1, got 0"):
        metrics.open_f1([0], [0], num_classes=0)


def test_names_are_sent_to_their_indices_where_columns_are_needed():
    message = (
        "labels must be whole numbers, got names; use their indices: "
        "[classes.index(name) if name in classes else -1 for name in labels]"
    )
    for metric in (metrics.ece, metrics.brier, metrics.top_k_accuracy):
        with pytest.raises(DTypeError, match=f"^{re.escape(message)}$"):
            metric([[0.5]], ["a"])


def test_names_and_numbers_do_not_mix():
    message = "^labels and predictions must be both whole numbers or both names, got names and int64$"
    for metric in (metrics.accuracy, metrics.open_f1):
        with pytest.raises(DTypeError, match=message):
            metric(["a"], [0])


def test_names_are_checked_like_numbers():
    with pytest.raises(ShapeError, match="predictions must have one entry per example: 1 examples but 2 predictions"):
        metrics.accuracy(["a"], ["a", "b"])
    with pytest.raises(ShapeError, match=r"labels must be a list of at least one label, got shape \(1, 1\)"):
        metrics.accuracy([["a"]], ["a"])
    with pytest.raises(DTypeError, match="labels must be whole numbers, got object"):
        metrics.accuracy(np.array(["a", None]), np.array(["a", None]))
    with pytest.raises(TargetError, match=r"^labels and predictions must name at most 2 classes, got 3 names$"):
        metrics.open_f1(["a", "b"], ["c", "unknown"], num_classes=2)


def test_the_closed_world_knows_every_label():
    message = "labels must be classes from 0 to 1, all of them known, got -1 in row 1"
    with pytest.raises(TargetError, match=message):
        metrics.top_k_accuracy([[0.5, 0.5], [0.5, 0.5]], [0, -1])
    with pytest.raises(ShapeError, match="scores must be numbers, got nan at row 0"):
        metrics.top_k_accuracy([[np.nan, 0.5]], [0])
