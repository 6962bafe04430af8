"""What fit reads with sources.open and predict reads with sources.stream must be the same, for every kind of source."""

import csv
import gzip
import io
import json
import os
import tracemalloc
import zipfile

import numpy as np
import pytest
import torch

from openradial.data import sources
from openradial.data.readers.folder import ImageFolder
from openradial.data.readers.tables import Table
from openradial.data.splits import read_names
from openradial.errors import DataError
from openradial.training.settings import read_toml
from tests.fitting.fit_data import write_images

NAMES = ["length, cm", "width; cm", "colour\tname", "kind"]
ROWS = [[1.5, -2.0, "red", "b"], [2.5, None, "blue, dark", "a"], [-1e-3, 4.0, 'a "quote"', "b"], [0.0, 7.25, None, "c"]]


def text(rows, delimiter=",", mark="", end="\n"):
    stream = io.StringIO()
    stream.write(mark)
    writer = csv.writer(stream, delimiter=delimiter, lineterminator=end)
    writer.writerows([["" if value is None else value for value in row] for row in rows])
    return stream.getvalue().encode()


def json_lines(names=NAMES):
    return "".join(json.dumps(dict(zip(names, row, strict=True))) + "\n" for row in ROWS).encode()


def write_parquet(path):
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    columns = zip(*ROWS, strict=True)
    parquet.write_table(arrow.table(dict(zip(NAMES, map(list, columns), strict=True))), path, row_group_size=2)


def write_npz(path):
    columns = [np.array([row[i] for row in ROWS]) for i in (0, 3)]
    words = np.array(["" if row[2] is None else row[2] for row in ROWS])
    widths = np.array([np.nan if row[1] is None else row[1] for row in ROWS])
    np.savez(path, **dict(zip(NAMES, [columns[0], widths, words, columns[1]], strict=True)))


TABLES = {
    "comma.csv": lambda path: path.write_bytes(text([NAMES, *ROWS])),
    "semicolon.csv": lambda path: path.write_bytes(text([NAMES, *ROWS], ";")),
    "tab.csv": lambda path: path.write_bytes(text([NAMES, *ROWS], "\t")),
    "tab.tsv": lambda path: path.write_bytes(text([NAMES, *ROWS], "\t")),
    "mark.csv": lambda path: path.write_bytes(text([NAMES, *ROWS], mark="\ufeff")),
    "windows.txt": lambda path: path.write_bytes(text([NAMES, *ROWS], ";", mark="\ufeff", end="\r\n")),
    "empty_lines.csv": lambda path: path.write_bytes(text([NAMES, [], *ROWS[:2], [], *ROWS[2:], []])),
    "packed.csv.gz": lambda path: path.write_bytes(gzip.compress(text([NAMES, *ROWS]))),
    "packed.tsv.gz": lambda path: path.write_bytes(gzip.compress(text([NAMES, *ROWS], "\t", mark="\ufeff"))),
    "lines.jsonl": lambda path: path.write_bytes(json_lines()),
    "lines.ndjson": lambda path: path.write_bytes(b"\xef\xbb\xbf\n" + json_lines()),
    "lines.jsonl.gz": lambda path: path.write_bytes(gzip.compress(json_lines())),
    "table.parquet": write_parquet,
    "table.npz": write_npz,
}


def assert_same(left, right):
    """The same columns of the same kinds with the same values."""
    assert set(left) == set(right)
    for name in left:
        assert type(left[name]) is type(right[name])
        np.testing.assert_array_equal(left[name].to_list(), right[name].to_list())


@pytest.mark.parametrize("name", TABLES)
def test_fit_and_predict_see_the_same_table(tmp_path, name):
    TABLES[name](tmp_path / name)
    fitted = sources.open(tmp_path / name, label="kind")
    assert (fitted.kind, fitted.label, list(fitted.train.columns)) == ("table", "kind", NAMES[:-1])
    inputs = list(sources.stream([tmp_path / name], "table", columns=NAMES))
    assert [each.error for each in inputs] == [None] * 4
    assert [each.name for each in inputs] == [f"{tmp_path / name}:{i}" for i in range(1, 5)]
    numbers = {"length, cm": True, "width; cm": True, "colour\tname": False}
    predicted = Table.from_rows([each.raw for each in inputs], numbers)
    labels = [each.raw["kind"] for each in inputs]
    assert [fitted.classes[k] for k in fitted.train.labels] == labels == ["b", "a", "b", "c"]
    assert_same(fitted.train.columns, predicted.columns)
    assert fitted.train.columns["length, cm"].to_list() == [1.5, 2.5, -1e-3, 0.0]
    assert fitted.train.columns["colour\tname"].to_list() == ["red", "blue, dark", 'a "quote"', None]


