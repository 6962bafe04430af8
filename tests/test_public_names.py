import re
import subprocess
import sys
from importlib.metadata import version

import pytest

import openradial
from openradial import (
    attacks,
    bayes,
    bundle,
    data,
    decision,
    errors,
    evaluation,
    experiments,
    export,
    fetch,
    fitting,
    functional,
    heads,
    models,
    reference,
    training,
)

PUBLIC = {
    openradial: [
        "AxisPrototypes",
        "FixedPrototypes",
        "LearnedPrototypes",
        "OpenRadialError",
        "RadialClassifier",
        "RadialLayer",
        "RadialLinear",
        "RadialLoss",
        "SimplexPrototypes",
        "attacks",
        "bayes",
        "bundle",
        "data",
        "decision",
        "errors",
        "export",
        "functional",
        "heads",
        "metrics",
        "models",
        "outliers",
        "reference",
        "replace_head",
        "training",
    ],
    functional: [
        "radial_distances",
        "radial_log_probs",
        "radial_loss",
        "radial_nearest",
        "radial_probs",
        "safe_beta",
    ],
    reference: [
        "axis_prototypes",
        "radial_distances",
        "radial_distances_grad",
        "radial_log_probs",
        "radial_loss",
        "radial_loss_grad",
        "radial_nearest",
        "radial_probs",
        "simplex_prototypes",
    ],
    errors: [
        "BuildError",
        "BundleError",
        "DTypeError",
        "DataError",
        "ExportError",
        "FetchError",
        "HeadError",
        "MissingError",
        "OpenRadialError",
        "OptionError",
        "ShapeError",
        "TargetError",
        "TrainingError",
        "WeightsError",
    ],
    data: [
        "Batches",
        "Compose",
        "DataSource",
        "Examples",
        "FolderBatches",
        "ImageFolder",
        "Normalise",
        "RandomFlip",
        "RandomShift",
        "RawInput",
        "Split",
        "Table",
        "TableEncoder",
        "Vocabulary",
        "as_unknown",
        "compare_classes",
        "count_duplicates",
        "divide",
        "download",
        "identical_groups",
        "load",
        "loader_for",
        "named_split",
        "names",
        "parse_known",
        "random_split",
        "random_splits",
        "read_table",
        "read_ts",
        "read_tsv",
        "scan",
        "scan_listed",
        "sources",
        "tiny_imagenet",
        "train_test_split",
    ],
    models: [
        "MLP",
        "VGG19",
        "AlexNet",
        "EfficientNetLite0",
        "MnistCNN",
        "Network",
        "ResNet",
        "SequenceClassifier",
        "TextCNN",
        "TextRNN",
        "Weights",
        "build",
        "imagenet_weights",
        "load_weights",
        "names",
        "options",
    ],
    training: ["History", "Machine", "Objective", "Settings", "fit"],
    bayes: [
        "BatchCounter",
        "BayesConv1d",
        "BayesConv2d",
        "BayesEmbedding",
        "BayesGRU",
        "BayesLSTM",
        "BayesLayer",
        "BayesLinear",
        "BayesRNN",
        "Elbo",
        "ElboObjective",
        "Ensemble",
        "GaussianPrior",
        "MCDropout",
        "Posterior",
        "Prediction",
        "Prior",
        "ScaleMixturePrior",
        "elbo",
        "expected_entropy",
        "expected_missing_mass",
        "freeze",
        "kl_weight",
        "mutual_information",
        "posterior",
        "predict",
        "predictive_entropy",
        "to_bayesian",
        "with_missing_mass",
    ],
    heads: [
        "CACHead",
        "Combination",
        "DOCHead",
        "GaussianMixtureDensity",
        "Head",
        "MahalanobisDensity",
        "NeighbourDensity",
        "OpenMaxHead",
        "ParzenDensity",
        "RadialHead",
        "Scorer",
        "SoftmaxHead",
        "load_head",
        "make_head",
        "save_head",
    ],
    attacks: [
        "LOSSES",
        "AttackCurve",
        "HeadLoss",
        "Outcomes",
        "accuracy_under_attack",
        "fgsm",
        "losses_for",
        "outcomes",
        "pgd",
        "worst",
    ],
    bundle: [
        "Bundle",
        "ImageInputs",
        "Inputs",
        "PointInputs",
        "Predictions",
        "SequenceInputs",
        "TableInputs",
        "TextInputs",
        "describe",
        "load",
        "save",
    ],
    export: ["Agreement", "ExportedModel", "OnnxModel", "TorchModel", "to_onnx", "to_torch"],
    decision: [
        "BetaFit",
        "FalseRejectReport",
        "OperatingPoint",
        "PredictionSets",
        "Rejector",
        "conformal_p_values",
        "false_reject_report",
        "fit_beta",
        "operating_point",
    ],
    experiments: ["CLAIMS", "IDS", "Claim", "Experiment", "Plan", "find", "reproduce", "write_report"],
    evaluation: [
        "Evaluation",
        "Row",
        "Run",
        "Sample",
        "evaluate",
        "known_sample",
        "novel_sample",
        "predict_rows",
        "records",
        "rows_of",
        "write_report",
    ],
    fitting: [
        "Choice",
        "FitJob",
        "FitReport",
        "Fitted",
        "Parts",
        "Recipe",
        "choose",
        "choose_settings",
        "fit_job",
        "hold_out",
        "make_recipe",
        "open_classifier",
    ],
    fetch: ["ARCHIVE", "Mirror", "Package", "Problem", "Source", "check", "fetch", "file_matches", "folder"],
}
every_module = pytest.mark.parametrize("module", PUBLIC, ids=lambda module: module.__name__)


