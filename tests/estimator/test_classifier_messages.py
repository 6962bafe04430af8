import math
import re
import subprocess
import sys

import numpy as np
import pytest
import torch
from torch import nn

from openradial.errors import DataError, OptionError, ShapeError, TargetError
from openradial.estimator import RadialClassifier

X = np.random.default_rng(0).normal(size=(40, 3))
Y = np.arange(40) % 2


def refuses(error, message):
    return pytest.raises(error, match=f"^{re.escape(message)}$")


def fit(**options):
    return RadialClassifier(**{"max_epochs": 1, "hidden": (4,), "false_reject_rate": None} | options).fit(X, Y)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_epochs": 0}, "max_epochs must be a whole number of at least 1, got 0"),
        ({"batch_size": 0}, "batch_size must lie in [1, 1000000000], got 0"),
        ({"batch_size": 2.5}, "batch_size must be a whole number, got 2.5"),
        ({"learning_rate": 0.0}, "learning_rate must lie in (0, 1000000.0], got 0.0"),
        ({"optimiser": "lbfgs"}, "optimiser must be one of 'adam', 'adamw', 'muon', 'rmsprop', 'sgd', got 'lbfgs'"),
        ({"schedule": "none"}, "schedule must be one of 'constant', 'linear', 'cosine', 'step', got 'none'"),
        ({"early_stopping": True, "patience": 0}, "patience must lie in [1, 1000000000], got 0"),
        ({"hidden": 50}, "hidden must be a tuple of whole numbers of at least 1, got 50"),
        ({"hidden": (0,)}, "hidden must be a tuple of whole numbers of at least 1, got (0,)"),
        ({"beta": "best"}, "beta must be one of 'safe', 'fit', got 'best'"),
        ({"beta": -1.0}, "beta must be a finite number above 0, got -1.0; the paper uses beta=1.0"),
        ({"scale": 0.0}, "scale must be a finite number above 0, got 0.0; the paper uses scale=1.0"),
        ({"loss": "hinge"}, "loss must be one of 'distance', 'squared', 'rescaled', got 'hinge'"),
        ({"outliers": -0.1}, "outliers must have a finite weight of at least 0, got -0.1; 0 makes none"),
        ({"outliers": math.inf}, "outliers must have a finite weight of at least 0, got inf; 0 makes none"),
        ({"outliers": True}, "outliers must have a finite weight of at least 0, got True; 0 makes none"),
        ({"outliers": "mean"}, "outliers must have a finite weight of at least 0, got 'mean'; 0 makes none"),
        ({"neighbours": 5}, "neighbours must be True or False, got 5; it is the one nearest row"),
        ({"device": "tpu"}, "device must be one of 'cpu', 'cuda', 'mps', got 'tpu'"),
        (
            {"early_stopping": True, "validation_fraction": 1.0},
            "validation_fraction must be a number above 0 and below 1, got 1.0; 0.05 means 5 %",
        ),
        (
            {"false_reject_rate": 0.1, "calibration_fraction": 0},
            "calibration_fraction must be a number above 0 and below 1, got 0; 0.05 means 5 %",
        ),
        (
            {"false_reject_rate": 1.5},
            "false_reject_rate must be a number above 0 and below 1, got 1.5; 0.05 means 5 %",
        ),
        (
            {"module": "resnet"},
            "module must be None, an nn.Module or a function (num_features, num_classes) -> nn.Module, got 'resnet'",
        ),
        ({"module": lambda d, k: k}, "module must return an nn.Module, it returned a int"),
        (
            {"module": nn.Flatten()},
            "module must have at least one parameter to train, got none that requires a gradient",
        ),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_an_impossible_option_is_refused(options, message):
    with refuses(OptionError, message):
        fit(**options)


def test_too_few_rows_for_a_rate_are_refused_before_the_training():
    def fail(num_features, num_classes):
        raise AssertionError("a network was made")

    message = (
        "a false_reject_rate of 0.05 needs at least 19 held-out rows, got 8: calibration_fraction=0.2 of 40 rows; "
        "fit at least 100 rows, raise calibration_fraction to 0.5, ask for a rate of at least 1/9 or reject no row "
        "with false_reject_rate=None"
    )
    with refuses(OptionError, message):
        fit(false_reject_rate=0.05, module=fail)