@pytest.mark.parametrize("name", TABLES)
def test_a_table_without_labels_has_the_rows_of_one_with_labels(tmp_path, name):
    TABLES[name](tmp_path / name)
    features = NAMES[2::-1]
    known = sources.open(tmp_path / name, label="kind", features=features)
    novel = sources.open(tmp_path / name, labelled=False, features=features)
    assert list(known.train.columns) == list(novel.train.columns) == features
    assert_same(known.train.columns, novel.train.columns)
    assert novel.train.labels.tolist() == [-1] * 4


def test_the_header_that_was_split_in_two_ways(tmp_path):
    (tmp_path / "t.csv").write_text('"length, cm";kind\n1.5;a\n2.5;b\n')
    fitted = sources.open(tmp_path / "t.csv", label="kind").train
    assert list(fitted.columns) == ["length, cm"]
    rows = [each.raw for each in sources.stream([tmp_path / "t.csv"], "table", columns=["length, cm"])]
    assert rows == [{"length, cm": "1.5", "kind": "a"}, {"length, cm": "2.5", "kind": "b"}]


@pytest.mark.parametrize("form", ["csv", "jsonl", "npz", "parquet"])
def test_truth_values_and_codes_are_the_same_words(tmp_path, form):
    path, columns = tmp_path / f"t.{form}", {"flag": [True, False], "code": [7, 12], "share": [1.0, 0.5]}
    if form == "csv":
        path.write_text("flag,code,share,y\ntrue,7,1.0,a\nfalse,12,0.5,b\n")
    elif form == "jsonl":
        rows = zip(*columns.values(), "ab", strict=True)
        path.write_text("\n".join(json.dumps(dict(zip([*columns, "y"], row, strict=True))) for row in rows))
    elif form == "npz":
        np.savez(path, **columns, y=np.array([b"a", b"b"]))
    else:
        arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
        parquet.write_table(arrow.table({**columns, "y": ["a", "b"]}), path)
    words = ["flag", "code", "share"]
    fitted = sources.open(path, label="y", words=words).train
    rows = [each.raw for each in sources.stream([path], "table", columns=[*words, "y"])]
    predicted = Table.from_rows(rows, dict.fromkeys([*words, "y"], False))
    assert {name: fitted.columns[name].to_list() for name in words} == {
        "flag": ["true", "false"],
        "code": ["7", "12"],
        "share": ["1.0", "0.5"],
    }
    assert_same(fitted.columns, {name: predicted.columns[name] for name in words})
    assert predicted.columns["y"].to_list() == ["a", "b"]


LARGE = (2**53, 2**53 + 1, 2**53, 2**63 - 1)


@pytest.mark.parametrize("form", ["csv", "jsonl", "npz", "parquet", "images"])
def test_large_integer_labels_stay_different_classes(tmp_path, form):
    path = tmp_path / f"t.{'npz' if form == 'images' else form}"
    if form == "csv":
        path.write_text("x,y\n" + "".join(f"1,{label}\n" for label in LARGE))
    elif form == "jsonl":
        path.write_text("".join(json.dumps({"x": 1, "y": label}) + "\n" for label in LARGE))
    elif form == "npz":
        np.savez(path, x=np.ones(4), y=np.array(LARGE))
    elif form == "images":
        np.savez(path, x=np.ones((4, 8, 8), np.uint8), y=np.array(LARGE))
    else:
        arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
        parquet.write_table(arrow.table({"x": np.ones(4), "y": np.array(LARGE)}), path)
    data = sources.open(path, label="y")
    assert data.classes == ("9007199254740992", "9007199254740993", "9223372036854775807")
    assert data.train.labels.tolist() == [0, 1, 0, 2]


