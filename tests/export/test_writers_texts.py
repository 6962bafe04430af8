"""Exports of text models: the graph takes tokens, and the files beside it say how to make them."""

import json
import os

import numpy as np
import pytest
import torch

import openradial
from openradial import encoders
from openradial.bundle import load
from openradial.classifier import OpenClassifier
from openradial.conformal import Rejector
from openradial.data.inputs import PointInputs, TokenInputs
from openradial.encoders.networks import BertEncoder
from openradial.errors import FetchError, MissingError
from openradial.export import OnnxModel, to_onnx, to_torch, tokenizer_files
from openradial.heads import RadialHead

TIMES = ("now", "today", "soon", "at once", "this week", "again")
SENTENCES = ["lost card", "card", "", "zebra lost 5 cards", "card lost " * 20]


def tokenizer():
    if os.environ.get("CI") != "true":
        pytest.importorskip("tokenizers", exc_type=ImportError)
    from tokenizers import Tokenizer, models, pre_tokenizers, processors

    words = {"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3, "card": 4, "lost": 5, "i": 6, "my": 7}
    made = Tokenizer(models.WordLevel(words, unk_token="[UNK]"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    made.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    return made.to_str()


@pytest.fixture(scope="module")
def bert():
    """A small BERT that nobody has trained, with its tokenizer."""
    torch.manual_seed(0)
    net = BertEncoder(num_tokens=8, width=8, layers=1, heads=2, positions=16).eval().requires_grad_(False)
    rejector = Rejector(0.2).fit(np.arange(1, 100) / 50)
    model = OpenClassifier(net, RadialHead(8), rejector=rejector)
    return model.replace(classes=tuple("abcdefgh"), preprocessing=TokenInputs(tokenizer(), max_tokens=16))


@pytest.fixture(scope="module")
def bert_file(bert, tmp_path_factory):
    path = tmp_path_factory.mktemp("bert") / "model.onnx"
    agreement = to_onnx(bert, path, SENTENCES)
    assert (agreement.examples, agreement.real, agreement.ties) == (5, True, 0)
    return path


def test_the_graph_of_a_bert_takes_texts_of_any_length(bert, bert_file):
    exported, texts = OnnxModel(bert_file), ["lost " * 11, "my card"]
    assert exported.predict(texts).names == bert.predict(texts).names
    assert exported.predict("").names == bert.predict("").names
    (given, *_) = exported._session.get_inputs()
    assert (given.type, len(given.shape), all(isinstance(size, str) for size in given.shape)) == (
        "tensor(int64)",
        2,
        True,
    )


def test_the_tokenizer_lies_beside_the_graph(bert, bert_file):
    about = json.loads(bert_file.with_name("model.texts.json").read_text())
    assert about == {
        "kind": "tokenizers",
        "add_special_tokens": True,
        "max_tokens": 16,
        "tokenizer": "model.tokenizer.json",
        "strip": True,
        "padding": 0,
        "without_tokens": [2, 3],
    }
    from tokenizers import Tokenizer

    read = Tokenizer.from_file(str(bert_file.with_name(about["tokenizer"])))
    assert read.encode("lost " * 99).ids == bert.preprocessing.prepare("lost " * 99)[0].tolist()


def test_the_script_of_the_page_predicts_what_the_model_predicts(bert, bert_file, python_blocks, monkeypatch, capsys):
    monkeypatch.chdir(bert_file.parent)
    names = {}
    exec(next(block for block in python_blocks("export.md") if "Tokenizer.from_file" in block), names)
    expected = bert.predict(names["texts"])
    assert capsys.readouterr().out.startswith(str(expected.names))
    assert names["p_value"] == pytest.approx(expected.p_values)


def examples():
    """Texts of two classes, and their labels."""
    texts = [f"{a} {b} {c}" for a in ("I lost", "block", "show") for b in ("my card", "a fee") for c in TIMES]
    return texts, ["card" if "card" in text else "fee" for text in texts]


@pytest.fixture(scope="module")
def tfidf():
    return openradial.fit(examples(), encoder="tfidf")


def test_the_vocabulary_of_tfidf_makes_the_same_tokens(tfidf, tmp_path, python_blocks, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for path, text in tokenizer_files(tfidf.preprocessing, tmp_path / "model.onnx").items():
        path.write_text(text)
    names = {}
    exec(next(block for block in python_blocks("export.md") if "tokens_of" in block), names)
    assert capsys.readouterr().out.startswith("[")
    for text in (*SENTENCES, "It's 1,200.5 of İstanbul’s fees_now 3x", "\ud800"):
        assert names["tokens_of"](text) == tfidf.preprocessing.prepare(text)[0].tolist()


def test_other_models_have_no_tokenizer(tmp_path):
    assert tokenizer_files(PointInputs(2), tmp_path / "model.onnx") == {}


def test_tfidf_is_exported_with_its_decision(tfidf, tmp_path):
    agreement = to_torch(tfidf, tmp_path / "model.pt2", ["I lost my card", "zebras", ""])
    assert agreement.ties == 0
    assert {each.name for each in tmp_path.iterdir()} == {"model.pt2", "model.texts.json", "model.tokenizer.json"}


@pytest.mark.parametrize("name", ["minilm", "wordllama"])
def test_a_published_encoder_is_exported_with_the_head_in_closed_form(name, tmp_path):
    try:
        encoders.load(name)
    except (FetchError, MissingError) as error:
        if os.environ.get("CI") == "true":
            raise
        pytest.skip(f"the encoder {name} cannot be had here: {error}")
    texts, labels = examples()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("openradial.encoders.cache.features_folder", lambda: tmp_path / "features")
        model = openradial.fit((texts, labels), encoder=name, out=tmp_path / "model")
    agreement = to_onnx(load(tmp_path / "model"), tmp_path / "model.onnx", [*texts, "", "Wo ist der Bahnhof?"])
    assert agreement.ties == 0
    assert (
        OnnxModel(tmp_path / "model.onnx").predict(["I lost my card"]).names == model.predict(["I lost my card"]).names
    )
