"""Tables with free text beside other columns: what each tells counts, from fit to export."""

import copy
import csv
import json

import numpy as np
import pytest
import torch

import openradial
from openradial import encoders
from openradial.data import read_table
from openradial.data.inputs import TableInputs
from openradial.encoders import Encoder
from openradial.encoders.networks import MixedEncoder
from openradial.errors import BundleError, DataError, OptionError
from openradial.export import OnnxModel, TorchModel
from openradial.fitting import FitOptions, prepare
from openradial.fitting.column_texts import RATIOS, choose_weight
from openradial.server.inputs import prepare_inputs
from openradial.server.requests import RequestError
from openradial.server.settings import Limits
from tests.fitting.fit_data import had

WORDS = {"card": ["card", "chip", "pin", "plastic", "stolen"], "rate": ["euro", "pound", "exchange", "currency", "fee"]}


@pytest.fixture(autouse=True)
def own_features(tmp_path, monkeypatch):
    monkeypatch.setattr("openradial.encoders.cache.features_folder", lambda: tmp_path / "features")


def tickets(count=240, seed=0):
    """Rows of four classes: the words of the text tell one half of the class, a number the other."""
    random = np.random.default_rng(seed)
    for i in range(count):
        topic, is_large = list(WORDS)[i % 2], i // 2 % 2
        says = " ".join(["please", *random.choice(WORDS[topic], 4), f"number {i}"])
        amount, channel = f"{random.normal(6 * is_large):.3f}", random.choice(["mail", "web"])
        yield {
            "says": says,
            "amount": amount,
            "channel": channel,
            "kind": f"{topic} {'large' if is_large else 'small'}",
        }


def write(path, rows):
    with path.open("w", newline="") as stream:
        rows = list(rows)
        writer = csv.DictWriter(stream, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return path


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return write(tmp_path_factory.mktemp("tickets") / "t.csv", tickets())


@pytest.fixture(scope="module")
def model(path):
    return openradial.fit(path, label="kind", encoder="tfidf", baseline=False)


def test_text_and_columns_tell_more_together_than_each_alone(path, model):
    assert model.report.accuracy > 0.9
    assert openradial.fit(path, label="kind", drop="says", baseline=False).report.accuracy < 0.7
    assert openradial.fit(path, label="kind", text="says", encoder="tfidf", baseline=False).report.accuracy < 0.7


def test_the_text_is_printed_as_encoded_with_the_name_of_the_encoder(model):
    assert "free text is encoded by tfidf: says" in model.report.notes


def test_prediction_sees_the_features_of_fit(path, model):
    prepared = prepare(FitOptions(str(path), label="kind", encoder="tfidf"))
    raw = [{name: row[name] for name in ("channel", "says", "amount")} for row in tickets()]
    z = model.net(model.preprocessing.prepare(raw))
    torch.testing.assert_close(z, prepared.train.inputs)
    assert model.preprocessing.columns == ("amount", "channel", "says")


def test_a_saved_model_predicts_the_same_from_rows_tables_and_files(path, model, tmp_path):
    loaded = openradial.load(model.save(tmp_path / "model"))
    assert loaded.preprocessing == model.preprocessing
    rows = list(tickets(40, seed=1))
    expected = model.predict(rows)
    assert loaded.predict(rows).names == expected.names
    assert loaded.predict(write(tmp_path / "rows.csv", rows)).names == expected.names
    table = read_table(tmp_path / "rows.csv", label="kind", features=loaded.preprocessing.columns)
    assert loaded.predict(table).names == expected.names
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert loaded.predict(tmp_path / "rows.jsonl").names == expected.names
    assert loaded.evaluate(str(tmp_path / "rows.csv")).accuracy.value > 0.9
    card = (tmp_path / "model" / "card.md").read_text()
    assert "says: free text" in card
    assert len(card) < 10_000  # without the vocabulary


def test_other_weights_than_those_of_the_bundle_are_refused(model):
    name, options = model.network
    facts = {"encoder": "minilm", "licence": "Apache-2.0", "pooling": "layers"}
    with pytest.raises(OptionError, match="the encoder minilm has other weights than those the bundle was made with"):
        encoders.build({**options, **facts, "checksum": "sha256:0"})
    assert (name, options["encoder"], options["columns"]) == ("encoder", "tfidf", 3)


def test_a_missing_text_is_an_empty_one_and_a_long_text_is_read(model):
    row = {"says": "", "amount": 6.0, "channel": "web"}
    empty, missing, long = model.predict([row, row | {"says": None}, row | {"says": "card chip " * 100_000}])
    assert empty.unknown_score == missing.unknown_score
    assert long.nearest == "card large"
    with pytest.raises(DataError, match="says"):
        model.predict([{"amount": 6.0, "channel": "web"}])


def test_the_service_limits_the_words_of_a_cell(model):
    row = {"says": "card chip pin", "amount": 6.0, "channel": "web"}
    good, bad = prepare_inputs(model, [row, row | {"says": "card " * 50}], Limits(steps=20))
    assert good.shape == (1, 6)
    assert isinstance(bad, RequestError)
    assert (bad.status, "at most 20 words, got 50" in str(bad)) == (413, True)


def test_rows_that_are_prepared_are_checked(model):
    x = model.preprocessing.prepare([next(tickets())])
    x[0, -1] = 1e6
    with pytest.raises(DataError, match="tokens must lie in"):
        model.predict(x)


def test_an_array_is_no_row_with_text(model):
    with pytest.raises(DataError, match="pass rows as mappings"):
        model.predict(np.zeros((2, 3)))


def test_half_precision_keeps_the_tokens_exact():
    class Words(torch.nn.Module):
        num_features = 1

        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(1))

        def forward(self, tokens):
            return (tokens == 30_521).to(self.weight.dtype) * self.weight

    net = MixedEncoder(Words(), columns=1, weight=2.0).half()
    head = openradial.heads.RadialHead(2)
    model = openradial.OpenClassifier(net, head)
    x = model._network_inputs(torch.tensor([[0.5, 30_521.0], [0.5, 30_520.0]]))
    assert net(x).tolist() == [[0.5, 2.0], [0.5, 0.0]]