@pytest.fixture
def shapes(tmp_path):
    root = write_images(tmp_path / "shapes", each=3)
    (root / "dot" / "sub").mkdir()
    (root / "dot" / "000.png").rename(root / "dot" / "sub" / "000.png")
    return root


def test_fit_and_predict_see_the_same_images(shapes):
    fitted = sources.open(shapes)
    assert isinstance(fitted.train, ImageFolder)
    assert [each.raw for each in sources.stream([shapes], "images")] == fitted.train.paths
    assert sources.count_inputs([shapes], "images") == len(fitted.train) == 9
    novel = sources.open(shapes, labelled=False).train
    assert (novel.paths, novel.classes) == (fitted.train.paths, fitted.train.classes)
    assert torch.equal(novel.labels, fitted.train.labels)


def test_an_image_behind_a_loop_of_links_counts_once(shapes):
    for name in ("bar", "dot"):
        (shapes / name / "loop").symlink_to(shapes / name)
        (shapes / name / "up").symlink_to(shapes)
    (shapes / "self").symlink_to(shapes)
    (shapes / "ring" / "nowhere.png").symlink_to("nowhere.png")
    fitted = sources.open(shapes, labelled=False)
    assert len(fitted.train) == 9
    assert [each.raw for each in sources.stream([shapes], "images")] == fitted.train.paths
    (shapes / "self").unlink()
    assert sources.open(shapes).train.paths == fitted.train.paths


def test_only_regular_files_are_read_from_a_folder(shapes):
    os.mkfifo(shapes / "dot" / "pipe.png")
    (shapes / "dot" / "zero.png").symlink_to("/dev/zero")
    fitted = sources.open(shapes).train
    assert len(fitted) == 9
    assert fitted.report.findings["not a regular file"] == ["dot/pipe.png", "dot/zero.png"]
    assert [each.raw for each in sources.stream([shapes], "images")] == fitted.paths


NOT_REGULAR = "this is not a regular file; copy its contents to one"


@pytest.mark.parametrize("name", ["t.csv", "t.csv.gz", "t.jsonl", "t.npz", "t.parquet", "t.npy", "t.png"])
@pytest.mark.parametrize("kind", ["images", "table", "points", "sequences", "texts"])
def test_pipes_and_devices_are_never_opened(tmp_path, name, kind):
    path = tmp_path / name
    path.symlink_to("/dev/null")  # from a pipe, or from /dev/zero, a reader would never return
    for arguments in ({"source": path}, {"source": tmp_path, "embeddings": str(path)}):
        with pytest.raises(DataError, match=NOT_REGULAR):
            sources.open(**arguments, label="y")
    (only,) = sources.stream([path], kind, columns=["a"])
    assert only.error.message == NOT_REGULAR


def test_settings_and_names_are_never_read_from_a_device(tmp_path):
    (tmp_path / "null").symlink_to("/dev/null")
    for read in (read_toml, read_names):
        with pytest.raises(DataError, match=NOT_REGULAR):
            read(tmp_path / "null")


def test_classes_that_are_links_to_one_folder_each_have_its_images(shapes, tmp_path):
    linked = tmp_path / "linked"
    linked.mkdir()
    for name in ("a", "b"):
        (linked / name).symlink_to(shapes / "bar")
    fitted = sources.open(linked).train
    assert fitted.counts().tolist() == [3, 3]
    assert [each.raw for each in sources.stream([linked], "images")] == fitted.paths


@pytest.mark.parametrize("test", ["test", "val", "validation"])
def test_train_and_test_folders_are_two_parts(tmp_path, test):
    write_images(tmp_path / "set" / "train", each=3)
    write_images(tmp_path / "set" / test, each=2, seed=1)
    for labelled in (True, False):
        data = sources.open(tmp_path / "set", labelled=labelled)
        assert (len(data.train), len(data.test), data.test.classes) == (9, 6, ("bar", "dot", "ring"))
        assert [each.raw for each in sources.stream([tmp_path / "set" / test], "images")] == data.test.paths


