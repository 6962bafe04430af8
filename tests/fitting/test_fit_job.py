import json

import pytest

from openradial.errors import DataError, OptionError
from openradial.fitting import FitJob

CLASSES = ("cat", "dog", "owl")


def test_without_names_every_class_is_known():
    split = FitJob("x").split(CLASSES)
    assert (split.known, split.novel) == (CLASSES, ())


@pytest.mark.parametrize("known", ["cat,owl", "cat, owl ,", ["cat", "owl"], "names:cat,owl"])
def test_known_classes_are_named(known):
    assert FitJob("x", known=known).split(CLASSES).novel == ("dog",)


def test_novel_classes_are_named_or_drawn():
    assert FitJob("x", novel="dog").split(CLASSES).known == ("cat", "owl")
    assert len(FitJob("x", known="random:2").split(CLASSES).known) == 2


def test_a_class_that_is_not_there_is_refused():
    with pytest.raises(DataError, match="'dgo' is not a class of these data; did you mean 'dog'"):
        FitJob("x", known="cat,dgo").split(CLASSES)


def test_a_file_and_options_have_the_same_names_and_options_win(tmp_path):
    (tmp_path / "run.toml").write_text('data = "a"\nlabel = "kind"\n[training]\nepochs = 9\nlearning_rate = 0.5\n')
    job = FitJob.from_toml(tmp_path / "run.toml", epochs=2, data="b")
    assert (job.data, job.label, dict(job.training)) == ("b", "kind", {"epochs": 2, "learning_rate": 0.5})
    assert json.loads(json.dumps(job.as_dict()))["training"] == {"epochs": 2, "learning_rate": 0.5}


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({}, "a model needs data: name a folder, a table or a set"),
        ({"data": "x", "modle": "mlp"}, "there is no setting 'modle'; did you mean 'model'"),
        ({"data": "x", "false_reject_rate": 5}, "false_reject_rate must be a number above 0 and below 1, got 5"),
        ({"data": "x", "training": {"epochs": 0}}, r"epochs must lie in \[1"),
        ({"data": "x", "training": {"epoch": 1}}, "there is no setting 'epoch'; did you mean 'epochs'"),
        ({"data": "x", "known": "a", "novel": "b"}, "name either the known classes or the novel ones, got both"),
        ({"data": "x", "size": 4}, "size must be a whole number of at least 8, got 4"),
        ({"data": "x", "seed": -1}, "seed must be a whole number of at least 0"),
        ({"data": "x", "flip": "yes"}, "flip must be true or false, got 'yes'"),
    ],
)
def test_a_job_that_cannot_be_is_refused(values, message):
    with pytest.raises(OptionError, match=message):
        FitJob.from_mapping(values)


def test_no_names_are_refused():
    with pytest.raises(OptionError, match="classes are named with commas between them, as in cat,dog, got ' , '"):
        FitJob("x", known=" , ").split(CLASSES)
