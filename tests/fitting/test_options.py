import json

import pytest

from openradial.errors import OptionError
from openradial.fitting import FitOptions
from openradial.training.settings import read_toml

CLASSES = ("cat", "dog", "owl")


def test_without_names_every_class_is_known():
    split = FitOptions("x").split(CLASSES)
    assert (split.known, split.novel) == (CLASSES, ())


@pytest.mark.parametrize("known", ["cat,owl", "cat, owl ,", ["cat", "owl"], "names:cat,owl"])
def test_known_classes_are_named(known):
    assert FitOptions("x", known=known).split(CLASSES).novel == ("dog",)


def test_novel_classes_are_named_or_drawn():
    assert FitOptions("x", novel="dog").split(CLASSES).known == ("cat", "owl")
    assert len(FitOptions("x", known="random:2").split(CLASSES).known) == 2


@pytest.mark.parametrize("option", ["known", "novel"])
def test_a_class_that_does_not_exist_is_a_wrong_option(option):
    with pytest.raises(OptionError, match=f"{option} must name classes .* no class 'dgo'; did you mean 'dog'"):
        FitOptions("x", **{option: "cat,dgo"}).split(CLASSES)
    with pytest.raises(OptionError, match="no class 'zebra'; the classes are cat, dog, owl"):
        FitOptions("x", **{option: ["zebra"]}).split(CLASSES)


def test_a_file_and_options_have_the_same_names_and_options_win(tmp_path):
    (tmp_path / "run.toml").write_text('data = "a"\nlabel = "kind"\n[training]\nepochs = 9\nlearning_rate = 0.5\n')
    options = FitOptions.from_mapping(read_toml(tmp_path / "run.toml") | {"epochs": 2, "data": "b"})
    assert (options.data, options.label, dict(options.training)) == ("b", "kind", {"epochs": 2, "learning_rate": 0.5})
    assert json.loads(json.dumps(options.as_dict()))["training"] == {"epochs": 2, "learning_rate": 0.5}


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({}, "a model needs data: name a folder, a table or a data set"),
        ({"data": "x", "modle": "mlp"}, "there is no setting 'modle'; did you mean 'model'"),
        ({"data": "x", "false_reject_rate": 5}, "false_reject_rate must be a number above 0 and below 1, got 5"),
        ({"data": "x", "training": {"epochs": 0}}, r"epochs must lie in \[1"),
        ({"data": "x", "training": {"epoch": 1}}, "there is no setting 'epoch'; did you mean 'epochs'"),
        ({"data": "x", "known": "a", "novel": "b"}, "name either the known classes or the novel ones, got both"),
        ({"data": "x", "size": 4}, "size must be a whole number of at least 8, got 4"),
        ({"data": "x", "seed": -1}, "seed must be a whole number of at least 0"),
        ({"data": "x", "flip": "yes"}, "flip must be true or false, got 'yes'"),
        ({"data": "x", "head": "sigmoid"}, "head must be one of 'radial', 'softmax', 'doc', 'cac', got 'sigmoid'"),
        ({"data": "x", "loss": "cubed"}, "loss must be one of 'distance', 'squared', 'rescaled'"),
        ({"data": "x", "beta": 0}, "beta must be a finite number above 0"),
        ({"data": "x", "scale": -1}, "scale must be a finite number above 0"),
        ({"data": "x", "outliers": -1.0}, "outliers must have a finite weight of at least 0"),
        ({"data": "x", "method": "magic"}, "method must be one of 'auto', 'best', .* got 'magic'"),
        ({"data": "x", "calibration": "none"}, "calibration must be one of 'auto', 'split', 'cross', got 'none'"),
        (
            {"data": "x", "method": "gradient", "calibration": "cross"},
            "calibration='cross' is for method='closed-form': training ten networks takes too long",
        ),
        ({"data": "x", "method": "gradient", "random_features": 9}, "random_features is for method='closed-form'"),
        (
            {"data": "x", "method": "gradient", "class_weight": "auto"},
            "class_weight='auto' is for method='closed-form'",
        ),
        ({"data": "x", "method": "gradient", "model": "features"}, "model='features' has nothing to train"),
        ({"data": "x", "method": "closed-form", "head": "softmax"}, "head='softmax' .*; use method='gradient'"),
        ({"data": "x", "method": "closed-form", "epochs": 3}, "epochs is for a network that is trained, and in closed"),
        ({"data": "x", "method": "closed-form", "model": "mlp"}, "model is for a network that is trained"),
        ({"data": "x", "calibration": "cross", "outliers": 0.1}, "outliers is for a network that is trained"),
        ({"data": "x", "random_features": 9, "weights": "w.pt"}, "weights is for a network that is trained"),
        ({"data": "x", "label": 3}, "label must be a text, got 3"),
        ({"data": "x", "encoder": ["a"]}, r"encoder must be a text, got \['a'\]"),
        ({"data": "x", "known": 3}, "known must be a text or a list of texts, got 3"),
        ({"data": "x", "columns": 3}, "columns must be a text or a list of texts, got 3"),
        ({"data": "x", "training": 3}, "training must be a table of names and values, got 3"),
        ({"data": "x", "model_options": "a"}, "model_options must be a table of names and values, got 'a'"),
        ({"data": "x", "seed": 2**63}, "seed must be at most 9,223,372,036,854,775,807, got 9223372036854775808"),
        ({"data": "x", "reset": "all"}, "reset must be one of 'classifier', 'fully_connected', 'none'"),
    ],
)
def test_impossible_options_are_refused(values, message):
    with pytest.raises(OptionError, match=message):
        FitOptions.from_mapping(values)