@pytest.mark.parametrize("shape", [(4, 8, 8), (4, 1, 8, 8), (4, 8, 8, 3), (4, 3, 8, 8)])
def test_fit_and_predict_see_the_same_images_of_an_npz_file(tmp_path, shape):
    pixels = np.random.default_rng(0).integers(0, 256, shape).astype(np.uint8)
    np.savez(tmp_path / "x.npz", x=pixels, y=np.array(["b", "a", "b", "c"]))
    fitted = sources.open(tmp_path / "x.npz").train
    streamed = np.stack([each.raw for each in sources.stream([tmp_path / "x.npz"], "images")])
    np.testing.assert_array_equal(streamed.transpose(0, 3, 1, 2), fitted.inputs.numpy())
    assert (fitted.classes, fitted.labels.tolist()) == (("a", "b", "c"), [1, 0, 1, 2])
    unlabelled = sources.open(tmp_path / "x.npz", labelled=False).train
    assert torch.equal(unlabelled.inputs, fitted.inputs)


def test_a_large_file_is_streamed_in_bounded_memory(tmp_path):
    rows = "".join(f"{i},{i * 0.5},word\n" for i in range(50_000))
    (tmp_path / "t.csv").write_text("a,b,c\n" + rows)
    (tmp_path / "t.csv.gz").write_bytes(gzip.compress(b"a,b,c\n" + rows.encode(), 1))
    (tmp_path / "t.jsonl").write_text("".join(f'{{"a": {i}, "b": 0.5, "c": "word"}}\n' for i in range(50_000)))
    for name in ("t.csv", "t.csv.gz", "t.jsonl"):
        tracemalloc.start()
        count = sum(each.error is None for each in sources.stream([tmp_path / name], "table", columns=["a", "b"]))
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert count == 50_000
        assert peak < 1_000_000  # the rows of the file would take more than ten times as much


@pytest.mark.parametrize("name", ["t.csv", "t.csv.gz", "t.jsonl", "t.npz", "t.parquet"])
def test_a_file_that_breaks_off_is_an_error_for_both(tmp_path, name):
    pytest.importorskip("pyarrow")
    TABLES[{"t.csv": "comma.csv", "t.csv.gz": "packed.csv.gz", "t.jsonl": "lines.jsonl"}.get(name, f"table{name[1:]}")](
        tmp_path / name
    )
    content = (tmp_path / name).read_bytes()
    (tmp_path / name).write_bytes(content[: len(content) - 25])
    with pytest.raises(DataError) as raised:
        sources.open(tmp_path / name, label="kind")
    *_, last = sources.stream([tmp_path / name], "table", columns=NAMES)
    assert raised.value.path == str(tmp_path / name)
    assert last.error is not None
    assert last.error.message == raised.value.message


def test_columns_that_are_missing_are_all_named(tmp_path):
    (tmp_path / "t.csv").write_text("a,b\n1,2\n")
    with pytest.raises(DataError, match="fitted on the columns c, d, which are missing; there are a, b") as raised:
        list(sources.stream([tmp_path / "t.csv"], "table", columns=["a", "c", "d"]))
    assert (raised.value.path, raised.value.column) == (str(tmp_path / "t.csv"), "c")


def test_a_row_of_json_without_a_column_is_an_error_for_both(tmp_path):
    (tmp_path / "t.jsonl").write_text('{"a": 1, "y": "p"}\n{"y": "q"}\n')
    with pytest.raises(DataError, match="row 2: the row has no column 'a'; its columns are y"):
        sources.open(tmp_path / "t.jsonl", label="y")
    rows = [each.raw for each in sources.stream([tmp_path / "t.jsonl"], "table", columns=["a"])]
    with pytest.raises(DataError, match="row 2: the row has no column 'a'; its columns are y"):
        Table.from_rows(rows, {"a": True})


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (["1", 2], "row 2, column 'a': the column mixes numbers and words: got 2 after words"),
        ([1, [2]], "row 2, column 'a': expected a number or a word, got list"),
        ([1, float("inf")], "row 2, column 'a': expected a finite number, got inf"),
        ([1, 10**400], "row 2, column 'a': expected a number, got 1000"),
    ],
)
def test_values_of_json_that_do_not_fit_are_named(tmp_path, values, message):
    (tmp_path / "t.jsonl").write_text("".join(json.dumps({"a": value, "y": "p"}) + "\n" for value in values))
    with pytest.raises(DataError, match=message):
        sources.open(tmp_path / "t.jsonl", label="y")


