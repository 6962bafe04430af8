import json
import os
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image

import openradial
from openradial import encoders
from openradial.errors import BundleError, DataError, FetchError, MissingError, OptionError
from openradial.fitting import FitOptions
from openradial.fitting.encoding import encode_source
from openradial.fitting.in_memory import as_source
from tests.fitting.fit_data import had

WORDS = {
    "card": ("card lost stolen blocked", "visa plastic chip pin"),
    "rate": ("rate exchange currency fee", "euro pound"),
}
CARD = "my card lost stolen chip please 7"
WORDS |= {"login": ("password login account locked", "email code reset")}


@pytest.fixture(autouse=True)
def own_features(tmp_path, monkeypatch):
    monkeypatch.setattr("openradial.encoders.cache.features_folder", lambda: tmp_path / "features")


def sentences(n=240, seed=0):
    random = np.random.default_rng(seed)
    labels = [list(WORDS)[i % 3] for i in range(n)]
    texts = [
        " ".join(["my", *random.choice(" ".join(WORDS[each]).split(), 4), f"please {i}"])
        for i, each in enumerate(labels)
    ]
    return texts, labels


def write(path, texts, labels):
    path.write_text("says,kind\n" + "".join(f"{text},{label}\n" for text, label in zip(texts, labels, strict=True)))
    return path


@pytest.fixture(scope="module")
def model():
    return openradial.fit(sentences(), encoder="tfidf")


def test_texts_are_fitted_and_predicted(model):
    assert not model.head.squares
    assert model.report.accuracy > 0.95
    assert model.predict(CARD).names == ["card"]
    assert model.predict(["my rate euro fee exchange please 7", "zebra giraffe lion"]).names == ["rate", "unknown"]
    assert model.metadata["data"]["kind"] == "texts"
    assert model.report.notes[0].startswith("frozen encoder tfidf: ")


def test_a_saved_model_predicts_the_same(model, tmp_path):
    loaded = openradial.load(model.save(tmp_path / "model"))
    texts = sentences(40, seed=1)[0]
    ours, theirs = model.predict(texts), loaded.predict(texts)
    assert theirs.names == ours.names
    assert np.array_equal(theirs.unknown_score, ours.unknown_score)
    assert loaded.network[1]["encoder"] == "tfidf"


def test_a_model_of_a_table_predicts_and_evaluates_tables(tmp_path):
    train = write(tmp_path / "train.csv", *sentences())
    model = openradial.fit(train, label="kind", encoder="tfidf")
    test = write(tmp_path / "test.csv", *sentences(60, seed=1))
    assert model.evaluate(test).accuracy.value > 0.95
    assert len(model.predict(test)) == 60
    assert model.predict({"says": CARD, "other": 1}).names == ["card"]


def test_texts_beside_identifiers_and_constants_are_texts(tmp_path):
    texts, labels = sentences()
    path = tmp_path / "train.csv"
    rows = [f"T-{i},mail,{text},{label}\n" for i, (text, label) in enumerate(zip(texts, labels, strict=True))]
    path.write_text("id,source,says,kind\n" + "".join(rows))
    started = []
    model = openradial.fit(path, label="kind", encoder="tfidf", on_start=lambda prepared, _: started.append(prepared))
    assert started[0].types == {"id": "identifier", "source": "constant", "says": "free text"}
    assert (model.preprocessing.kind, model.preprocessing.columns) == ("texts", ("says",))
    assert model.predict({"id": "T-7", "says": CARD}).names == ["card"]
    alone = openradial.fit((texts, labels), encoder="tfidf")
    assert np.array_equal(model.predict(texts).p_values, alone.predict(texts).p_values)
    for options in ({"drop": ["id"]}, {"method": "closed-form"}, {"group": "id"}):
        assert openradial.fit(path, label="kind", encoder="tfidf", **options).preprocessing.kind == "table"


def test_texts_with_a_quantity_as_label_are_refused(tmp_path):
    texts = sentences(60)[0]
    path = write(tmp_path / "train.csv", texts, [f"{1.5 * i}" for i in range(60)])
    with pytest.raises(DataError, match="60 different numbers in 60 rows, which is a quantity"):
        openradial.fit(path, label="kind", encoder="tfidf")


def test_novel_classes_are_measured_and_their_words_are_not_learnt():
    model = openradial.fit(sentences(), encoder="tfidf", novel=("login",))
    assert model.report.novel.auroc > 0.9
    assert "password" not in model.preprocessing.words


