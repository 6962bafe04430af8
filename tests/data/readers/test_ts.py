import math

import numpy as np
import pytest
import torch

from openradial.data.readers.ts import label_names, read_ts, read_tsv
from openradial.errors import DataError

HEADER = """# a comment
@problemName Small
@timeStamps false
@missing true
@univariate false
@dimensions 2

@classLabel true low high
@data
"""
nan = math.nan


@pytest.fixture
def ts(tmp_path):
    def read(text, header=HEADER):
        (tmp_path / "small.ts").write_text(header + text)
        return read_ts(tmp_path / "small.ts")

    return read


@pytest.fixture
def tsv(tmp_path):
    def read(text, **options):
        (tmp_path / "small.tsv").write_text(text)
        return read_tsv(tmp_path / "small.tsv", **options)

    return read


def assert_equal(found, expected):
    np.testing.assert_array_equal(found.numpy(), np.array(expected, np.float32))


def test_channels_and_lengths_are_kept(ts):
    found = ts("1,2,3:4,5,6:high\n\n-7e-1:8:low\n")
    assert found.inputs.dtype == torch.float32
    assert_equal(found.inputs, [[[1, 4], [2, 5], [3, 6]], [[-0.7, 8], [nan, nan], [nan, nan]]])
    assert found.labels.tolist() == [1, 0]
    assert found.classes == ("low", "high")


def test_missing_values_lie_on_the_line_between_their_neighbours(ts):
    found = ts("?,1,?,?,4,?:1,NaN,3,4,5,6:low\n")
    assert_equal(found.inputs, [[[1, 1], [1, 2], [2, 3], [3, 4], [4, 5], [4, 6]]])


def test_tags_may_be_written_in_any_case(ts):
    found = ts("1:a\n", header="@PROBLEMNAME x\n@CLASSLABEL TRUE a b\n@DATA\n")
    assert found.classes == ("a", "b")


@pytest.mark.parametrize(
    ("header", "message"),
    [
        ("1,2,3:low\n", r"small.ts, row 1: expected a header line like @problemName, got '1,2,3:low'"),
        (HEADER.replace("@data", ""), r"small.ts: expected a line @data after the header, got none"),
        (
            HEADER.replace("true low high", "false"),
            r"small.ts: expected the names of the classes, .*, got @classLabel false",
        ),
        (HEADER.replace("true low high", ""), r"small.ts: expected the names of the classes, .*, got @classLabel"),
        (
            HEADER.replace("true low high", "true"),
            r"small.ts: expected the names of the classes, .*, got @classLabel true",
        ),
        (HEADER.replace("@classLabel", "@other"), r"expected the names of the classes, .*, got no such line"),
        (
            HEADER.replace("@timeStamps false", "@timeStamps true"),
            r"time stamps cannot be read; write the file with",
        ),
        (HEADER, r"small.ts: expected one example per line, got none"),
    ],
    ids=["no header", "no data", "no labels", "bare tag", "no names", "no tag", "time stamps", "no examples"],
)
def test_a_bad_header_is_named(ts, header, message):
    with pytest.raises(DataError, match=message):
        ts("", header=header)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("1,2,3", r"row 10: expected channel:...:label, got a line without ':'; the label is missing"),
        ("1,2:1,x2:low", r"row 10: expected numbers, or \? where one is missing, got 'x2'"),
        ("1,2:1,2:3,4", r"small.ts, row 10: label '3,4' is not one of the classes low, high"),
        ("1,2:1:low", r"row 10: the channels of a sequence must be equally long, got 1 and 2"),
        ("1,2:1,2:low\n1,2:low", r"small.ts, row 11: expected as many channels as in the first example, 2, got 1"),
        ("1,2:?,?:low", r"row 10: channel 1 has no value at all; leave this example out"),
        ("1,?,-1e99:1,2,3:low", r"row 10: expected numbers that fit into float32, got -1e\+99"),
    ],
    ids=["no label", "no number", "label", "lengths", "channels", "missing", "infinite"],
)
def test_a_bad_line_of_ts_is_named(ts, line, message):
    with pytest.raises(DataError, match=message):
        ts(line + "\n")


def test_tab_separated_values_keep_labels_as_text(tsv):
    found = tsv("10\t1\t2\n-1\t3\t4\n10\t5\t6\n")
    assert_equal(found.inputs[..., 0], [[1, 2], [3, 4], [5, 6]])
    assert found.inputs.shape == (3, 2, 1)
    assert found.classes == ("-1", "10")
    assert found.labels.tolist() == [1, 0, 1]


def test_trailing_nan_end_a_sequence_and_others_are_filled_in(tsv):
    found = tsv("a\tNaN\t1\tNaN\t3\tNaN\tNaN\r\nb\t5\tNaN\tNaN\tNaN\tNaN\tNaN\r\n")
    assert_equal(found.inputs[..., 0], [[1, 1, 2, 3], [5, nan, nan, nan]])


def test_lines_may_be_of_different_length(tsv):
    assert_equal(tsv("a\t1\nb\t2\t3\n").inputs[..., 0], [[1, nan], [2, 3]])


def test_classes_can_be_given(tsv):
    assert tsv("b\t1\n", classes=["a", "b"]).labels.tolist() == [1]
    with pytest.raises(DataError, match=r"small.tsv, row 1: label 'c' is not one of the classes a, b"):
        tsv("c\t1\n", classes=["a", "b"])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "1\t2\n0.531\t0.2\n",
            r"small.tsv, row 2: expected a class label in the first column, got '0.531'; is the label",
        ),
        ("\t1\t2\n", r"row 1: expected a class label in the first column, got ''"),
        ("nan\t1\n", r"row 1: expected a class label in the first column, got 'nan'"),
        ("1\t2\tthree\n", r"row 1: expected numbers, or \? where one is missing, got 'three'"),
        ("1\n", r"row 1: expected a label and values separated by tabs, got no value"),
        ("1\tNaN\tNaN\n", r"row 1: expected a label and values separated by tabs, got no value"),
        ("1,2,3\n", r"row 1: expected a label and values separated by tabs, got no value"),
        ("1\t-inf\n", r"row 1: expected numbers that fit into float32, got -inf"),
        ("\n", r"small.tsv: expected one example per line, got none"),
    ],
    ids=["no label", "empty label", "nan", "mixed types", "no values", "all missing", "commas", "infinite", "empty"],
)
def test_a_bad_line_of_tsv_is_named(tsv, text, message):
    with pytest.raises(DataError, match=message):
        tsv(text)


def test_a_file_that_is_no_text_is_named(tmp_path):
    (tmp_path / "small.tsv").write_bytes(b"\x1f\x8b\xff")
    with pytest.raises(DataError, match=r"small.tsv: expected text in UTF-8, but .*; is it packed\?"):
        read_tsv(tmp_path / "small.tsv")
    with pytest.raises(DataError, match=r"other.ts: the file cannot be read \(No such file"):
        read_ts(tmp_path / "other.ts")


def test_errors_have_the_path_and_the_row(tmp_path):
    path = tmp_path / "small.ts"
    path.write_text(HEADER + "1:2:low\n\n1:x:low\n")
    with pytest.raises(DataError) as caught:
        read_ts(path)
    assert (caught.value.path, caught.value.row) == (str(path), 12)
    assert caught.value.reason == "expected numbers, or ? where one is missing, got 'x'"


def test_names_are_ordered_as_numbers_where_all_are():
    assert label_names(["10", "9", "-1", "9"]) == ("-1", "9", "10")
    assert label_names(["10", "9", "b"]) == ("10", "9", "b")
