import csv
import json
import re
from dataclasses import replace
from datetime import date, timedelta

import numpy as np
import pytest
import torch

import openradial
from openradial.data import read_table
from openradial.errors import DataError, OptionError
from openradial.fitting import FitOptions, prepare
from openradial.training.settings import read_toml

COLUMNS = ["id", "when", "comment", "site", "zip", "length", "kind"]


def rows_of(count=150, seed=0):
    random = np.random.default_rng(seed)
    for i in range(count):
        day = date(2024, 1, 1) + timedelta(days=int(random.integers(300)))
        comment = f"sent by {random.choice(['letter', 'mail', 'phone', 'fax'])} {i}"
        yield [f"C{i}", day, comment, "north", f"0{i % 3}123", f"{random.normal(4 * (i % 3), 0.5):.3f}", f"c{i % 3}"]


@pytest.fixture
def path(tmp_path):
    with (tmp_path / "t.csv").open("w", newline="") as stream:
        csv.writer(stream).writerows([COLUMNS, *rows_of()])
    return tmp_path / "t.csv"


def prepared(path, **options):
    has_text = not options.get("columns")
    return prepare(FitOptions(str(path), label="kind", **({"encoder": "tfidf"} if has_text else {}) | options))


def test_types_are_inferred_and_what_cannot_be_used_is_left_out_with_a_note(path):
    made = prepared(path)
    assert made.types == {
        "id": "identifier",
        "when": "date",
        "comment": "free text",
        "site": "constant",
        "zip": "category",
        "length": "number",
    }
    assert made.inputs.columns == ("when", "zip", "length", "comment")
    assert "free text is encoded by tfidf: comment" in made.notes
    assert "columns with one value or none are left out: site" in made.notes
    assert any(note.startswith("column 'id' is left out") for note in made.notes)
    width = made.texts.train.shape[1]
    assert made.num_features == 3 + 3 + 1 + width  # month, weekday and elapsed days; three codes; a number; the text


@pytest.mark.parametrize(
    ("options", "columns"),
    [
        ({"columns": "zip,length"}, ("zip", "length")),
        ({"columns": ["length"]}, ("length",)),
        ({"drop": "when, zip"}, ("length", "comment")),
        ({"columns": "zip,length", "drop": ["zip"]}, ("length",)),
        ({"categorical": "id,length"}, ("id", "when", "zip", "length", "comment")),
        ({"numeric": "zip"}, ("when", "zip", "length", "comment")),
        ({"columns": "length", "group": "id"}, ("length",)),
    ],
)
@pytest.mark.parametrize("in_memory", [False, True])
def test_options_choose_columns(path, options, columns, in_memory):
    if in_memory:
        text = {} if "columns" in options else {"encoder": "tfidf"}
        made = openradial.fit(read_table(path, label="kind"), **text, **options)
        assert made.preprocessing.columns == columns
    else:
        made = prepared(path, **options)
        assert made.inputs.columns == columns
        if "numeric" in options:
            assert len(made.inputs.encoder.inputs) == 3 + 1 + 1


def test_a_column_that_is_dropped_is_not_even_read(path):
    path.write_text(path.read_text().replace("C7,", "7,"))
    with pytest.raises(DataError, match=r"fit --categorical id"):
        prepared(path)
    assert prepared(path, drop="id").inputs.columns == ("when", "zip", "length", "comment")
    assert "id" in prepared(path, categorical="id").inputs.columns


def test_types_follow_from_known_rows(path):
    path.write_text(re.sub(r"north(.*c2)", r"south\1", path.read_text()))
    assert prepared(path).types["site"] == "category"
    assert prepared(path, novel="c2").types["site"] == "constant"


def test_identical_rows_are_found_without_the_identifier(path):
    header, *lines = path.read_text().splitlines()
    copies = [re.sub(r"^C(\d+)", r"D\1", line) for line in lines[:10]]
    path.write_text("\n".join([header, *lines, *copies]))
    notes = prepared(path, drop="comment", encoder="auto").notes
    assert "duplicates: 10 of 160 examples; no split separates them" in notes


def test_the_column_of_groups_may_be_an_identifier(path):
    made = prepared(path, group="id")
    assert "id" not in made.types
    assert made.inputs.columns == ("when", "zip", "length", "comment")


def test_all_columns_of_an_array_are_used():
    x = np.random.default_rng(0).normal(size=(90, 3))
    x[:, 1], x[:, 2] = 7, np.arange(90)
    x[:, 0] += 5 * (np.arange(90) % 3)
    model = openradial.fit((x, np.arange(90) % 3))
    assert model.preprocessing.columns == ("x0", "x1", "x2")
    assert len(model.predict(x[:4])) == 4


