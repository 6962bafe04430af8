import json
import re
from datetime import date

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from openradial.data.column_types import infer_types
from openradial.data.inputs import TableInputs
from openradial.data.readers.columns import Numbers, Words
from openradial.data.readers.tables import Table, read_table
from openradial.data.table_encoder import DateFeature, TableEncoder
from openradial.errors import DataError, OptionError


def numbers(*values):
    return Numbers(np.array(values, dtype=np.float64))


def words(*values):
    categories = tuple(sorted({value for value in values if value is not None}))
    return Words(np.array([-1 if value is None else categories.index(value) for value in values]), categories)


def table(labels="ab", classes=None, **columns):
    rows = len(next(iter(columns.values())))
    labels = (labels * rows)[:rows] if labels else ""
    classes = tuple(sorted(set(labels))) if classes is None else classes
    places = [classes.index(label) for label in labels] if labels else [-1] * rows
    return Table(columns, torch.tensor(places), classes)


def encoded(train, other=None, **options):
    return TableEncoder.fit(train, **options).apply(train if other is None else other).inputs


def test_numbers_are_standardised_and_words_become_zeros_and_ones():
    train = table(age=numbers(1, 2, 3, 6), kind=words("b", "a", "b", "c"))
    encoder = TableEncoder.fit(train)
    examples = encoder.apply(train)
    scale = np.std([1, 2, 3, 6])
    expected = [[-2 / scale, 0, 1, 0], [-1 / scale, 1, 0, 0], [0, 0, 1, 0], [3 / scale, 0, 0, 1]]
    torch.testing.assert_close(examples.inputs, torch.tensor(expected, dtype=torch.float32))
    assert encoder.inputs == ("age", "kind=a", "kind=b", "kind=c")
    assert encoder.columns == ("age", "kind")
    assert (examples.labels.tolist(), examples.classes) == ([0, 1, 0, 1], ("a", "b"))


def test_numbers_stay_as_they_are_by_choice():
    assert encoded(table(age=numbers(1, 2.5)), standardise=False).tolist() == [[1.0], [2.5]]


def test_other_rows_are_encoded_by_the_training_rows():
    train = table(age=numbers(0, 2), kind=words("a", "b"))
    other = table(labels="b", classes=("b",), kind=words("b"), age=numbers(7))
    examples = TableEncoder.fit(train).apply(other)
    assert examples.inputs.tolist() == [[6.0, 0.0, 1.0]]
    assert (examples.labels.tolist(), examples.classes) == ([1], ("a", "b"))


def test_large_numbers_keep_their_differences():
    assert encoded(table(when=numbers(1.7e9, 1.7e9 + 2))).tolist() == [[-1.0], [1.0]]


def test_a_column_that_does_not_vary_becomes_zero():
    assert encoded(table(a=numbers(0.1, 0.1, 0.1), b=numbers(0, 0, 0))).abs().max() == 0


def test_gaps_are_filled_with_the_mean_of_the_training_rows():
    train = table(age=numbers(1, 3, np.nan), kind=words("a", None, "a"))
    assert encoded(train, missing="mean").tolist() == [[-1.0, 1.0], [1.0, 1.0], [0.0, 1.0]]
    other = table(labels="ab", age=numbers(np.nan, np.nan), kind=words("a", None))
    train = table(age=numbers(1, 3, 2, 2), kind=words("a", "b", "b", "b"))
    assert encoded(train, other, missing="mean", standardise=False).tolist() == [[2.0, 1.0, 0.0], [2.0, 0.25, 0.75]]


def test_a_column_without_any_value_may_be_of_either_kind():
    train = table(age=numbers(1, 3), kind=words("a", "b"))
    other = table(age=words(None, None), kind=numbers(np.nan, np.nan))
    assert encoded(train, other, missing="mean").tolist() == [[0.0, 0.5, 0.5]] * 2


def test_unknown_words_become_zeros_by_choice():
    train, other = table(kind=words("a", "b")), table(kind=words("c", "b"))
    assert encoded(train, other, unknown="zeros").tolist() == [[0.0, 0.0], [0.0, 1.0]]


