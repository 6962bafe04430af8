import numpy as np
import pytest
import torch
from made_bundles import ENCODER, table_rows

from openradial.data import TableEncoder, read_table
from openradial.data.inputs import TableInputs
from openradial.data.inputs.base import MOST_ROWS
from openradial.data.table_encoder import NumberFeature
from openradial.errors import DataError


def test_rows_of_a_table_are_encoded_as_files_are(tmp_path):
    rows = table_rows(9)
    path = tmp_path / "rows.csv"
    path.write_text("\n".join(["length,colour", *(f"{row['length']!r},{row['colour']}" for row in rows)]))
    expected = ENCODER.apply(ENCODER.read(path)).inputs
    inputs = TableInputs(ENCODER)
    assert torch.equal(inputs.prepare(rows), expected)
    assert torch.equal(inputs.prepare(ENCODER.read(path)), expected)
    assert torch.equal(inputs.prepare([{**row, "length": str(row["length"]), "name": "x"} for row in rows]), expected)
    assert torch.equal(inputs.prepare(rows[0]), expected[:1])


def test_a_labelled_table_can_be_predicted(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("length,colour,kind\n1.0,red,cat\n2.0,blue,whale\n")
    assert TableInputs(ENCODER).prepare(read_table(path, label="kind")).shape == (2, 3)


@pytest.mark.parametrize("gap", [None, "", " NA ", float("nan"), np.float32("nan")])
def test_gaps_are_filled_as_in_training(gap):
    found = TableInputs(ENCODER).prepare([{"length": gap, "colour": gap}])
    np.testing.assert_allclose(found, [[0.0, 0.25, 0.75]])


@pytest.mark.parametrize(
    ("row", "column", "message"),
    [
        ({"lenght": 1.0, "colour": "red"}, "length", "its columns are lenght, colour; did you mean 'lenght'"),
        ({"length": "long", "colour": "red"}, "length", "expected a number, got 'long'; correct it"),
        ({"length": [1], "colour": "red"}, "length", r"expected a number, got \[1\]"),
        ({"length": np.inf, "colour": "red"}, "length", "expected a finite number, got inf"),
        ({"length": 1e100, "colour": "red"}, "length", r"1e\+100.*float32"),
        ({"length": 1e300, "colour": "red"}, "length", r"expected a number up to 1e\+150, got 1e\+300"),
        ({"length": 1.0, "colour": "green"}, "colour", "'green'"),
        ([1.0, "red"], None, "a row must be a mapping from column to value, got list"),
    ],
)
def test_an_error_names_the_row_and_the_column(row, column, message):
    with pytest.raises(DataError, match=message) as raised:
        TableInputs(ENCODER).prepare([{"length": 1.0, "colour": "red"}, row])
    assert "row 2" in str(raised.value)
    assert column is None or f"column {column!r}" in str(raised.value)


def test_other_columns_of_a_table_are_ignored(tmp_path):
    (tmp_path / "t.csv").write_text("length,colour,comment\n1.0,red,x\n")
    inputs = TableInputs(ENCODER)
    assert torch.equal(
        inputs.prepare(read_table(tmp_path / "t.csv", label=None)), inputs.prepare([{"length": 1.0, "colour": "red"}])
    )


COLUMNS = (NumberFeature("a", 1.0, 1.0, 2.0), NumberFeature("b", 0.0, 0.0, 1.0))
NUMBERS = TableInputs(TableEncoder(COLUMNS, ("x", "y"), missing="mean"))


def test_an_array_has_one_column_per_feature():
    rows = np.array([[1.0, 2.0], [3.0, np.nan]])
    expected = NUMBERS.prepare([{"a": 1.0, "b": 2.0}, {"a": 3.0, "b": None}])
    assert torch.equal(NUMBERS.prepare(rows), expected)
    assert [len(part) for part in NUMBERS.chunks(rows)] == [2]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (
            np.zeros((2, 3)),
            r"expected numbers of shape \(b, 2\), one column per feature, got float64 of shape \(2, 3\)",
        ),
        (np.zeros(2), r"got float64 of shape \(2,\)"),
        (np.array([["a", "b"]]), "expected numbers"),
        (np.array([[0.0, 1.0], [0.0, -np.inf]]), "row 2, column 'b': expected a finite number, got -inf"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(rows, message):
    with pytest.raises(DataError, match=message):
        NUMBERS.prepare(rows)


def test_an_array_cannot_have_words():
    with pytest.raises(DataError, match="columns of words; pass rows as mappings"):
        TableInputs(ENCODER).prepare(np.zeros((1, 2)))


@pytest.mark.parametrize("value", ["1e308", "1e200", "x", "1_0"])
def test_rows_in_errors_are_counted_over_all_parts_of_a_file(tmp_path, value):
    rows = [f"{i % 7},red" for i in range(MOST_ROWS + 10)]
    rows[MOST_ROWS + 4] = f"{value},red"
    path = tmp_path / "rows.csv"
    path.write_text("\n".join(["length,colour", *rows]))
    inputs = TableInputs(ENCODER)
    with pytest.raises(DataError) as raised:
        list(inputs.batches(path))
    assert (raised.value.path, raised.value.row, raised.value.column) == (str(path), MOST_ROWS + 5, "length")
    values = [{"length": row.split(",")[0], "colour": "red"} for row in rows]
    with pytest.raises(DataError) as raised:
        list(inputs.batches(values))
    assert (raised.value.path, raised.value.row) == (None, MOST_ROWS + 5)