def test_the_best_encoder_that_can_be_had_is_chosen(monkeypatch):
    def unavailable(name, **options):
        raise FetchError(f"{name} cannot be fetched")

    monkeypatch.setattr(encoders, "load", unavailable)
    source = as_source(sentences())
    _, encoder, notes = encode_source(FitOptions("texts"), source)
    assert encoder.name == "tfidf"
    (_, better) = notes
    assert "minilm would be better" in better
    with pytest.raises(FetchError, match="minilm cannot be fetched"):
        encode_source(FitOptions("texts", encoder="minilm"), source)
    monkeypatch.setattr(encoders, "fit_tfidf", unavailable)
    with pytest.raises(MissingError, match=r"texts need an encoder, and none is here; .*minilm cannot be fetched"):
        encode_source(FitOptions("texts"), source)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"method": "gradient"}, "texts are fitted in closed form"),
        ({"epochs": 3}, "texts are fitted in closed form"),
        ({"encoder": "resnet50"}, "encoder resnet50 does not take texts"),
        ({"size": 64}, "texts are fitted in closed form"),
        ({"encoder": "minilmm"}, "did you mean 'minilm'"),
        ({"encoder": "minilm", "epochs": 3}, "epochs is for a network that is trained"),
        ({"encoder": "minilm", "method": "gradient"}, "an encoder is not trained"),
    ],
)
def test_options_against_texts_are_refused(options, message):
    with pytest.raises(OptionError, match=message):
        openradial.fit(sentences(30), **options)


def test_an_encoder_that_does_not_exist_is_refused_for_every_kind_of_data():
    table = (np.arange(60.0).reshape(30, 2), np.arange(30) % 2)
    for data in (table, "digits", sentences(30)):
        with pytest.raises(OptionError, match="there is no encoder 'minilmm'; did you mean 'minilm'"):
            openradial.fit(data, encoder="minilmm")
        with pytest.raises(OptionError, match=r"there is no encoder 'nosuch'; the encoders are: .*minilm.*hf:NAME"):
            openradial.fit(data, encoder="nosuch")


def test_an_encoder_and_training_exclude_each_other():
    with pytest.raises(OptionError, match="flip is for a network that is trained, and in closed form none is"):
        openradial.fit("digits", encoder="efficientnet_lite0", flip=True)


def test_an_encoder_is_not_for_tables_without_free_text():
    with pytest.raises(OptionError, match=r"no column of free text for the encoder minilm; .*--text"):
        openradial.fit((np.zeros((60, 2)), [0, 1, 2] * 20), encoder="minilm")


def test_minilm_is_the_default_for_texts_and_its_bundle_is_verified(tmp_path):
    had("minilm")
    model = openradial.fit(sentences(), out=tmp_path / "model")
    options = model.network[1]
    assert (options["encoder"], options["licence"]) == ("minilm", "Apache-2.0")
    assert model.predict(CARD).names == ["card"]
    loaded = openradial.load(tmp_path / "model")
    assert loaded.predict(CARD)[0].unknown_score == model.predict(CARD)[0].unknown_score
    record = tmp_path / "model" / "bundle.json"
    record.write_text(json.dumps(json.loads(record.read_text()) | {"classes": ["a", "b", "c"]}))
    with pytest.raises(BundleError, match="changed"):
        openradial.load(tmp_path / "model")


