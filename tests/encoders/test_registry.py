import dataclasses
import itertools
import math

import numpy as np
import pytest
import torch
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer

from openradial import encoders, models
from openradial.data.download import folder
from openradial.data.vocabulary import words_of
from openradial.encoders import registry
from openradial.encoders.networks import BertEncoder, ImageEncoder
from openradial.errors import FetchError, OptionError, WeightsError

TEXTS = ["my card is lost", "the card was stolen", "rates of exchange", "what is the exchange rate", "a lost phone"]


def test_the_encoders_have_names_by_kind():
    efficientnets = ["efficientnet_lite0", "efficientnet_lite1", "efficientnet_lite2"]
    assert encoders.names("images") == [*efficientnets, "resnet50", "mobilenetv2"]
    assert encoders.names() == encoders.names("images") + encoders.names("texts")


def test_an_unknown_name_is_answered_with_the_nearest():
    with pytest.raises(OptionError, match="no encoder 'minilmm'; did you mean 'minilm'"):
        encoders.load("minilmm")
    with pytest.raises(OptionError, match="fit_tfidf"):
        encoders.load("tfidf")


def test_minilm_gives_the_features_of_transformers(load):
    encoder = load("minilm")
    # from transformers 5.23 with the mean of the tokens, divided by its length
    expected = [-0.010167025, 0.018827111, -0.057549838, 0.016098196]
    published = BertEncoder(pooling="mean").eval()
    published.load_state_dict(encoder.net.state_dict())
    tokens = encoder.inputs.transform(encoder.inputs.ready("How do I locate my card?"))
    assert published(tokens)[0, :4].tolist() == pytest.approx(expected, abs=1e-5)
    assert encoder.licence == "Apache-2.0"
    assert encoder.checksum.startswith("sha256:53aa5117")


def test_wordllama_averages_token_vectors(load):
    encoder = load("wordllama")
    table = encoder.net.table
    tokens = encoder.inputs.prepare(["exchange rates"])[0]
    assert torch.equal(
        encoder.features("exchange rates")[0], torch.nn.functional.normalize(table[tokens].mean(0), dim=0)
    )


@pytest.mark.parametrize("name", ["minilm", "wordllama"])
def test_empty_long_and_foreign_texts_have_features(load, name):
    encoder = load(name)
    features = encoder.features(["", "card", "word " * 200_000, "🎉", "<b>卡丢了</b>", "\ud800", "x" * 1_000_000])
    assert features.isfinite().all()
    assert features.shape == (7, encoder.num_features)


def test_tfidf_is_that_of_scikit_learn():
    encoder = encoders.fit_tfidf(TEXTS, seed=0)
    tfidf = TfidfVectorizer(analyzer=words_of)
    matrix = tfidf.fit_transform(TEXTS)
    order = [tfidf.vocabulary_[word] for word in encoder.inputs.words]
    reduced = TruncatedSVD(4, random_state=0).fit(matrix[:, order]).transform(matrix[:, order])
    expected = reduced / np.linalg.norm(reduced, axis=1, keepdims=True)
    features = encoder.features(TEXTS).numpy()
    assert features[:, :-1] == pytest.approx(expected, abs=1e-5)
    assert not features[:, -1].any()  # the last feature is 1 for a text without any known word
    assert encoder.features(["zebra xylophone", ""]).tolist() == [[0, 0, 0, 0, 1]] * 2


def test_a_network_is_built_again_without_its_weights():
    name, options = encoders.fit_tfidf(TEXTS).network
    assert name == "encoder"
    net = encoders.build(options)
    assert net.table.device.type == "meta"
    assert list(net.table.shape) == options["shape"]


def test_a_bundle_without_a_pooling_has_the_published_one(load):
    name, options = load("minilm").network
    assert (name, options["pooling"]) == ("encoder", "layers")
    assert encoders.build(options).num_features == 768
    del options["pooling"]
    assert (encoders.build(options).pooling, encoders.build(options).num_features) == ("mean", 384)


def test_other_weights_than_those_of_the_bundle_are_refused():
    options = {"encoder": "minilm", "checksum": "sha256:0", "licence": "MIT"}
    with pytest.raises(OptionError, match=r"minilm has other weights .* instead of sha256:0; .* fit the model again"):
        encoders.build(options)
    with pytest.raises(OptionError, match="encoder"):
        encoders.build(options | {"encoder": "another"})


def test_a_file_of_other_tensors_is_refused(tmp_path, monkeypatch, load):
    load("wordllama")  # skipped without the package tokenizers
    from safetensors.torch import save_file

    save_file({"embeddings.LayerNorm.bias": torch.zeros(3)}, tmp_path / "model.safetensors")
    monkeypatch.setattr(registry, "fetch", lambda source: tmp_path)
    with pytest.raises(WeightsError, match="does not fit the network"):
        encoders.load("minilm")


def test_photographs_of_a_size_have_a_key_of_their_own(load):
    load("efficientnet_lite0", size=128)  # skipped without its weights
    keys = [encoders.load("efficientnet_lite0", size=size).key for size in (128, 128, 160)]
    assert keys[0] == keys[1] != keys[2]
    assert keys[0].startswith("efficientnet_lite0-v3-")


def test_a_bundle_records_the_power_of_features_and_other_powers_have_a_key_of_their_own(load):
    encoder = load("efficientnet_lite0")
    _, options = encoder.network
    assert (options["power"], encoders.build(options).power) == (0.5, 0.5)
    other = dataclasses.replace(encoder, net=ImageEncoder(models.build("efficientnet_lite0", 1), power=1.0))
    assert other.key != encoder.key
    assert (other.network[1]["power"], encoders.build(other.network[1]).power) == (1.0, 1.0)
    for wrong in (0.0, -1.0, "a half", math.inf):
        with pytest.raises(OptionError, match="power must be"):
            encoders.build(options | {"power": wrong})


def test_the_name_of_a_column_does_not_change_the_key(load):
    assert load("wordllama", column="says").key == load("wordllama").key


@pytest.mark.parametrize("variable", ["HF_HOME", "HF_HUB_CACHE"])
def test_minilm_is_taken_from_the_cache_of_the_hub_and_verified(tmp_path, monkeypatch, load, variable):
    load("minilm")
    hub = tmp_path / "hub" if variable == "HF_HOME" else tmp_path
    snapshots = hub / "models--sentence-transformers--all-MiniLM-L6-v2" / "snapshots"
    for revision, name in itertools.product(("cut", "right one"), (registry.MODEL, registry.TOKENIZER)):
        (snapshots / revision).mkdir(parents=True, exist_ok=True)
        (snapshots / revision / name).symlink_to(folder(registry.MINILM) / name)
    (snapshots / "cut" / registry.MODEL).unlink()
    (snapshots / "cut" / registry.MODEL).write_bytes(b"other weights")
    monkeypatch.setenv(variable, str(tmp_path))
    monkeypatch.setenv("OPENRADIAL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(registry, "MINILM", dataclasses.replace(registry.MINILM, origins=()))
    found = registry.load("minilm")
    assert found.checksum == next(iter(registry.MINILM.files.values()))
    assert (tmp_path / "cache" / "data" / "weights-minilm" / registry.MODEL).stat().st_size > 9e7
    monkeypatch.setenv("OPENRADIAL_CACHE", str(tmp_path / "other"))
    (snapshots / "right one" / registry.TOKENIZER).unlink()
    with pytest.raises(FetchError, match="has sha256"):
        registry.load("minilm")
