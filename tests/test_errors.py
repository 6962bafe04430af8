import copy
import pickle

import pytest

from openradial.errors import DataError, OptionError, first_line, listed, located, nearest


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({}, "expected 1"),
        ({"path": "t.csv"}, "t.csv: expected 1"),
        ({"row": 3}, "row 3: expected 1"),
        ({"path": "t.csv", "row": 3, "column": "a"}, "t.csv, row 3, column 'a': expected 1"),
    ],
)
def test_a_data_error_shows_where_it_is(fields, text):
    error = DataError("expected 1", **fields)
    assert str(error) == text
    assert {name: getattr(error, name) for name in fields} == fields
    for same in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert (str(same), same.path, same.row, same.column) == (text, error.path, error.row, error.column)


def test_the_reason_leaves_out_what_names_the_input():
    error = DataError("expected 1", path="t.csv", row=3, column="a")
    assert error.reason == "column 'a': expected 1"
    assert DataError("expected 1", path="t.csv").reason == "expected 1"
    assert OptionError("expected 1").reason == "expected 1"


def test_an_error_is_located_unless_it_has_its_own_path():
    with pytest.raises(DataError) as caught, located("outer.csv"), located("inner.csv"):
        raise DataError("expected 1", column="a")
    assert (caught.value.path, caught.value.column) == ("inner.csv", "a")


def test_hints_name_the_nearest_and_the_first():
    assert nearest("speces", ["species", "length"]) == "; did you mean 'species'?"
    assert nearest("zzz", ["species"]) == ""
    assert listed(["a", "b", "c"], most=2) == "a, b and 1 more"
    assert listed([]) == ""


def test_a_long_message_is_cut_unless_it_is_our_own():
    long = "x" * 300
    assert first_line(ValueError(long)) == "x" * 197 + "..."
    assert first_line(OptionError(long)) == long
    assert first_line(KeyError("mean")) == "it has no 'mean'"
    assert first_line(ValueError("one\ntwo")) == "one"
    assert first_line(ValueError()) == "ValueError"