def test_no_fraction_is_named_where_there_are_fewer_rows_than_a_rate_needs():
    message = (
        "a false_reject_rate of 0.01 needs at least 99 held-out rows, got 8: calibration_fraction=0.2 of 40 rows; "
        "fit at least 500 rows, ask for a rate of at least 1/9 or reject no row with false_reject_rate=None"
    )
    with refuses(OptionError, message):
        fit(false_reject_rate=0.01)


@pytest.mark.parametrize("k", [2, 3, 7])
@pytest.mark.parametrize("way", ["rows", "fraction", "rate"])
def test_each_way_out_of_too_few_rows_leads_out(k, way):
    options = {"false_reject_rate": 0.05, "max_epochs": 1, "hidden": (4,)}
    rows, y = np.random.default_rng(0).normal(size=(600, 3)), np.arange(600) % k
    with pytest.raises(OptionError) as caught:
        RadialClassifier(**options).fit(rows[:42], y[:42])
    ways = re.search(r"at least (\d+) rows, raise calibration_fraction to (\S+), .* 1/(\d+) or", str(caught.value))
    changed = {"fraction": {"calibration_fraction": float(ways[2])}, "rate": {"false_reject_rate": 1 / int(ways[3])}}
    n = int(ways[1]) if way == "rows" else 42
    assert RadialClassifier(**options | changed.get(way, {})).fit(rows[:n], y[:n]).classifier_.rejector.is_fitted


def test_options_are_not_looked_at_before_fit():
    assert RadialClassifier(max_epochs=-1, device="tpu", module=3).set_params(beta="?").beta == "?"


@pytest.mark.parametrize(
    ("module", "got"),
    [
        (nn.Linear(3, 5), "(2, 5)"),
        (nn.Sequential(nn.Linear(3, 2), nn.Flatten(0)), "(4,)"),
        (nn.LSTM(3, 2), "a tuple"),
    ],
)
def test_a_network_with_other_outputs_than_classes_is_refused(module, got):
    message = (
        f"the network must give one output per class, of shape (b, 2), got {got} for b = 2; make its last layer 2 wide"
    )
    with refuses(ShapeError, message):
        fit(module=module)


@pytest.mark.parametrize("module", [nn.Linear(5, 2), lambda d, k: nn.Linear(d + 2, k)], ids=["network", "function"])
def test_a_network_for_rows_of_another_width_is_refused(module):
    message = (
        "module must take rows of shape (b, 3) and give outputs of shape (b, 2), but for b = 2 it failed: "
        "mat1 and mat2 shapes cannot be multiplied (2x3 and 5x2)"
    )
    with refuses(ShapeError, message):
        fit(module=module)


def test_a_factory_that_does_not_take_two_numbers_is_refused():
    message = (
        "module must be a function (num_features, num_classes) -> nn.Module, but it cannot be called with two numbers: "
        "too many positional arguments"
    )
    with refuses(OptionError, message):
        fit(module=lambda: nn.Linear(3, 2))


def test_an_error_inside_a_factory_stays_what_it_is():
    def fail(num_features, num_classes):
        raise TypeError("my own mistake")

    with pytest.raises(TypeError, match=r"^my own mistake$"):
        fit(module=fail)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_device_that_is_not_there_is_refused():
    with pytest.raises(OptionError, match=r"^training cannot start with accelerator='cuda', devices=1: "):
        fit(device="cuda")


def test_one_class_is_refused():
    with refuses(DataError, "at least 2 classes are needed, got 1 class: 7; add examples of another"):
        RadialClassifier().fit(X, np.full(40, 7))


def test_nothing_can_be_held_out_of_single_examples():
    message = (
        "calibration_fraction needs a class with at least 2 different rows (or groups) to hold one out, "
        "got 1 of each class"
    )
    with refuses(DataError, message):
        RadialClassifier(false_reject_rate=0.5).fit(X[:3], [0, 1, 2])
    with refuses(DataError, message):
        RadialClassifier(false_reject_rate=0.5).fit(np.tile(np.eye(3), (20, 1)), np.arange(60) % 3)
    with refuses(DataError, message):
        RadialClassifier(false_reject_rate=0.5).fit(X, Y, groups=Y)


