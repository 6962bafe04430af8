import re

import numpy as np
import pytest
import torch

from openradial.data.readers.columns import Numbers
from openradial.data.readers.tables import Table, read_table
from openradial.data.splits import divide, named_split, train_test_split
from openradial.errors import DataError, OptionError

FLOWERS = "length,colour,species\n1,red,setosa\n2,blue,virginica\n3,red,setosa\n4,red,iris\n"


def written(tmp_path, text=FLOWERS, name="table.csv"):
    path = tmp_path / name
    path.write_text(text)
    return path


def names(table):
    return [table.classes[label] for label in table.labels]


def test_the_label_column_gives_classes_and_the_others_features(tmp_path):
    table = read_table(written(tmp_path), label="species")
    assert list(table.columns) == ["length", "colour"]
    assert table.classes == ("iris", "setosa", "virginica")
    assert table.labels.tolist() == [1, 2, 1, 0]
    assert table.labels.dtype == torch.int64


def test_features_keep_the_order_in_which_they_are_named(tmp_path):
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    content = {"a": [1, 2], "b": [3, 4], "c": [5, 6], "y": [0, 1]}
    np.savez(tmp_path / "t.npz", **content)
    pq.write_table(pa.table(content), tmp_path / "t.parquet")
    (tmp_path / "t.csv").write_text("a,b,c,y\n1,3,5,0\n2,4,6,1\n")
    for ending in ("npz", "parquet", "csv"):
        table = read_table(tmp_path / f"t.{ending}", label="y", features=["c", "a"])
        assert [(name, column.values.tolist()) for name, column in table.columns.items()] == [
            ("c", [5, 6]),
            ("a", [1, 2]),
        ]


def test_a_table_may_have_no_labels(tmp_path):
    table = read_table(written(tmp_path), label=None)
    assert (list(table.columns), table.labels.tolist(), table.classes) == (
        ["length", "colour", "species"],
        [-1] * 4,
        (),
    )


@pytest.mark.parametrize("name", ["table.tsv", "table.txt", "TABLE.CSV"])
def test_the_ending_tells_the_format(tmp_path, name):
    path = written(tmp_path, FLOWERS.replace(",", "\t"), name)
    assert len(read_table(path, label="species")) == 4


def test_every_format_gives_the_same_table(tmp_path):
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    content = {"length": [1.0, 2.0], "colour": ["red", "blue"], "y": [2.0, 10.0]}
    np.savez(tmp_path / "t.npz", **content)
    pq.write_table(pa.table(content), tmp_path / "t.parquet")
    (tmp_path / "t.csv").write_text("length,colour,y\n1,red,2.0\n2,blue,10.0\n")
    for ending in ("npz", "parquet", "csv"):
        table = read_table(tmp_path / f"t.{ending}", label="y")
        assert table.columns["length"].values.tolist() == [1.0, 2.0]
        assert table.columns["colour"].categories == ("blue", "red")
        assert table.columns["colour"].codes.tolist() == [1, 0]
        assert (table.classes, table.labels.tolist()) == (("2", "10"), [0, 1])


def test_features_and_labels_saved_as_two_arrays_are_a_table(tmp_path):
    np.savez(tmp_path / "t.npz", features=np.eye(3), labels=np.array([2, 0, 2]))
    table = read_table(tmp_path / "t.npz", label="labels")
    assert list(table.columns) == ["features0", "features1", "features2"]
    assert (table.classes, table.labels.tolist()) == (("0", "2"), [1, 0, 1])