def test_predictions_are_those_of_fit_and_need_no_column_that_was_left_out(path, tmp_path):
    model = openradial.fit(path, label="kind", out=tmp_path / "m", drop="comment")
    loaded = openradial.load(tmp_path / "m")
    assert loaded.preprocessing == model.preprocessing
    train = prepared(path, drop="comment", encoder="auto").train
    rows = [dict(zip(COLUMNS, row, strict=True)) for row in rows_of()]
    used = [{name: row[name] for name in ("length", "zip", "when")} for row in rows]
    for raw in (rows, used, str(path), [row | {"length": float(row["length"])} for row in used]):
        raw = loaded.preprocessing.expand(raw)
        assert torch.equal(loaded.preprocessing.prepare(list(raw)), train.inputs)
    with path.open("w", newline="") as stream:
        writer = csv.DictWriter(stream, ["when", "zip", "length", "kind"], extrasaction="ignore")
        writer.writeheader()
        writer.writerows(rows)
    assert loaded.predict(path).labels.tolist() == model.predict(rows).labels.tolist()
    assert loaded.evaluate(str(path), label="kind").accuracy.value > 0.9


def test_both_methods_take_the_same_columns(path):
    model = openradial.fit(path, label="kind", method="best", drop="when,comment", numeric="zip", epochs=1)
    assert model.preprocessing.columns == ("zip", "length")


def test_options_of_columns_are_read_from_toml_and_written_as_json(tmp_path):
    (tmp_path / "run.toml").write_text('data = "t.csv"\nlabel = "kind"\ndrop = ["a,b", "c"]\nnumeric = "d, e"\n')
    options = FitOptions.from_mapping(read_toml(tmp_path / "run.toml"))
    assert (options.drop, options.numeric, options.columns) == (("a,b", "c"), ("d", "e"), ())
    assert json.loads(json.dumps(options.as_dict()))["drop"] == ["a,b", "c"]


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"drop": "lenght"}, DataError, "there is no column of this name; .*; did you mean 'length'"),
        ({"numeric": "lenght"}, DataError, "there is no column of this name; .*; did you mean 'length'"),
        ({"columns": "length", "drop": "length"}, DataError, "^no column is left to learn from$"),
        (
            {"columns": "id,site"},
            DataError,
            "^no column is left to learn from; .*; column 'id' is left out.*name it with text",
        ),
        ({"numeric": "id"}, DataError, "row 1, column 'id': expected a number, got 'C0'"),
        ({"numeric": "id", "categorical": "id"}, OptionError, "numeric or categorical, got both for id"),
        ({"columns": "kind"}, OptionError, "must not contain the label column 'kind'"),
    ],
)
def test_wrong_columns_are_refused(path, options, error, message):
    with pytest.raises(error, match=message):
        prepared(path, **options)


def test_columns_are_for_tables():
    with pytest.raises(OptionError, match=r"^drop names columns of a table, and digits holds images$"):
        prepare(FitOptions("digits", drop="a"))


@pytest.mark.parametrize(
    ("labels", "refused"),
    [
        ([f"{i * 1.5}" for i in range(150)], True),
        ([f"{i % 30 + 0.5}" for i in range(150)], True),  # fractions
        ([str(10 * i) for i in range(150)], True),
        ([str(i % 30) for i in range(150)], False),  # 30 numbered classes of 5 rows
        ([f"{i % 30}.0" for i in range(150)], False),
        ([f"{i % 20 + 0.5}" for i in range(150)], False),  # few numbers
        ([f"c{i % 30}" for i in range(150)], False),
    ],
)
def test_a_label_column_that_is_a_quantity_is_refused(path, labels, refused):
    with path.open("w", newline="") as stream:
        rows = ([*row[:-1], label] for row, label in zip(rows_of(), labels, strict=True))
        csv.writer(stream).writerows([COLUMNS, *rows])
    if not refused:
        assert len(prepared(path).split.known) == len(set(labels))
        return
    message = (
        f"column 'kind': expected classes, got {len(set(labels))} different numbers in 150 rows, which is a quantity; "
        "group it into a few classes, such as low, medium and high, or name another column with label (--label)"
    )
    with pytest.raises(DataError, match=f"^{re.escape(message)}$"):
        prepared(path)


def test_words_of_a_table_in_memory_stay_words(path):
    table = read_table(path, label="kind", words=["length"])
    made = openradial.fit(table, columns="zip,length", categorical="length")
    assert len(made.preprocessing.encoder.inputs) > 100
    numbers = replace(table, columns={"code": read_table(path, label="kind").columns["length"]})
    assert openradial.fit(numbers, categorical="code").preprocessing.encoder.word_columns == ("code",)
