import numpy as np
import pytest

from openradial.data import sources
from openradial.data.readers.embeddings import read_embeddings
from openradial.errors import DataError, OptionError

X = np.arange(12.0).reshape(4, 3)


def write_parquet(path, **columns):
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    parquet.write_table(arrow.table(columns), path)
    return path


def test_all_formats_give_the_same_features(tmp_path):
    np.save(tmp_path / "a.npy", X)
    np.savez(tmp_path / "a.npz", z=X, y=np.arange(4))
    np.savez(tmp_path / "b.npz", embeddings=X, other=np.zeros((4, 2)))
    write_parquet(tmp_path / "a.parquet", name=list("abcd"), z=list(X.tolist()))
    for name in ("a.npy", "a.npz", "b.npz", "a.parquet"):
        features = read_embeddings(tmp_path / name)
        assert features.dtype == np.float32
        assert np.array_equal(features, X)


def test_a_list_of_fixed_length_is_read(tmp_path):
    arrow = pytest.importorskip("pyarrow")
    path = write_parquet(tmp_path / "a.parquet", z=arrow.FixedSizeListArray.from_arrays(arrow.array(X.ravel()), 3))
    assert np.array_equal(read_embeddings(path), X)


def test_what_is_no_matrix_of_numbers_is_refused(tmp_path):
    np.save(tmp_path / "flat.npy", X.ravel())
    np.save(tmp_path / "objects.npy", np.array([{}, {}]), allow_pickle=True)
    np.savez(tmp_path / "two.npz", a=X, b=X)
    np.save(tmp_path / "nan.npy", np.where(X == 5, np.nan, X))
    (tmp_path / "broken.npy").write_bytes(b"\x93NUMPY")
    write_parquet(tmp_path / "ragged.parquet", z=[[1.0], [1.0, 2.0]])
    write_parquet(tmp_path / "none.parquet", z=[1.0, 2.0])
    for name, message in {
        "flat.npy": r"one array of numbers \(n, d\)",
        "objects.npy": "damaged",
        "two.npz": r"one called features, got \{'a': \(4, 3\)",
        "nan.npy": "finite numbers",
        "broken.npy": "damaged",
        "ragged.parquet": "rows differ in length",
        "none.parquet": "got none",
        "missing.npy": "cannot be read",
    }.items():
        with pytest.raises(DataError, match=message) as caught:
            read_embeddings(tmp_path / name)
        assert caught.value.path == str(tmp_path / name)
    with pytest.raises(OptionError, match="features are read from"):
        read_embeddings(tmp_path / "a.csv")


def test_a_file_with_labels_is_a_source_of_its_own(tmp_path):
    np.savez(tmp_path / "a.npz", features=X, labels=np.array(["x", "y", "x", "y"]))
    path = write_parquet(tmp_path / "a.parquet", topic=["x", "y", "x", "y"], z=list(X.tolist()))
    for source in (sources.open(tmp_path / "a.npz"), sources.open(path, label="topic")):
        assert (source.kind, source.is_embedded, source.classes) == ("points", True, ("x", "y"))
        assert np.array_equal(source.train.inputs, X)
        assert source.train.labels.tolist() == [0, 1, 0, 1]
    with pytest.raises(DataError, match=r"no label column of this name; the columns are topic"):
        sources.open(path)
    assert len(sources.open(path, labelled=False).train) == 4


def test_a_table_of_numbers_stays_a_table(tmp_path):
    np.savez(tmp_path / "a.npz", x=X, y=np.array([0, 1, 0, 1]))
    assert sources.open(tmp_path / "a.npz", label="y").kind == "table"


def test_a_table_gives_labels_and_groups(tmp_path):
    np.save(tmp_path / "a.npy", X)
    (tmp_path / "a.csv").write_text("topic,text,who\nx,one,1\ny,two,1\nx,three,2\ny,four,2\n")
    source = sources.open(tmp_path / "a.csv", label="topic", embeddings=str(tmp_path / "a.npy"), group="who")
    assert source.train.labels.tolist() == [0, 1, 0, 1]
    assert source.groups.tolist() == [0, 0, 1, 1]
    with pytest.raises(OptionError, match="name it with label"):
        sources.open(tmp_path / "a.csv", embeddings=str(tmp_path / "a.npy"))
    with pytest.raises(DataError, match="no column of this name"):
        sources.open(tmp_path / "a.csv", label="topic", embeddings=str(tmp_path / "a.npy"), group="whom")
    np.save(tmp_path / "b.npy", X[:3])
    with pytest.raises(DataError, match=r"3 rows in b\.npy and 4 in a\.csv"):
        sources.open(tmp_path / "a.csv", label="topic", embeddings=str(tmp_path / "b.npy"))
    with pytest.raises(OptionError, match="a table must be one of"):
        sources.open(tmp_path, label="topic", embeddings=str(tmp_path / "a.npy"))


def test_a_header_that_claims_too_many_rows_is_damaged(tmp_path):
    with (tmp_path / "a.npy").open("wb") as stream:
        facts = {"descr": "<f8", "fortran_order": False, "shape": (10**12, 2)}
        np.lib.format.write_array_header_1_0(stream, facts)
    with pytest.raises(DataError, match=r"a\.npy: the features are damaged"):
        read_embeddings(tmp_path / "a.npy")
