import re
from datetime import datetime

import numpy as np
import pytest

from openradial.data import infer_types, read_table
from openradial.data.column_types import date_format, describe_types, parse_date, type_notes
from openradial.data.readers.columns import Numbers, word_column
from openradial.errors import DataError

RNG = np.random.default_rng(0)
N = 200
MEASURED = RNG.normal(size=N)


def numbers(values):
    return Numbers(np.array(values, dtype=np.float64))


def of(column, name="a", **given):
    return infer_types({name: column}, **given)[name]


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (MEASURED, "number"),
        (np.round(MEASURED * 1e7), "number"),  # different integers in a wide range: a quantity
        (np.arange(N) % 3, "number"),  # integers with few values
        (np.arange(20), "number"),  # too few rows to tell
        (np.where(np.arange(N) % 7, MEASURED, np.nan), "number"),  # gaps
        (np.full(N, 3.5), "constant"),
        (np.full(N, np.nan), "constant"),
        (np.where(np.arange(N) % 2, 1.0, np.nan), "constant"),
        (RNG.permutation(N), "identifier"),
        (1000 + RNG.permutation(2 * N)[:N], "identifier"),  # a part of the numbered rows
        (np.where(np.arange(N) % 7, np.arange(N), np.nan), "identifier"),
        (np.arange(N) / 2, "number"),
        ([*range(N - 1), 0], "number"),  # one repeats
    ],
)
def test_types_of_numbers(values, kind):
    assert of(numbers(values)) == kind


@pytest.mark.parametrize("name", ["id", "ID", "customer_id", "customerId", "order-key", "Row index"])
def test_a_name_tells_an_identifier_that_is_a_random_number(name):
    values = RNG.choice(10**9, N, replace=False)
    assert of(numbers(values), name) == "identifier"
    assert of(numbers(values), "population") == "number"
    assert of(numbers(MEASURED), name) == "number"  # no integers
    assert of(numbers(values), name, numeric=[name]) == "number"


@pytest.mark.parametrize(
    ("texts", "kind"),
    [
        (["red", "green"] * 100, "category"),
        (["true", "false"] * 100, "category"),
        ([f"C{i}" for i in range(N)], "identifier"),
        ([f"C{i // 2}" for i in range(N)], "category"),  # two rows each
        ([f"C{2 * i // 3}" for i in range(N)], "identifier"),
        ([f"C{i}" for i in range(20)], "category"),  # too few rows to tell
        ([f"C{i}" if i % 5 else None for i in range(N)], "identifier"),
        ([f"{i:05}" for i in range(N)], "identifier"),
        ([f"{i % 30:05}" for i in range(N)], "category"),
        ([f"my card number {i} was lost" for i in range(N)], "free text"),
        (["it was lost", "it was found"] * 100, "category"),
        ([f"first {i}" for i in range(N)], "identifier"),
        (["same"] * N, "constant"),
        ([None, "same"] * 100, "constant"),
        ([None] * N, "constant"),
        ([f"2024-{1 + i % 12:02}-{1 + i % 28:02}" for i in range(N)], "date"),
        ([f"2024-{1 + i % 12:02}-03" if i % 3 else None for i in range(N)], "date"),
        ([f"2024-05-17T{i % 24:02}:{i % 60:02}:00Z" for i in range(N)], "date"),
        (["2024-05-17", "2024-05-18 10:30", "2024-05-18 10:30:12.5"] * 9, "date"),  # all are ISO
        ([f"{1 + i % 28}.{1 + i % 12}.2024" for i in range(N)], "date"),
        (["2024-05-17"] * N, "constant"),
        (["17:30", "18:30"] * 100, "category"),
        (["2024", "2025x"] * 100, "category"),
        (["2024-05-17", "never", "soon"] * 70, "category"),
    ],
)
def test_types_of_words(texts, kind):
    assert of(word_column(texts)) == kind


def test_types_may_be_given():
    column = word_column([f"C{i}" for i in range(N)])
    assert of(column, categorical=["a"]) == "category"
    assert infer_types({"a": column, "b": numbers(MEASURED)}, categorical=["b"]) == {"a": "identifier", "b": "category"}