def test_novel_classes_become_unknown_by_choice():
    train, other = table(a=numbers(1, 2)), table(labels="bc", a=numbers(1, 2))
    examples = TableEncoder.fit(train).apply(other, novel="unknown")
    assert (examples.labels.tolist(), examples.classes) == ([1, -1], ("a", "b"))


def test_a_class_without_rows_is_not_missed():
    train, other = table(a=numbers(1, 2)), table(labels="ab", classes=("a", "b", "c"), a=numbers(1, 2))
    assert TableEncoder.fit(train).apply(other).labels.tolist() == [0, 1]


def test_rows_without_labels_can_be_encoded():
    train = table(a=numbers(1, 3))
    assert TableEncoder.fit(train).apply(table(labels="", a=numbers(2, 3))).labels.tolist() == [-1, -1]


values = st.lists(st.floats(-1e6, 1e6) | st.just(float("nan")), min_size=2, max_size=20)


@given(values=values.filter(lambda values: not np.isnan(values).all()), seed=st.integers(0, 9))
def test_an_encoder_survives_its_file(values, seed):
    rng = np.random.default_rng(seed)
    kinds = [None if place == 0 else "xyz"[place - 1] for place in rng.integers(0, 4, len(values) - 1)]
    train = table(a=numbers(*values), k=words("é\n", *kinds))
    encoder = TableEncoder.fit(train, missing="mean", unknown="zeros")
    again = TableEncoder.from_json(encoder.to_json())
    assert again == encoder
    assert torch.equal(again.apply(train).inputs, encoder.apply(train).inputs)
    assert encoder.apply(train).inputs.isfinite().all()


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"format": "other 2"}', "null"])
def test_other_json_is_refused(text):
    message = f"^expected the JSON of a table encoder .*, got {re.escape(repr(text))} .*; save it with to_json$"
    with pytest.raises(DataError, match=message):
        TableEncoder.from_json(text)


def test_half_an_encoder_is_refused():
    facts = json.loads(TableEncoder.fit(table(a=numbers(1, 2))).to_json())
    for spoil in ({"missing": "median"}, {"features": [{"name": "a"}]}, {"features": None}):
        with pytest.raises(DataError, match="expected the JSON of a table encoder"):
            TableEncoder.from_json(json.dumps(facts | spoil))


def test_an_encoder_reads_numbers_as_words_where_the_training_rows_had_words(tmp_path):
    (tmp_path / "train.csv").write_text("size,code,y\n1,7,a\n2,N8,b\n")
    (tmp_path / "serve.csv").write_text("id,code,size\nfirst,7,2\n")
    encoder = TableEncoder.fit(read_table(tmp_path / "train.csv", label="y", words=["code"]))
    examples = encoder.apply(encoder.read(tmp_path / "serve.csv"))
    assert examples.inputs.tolist() == [[1.0, 1.0, 0.0]]
    assert examples.labels.tolist() == [-1]


