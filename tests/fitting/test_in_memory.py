import numpy as np
import pytest
import torch

import openradial
from openradial.data import sources
from openradial.data.examples import Examples
from openradial.data.readers.folder import scan
from openradial.errors import DataError, OptionError
from openradial.fitting import as_source, fit
from tests.fitting.fit_data import write_images, write_table

QUICK = {"epochs": 12, "learning_rate": 0.01, "show_progress": False}


def clouds(n=150, seed=0, size=2):
    random = np.random.default_rng(seed)
    y = np.arange(n) % 2
    return random.normal(1000 * y[:, None], 100, (n, size)), np.array(["left", "right"])[y]


def test_a_pair_of_arrays_is_fitted_and_predicted():
    x, y = clouds()
    model = fit((x, y), **QUICK)
    assert model.classes == ("left", "right")
    assert model.report.accuracy == 1.0
    predictions = model.predict(x[:6])
    assert [each.nearest for each in predictions] == y[:6].tolist()
    assert model.predict([{"x0": x[0, 0], "x1": x[0, 1]}])[0].nearest == y[0]
    assert model.metadata["data"]["name"] == "data in memory"


def test_a_saved_model_of_arrays_predicts_arrays(tmp_path):
    x, y = clouds()
    model = fit((x.tolist(), y.tolist()), out=tmp_path / "model", **QUICK)
    loaded = openradial.bundle.load(tmp_path / "model")
    assert loaded.predict(x).names == model.predict(x).names


def test_missing_numbers_are_filled():
    x, y = clouds()
    x[::7, 0] = np.nan
    model = fit((x, y), **QUICK)
    assert model.report.accuracy > 0.9
    assert len(model.predict(x[:8])) == 8


@pytest.mark.parametrize("data", ["table", "source"])
def test_a_table_and_a_source_are_fitted_as_their_file(tmp_path, data):
    path = write_table(tmp_path / "t.csv", rows=150)
    source = sources.open(path, label="kind")
    options = {**QUICK, "epochs": 2}
    model = fit(source.train if data == "table" else source, **options)
    again = fit(path, label="kind", **options)
    tensors = again.state_dict()
    assert all(torch.equal(tensor, tensors[name]) for name, tensor in model.state_dict().items())
    assert model.metadata["data"]["name"] == ("t.csv" if data == "source" else "data in memory")


def test_a_folder_of_images_is_fitted_as_its_path(tmp_path):
    root = write_images(tmp_path / "shapes", each=40)
    options = {**QUICK, "epochs": 2, "size": 8}
    model, again = fit(scan(root), **options), fit(root, **options)
    tensors = again.state_dict()
    assert all(torch.equal(tensor, tensors[name]) for name, tensor in model.state_dict().items())


def test_examples_and_tensors_are_used_as_they_are():
    y = torch.arange(150) % 2
    x = torch.eye(2)[y] + 0.1 * torch.randn(150, 2)
    by_examples = fit(Examples(x, y, ("0", "1")), **QUICK)
    by_tensors = fit((x.double(), y), **QUICK)
    assert by_examples.report.accuracy == by_tensors.report.accuracy == 1.0
    assert by_tensors.predict(x[:6]).nearest.tolist() == y[:6].tolist()
    tensors = by_tensors.state_dict()
    assert all(torch.equal(tensor, tensors[name]) for name, tensor in by_examples.state_dict().items())


@pytest.mark.parametrize("shape", [(8, 8), (1, 8, 8), (8, 8, 1), (3, 8, 8), (8, 8, 3)])
def test_images_may_have_their_channels_first_or_last(shape):
    pixels = np.random.default_rng(0).integers(0, 255, (10, *shape), dtype=np.uint8)
    source = as_source((pixels, np.arange(10) % 2))
    channels = 3 if 3 in shape else 1
    assert (source.kind, tuple(source.train.inputs.shape)) == ("images", (10, channels, 8, 8))
    last = pixels.transpose(0, 2, 3, 1) if shape[0] in (1, 3) else pixels.reshape(10, 8, 8, channels)
    assert torch.equal(source.train.inputs, torch.from_numpy(last.transpose(0, 3, 1, 2).copy()))


def test_sequences_have_three_dimensions():
    source = as_source((np.zeros((10, 7, 3)), list("ab") * 5))
    assert (source.kind, source.train.inputs.dtype) == ("sequences", torch.float32)


def test_labels_are_named_and_numbers_are_in_their_order():
    x = np.zeros((4, 2))
    assert as_source((x, [10, 9, 2, 9])).classes == ("2", "9", "10")
    assert as_source((x, np.array(["b", "a", "b", "a"], dtype=object))).classes == ("a", "b")
    assert as_source((x, torch.tensor([1, 0, 1, 0]))).train.labels.tolist() == [1, 0, 1, 0]
    big = 2**60
    assert as_source((x, np.array([big, big + 1, big, big + 1]))).classes == (str(big), str(big + 1))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ((np.zeros((3, 2)), [0, 1]), "inputs and labels must have the same length, got 3 and 2"),
        ((np.zeros((2, 2)), [[0], [1]]), r"labels must have the shape \(n,\), one per input, got \(2, 1\)"),
        (([["a"], ["b"]], [0, 1]), "inputs must be an array of numbers"),
        (([[1.0], [1.0, 2.0]], [0, 1]), "inputs must be an array"),
        ((np.zeros(2), [0, 1]), r"got float64 of shape \(2,\)"),
        ((np.array([[1.0], [np.inf]]), [0, 1]), "row 2, column 'x0': expected a finite number, got inf"),
        ((np.zeros((2, 3, 4, 2), np.uint8), [0, 1]), "expected square images .* got uint8"),
        ((torch.zeros(2, 3, dtype=torch.int64), [0, 1]), "expected square images .* got int64"),
        ((np.zeros((2, 1)), [None, "a"]), "labels"),
    ],
)
def test_arrays_that_cannot_be_used_are_refused(data, message):
    with pytest.raises(DataError, match=message):
        as_source(data)


def test_other_data_are_refused():
    with pytest.raises(OptionError, match=r"data must be a path, .* a pair of arrays .* got dict"):
        as_source({"x": 1})
    with pytest.raises(OptionError, match="label, text and embeddings are for files"):
        as_source((np.zeros((2, 2)), [0, 1]), label="kind")