@pytest.mark.parametrize(("columns_tell", "expected"), [(True, min(RATIOS)), (False, max(RATIOS))])
def test_what_tells_the_class_gets_the_larger_weight(columns_tell, expected):
    generator = torch.Generator().manual_seed(0)
    y = torch.arange(300) % 3
    columns, z = torch.randn(300, 30, generator=generator), 0.1 * torch.randn(300, 30, generator=generator)
    told = columns if columns_tell else z
    told[:, :3] += 2 * told.std() * torch.eye(3)[y]
    equal = (columns.var(0).sum() / z.var(0).sum()).sqrt()
    assert choose_weight(columns, z, y) == pytest.approx(float(expected * equal), rel=1e-5)


def test_text_without_other_columns_has_weight_one(path):
    assert choose_weight(torch.empty(4, 0), torch.randn(4, 2), torch.arange(4) % 2) == 1.0
    model = openradial.fit(path, label="kind", columns="says", encoder="tfidf", baseline=False)
    assert model.network[1]["weight"] == 1.0
    texts = openradial.fit(path, label="kind", text="says", encoder="tfidf", baseline=False)
    assert model.metadata["recipe"] == texts.metadata["recipe"]


def test_several_columns_of_text_are_encoded_together(tmp_path):
    rows = [row | {"title": f"about {row['says'].split()[1]} {i}"} for i, row in enumerate(tickets())]
    model = openradial.fit(write(tmp_path / "t.csv", rows), label="kind", encoder="tfidf", baseline=False)
    assert model.preprocessing.encoder.texts == ("title", "says")
    assert "free text is encoded by tfidf: title, says" in model.report.notes
    assert model.predict(rows[:1]).names == [rows[0]["kind"]]


def test_the_words_of_novel_classes_are_not_learnt(path):
    model = openradial.fit(path, label="kind", encoder="tfidf", novel="rate small,rate large", baseline=False)
    assert "euro" not in model.preprocessing.tokens.words
    assert model.report.novel.auroc > 0.9


def test_a_network_is_trained_without_the_text(path):
    model = openradial.fit(path, label="kind", method="gradient", epochs=1, baseline=False)
    assert model.preprocessing.columns == ("amount", "channel")
    assert any(note.startswith("free text is left out") for note in model.report.notes)
    with pytest.raises(DataError, match="no column is left to learn from; free text is left out"):
        openradial.fit(path, label="kind", method="gradient", columns="says", epochs=1)


def test_the_better_method_is_chosen_with_the_text_in_closed_form_alone(path):
    model = openradial.fit(path, label="kind", method="best", encoder="tfidf", epochs=1, baseline=False)
    assert model.preprocessing.columns == ("amount", "channel", "says")


def test_minilm_is_the_default_and_nothing_is_encoded_twice(path, tmp_path, monkeypatch):
    had("minilm")
    model = openradial.fit(path, label="kind", out=tmp_path / "model", baseline=False)
    options = model.network[1]
    assert (options["encoder"], options["licence"], options["checksum"][:7]) == ("minilm", "Apache-2.0", "sha256:")
    row = next(tickets())
    loaded = openradial.load(tmp_path / "model")
    assert loaded.predict(row)[0].unknown_score == pytest.approx(model.predict(row)[0].unknown_score, rel=1e-4)
    monkeypatch.setattr(Encoder, "features", lambda encoder, raw: 1 / 0)
    again = openradial.fit(path, label="kind", baseline=False)
    assert again.report.accuracy == model.report.accuracy
    record = json.loads((tmp_path / "model" / "bundle.json").read_text())
    record["network"]["options"]["checksum"] = "sha256:0"
    (tmp_path / "model" / "bundle.json").write_text(json.dumps(record))
    with pytest.raises(BundleError, match="changed"):
        openradial.load(tmp_path / "model")


@pytest.mark.parametrize(("ending", "load"), [("onnx", OnnxModel), ("pt2", TorchModel)])
def test_the_graph_takes_columns_and_tokens(model, tmp_path, ending, load):
    rows = list(tickets(20, seed=2))
    agreement = model.export(tmp_path / f"m.{ending}", check=rows)
    assert (agreement.examples, agreement.ties) == (20, 0)
    assert model.export(tmp_path / f"m.{ending}").examples == 64  # random rows
    exported = load(tmp_path / f"m.{ending}")
    assert isinstance(exported.preprocessing, TableInputs)
    assert exported.predict(rows).names == model.predict(rows).names
    one_word = [rows[0] | {"says": "card"}]
    assert exported.predict(one_word).names == model.predict(one_word).names
    assert json.loads((tmp_path / "m.texts.json").read_text())["columns_before"] == 3


def test_a_class_is_added_to_a_model_of_text_and_columns(model):
    head = copy.deepcopy(model.head)
    rows = [row | {"says": f"password reset login {i}"} for i, row in enumerate(tickets(30, seed=3))]
    z = model.net(model.preprocessing.prepare(rows))
    head.add_class("login", z)
    assert (head.outputs(z).argmax(1) == 4).double().mean() > 0.9