@pytest.mark.parametrize(
    ("fit", "message"),
    [
        (
            lambda: TableEncoder.fit(table(labels="a", a=numbers(1, 2))),
            "a classifier needs two classes or more, the table has one: 'a'",
        ),
        (
            lambda: TableEncoder.fit(table(age=numbers(1, np.nan, np.nan))),
            "row 2, column 'age': expected a value, but 2 are missing; fill them in, leave the column out, or choose "
            "missing='mean'",
        ),
        (
            lambda: TableEncoder.fit(table(kind=words("a", None))),
            "row 2, column 'kind': expected a value, but 1 are missing; fill them in, leave the column out, or choose "
            "missing='mean'",
        ),
        (
            lambda: TableEncoder.fit(table(age=numbers(np.nan, np.nan)), missing="mean"),
            "column 'age': the column has no values at all; leave it out with drop (--drop age)",
        ),
        (
            lambda: TableEncoder.fit(table(name=words(*map(str, range(1001))))),
            "column 'name': expected at most 1000 different words, got 1001; group them, or leave the column out "
            "with drop (--drop name)",
        ),
        (
            lambda: encoded(table(a=numbers(1, 1e100)), standardise=False),
            "row 2, column 'a': 1e+100 is too large for float32; rescale the column",
        ),
        (
            lambda: TableEncoder.fit(table(a=numbers(1, 1e300))),
            "row 2, column 'a': expected a number up to 1e+150, got 1e+300; correct it, or leave it empty",
        ),
    ],
)
def test_rows_that_cannot_be_learnt_from_say_why(fit, message):
    with pytest.raises(DataError, match=f"^{re.escape(message)}$"):
        fit()


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (
            {"agee": numbers(1), "kind": words("a")},
            "the table lacks the columns age of the training table; it has agee, kind; did you mean 'agee'?",
        ),
        (
            {"age": numbers(1), "kind": words("a"), "more": numbers(1)},
            "the table has columns that the training table did not have: more; "
            "read it with encoder.read, or name the columns in features",
        ),
        (
            {"age": words("old"), "kind": words("a")},
            "row 1, column 'age': the training table has numbers in this column, got words: 'old'; correct it",
        ),
        (
            {"age": numbers(1), "kind": numbers(7)},
            "row 1, column 'kind': the training table has words in this column, got numbers: 7.0; "
            "read the table with words=('kind',)",
        ),
        (
            {"age": numbers(1), "kind": words("azure")},
            "row 1, column 'kind': the training table does not have 'azure' in this column; "
            "correct it, or choose unknown='zeros'",
        ),
        (
            {"age": numbers(np.nan), "kind": words("a")},
            "row 1, column 'age': expected a value, but 1 are missing; fill them in, leave the column out, or choose "
            "missing='mean'",
        ),
    ],
)
def test_another_table_that_does_not_fit_says_why(other, message):
    encoder = TableEncoder.fit(table(age=numbers(1, 2), kind=words("a", "b")))
    with pytest.raises(DataError, match=f"^{re.escape(message)}$"):
        encoder.apply(table(labels="", **other))


def test_novel_classes_are_named():
    message = "the table has classes that the training table did not have: c; choose novel='unknown' to label them -1"
    with pytest.raises(DataError, match=f"^{re.escape(message)}$"):
        TableEncoder.fit(table(a=numbers(1, 2))).apply(table(labels="ac", a=numbers(1, 2)))


def test_choices_are_checked():
    train = table(a=numbers(1, 2))
    with pytest.raises(OptionError, match=r"^missing must be one of 'error', 'mean', got 'median'$"):
        TableEncoder.fit(train, missing="median")
    with pytest.raises(OptionError, match=r"^unknown must be one of 'error', 'zeros', got 'ones'$"):
        TableEncoder.fit(train, unknown="ones")
    with pytest.raises(OptionError, match=r"^novel must be one of 'error', 'unknown', got 'skip'$"):
        TableEncoder.fit(train).apply(train, novel="skip")


def test_numbers_whose_squares_are_zero_are_standardised_too(tmp_path):
    (tmp_path / "t.csv").write_text("a,y\n0.0,u\n2.34e-181,v\n")
    table = read_table(tmp_path / "t.csv", label="y")
    assert TableEncoder.fit(table).apply(table).inputs.flatten().tolist() == [-1.0, 1.0]


DATES = ("2023-12-31 06:00", "2024-02-29 12:30", None, "2024-03-01")


def dated(*texts, **options):
    train = table(when=words(*texts))
    return train, TableEncoder.fit(train, types={"when": "date"}, missing="mean", **options)


def test_dates_become_the_parts_that_vary():
    train, encoder = dated(*DATES, standardise=False)
    names = ("when.year", "when.month", "when.weekday", "when.hour", "when.elapsed days")
    assert encoder.inputs == names
    first = date(2023, 12, 31).toordinal()
    rows = [[2023, 12, 6, 6, first + 0.25], [2024, 2, 3, 12.5, first + 60 + 12.5 / 24], [2024, 3, 4, 0, first + 61]]
    expected = np.array([*rows[:2], np.mean(rows, axis=0), rows[2]])
    np.testing.assert_allclose(encoder.apply(train).inputs.numpy(), expected, rtol=1e-6)
    assert encoder.columns == encoder.word_columns == ("when",)
    _, encoder = dated("01.05.2024", "15.05.2024")
    assert encoder.inputs == ("when.elapsed days",)  # two Wednesdays of one month, without a time


