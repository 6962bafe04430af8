import json
from dataclasses import replace
from hashlib import sha256

import pytest
import torch

from openradial.errors import DataError, OptionError
from paper import reuters as module
from paper.reuters import read_documents, reuters

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
def small(tmp_path, monkeypatch):
    """Write files that stand for the collection in the user's folder."""
    monkeypatch.setenv("OPENRADIAL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("OPENRADIAL_DATA", str(tmp_path))

    def write(*contents):
        files = {f"reuters-{i:03d}.json": content for i, content in enumerate(contents)}
        for name, content in files.items():
            (tmp_path / name).write_bytes(content)
        checksums = {name: f"sha256:{sha256(content).hexdigest()}" for name, content in files.items()}
        monkeypatch.setattr(module, "FILES", files)
        monkeypatch.setattr(module, "SOURCE", replace(module.SOURCE, files=checksums, origins=()))

    return write


def test_the_real_set_has_8654_documents_on_65_topics(fetched):
    documents = fetched(read_documents, 1)
    assert [sum(document.split == split for document in documents) for split in ("train", "test")] == [6050, 2604]
    assert len({document.topic for document in documents}) == 65
    first = documents[0]
    assert first.text.startswith("BAHIA COCOA REVIEW\nShowers continued throughout the week in\nthe Bahia cocoa zone")
    assert first.topic == "cocoa"


def test_15_topics_have_at_least_50_documents(fetched):
    train, test = fetched(reuters, "train"), fetched(reuters, "test")
    assert list(train.classes) == list(test.classes) == TOPICS
    assert (train.counts() + test.counts()).min() >= 50
    assert (len(train), len(test)) == (5548, 2321)
    assert train.inputs.shape == (5548, 200)
    assert train.inputs.dtype == torch.int64
    assert train.inputs.max() < 10_002
    assert (train.inputs[:, 0] > 0).all()
    known = test.inputs[test.inputs > 0] > 1
    assert known.float().mean() > 0.95


def test_one_topic_and_a_body_make_a_document_and_the_date_its_split(small):
    small(json.dumps(SMALL[:3]).encode(), json.dumps(SMALL[3:]).encode())
    documents = read_documents(1)
    assert [(document.text, document.topic) for document in documents if document.split == "train"] == [
        ("OIL\nPrices rose", "oil"), ("Gold bars", "gold"), ("Wheat", "wheat"),
    ]  # fmt: skip
    texts = [document.text for document in read_documents(2) if document.split == "test"]
    assert texts == ["Prices fell again", "Gold coins"]


def test_the_vocabulary_knows_training_documents_of_frequent_topics_only(small):
    small(json.dumps(SMALL).encode())
    test = reuters("test", min_documents=2, vocabulary=100)  # bars, gold, oil, prices, rose
    assert test.classes == ("gold", "oil")
    assert test.labels.tolist() == [1, 0]
    assert test.inputs.tolist() == [[5, 1, 1], [3, 1, 0]]
    assert reuters("test", min_documents=2, vocabulary=2, max_words=2).inputs.tolist() == [[1, 1], [3, 1]]


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
    small(content)
    with pytest.raises(DataError, match=message) as caught:
        reuters()
    assert caught.value.path.endswith("reuters-000.json")


def test_a_topic_must_be_left(small):
    small(json.dumps(SMALL).encode())
    with pytest.raises(OptionError, match=r"min_documents must leave at least one topic, got 50; .* has 2 documents"):
        reuters()
    small(b"[]")
    with pytest.raises(OptionError, match=r"got 1; the most frequent topic has 0 documents"):
        reuters(min_documents=1)