@pytest.mark.parametrize(
    ("labels", "classes"),
    [
        (["1.0", "2.0", "1"], ("1", "2")),
        (["10", "9", "-1"], ("-1", "9", "10")),
        (["10", "9", "b"], ("10", "9", "b")),
        (["1.5", "2.0", "2"], ("1.5", "2")),
        (["007", "7", "7.0"], ("007", "7")),
        (["True", "False", "True"], ("False", "True")),
    ],
)
def test_whole_numbers_are_classes_without_a_point(tmp_path, labels, classes):
    table = read_table(written(tmp_path, "a,y\n" + "".join(f"1,{label}\n" for label in labels)), label="y")
    assert table.classes == classes
    assert names(table) == [label.removesuffix(".0") for label in labels]


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        (
            FLOWERS,
            {"label": "speces"},
            ", column 'speces': there is no label column of this name; the columns are length, colour, species; "
            "did you mean 'species'?",
        ),
        (
            FLOWERS,
            {"label": "species", "features": ["width"]},
            ", column 'width': there is no column of this name; the columns are length, colour, species",
        ),
        (
            "species\na\nb\n",
            {"label": "species"},
            ": there is no column besides the label 'species'; a table needs at least one feature",
        ),
        ("a,y\n", {"label": "y"}, ": expected rows below the column names, got none"),
        (
            "a,y\n1,x\n2,\n3,NA\n",
            {"label": "y"},
            ", row 2, column 'y': each row needs a label, but 2 have none; fill it in or remove the rows",
        ),
        (
            "a,y\n1,x\n-inf,x\n",
            {"label": "y"},
            ", row 2, column 'a': expected a finite number, got -inf; correct it, or leave it empty",
        ),
        ("", {"label": "y"}, ": the file is empty (0 bytes); write or copy it again"),
    ],
)
def test_a_table_that_does_not_fit_says_why(tmp_path, text, options, message):
    path = written(tmp_path, text)
    with pytest.raises(DataError, match=f"^{re.escape(str(path) + message)}$"):
        read_table(path, **options)


@pytest.mark.parametrize("name", ["table.csv", "table.parquet", "table.npz"])
def test_empty_files_are_refused_in_every_format(tmp_path, name):
    with pytest.raises(DataError, match=rf"{name}: the file is empty \(0 bytes\); write or copy it again$"):
        read_table(written(tmp_path, "", name), label="y")


def test_a_missing_file_and_another_ending_are_named(tmp_path):
    with pytest.raises(
        DataError, match=f"^{re.escape(str(tmp_path))}/x.csv: expected a table, but there is no such file$"
    ):
        read_table(tmp_path / "x.csv", label="y")
    endings = ".csv, .tsv, .txt, .jsonl, .ndjson (each also as .gz), .parquet, .pq, .npz"
    message = f"a table must be one of {endings}, got 'x.xlsx'; convert it"
    with pytest.raises(OptionError, match=f"^{re.escape(message)}$"):
        read_table(tmp_path / "x.xlsx", label="y")


def test_the_label_is_no_feature(tmp_path):
    with pytest.raises(OptionError, match=r"^features must not contain the label column 'species'; remove it$"):
        read_table(written(tmp_path), label="species", features=["length", "species"])
    with pytest.raises(OptionError, match=r"^features must name each column once, got length, length$"):
        read_table(written(tmp_path), label="species", features=["length", "length"])


def test_arrays_of_different_lengths_are_refused(tmp_path):
    np.savez(tmp_path / "t.npz", x=np.zeros(3), y=np.array([1, 2]))
    message = f"{tmp_path}/t.npz: arrays must have one row per example, got lengths {{'x': 3, 'y': 2}}"
    with pytest.raises(DataError, match=f"^{re.escape(message)}$"):
        read_table(tmp_path / "t.npz", label="y")
    message = "columns must be of one length: 'x' has 3 values for 2 rows"
    with pytest.raises(DataError, match=f"^{re.escape(message)}$"):
        Table({"x": Numbers(np.zeros(3))}, torch.zeros(2, dtype=torch.int64), ("a",))


def test_a_missing_label_in_numbers_is_named(tmp_path):
    np.savez(tmp_path / "t.npz", x=np.zeros(3), y=np.array([1, np.nan, 2]))
    with pytest.raises(DataError, match=r"row 2, column 'y': each row needs a label, but 1 have none"):
        read_table(tmp_path / "t.npz", label="y")


def test_tables_divide_and_split_like_examples(tmp_path):
    table = read_table(written(tmp_path), label="species")
    known, novel = divide(table, named_split(table.classes, novel=["setosa"]))
    assert (names(known), known.columns["length"].values.tolist()) == (["virginica", "iris"], [2.0, 4.0])
    assert (names(novel), novel.columns["length"].values.tolist()) == (["setosa", "setosa"], [1.0, 3.0])
    train, test = train_test_split(table, 0.5)
    assert (len(train), names(test)) == (3, ["setosa"])
