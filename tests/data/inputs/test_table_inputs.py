import numpy as np
import pytest
import torch
from made_bundles import ENCODER, table_rows

from openradial.data import read_table
from openradial.data.inputs import TableInputs
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
        ({"length": 1e300, "colour": "red"}, "length", r"1e\+300.*float32"),
        ({"length": 1.0, "colour": "green"}, "colour", "training table does not have 'green'"),
        ([1.0, "red"], None, "a row must be a mapping from column to value, got list"),
    ],
)
def test_an_error_names_the_row_and_the_column(row, column, message):
    with pytest.raises(DataError, match=message) as raised:
        TableInputs(ENCODER).prepare([{"length": 1.0, "colour": "red"}, row])
    assert "row 2" in str(raised.value)
    assert column is None or f"column {column!r}" in str(raised.value)
