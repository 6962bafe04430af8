import gzip
import json
from importlib import import_module

import pytest
import torch

from openradial.data.sets.reuters import reuters, reuters_texts, reuters_vocabulary
from openradial.data.vocabulary import Vocabulary
from openradial.errors import DataError, OptionError

TOPICS = ["acq", "cocoa", "coffee", "copper", "cpi", "crude", "earn", "gnp", "gold", "interest"]
TOPICS += ["money-fx", "money-supply", "ship", "sugar", "trade"]
EARLY, LATE = "7-APR-1987 23:59:59.99", " 8-APR-1987 00:00:01.00"


def document(body, topics=("oil",), date=EARLY, **more):
    return {"id": "1", "date": date, "topics": list(topics), "body": body, **more}


SMALL = [
    document("Prices rose", title="OIL"),
    document("Prices fell again", date=LATE),
    document("Gold bars", topics=["gold"]),
    document("Two topics", topics=["gold", "oil"]),
    {"id": "5", "date": EARLY, "title": "no topic", "body": "at all"},
    {"id": "6", "date": "unreadable", "title": "no body", "topics": ["oil"]},
    document("Wheat", topics=["wheat"]),
    document("Gold coins", topics=["gold"], date=LATE),
]


@pytest.fixture
def small(stand_in, monkeypatch):
    def write(*contents):
        files = {f"reuters-{i:03d}.json": content for i, content in enumerate(contents)}
        monkeypatch.setattr(import_module("openradial.data.sets.reuters"), "FILES", files)
        return stand_in("reuters", files)

    return write


@pytest.fixture(scope="module")
def real(fetched):
    return {split: fetched(reuters_texts, split, min_documents=1) for split in ("train", "test")}


def test_the_real_set_has_8654_documents_on_65_topics(real):
    (texts, topics), (more_texts, more_topics) = real["train"], real["test"]
    assert (len(texts), len(more_texts)) == (len(topics), len(more_topics)) == (6050, 2604)
    assert len({*topics, *more_topics}) == 65
    assert texts[0].startswith("BAHIA COCOA REVIEW\nShowers continued throughout the week in\nthe Bahia cocoa zone")
    assert topics[0] == "cocoa"


def test_15_topics_have_at_least_50_documents(real, fetched):
    vocabulary = fetched(reuters_vocabulary)
    train, test = reuters("train", vocabulary=vocabulary), reuters("test", vocabulary=vocabulary)
    assert list(train.classes) == list(test.classes) == TOPICS
    assert (train.counts() + test.counts()).min() >= 50
    assert (len(train), len(test)) == (5548, 2321)
    assert train.inputs.shape == (5548, 200)
    assert train.inputs.dtype == torch.int64
    assert len(vocabulary) == 10_002
    assert train.inputs.max() < len(vocabulary)
    assert (train.inputs[:, 0] > 0).all()
    known = test.inputs[test.inputs > 0] > 1
    assert known.float().mean() > 0.95


def test_one_topic_and_a_body_make_a_document_and_the_date_its_split(small):
    root = small(json.dumps(SMALL[:3]).encode(), json.dumps(SMALL[3:]).encode())
    assert reuters_texts("train", min_documents=1, root=root) == (
        ["OIL\nPrices rose", "Gold bars", "Wheat"],
        ["oil", "gold", "wheat"],
    )
    assert reuters_texts("test", min_documents=2, root=root) == (["Prices fell again", "Gold coins"], ["oil", "gold"])


def test_the_vocabulary_knows_training_documents_of_frequent_topics_only(small):
    root = small(json.dumps(SMALL).encode())
    vocabulary = reuters_vocabulary(100, min_documents=2, root=root)
    assert vocabulary.words == ("bars", "gold", "oil", "prices", "rose")
    test = reuters("test", min_documents=2, root=root)
    assert test.classes == ("gold", "oil")
    assert test.labels.tolist() == [1, 0]
    assert test.inputs.tolist() == [[5, 1, 1], [3, 1, 0]]


def test_a_given_vocabulary_and_length_are_used(small):
    root = small(json.dumps(SMALL).encode())
    found = reuters("test", min_documents=2, vocabulary=Vocabulary(("again", "fell")), max_words=2, root=root)
    assert found.inputs.tolist() == [[1, 3], [1, 1]]


def test_packed_files_of_a_user_are_read(small):
    root = small(json.dumps(SMALL).encode())
    plain = root / "reuters-000.json"
    plain.with_name("reuters-000.json.gz").write_bytes(gzip.compress(plain.read_bytes()))
    plain.unlink()
    assert len(reuters("train", min_documents=2, root=root)) == 2


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"[{", r"reuters-000.json: expected a list of documents in JSON, but .*; remove it to get it again"),
        (b"\xff\xfe\xfd", r"reuters-000.json: expected a list of documents in JSON, but"),
        (b"{}", r"reuters-000.json: expected a list of documents in JSON, but it begins with {}; remove it"),
        (b"[1]", r"reuters-000.json: expected a list of documents in JSON, but it begins with \[1\]; remove it"),
        (
            json.dumps([document("a", date="1987")]).encode(),
            r"000.json, row 1, column 'date': expected dates like 26-FEB-1987 15:01:01, got '1987'",
        ),
        (json.dumps([document("a", date="31-FOO-1987")]).encode(), r"expected dates like .*, got '31-FOO-1987'"),
        (json.dumps([document("a", date="31-FEB-1987")]).encode(), r"expected dates like .*, got '31-FEB-1987'"),
    ],
)
def test_a_damaged_file_is_named(small, content, message):
    root = small(content)
    with pytest.raises(DataError, match=message) as caught:
        reuters(root=root)
    assert caught.value.path.endswith("reuters-000.json")


def test_settings_out_of_range_are_refused(small):
    root = small(json.dumps(SMALL).encode())
    with pytest.raises(OptionError, match=r"min_documents must leave at least one topic, got 50; .* has 2 documents"):
        reuters(root=root)
    with pytest.raises(OptionError, match=r"got 1; the most frequent topic has 0 documents"):
        reuters(root=small(b"[]"), min_documents=1)
    with pytest.raises(OptionError, match="split must be one of 'train', 'test', got 'dev'"):
        reuters("dev")
    with pytest.raises(OptionError, match="split must be one of 'train', 'test', got 'dev'"):
        reuters_texts("dev")
    with pytest.raises(OptionError, match="max_words must be a whole number of at least 1, got 0"):
        reuters(max_words=0)
    with pytest.raises(OptionError, match="min_documents must be a whole number of at least 1, got 0"):
        reuters_vocabulary(min_documents=0)