@pytest.fixture
def photos(tmp_path):
    """Three kinds of striped images in files of 48 pixels."""
    random = np.random.default_rng(0)
    for k, name in enumerate(("rows", "columns", "noise")):
        (tmp_path / "photos" / name).mkdir(parents=True)
        for i in range(24):
            x = random.integers(0, 60, (48, 48, 3))
            x += 190 * ((np.indices((48, 48))[k] // 6 % 2) if k < 2 else random.integers(0, 2, (48, 48)))[..., None]
            Image.fromarray(x.astype(np.uint8)).save(tmp_path / "photos" / name / f"{i}.png")
    return tmp_path / "photos"


def test_photographs_are_encoded_by_default_and_trained_on_request(photos, monkeypatch):
    source = as_source(photos)
    small = replace(source, image_statistics=source.image_statistics._replace(side=32))
    for options, data in (({"method": "gradient"}, source), ({"model": "resnet18"}, source), ({}, small)):
        assert encode_source(FitOptions("photos", **options), data)[1] is None
    asked = []
    monkeypatch.setattr(encoders, "load", lambda name, **options: asked.append(name) or 1 / 0)
    with pytest.raises(ZeroDivisionError):
        encode_source(FitOptions("photos"), source)
    assert asked == ["efficientnet_lite0"]


def test_a_folder_of_photographs_is_fitted_in_closed_form(photos):
    had("efficientnet_lite0")
    (photos / "rows" / "broken.png").write_bytes(b"no image")
    (photos / "rows" / "notes.txt").write_text("rows of a field")
    os.mkfifo(photos / "noise" / "pipe.png")
    model = openradial.fit(photos, size=64, false_reject_rate=0.1, skip_broken=True)
    assert "left out, not an image: 1 (rows/notes.txt)" in model.report.notes
    assert "left out, not a regular file: 1 (noise/pipe.png)" in model.report.notes
    assert f"left out, broken: 1; openradial data scan {photos} names them" in model.report.notes
    assert model.report.accuracy > 0.9
    assert sum(model.report.examples.values()) == 72
    assert model.preprocessing.size == 64
    assert not model.head.squares
    assert model.predict(photos / "columns" / "0.png").names == ["columns"]


def test_outputs_of_many_classes_of_photographs_are_computed_on_squares_of_roots():
    had("efficientnet_lite0")
    pixels = torch.randint(0, 255, (60, 3, 16, 16), dtype=torch.uint8)
    data = pixels.numpy(), np.arange(60) % 10
    options = {"false_reject_rate": 0.1, "baseline": False, "size": 32}
    model = openradial.fit(data, encoder="efficientnet_lite0", **options)
    assert model.head.squares


def test_arrays_of_images_are_encoded_on_request(monkeypatch):
    had("efficientnet_lite0")
    pixels = torch.randint(0, 255, (12, 3, 16, 16), dtype=torch.uint8)
    source = as_source((pixels, np.arange(12) % 2))
    features, encoder, _ = encode_source(FitOptions("a", encoder="efficientnet_lite0", size=32), source)
    assert encoder.inputs.size == 32
    assert features.train.inputs.shape == (12, 1280 + encoder.num_middle)


def test_a_model_of_word_vectors_is_exported(model, tmp_path):
    model.export(tmp_path / "model.onnx")
    from openradial.export import OnnxModel

    texts = sentences(20, seed=1)[0]
    assert OnnxModel(tmp_path / "model.onnx").predict(texts).names == model.predict(texts).names


@pytest.fixture
def embeddings(tmp_path):
    """Features of three classes in a file, and a table with their labels."""
    random = np.random.default_rng(0)
    labels = np.arange(150) % 3
    features = (random.normal(size=(3, 70))[labels] + 0.3 * random.normal(size=(150, 70))).astype(np.float32)
    np.save(tmp_path / "features.npy", features)
    rows = "".join(f"{'abc'[k]},{i // 2},some words {i}\n" for i, k in enumerate(labels))
    (tmp_path / "table.csv").write_text(f"topic,who,text\n{rows}")
    return tmp_path, features, labels


def test_features_computed_elsewhere_are_fitted_with_the_labels_of_a_table(embeddings):
    folder, features, _ = embeddings
    path, out = folder / "features.npy", folder / "model"
    model = openradial.fit(folder / "table.csv", label="topic", group="who", embeddings=str(path), out=out)
    assert model.report.accuracy > 0.95
    assert model.network == ("features", {})
    assert model.classes == ("a", "b", "c")
    loaded = openradial.load(out)
    assert loaded.predict(str(path)).names == loaded.predict(features).names == model.predict(path).names
    assert loaded.predict(features[1:3]).names == ["b", "c"]


def test_features_with_their_labels_are_data_of_their_own(embeddings):
    folder, features, labels = embeddings
    np.savez(folder / "both.npz", features=features, labels=labels)
    model = openradial.fit(folder / "both.npz", novel="2")
    assert model.network[0] == "features"
    assert model.report.novel.auroc > 0.9
    assert model.evaluate(folder / "both.npz", novel=[folder / "both.npz"]).accuracy.value > 0.9
    assert openradial.fit(folder / "both.npz", epochs=1).network[0] == "mlp"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"encoder": "minilm"}, "leave out text and encoder"),
        ({"columns": "text"}, "columns names columns of a table"),
        ({"text": "text"}, "leave out text and encoder"),
    ],
)
def test_options_against_features_are_refused(embeddings, options, message):
    folder = embeddings[0]
    with pytest.raises(OptionError, match=message):
        openradial.fit(folder / "table.csv", label="topic", embeddings=str(folder / "features.npy"), **options)


def test_features_are_for_files(embeddings):
    with pytest.raises(OptionError, match="embeddings are for files"):
        openradial.fit((embeddings[1], embeddings[2]), embeddings=str(embeddings[0] / "features.npy"))


@pytest.mark.parametrize(
    ("name", "better"), [("efficientnet_lite0", "efficientnet_lite2 or resnet50"), ("tfidf", "pip install")]
)
def test_a_better_encoder_is_named_in_one_line(name, better, photos, monkeypatch):
    source = as_source(photos if name != "tfidf" else sentences())
    if name != "tfidf":
        had(name)
    notes = encode_source(FitOptions("data", encoder=name, size=32 if name != "tfidf" else None), source)[2]
    assert notes[0].startswith(f"frozen encoder {name}")
    assert better in notes[1]
    assert len(notes) == 2


@pytest.mark.parametrize("data", ["digits", (np.arange(60.0).reshape(30, 2), np.arange(30) % 2)])
def test_views_are_for_photographs(data):
    with pytest.raises(OptionError, match="views='flip' is for photographs that an encoder looks at"):
        openradial.fit(data, views="flip")
