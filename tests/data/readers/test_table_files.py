import csv
import io
import math
import re
import sys
import zipfile

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from openradial.data.readers import table_files
from openradial.data.readers.columns import MISSING, Numbers, Words
from openradial.data.readers.table_files import CHUNK, read_columns, table_errors
from openradial.errors import DataError, MissingError

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

texts = st.text(st.characters(codec="utf-8", exclude_characters="\r\0"), max_size=8).map(str.strip)


def everything(names):
    return list(names)


def read_file(path, select=everything, words=(), delimiter=None):
    with table_errors(path):
        return read_columns(path, select, words, delimiter)


def shown(column):
    """A column as a list, with None where a value is missing."""
    if isinstance(column, Numbers):
        return [None if math.isnan(value) else value for value in column.values.tolist()]
    return [None if code < 0 else column.categories[code] for code in column.codes.tolist()]


def read(tmp_path, content, **options):
    path = tmp_path / "table.csv"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return {name: shown(column) for name, column in read_file(path, **options).items()}


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_the_usual_kinds_of_csv_are_read(tmp_path, delimiter, end, mark):
    lines = [["length", "kind"], ["1.5", "red"], ["-2e3", "blue"], ["", "NA"]]
    text = mark + end.join(delimiter.join(line) for line in lines) + end
    assert read(tmp_path, text) == {"length": [1.5, -2000.0, None], "kind": ["red", "blue", None]}


def test_quotes_blanks_and_empty_lines_are_understood(tmp_path):
    text = 'a , "b, c"\n\n 1, "x ""y"""\n2 ,"two\nlines"\n\n'
    assert read(tmp_path, text) == {"a": [1.0, 2.0], "b, c": ['x "y"', "two\nlines"]}


@given(rows=st.lists(st.tuples(st.floats(allow_nan=False), texts), min_size=1, max_size=20))
def test_what_the_csv_module_writes_reads_back(rows, tmp_path_factory):
    words = [f"w{word}" for _, word in rows]
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(["number", "word"])
    writer.writerows([repr(number), word] for (number, _), word in zip(rows, words, strict=True))
    found = read(tmp_path_factory.mktemp("csv"), text.getvalue())
    assert found == {"number": [number for number, _ in rows], "word": words}


@pytest.mark.parametrize("word", sorted(MISSING))
def test_signs_for_no_value_are_known(tmp_path, word):
    found = read(tmp_path, f"a,b\n{word},{word}\n1,x\n")
    assert found == {"a": [None, 1.0], "b": [None, "x"]}


def test_a_column_may_begin_with_more_gaps_than_are_read_at_once(tmp_path):
    gaps = ",\n" * (CHUNK + 5)
    found = read(tmp_path, f"a,b\n{gaps}1,x\n")
    assert found == {"a": [None] * (CHUNK + 5) + [1.0], "b": [None] * (CHUNK + 5) + ["x"]}
    found = read(tmp_path, f"a,b\n1,x\n{gaps}")
    assert found == {"a": [1.0] + [None] * (CHUNK + 5), "b": ["x"] + [None] * (CHUNK + 5)}


def test_numbers_that_are_codes_can_be_words(tmp_path):
    assert read(tmp_path, "zip,n\n01234,1\nN1,2\n01234,3\n", words=["zip"])["zip"] == ["01234", "N1", "01234"]


def test_a_column_name_is_quoted_where_a_shell_needs_it(tmp_path):
    with pytest.raises(DataError, match=re.escape("(fit --categorical 'weight (kg)')")):
        read(tmp_path, "weight (kg),b\n1,x\nheavy,x\n")


def test_a_column_that_is_not_chosen_may_be_anything(tmp_path):
    path = tmp_path / "table.csv"
    path.write_text("a,b\n1,2\n3,word\n")
    assert list(read_file(path, lambda names: ["a"])) == ["a"]


