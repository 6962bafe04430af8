import json
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from made_bundles import (
    CLASSES,
    RAW,
    assert_same,
    image_bundle,
    pixels,
    point_bundle,
    sequence_bundle,
    table_bundle,
    text_bundle,
)
from PIL import Image

from openradial.classifier import Prediction, Predictions
from openradial.data.inputs import base
from openradial.errors import DataError, DTypeError, OptionError, ShapeError
from openradial.heads import SoftmaxHead
from openradial.scorers import NeighbourScorer


def decided_one_by_one(bundle, x, rate):
    """The definition: each input alone, through network, head and rejector."""
    model, found = bundle, []
    for each in bundle.preprocessing.transform(x):
        with torch.no_grad():
            o = model.net(each[None])
        log_probs = model.head.log_probs(o)[0].tolist()
        answer = model.decide(each[None])
        p = float(answer.p_values[0])
        ranked = sorted(range(len(log_probs)), key=lambda k: -log_probs[k])
        found.append((ranked[0] if p > rate else -1, ranked, np.exp([log_probs[k] for k in ranked]), p))
    return found


def test_predictions_are_what_network_head_and_rejector_say():
    bundle, rate = image_bundle(), 0.3
    found = bundle.predict(pixels(30, seed=3), rate)
    for i, (label, ranked, probs, p) in enumerate(decided_one_by_one(bundle, pixels(30, seed=3), rate)):
        assert found.labels[i] == label
        assert found.nearest[i] == ranked[0]
        assert found.top[i].tolist() == ranked
        assert found.top_probability[i] == pytest.approx(probs, rel=1e-5)
        assert found.probability[i] == pytest.approx(probs[0], rel=1e-5)
        assert found.distance[i] == pytest.approx(-np.log(probs[0]), rel=1e-4)  # beta is 1
        assert found.p_values[i] == pytest.approx(p, abs=0.05)
    assert 0 < (found.labels < 0).mean() < 1


@pytest.mark.parametrize("make", RAW, ids=lambda make: make.__name__)
def test_prepared_tensors_and_raw_things_give_the_same(make):
    bundle, raw = make(), RAW[make]()
    assert_same(bundle.predict(bundle.preprocessing.ready(raw)), bundle.predict(raw))


@pytest.mark.parametrize("make", RAW, ids=lambda make: make.__name__)
def test_the_parts_in_which_inputs_are_taken_do_not_matter(make, monkeypatch):
    bundle, raw = make(), RAW[make]()
    whole = bundle.predict(raw)
    monkeypatch.setattr(base, "MOST_ROWS", 3)
    parted = bundle.predict(raw)
    np.testing.assert_array_equal(parted.nearest, whole.nearest)
    np.testing.assert_allclose(parted.unknown_score, whole.unknown_score, rtol=1e-5, atol=1e-6)


def test_at_most_so_many_rows_reach_the_network_at_once(monkeypatch):
    bundle, sizes = point_bundle(), []
    bundle.net.register_forward_pre_hook(lambda _, inputs: sizes.append(len(inputs[0])))
    bundle.predict(np.zeros((10_000, 2)))
    assert max(sizes) == base.MOST_ROWS
    assert sum(sizes) == 10_000


def test_raw_things_are_read_part_by_part(monkeypatch):
    monkeypatch.setattr(base, "MOST_ROWS", 4)
    bundle, read, most = table_bundle(), [], []
    bundle.net.register_forward_pre_hook(lambda _, inputs: most.append(len(read)))

    def rows():
        for number in range(12):
            read.append(number)
            yield {"length": 1.0, "colour": "red"}

    assert len(bundle.predict(rows())) == 12
    assert most == [4, 8, 12]


@pytest.mark.parametrize("make", RAW, ids=lambda make: make.__name__)
def test_no_input_gives_no_prediction(make):
    bundle = make()
    raw = RAW[make]()[:0]
    for found in (bundle.predict(raw), bundle.predict(bundle.preprocessing.ready(RAW[make]())[:0])):
        assert len(found) == 0
        assert found.names == list(found) == []
        assert found.top.shape == (0, 3)


def test_another_rate_can_be_asked_for():
    bundle = image_bundle()
    rejected = [int((bundle.predict(pixels(seed=4), rate).labels < 0).sum()) for rate in (0.02, 0.2, 0.6)]
    assert rejected == sorted(rejected)
    assert rejected[0] < rejected[2]