def test_no_names_are_refused():
    with pytest.raises(OptionError, match="classes are named with commas between them, as in cat,dog, got ' , '"):
        FitOptions("x", known=" , ").split(CLASSES)


def test_options_survive_json():
    options = FitOptions("digits", known=("a", "b"), model_options={"hidden": [8]}, beta=2.0, training={"epochs": 3})
    again = FitOptions.from_mapping(json.loads(json.dumps(options.as_dict())))
    assert again.as_dict() == options.as_dict()


def test_settings_of_training_may_stand_beside_the_options():
    options = FitOptions.from_mapping({"data": "x", "epochs": 3, "training": {"epochs": 9, "ema": 0.9}, "seed": 4})
    assert dict(options.training) == {"epochs": 3, "ema": 0.9}
    assert options.seed == 4


def test_options_of_the_recipe_are_those_that_differ():
    assert FitOptions("x").recipe_options() == {"head": "radial", "loss": "squared", "scale": 1.0}
    options = FitOptions("x", beta=2.0, outliers=0.0, neighbours=False).recipe_options()
    assert (options["beta"], options["outlier_weight"], options["layers"]) == (2.0, 0.0, ())


@pytest.mark.parametrize(
    ("values", "table", "other"),
    [
        ({}, "closed-form", "gradient"),
        ({"class_weight": "balanced"}, "closed-form", "gradient"),
        ({"neighbours": False, "scale": 2.0, "beta": 1.0}, "closed-form", "gradient"),
        ({"epochs": 3}, "gradient", "gradient"),
        ({"model": "mlp"}, "gradient", "gradient"),
        ({"model_options": {"hidden": [3]}}, "gradient", "gradient"),
        ({"weights": "w.safetensors"}, "gradient", "gradient"),
        ({"outliers": 0.0}, "gradient", "gradient"),
        ({"head": "softmax"}, "gradient", "gradient"),
        ({"loss": "distance"}, "gradient", "gradient"),
        ({"method": "gradient"}, "gradient", "gradient"),
        ({"method": "closed-form"}, "closed-form", "closed-form"),
        ({"random_features": 0}, "closed-form", "closed-form"),
        ({"class_weight": "auto"}, "closed-form", "closed-form"),
        ({"calibration": "cross"}, "closed-form", "closed-form"),
        ({"model": "features"}, "closed-form", "closed-form"),
    ],
)
def test_tables_are_fitted_in_closed_form_unless_an_option_needs_training(values, table, other):
    options = FitOptions.from_mapping({"data": "x", **values})
    assert (options.choose_method("table"), options.choose_method("images")) == (table, other)


def test_options_of_the_closed_form_reach_the_recipe():
    options = FitOptions("x", class_weight="auto", random_features=30).recipe_options()
    assert (options["class_weight"], options["random_features"]) == ("auto", 30)


@pytest.mark.parametrize("strength", [-1.0, float("nan"), float("inf")])
def test_a_strength_of_augmentation_is_a_finite_number(strength):
    assert FitOptions("x", augment=0).augment == 0
    with pytest.raises(OptionError, match="augment must be a finite number above 0, got"):
        FitOptions("x", augment=strength)