def test_the_first_mixed_value_is_named_in_whichever_chunk(tmp_path):
    for before in (1, CHUNK - 1, CHUNK, 3 * CHUNK + 7):
        message = (
            f"{tmp_path}/table.csv, row {before + 1}, column 'a': the column mixes numbers and words: got 'old' after "
            "numbers; correct it, or leave the cell empty if the value is missing, or read all values as words with "
            "words=('a',) (fit --categorical a)"
        )
        with pytest.raises(DataError, match=f"^{re.escape(message)}$"):
            read(tmp_path, "a,b\n" + "1,x\n" * before + "old,x\n1,x\n")
        with pytest.raises(DataError, match=rf"row {before + 1}, .* got '7' after words; correct it"):
            read(tmp_path, "a,b\n" + "word,x\n" * before + "7,x\nword,x\n")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("\n1,2\n", ": expected a line of column names first, got an empty line"),
        ("1,2\n3,4\n", ": expected a line of column names first, got numbers (1, 2); add a header"),
        (
            ",a,b\n0,1,2\n",
            ": each column needs a name, column 1 of the header has none; name it, or write the file without its index",
        ),
        ("a,b,a\n1,2,3\n", ", column 'a': column names must differ, got 2 of this name; rename one"),
        (
            "a,b\n1,2\n3\n",
            ", row 2: the header names 2 columns, but the row has 1 values; "
            "correct the row, or quote values that contain the delimiter",
        ),
        (
            "a,b\n1,2,3\n",
            ", row 1: the header names 2 columns, but the row has 3 values; "
            "correct the row, or quote values that contain the delimiter",
        ),
        (
            'a,b\n1,"x\n2,y\n',
            ": a quote is broken or not closed (line 3: unexpected end of data); double each quote inside quotes",
        ),
        (
            "a,b\n1,é\n".encode("latin-1"),
            ": expected text in UTF-8, got invalid continuation byte at byte 6; save the file as UTF-8",
        ),
        (
            "a,b\n1,2\n".encode("utf-16"),
            ": expected text in UTF-8, got invalid start byte at byte 0; save the file as UTF-8",
        ),
        (
            "a;b\n1,5;x\n",
            ", row 1, column 'a': numbers need a decimal point, got '1,5'; "
            "write 1.5 instead of 1,5, or, if they are words, use words=('a',) (fit --categorical a)",
        ),
    ],
)
def test_a_broken_csv_file_says_what_is_wrong(tmp_path, content, message):
    with pytest.raises(DataError, match=f"^{re.escape(str(tmp_path))}/table.csv{re.escape(message)}$"):
        read(tmp_path, content)


def test_ragged_rows_are_counted_over_chunks(tmp_path):
    with pytest.raises(DataError, match=f"row {2 * CHUNK + 1}: .* the row has 1 values"):
        read(tmp_path, "a,b\n" + "1,x\n" * 2 * CHUNK + "1\n")


def test_parquet_columns_follow_their_types(tmp_path):
    path = tmp_path / "table.parquet"
    columns = {
        "whole": pa.array([1, None, 3], pa.int32()),
        "real": pa.array([0.5, float("nan"), None], pa.float32()),
        "word": pa.array(["b", None, "a"]),
        "kind": pa.array(["b", "a", None]).dictionary_encode(),
        "truth": pa.array([True, False, None]),
        "nothing": pa.nulls(3),
        "money": pa.array([1, 2, 3], pa.int64()).cast(pa.decimal128(21, 2)),
    }
    pq.write_table(pa.table(columns), path, row_group_size=2)
    found = read_file(path, words=["whole"])
    assert {name: shown(column) for name, column in found.items()} == {
        "whole": ["1", None, "3"],
        "real": [0.5, None, None],
        "word": ["b", None, "a"],
        "kind": ["b", "a", None],
        "truth": ["true", "false", None],
        "nothing": [None, None, None],
        "money": [1.0, 2.0, 3.0],
    }


def test_a_parquet_column_of_another_type_is_named_if_it_is_chosen(tmp_path):
    path = tmp_path / "table.parquet"
    pq.write_table(pa.table({"a": [1], "took": pa.array([0], pa.duration("s"))}), path)
    message = (
        f"{path}, column 'took': expected numbers, words or dates, got duration[s]; convert it, or leave it out with "
        "fit --drop took"
    )
    with pytest.raises(DataError, match=f"^{re.escape(message)}$"):
        read_file(path)
    assert list(read_file(path, lambda names: ["a"])) == ["a"]


def test_dates_of_parquet_are_words(tmp_path):
    path = tmp_path / "table.parquet"
    when = pa.array([0, None], pa.timestamp("s"))
    pq.write_table(pa.table({"when": when, "day": when.cast(pa.date32())}), path)
    columns = read_file(path)
    assert columns["when"].to_list() == ["1970-01-01 00:00:00", None]
    assert columns["day"].to_list() == ["1970-01-01", None]


@pytest.mark.parametrize("keep", [3, 50, -20])
def test_half_a_parquet_file_is_refused(tmp_path, keep):
    path = tmp_path / "table.parquet"
    pq.write_table(pa.table({"a": list(range(1000))}), path)
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(
        DataError, match=r"^.*table.parquet: the Parquet file is damaged \(.+\); write or copy it again$"
    ):
        read_file(path)