def test_all_parts_of_a_date_count_as_much_as_one_number():
    train, encoder = dated(*DATES)
    known = encoder.apply(train).inputs[[0, 1, 3]]
    torch.testing.assert_close(known.mean(0), torch.zeros(5))
    torch.testing.assert_close(known.var(0, correction=0), torch.full((5,), 1 / 5))


def test_a_later_date_is_not_farther_away_than_the_last_training_row():
    _, encoder = dated("2024-01-01", "2024-05-06", standardise=False)
    assert encoder.inputs == ("when.month", "when.elapsed days")
    later = encoder.apply(table(labels="", when=words("2031-05-06", "2000-01-01"))).inputs.tolist()
    first = date(2024, 1, 1).toordinal()
    assert later == [[5, first + 126], [1, first]]


def test_dates_survive_the_file_of_the_encoder():
    train, encoder = dated(*DATES)
    again = TableEncoder.from_json(encoder.to_json())
    assert again == encoder
    assert isinstance(again.features[0], DateFeature)
    assert torch.equal(again.apply(train).inputs, encoder.apply(train).inputs)
    facts = json.loads(encoder.to_json())
    for spoil in ({"end": 1}, {"parts": [{"name": "year"}]}, {"parts": None}):
        with pytest.raises(DataError, match="expected the JSON of a table encoder"):
            TableEncoder.from_json(json.dumps(facts | {"features": [facts["features"][0] | spoil]}))


def test_rows_with_dates_are_prepared_as_the_table_is():
    train, encoder = dated(*DATES)
    inputs = TableInputs.from_record(TableInputs(encoder).record())
    rows = [{"when": text, "id": i} for i, text in enumerate(DATES)]
    assert torch.equal(inputs.prepare(rows), encoder.apply(train).inputs)


def test_a_broken_date_is_named():
    _, encoder = dated("01.05.2024", "16.05.2024")
    message = "row 2, column 'when': expected a date like 17.05.2024, got '2024-05-16'; correct it, or leave it empty"
    with pytest.raises(DataError, match=f"^{re.escape(message)}$"):
        encoder.apply(table(labels="", when=words("17.05.2024", "2024-05-16")))


def test_columns_of_unused_types_are_left_out():
    train = table(id=words("a", "b"), x=numbers(1, 2))
    encoder = TableEncoder.fit(train, types={"id": "identifier", "x": "number"})
    assert encoder.columns == ("x",)


def test_words_that_are_numbers_are_encoded_as_numbers_where_the_training_rows_had_numbers():
    train, other = table(a=numbers(1, 3)), table(labels="", a=words("02", "3"))
    assert encoded(train, other).tolist() == [[0.0], [1.0]]


def test_the_largest_numbers_have_a_finite_mean_and_deviation():
    assert encoded(table(a=numbers(*[1e150, -1e150] * 500))).isfinite().all()


def test_free_text_is_joined_the_shortest_column_first_and_is_no_input(tmp_path):
    rows = "".join(
        f"the card with the number {i} was lost on the way,{i % 7 + 0.5},{'' if i == 1 else f'lost card {i}'},"
        f"{'ab'[i % 2]}\n"
        for i in range(60)
    )
    (tmp_path / "t.csv").write_text("body,x,title,kind\n" + rows)
    table = read_table(tmp_path / "t.csv", label="kind")
    encoder = TableEncoder.fit(table, types=infer_types(table.columns))
    assert (encoder.columns, encoder.texts, encoder.inputs) == (("x", "title", "body"), ("title", "body"), ("x",))
    texts = encoder.join_texts(table)
    assert texts[0] == "lost card 0\nthe card with the number 0 was lost on the way"
    assert texts[1] == "the card with the number 1 was lost on the way"  # a missing text is empty
    again = TableEncoder.from_json(encoder.to_json())
    assert again == encoder
    assert torch.equal(again.apply(table).inputs, encoder.apply(table).inputs)