@pytest.mark.parametrize(
    ("text", "day_format", "expected"),
    [
        ("2024-05-17", "%Y-%m-%d", datetime(2024, 5, 17)),
        ("2024-05-17 08:30", "%Y-%m-%d", datetime(2024, 5, 17, 8, 30)),
        ("2024-05-17T08:30:15.250Z", "%Y-%m-%d", datetime(2024, 5, 17, 8, 30, 15, 250_000)),
        ("17.05.2024 8:30", "%d.%m.%Y", None),
        ("17.05.2024 08:30", "%d.%m.%Y", datetime(2024, 5, 17, 8, 30)),
        ("2024-02-30", "%Y-%m-%d", None),
        ("17.05.2024", "%Y-%m-%d", None),
        ("", "%Y-%m-%d", None),
    ],
)
def test_dates_are_parsed(text, day_format, expected):
    assert parse_date(text, day_format) == expected


def test_the_day_comes_first_unless_it_cannot_and_that_is_noted():
    certain, guess = word_column(["02/13/2024", "03/01/2024"]), word_column(["02/01/2024", "03/01/2024"])
    assert date_format("a", certain) == "%m/%d/%Y"
    assert date_format("a", guess) == "%d/%m/%Y"
    types = infer_types({"a": certain, "b": guess})
    (note,) = type_notes({"a": certain, "b": guess}, types)
    assert note == "column 'b': dates are read as 17/05/2024, the day first"


def test_a_part_of_the_rows_has_the_format_of_all():
    column = word_column(["02/01/2024", "03/01/2024", "02/13/2024"])
    assert date_format("a", column.select(np.array([0, 1]))) == "%m/%d/%Y"


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (
            [*(f"2024-05-{day}" for day in range(10, 20)), "soon"],
            "column 'when': 10 of 11 values are dates like 2024-05-17, but 'soon' is not; correct it, or use "
            "categorical (--categorical when) or drop (--drop when)",
        ),
        (
            [*(f"2024-05-{day}" for day in range(10, 20)), *(f"{day}.06.2024" for day in range(10, 17))],
            "column 'when': 10 of 17 values are dates like 2024-05-17, but '10.06.2024' is not; correct it, or use "
            "categorical (--categorical when) or drop (--drop when)",
        ),
    ],
)
def test_dates_of_several_formats_are_refused(texts, message):
    with pytest.raises(DataError, match=f"^{re.escape(message)}$"):
        infer_types({"when": word_column(texts)})


def test_columns_that_are_left_out_are_noted_with_the_way_back():
    columns = {
        "id": numbers(np.arange(N)),
        "code": word_column(f"C{i}" for i in range(N)),
        "one": numbers(np.ones(N)),
        "none": numbers(np.full(N, np.nan)),
        "note": word_column(f"card {i} was lost" for i in range(N)),
        "x": numbers(MEASURED),
    }
    types = infer_types(columns)
    assert type_notes(columns, types) == [
        "columns with one value or none are left out: one, none",
        "column 'id' is left out: 200 different values in 200 rows look like identifiers; "
        "numeric (--numeric id) or categorical (--categorical id) uses it",
        "column 'code' is left out: 200 different values in 200 rows look like identifiers; "
        "categorical (--categorical code) uses it",
    ]
    assert describe_types(types) == (
        "number: x; free text: note; left out: id (identifier), code (identifier), one (constant), none (constant)"
    )


def test_numbers_with_leading_zeros_are_words_wherever_they_stand(tmp_path):
    rows = [f"{10000 + i},{i}" for i in range(600)] + ["01234,1"]  # the last one is in the second chunk
    (tmp_path / "t.csv").write_text("\n".join(["zip,x,y", *(f"{row},a" for row in rows)]))
    table = read_table(tmp_path / "t.csv", label="y")
    assert table.columns["zip"].to_list()[-1] == "01234"
    assert isinstance(table.columns["x"], Numbers)


def test_texts_that_are_numbers_are_numbers_unless_words_are_asked_for(tmp_path):
    (tmp_path / "t.jsonl").write_text(
        "\n".join(f'{{"a": "{i}.5", "zip": "0{i}", "gap": "NA", "y": "u"}}' for i in range(3))
    )
    columns = read_table(tmp_path / "t.jsonl", label="y").columns
    assert columns["a"].to_list() == [0.5, 1.5, 2.5]
    assert columns["zip"].to_list() == ["00", "01", "02"]
    assert read_table(tmp_path / "t.jsonl", label="y", words=["a"]).columns["a"].to_list() == ["0.5", "1.5", "2.5"]