def run(code):
    result = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    return result.stdout.split()


@every_module
def test_public_names_are_pinned(module):
    assert module.__all__ == PUBLIC[module]


@every_module
def test_public_names_exist_and_are_documented(module):
    for name in PUBLIC[module]:
        assert getattr(module, name).__doc__


@every_module
def test_public_names_are_listed_by_dir(module):
    assert set(PUBLIC[module]) <= set(dir(module))


def test_names_are_listed_once_and_before_they_are_loaded():
    names = run("import openradial; print(*dir(openradial))")
    assert set(PUBLIC[openradial]) <= set(names)
    assert len(names) == len(set(names))


def test_every_name_loads_first_in_a_fresh_interpreter():
    code = "import openradial, sys\nfor name in openradial.__all__: print(getattr(openradial, name).__name__)"
    loaded = [name.rpartition(".")[2] for name in run(code)]
    assert loaded == PUBLIC[openradial]


def test_star_import_gives_the_public_names():
    names = run("from openradial import *; print(*[name for name in dir() if not name.startswith('__')])")
    assert sorted(names) == sorted(PUBLIC[openradial])


def test_importing_openradial_loads_no_large_package():
    loaded = run("import sys, openradial; print(*{name.partition('.')[0] for name in sys.modules})")
    assert {"torch", "numpy", "matplotlib", "sklearn", "scipy", "rich"}.isdisjoint(loaded)


def test_using_the_layer_loads_no_package_of_the_extras():
    code = (
        "import sys, torch\nbefore = set(sys.modules)\nimport openradial\n"
        "openradial.replace_head(torch.nn.Linear(2, 3), 3)(torch.zeros(1, 2))\n"
        "print(*{name.partition('.')[0] for name in set(sys.modules) - before})"
    )
    assert {"matplotlib", "sklearn", "scipy", "rich", "pandas"}.isdisjoint(run(code))


def test_an_unknown_name_lists_the_public_ones():
    message = f"module 'openradial' has no attribute 'RadialLayr'; public names: {', '.join(PUBLIC[openradial])}"
    with pytest.raises(AttributeError, match=f"^{re.escape(message)}$"):
        openradial.RadialLayr  # noqa: B018


def test_a_missing_name_is_missing_to_hasattr_and_import():
    assert not hasattr(openradial, "softmax")
    with pytest.raises(ImportError, match="softmax"):
        from openradial import softmax  # noqa: F401


def test_version_is_that_of_the_installed_package():
    assert openradial.__version__ == version("openradial")
    assert re.fullmatch(r"\d+\.\d+\.\d+(\.dev\d+|rc\d+)?", openradial.__version__)


@pytest.mark.parametrize(
    ("error", "builtin"),
    [
        (errors.ShapeError, ValueError),
        (errors.DTypeError, TypeError),
        (errors.TargetError, IndexError),
        (errors.OptionError, ValueError),
        (errors.HeadError, ValueError),
        (errors.BundleError, ValueError),
        (errors.ExportError, RuntimeError),
        (errors.BuildError, RuntimeError),
    ],
)
def test_every_error_is_ours_and_the_builtin_it_says(error, builtin):
    assert issubclass(error, openradial.OpenRadialError)
    assert issubclass(error, builtin)
    assert re.search(rf"── {error.__name__} +\({builtin.__name__}\)", errors.__doc__)


def test_the_root_of_the_errors_is_no_builtin_error():
    assert errors.OpenRadialError.__bases__ == (Exception,)
    assert openradial.OpenRadialError is errors.OpenRadialError