def test_damage_inside_a_parquet_file_is_refused(tmp_path):
    path = tmp_path / "table.parquet"
    pq.write_table(pa.table({"a": list(range(1000))}), path)
    content = path.read_bytes()
    path.write_bytes(content[:4] + b"\xff" * 60 + content[64:])
    with pytest.raises(DataError, match="the Parquet file is damaged"):
        read_file(path)


def test_parquet_without_its_package_names_the_command(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    path = tmp_path / "table.parquet"
    path.write_bytes(b"PAR1")
    message = "reading Parquet needs the package pyarrow, which is not installed; run: pip install 'openradial[tables]'"
    with pytest.raises(MissingError, match=f"^{re.escape(message)}$"):
        read_file(path)


def test_npz_arrays_become_columns(tmp_path):
    path = tmp_path / "table.npz"
    np.savez_compressed(
        path,
        x=np.array([[1, 2], [3, 4]], dtype=np.float16),
        kind=np.array(["b", ""]),
        raw=np.array([b"b", b"a"]),
        truth=np.array([True, False]),
        code=np.array([7, 8]),
        y=np.array([0.5, np.nan]),
    )
    found = read_file(path, words=["code"])
    assert {name: shown(column) for name, column in found.items()} == {
        "x0": [1.0, 3.0],
        "x1": [2.0, 4.0],
        "kind": ["b", None],
        "raw": ["b", "a"],
        "truth": ["true", "false"],
        "code": ["7", "8"],
        "y": [0.5, None],
    }


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        (
            {"x": np.zeros((2, 3, 3))},
            ", column 'x': expected arrays of shape (n,) or (n, d), got (2, 3, 3); reshape it to one row per example",
        ),
        (
            {"x": np.zeros((2, 2)), "x1": np.zeros(2)},
            ", column 'x1': column names must differ, got 2 of this name; rename one",
        ),
        (
            {"x": np.zeros(2, complex)},
            ", column 'x': expected an array of numbers or words, got complex128; convert it",
        ),
        (
            {"x": np.array([1, "a"], dtype=object)},
            ": the file holds an array of Python objects, which could run code when loaded; "
            "save numbers, or words as a NumPy array of strings",
        ),
    ],
)
def test_arrays_that_are_no_columns_are_refused(tmp_path, arrays, message):
    np.savez(tmp_path / "table.npz", **arrays)
    with pytest.raises(DataError, match=f"^{re.escape(str(tmp_path / 'table.npz') + message)}$"):
        read_file(tmp_path / "table.npz")


def test_half_an_npz_file_is_refused(tmp_path):
    path = tmp_path / "table.npz"
    np.savez(path, x=np.arange(1000.0), y=np.arange(1000))
    content = path.read_bytes()
    for keep in (2, 100, len(content) // 2, len(content) - 10):
        path.write_bytes(content[:keep])
        with pytest.raises(DataError, match=r"table.npz: (this is not an NPZ file|the NPZ file is damaged)"):
            read_file(path)


def test_damage_inside_an_npz_file_is_refused(tmp_path):
    path = tmp_path / "table.npz"
    np.savez_compressed(path, x=np.random.default_rng(0).random(1000))
    content = path.read_bytes()
    path.write_bytes(content[:300] + bytes(40) + content[340:])
    with pytest.raises(DataError, match=r"^.*table.npz: the NPZ file is damaged \(.+\); write or copy it again$"):
        read_file(path)


def test_other_files_with_the_ending_npz_are_refused(tmp_path):
    path = tmp_path / "table.npz"
    message = f"^{re.escape(str(path))}: this is not an NPZ file; write it with numpy.savez\\(path, x=..., y=...\\)$"
    path.write_bytes(b"hello, this is text")
    with pytest.raises(DataError, match=message):
        read_file(path)
    with path.open("wb") as stream:
        np.save(stream, np.zeros(3))
    with pytest.raises(DataError, match=message):
        read_file(path)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("readme.txt", "hello")
    with pytest.raises(DataError, match=message):
        read_file(path)


def test_words_keep_sorted_categories():
    column = Words(np.array([0, 1, -1]), ("a", "b"))
    assert column.missing().tolist() == [False, False, True]
    assert shown(column.select(np.array([2, 0]))) == [None, "a"]


def test_many_columns_are_checked_at_once():
    class Names(list):
        def count(self, value):
            pytest.fail("each of many names is compared with all others, which takes minutes")

    table_files._check_unique(Names(map(str, range(1000))))
    with pytest.raises(DataError, match="column names must differ, got 2 of this name; rename one"):
        table_files._check_unique(Names("abca"))