def test_a_rate_that_nothing_keeps_is_refused():
    message = (
        "false_reject_rate=0.1 needs a rejector, and this model has none: it calls nothing unknown; "
        "calibrate one and save it again"
    )
    with pytest.raises(OptionError) as raised:
        image_bundle(rejector=False).predict(pixels(3), 0.1)
    assert str(raised.value) == message


def test_an_input_that_is_nan_is_unknown():
    found = point_bundle().predict([[np.nan, 0.0], [np.inf, 1.0]])
    assert found.labels.tolist() == [-1, -1]
    assert found.names == ["unknown", "unknown"]


def test_rows_are_plain_json():
    found = point_bundle().predict([[0.1, 0.2], [np.nan, 0.0]])
    first, second = json.loads(json.dumps([each.as_dict() for each in found], allow_nan=False))
    assert first["nearest"] in CLASSES
    assert [each["class"] for each in first["top"]] == [CLASSES[k] for k in found.top[0]]
    assert second["label"] == "unknown"
    assert second["is_unknown"]
    assert second["unknown_score"] is None


def test_a_class_that_is_called_unknown_is_told_apart():
    bundle = point_bundle()
    named = bundle.replace(classes=("unknown", "b", "c"))
    predictions = named.predict(np.random.default_rng(0).normal(size=(50, 2)))
    assert any(each.label == "unknown" and not each.is_unknown for each in predictions)


def test_heads_without_distances_give_none():
    found = image_bundle(head=SoftmaxHead(3), scorers={"inputs": NeighbourScorer(2)}).predict(pixels(5))
    assert found.distance is None
    assert found[0].as_dict()["distance"] is None


def test_a_rejector_per_class_decides_by_class():
    bundle = image_bundle(per_class=True)
    found = bundle.predict(pixels(40, seed=5), 0.3)
    limits = bundle.rejector.thresholds(0.3)
    expected = [k if s <= limits[k] else -1 for k, s in zip(found.nearest, found.unknown_score, strict=True)]
    assert found.labels.tolist() == expected


@given(arrays.arrays(np.float32, (4, 5), elements=st.floats(-10, 0, width=32)))
def test_the_nearest_class_leads_and_the_others_follow_by_probability(log_probs):
    nearest = np.array([0, 1, 2, 3])
    found = Predictions.from_arrays(
        tuple("abcde"),
        labels=nearest,
        nearest=nearest,
        log_probs=log_probs,
        distance=None,
        unknown_score=np.zeros(4),
        p_values=None,
    )
    assert found.top[:, 0].tolist() == nearest.tolist()
    for row, (_, second, third) in enumerate(found.top):
        rest = sorted((-log_probs[row, k], k) for k in range(5) if k != nearest[row])
        assert [second, third] == [rest[0][1], rest[1][1]]


def two_predictions():
    return Predictions.from_arrays(
        ("a", "b", "c", "d"),
        labels=np.array([1, -1]),
        nearest=np.array([1, 0]),
        log_probs=np.log([[0.1, 0.6, 0.25, 0.05], [0.4, 0.3, 0.2, 0.1]]),
        distance=np.array([0.5, 3.0]),
        unknown_score=np.array([0.5, np.inf]),
        p_values=np.array([0.75, 0.01]),
    )


def test_a_prediction_is_a_record_with_plain_values():
    first, second = two_predictions()
    assert first == Prediction(
        label="b",
        is_unknown=False,
        nearest="b",
        probability=pytest.approx(0.6),
        distance=0.5,
        p_value=0.75,
        unknown_score=0.5,
        top=(("b", pytest.approx(0.6)), ("c", pytest.approx(0.25)), ("a", pytest.approx(0.1))),
    )
    assert (second.label, second.is_unknown, second.nearest) == ("unknown", True, "a")
    assert all(type(value) is float for value in (first.probability, first.distance, first.p_value))
    assert first.top[0].name == "b"


def test_a_prediction_as_json_has_no_infinite_number():
    values = two_predictions()[1].as_dict()
    assert values["unknown_score"] is None
    assert values["top"][0] == {"class": "a", "probability": pytest.approx(0.4)}
    assert list(values) == list(Prediction._fields)


def test_predictions_are_a_sequence():
    predictions = two_predictions()
    assert (len(predictions), predictions.names) == (2, ["b", "unknown"])
    assert predictions[-1] == predictions[1]
    assert predictions[:1] == [predictions[0]]
    assert predictions[::-1] == list(reversed(predictions)) == [predictions[1], predictions[0]]
    with pytest.raises(IndexError):
        predictions[2]


def test_predictions_of_several_batches_are_joined():
    joined = Predictions.concatenate([two_predictions(), two_predictions()])
    assert [each.label for each in joined] == ["b", "unknown"] * 2