@pytest.mark.parametrize("text", ["1_0", "1_000.5"])
def test_an_underscore_makes_a_word_of_a_number_for_both(tmp_path, text):
    (tmp_path / "t.csv").write_text(f"a,y\n1,p\n{text},q\n")
    with pytest.raises(DataError, match=f"row 2, column 'a': the column mixes numbers and words: got '{text}'"):
        sources.open(tmp_path / "t.csv", label="y")
    rows = [each.raw for each in sources.stream([tmp_path / "t.csv"], "table", columns=["a"])]
    with pytest.raises(DataError, match=f"row 2, column 'a': expected a number, got '{text}'"):
        Table.from_rows(rows, {"a": True})


def test_a_value_that_is_too_long_is_not_called_a_broken_quote(tmp_path):
    (tmp_path / "t.csv").write_text(f"a,y\n1,p\n{'x' * (1 << 24)}x,q\n")
    with pytest.raises(DataError, match=r"t\.csv: a value is too long for CSV \(line 3: field larger .*; shorten it"):
        sources.open(tmp_path / "t.csv", label="y")


def test_rows_after_a_text_of_a_megabyte_are_read(tmp_path):
    (tmp_path / "t.csv").write_text(f"text\nfirst\n{'word ' * 200_000}\nlast\n")
    rows = list(sources.stream([tmp_path / "t.csv"], "texts", columns=["text"]))
    assert [len(row.raw["text"].split()) for row in rows] == [1, 200_000, 1]


def test_an_npz_file_that_claims_too_many_rows_is_damaged(tmp_path):
    header = b"{'descr': '<f8', 'fortran_order': False, 'shape': (1000000000000,), }"
    with zipfile.ZipFile(tmp_path / "t.npz", "w") as archive:
        for name in ("x", "y"):
            archive.writestr(
                f"{name}.npy", b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + bytes(64)
            )
    with pytest.raises(DataError, match="the NPZ file is damaged"):
        sources.open(tmp_path / "t.npz", label="y")


def test_arrays_of_different_lengths_are_an_error_for_both(tmp_path):
    np.savez(tmp_path / "t.npz", x=np.zeros(3), y=np.zeros(2))
    with pytest.raises(DataError, match=r"one row per example, got lengths \{'x': 3, 'y': 2\}"):
        sources.open(tmp_path / "t.npz", label="y")
    (only,) = sources.stream([tmp_path / "t.npz"], "table", columns=["x", "y"])
    assert only.error.message == "arrays must have one row per example, got lengths {'x': 3, 'y': 2}"


def test_a_missing_table_is_named_before_its_label(tmp_path):
    with pytest.raises(DataError, match=r"nothere\.csv: expected a table, but there is no such file"):
        sources.open(tmp_path / "nothere.csv")


def test_a_number_too_large_to_use_is_named_with_file_and_row(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("a,y\n" + "1,p\n2,q\n" * 300 + "1e308,p\n")
    with pytest.raises(DataError) as raised:
        sources.open(path, label="y")
    error = raised.value
    assert (error.path, error.row, error.column) == (str(path), 601, "a")
    assert error.message == "expected a number up to 1e+150, got 1e+308; correct it, or leave it empty"


def test_a_matrix_with_more_columns_than_the_model_is_answered_with_a_note(tmp_path, capsys):
    path = tmp_path / "t.npz"
    np.savez(path, x=np.arange(8.0).reshape(2, 4), y=np.arange(2))
    rows = list(sources.stream([path], "table", columns=["x0", "x1"]))
    assert [row.raw for row in rows] == [{"x0": 0.0, "x1": 1.0}, {"x0": 4.0, "x1": 5.0}]
    assert capsys.readouterr().err == f"note: {path}: the model uses x0, x1 and ignores x2, x3\n"
    np.savez(path, x=np.zeros((2, 2)), y=np.arange(2))
    assert len(list(sources.stream([path], "table", columns=["x0", "x1"]))) == 2
    assert capsys.readouterr().err == ""