def test_copies_of_a_row_count_once_where_a_rate_needs_rows():
    message = (
        "a false_reject_rate of 0.05 needs at least 19 held-out different rows (or groups), got 8: "
        "calibration_fraction=0.2 of 40 different rows (or groups); fit at least 100 different rows (or groups), "
        "raise calibration_fraction to 0.5, ask for a rate of at least 1/9 or reject no row with "
        "false_reject_rate=None"
    )
    for rows, y, groups in [(np.repeat(X, 5, 0), np.repeat(Y, 5), None), (X, Y, np.arange(40))]:
        with refuses(OptionError, message if groups is None else message.replace("different rows (or groups)", "rows")):
            RadialClassifier(false_reject_rate=0.05).fit(rows, y, groups=groups)


@pytest.mark.parametrize(
    ("groups", "shape"), [(np.zeros(39), "(39,)"), (np.zeros((40, 1)), "(40, 1)"), (3, "()"), ([], "(0,)")]
)
def test_groups_of_another_length_than_the_rows_are_refused(groups, shape):
    with refuses(DataError, f"groups must have one value per row, shape (40,), got shape {shape}"):
        RadialClassifier(false_reject_rate=0.3).fit(X, Y, groups=groups)
    with refuses(DataError, f"groups must have one value per row, shape (40,), got shape {shape}"):
        fit(false_reject_rate=0.3).calibrate(X, Y, groups=groups)


def test_columns_too_large_to_be_standardised_are_refused():
    message = (
        "column 1 has numbers up to 1e+300, too large to be standardised; "
        "divide them, or remove placeholders of missing values"
    )
    rows = X.copy()
    rows[::3, 1] = 1e300
    with refuses(DataError, message):
        RadialClassifier(false_reject_rate=None).fit(rows, Y)


def test_the_first_part_must_name_all_classes():
    with refuses(OptionError, "the first call of partial_fit must name all classes: pass classes=[...]"):
        RadialClassifier().partial_fit(X, Y)


def test_later_parts_have_the_classes_of_the_first():
    classifier = RadialClassifier(hidden=(4,)).partial_fit(X, Y, classes=[0, 1])
    message = "classes must be those of the first call, 0, 1, got 0, 1, 2; fit a new classifier for other classes"
    with refuses(OptionError, message):
        classifier.partial_fit(X, Y, classes=[0, 1, 2])


@pytest.mark.parametrize(("labels", "shown"), [(Y + 2, "2, 3"), (np.array(["a", "b"])[Y], "'a', 'b'")])
def test_labels_of_other_classes_are_refused(labels, shown):
    message = f"labels must be among the classes 0, 1, got {shown}; fit a new classifier to add classes"
    with refuses(TargetError, message):
        fit().partial_fit(X, labels)
    with refuses(TargetError, message):
        fit(false_reject_rate=0.3).calibrate(X, labels)


def test_weights_for_all_labels_cannot_come_from_a_part_of_them():
    message = "class_weight='balanced' needs all labels at once; give partial_fit a dict of weights"
    with refuses(OptionError, message):
        RadialClassifier(class_weight="balanced").partial_fit(X, Y, classes=[0, 1])


def test_no_row_is_rejected_without_a_calibration():
    message = (
        "rows can be rejected only after a calibration: fit with a false_reject_rate, call calibrate with known "
        "rows that were not trained on, or reject no row with false_reject_rate=None"
    )
    with refuses(OptionError, message):
        fit().predict(X, false_reject_rate=0.1)


def test_a_calibration_must_be_of_use():
    with refuses(OptionError, "there is nothing to calibrate: set false_reject_rate, or beta='fit'"):
        fit().calibrate(X, Y)


def test_a_missing_scikit_learn_is_named_with_the_way_to_get_it():
    code = (
        "import sys; sys.modules['sklearn'] = None\n"
        "import openradial\n"
        "try: openradial.RadialClassifier\n"
        "except openradial.errors.MissingError as error: print(error)"
    )
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert printed == (
        "RadialClassifier needs the package sklearn, which is not installed; run: pip install 'openradial[sklearn]'\n"
    )