def test_two_classes_have_two_nearest_ones():
    found = Predictions.from_arrays(
        ("a", "b"),
        labels=np.array([1]),
        nearest=np.array([1]),
        log_probs=np.log([[0.2, 0.8]]),
        distance=None,
        unknown_score=np.array([0.0]),
        p_values=None,
    )
    assert found.top.tolist() == [[1, 0]]
    assert found.top_probability[0] == pytest.approx([0.8, 0.2])


def test_prepared_inputs_of_a_wrong_shape_or_type_are_refused():
    bundle = image_bundle()
    with pytest.raises(ShapeError, match=r"^prepared images must have the shape \(b, 1, 8, 8\), got \(5, 8, 8\)$"):
        bundle.predict(torch.zeros(5, 8, 8, dtype=torch.uint8))
    with pytest.raises(
        DTypeError, match=r"^prepared images must be torch.uint8, got torch.float32; see ImageInputs.prepare"
    ):
        bundle.predict(torch.zeros(5, 1, 8, 8))
    with pytest.raises(ShapeError, match=r"^prepared points must have the shape \(b, 2\), got \(\)$"):
        point_bundle().predict(torch.tensor(1.0))


@pytest.mark.parametrize(
    ("classes", "message"),
    [
        (("a", "b"), "classes must name every class of the head: 3 classes but 2 names"),
        (("a", "b", 3), "class names must be strings, got 3; convert them with str"),
        (("a", "b", "a"), "class names must differ, got 'a' twice"),
    ],
)
def test_class_names_must_fit_the_head(classes, message):
    bundle = point_bundle()
    with pytest.raises(OptionError, match=f"^{message}$"):
        bundle.replace(classes=classes)


def test_a_rejector_that_lacks_a_class_is_refused_before_it_can_fail():
    bundle = image_bundle(per_class=True)
    rejector = bundle.rejector
    rejector.fit(torch.rand(40), torch.arange(40) % 2)
    message = (
        "a rejector with per_class=True must be calibrated for every class, and 'a bird' (1 in all) was never "
        "predicted; calibrate with more data, or use per_class=False"
    )
    with pytest.raises(OptionError) as raised:
        bundle.replace(classes=CLASSES)
    assert str(raised.value) == message


def write_inputs(make, folder):
    """Write the inputs of a model to a file or folder; return its path."""
    raw = RAW[make]()
    if make is image_bundle:
        for i, image in enumerate(raw):
            Image.fromarray(image).save(folder / f"{i:03}.png")
        return folder
    if make is table_bundle:
        lines = [f"{row['length']!r};{row['colour']}" for row in raw]
        (folder / "t.csv").write_text("\n".join(["length;colour", *lines]))
        return folder / "t.csv"
    array = np.stack([row[:3] for row in raw])
    np.savez(folder / "t.npz", x=array)
    return folder / "t.npz"


@pytest.mark.parametrize("make", [image_bundle, table_bundle, point_bundle, sequence_bundle])
@pytest.mark.parametrize("kind", [str, Path])
def test_the_path_of_a_file_or_folder_stands_for_its_inputs(make, kind, tmp_path):
    model, raw = make(), RAW[make]()
    raw = [row[:3] for row in raw] if make is sequence_bundle else raw
    assert model.predict(kind(write_inputs(make, tmp_path))).names == model.predict(raw).names


def test_a_text_is_a_text_and_a_path_is_its_file(tmp_path):
    model = text_bundle()
    (tmp_path / "profit fell").write_text("the profit rose")
    assert_same(model.predict(tmp_path / "profit fell"), model.predict("the profit rose"))
    assert len(model.predict(str(tmp_path / "profit fell"))) == 1


def test_the_first_broken_input_of_a_file_or_folder_is_named(tmp_path):
    (tmp_path / "t.csv").write_text("length;colour\n1.5;red\nlong;red\nwide;red\n")
    with pytest.raises(DataError, match="row 2, column 'length'"):
        table_bundle().predict(tmp_path / "t.csv")
    folder = write_inputs(image_bundle, tmp_path)
    (folder / "001.png").write_bytes(b"no image")
    with pytest.raises(DataError, match=r"001\.png"):
        image_bundle().predict(folder)


def test_a_path_that_does_not_exist_is_named(tmp_path):
    for make, name in ((image_bundle, "photo.png"), (table_bundle, "t.csv"), (point_bundle, "t.npz")):
        with pytest.raises(DataError, match=f"{name}: there is no such file"):
            make().predict(tmp_path / name)
