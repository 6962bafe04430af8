import io
import json
import os

import numpy as np
import pytest
from evaluation_models import image_bundle, point_bundle, table_bundle, text_inputs
from PIL import Image

from openradial.classifier import PredictedRows, predict_rows, records
from openradial.data.inputs import SequenceInputs
from openradial.data.sources import RawInput, count_inputs, stream
from openradial.errors import DataError, OptionError

TABLE = table_bundle().preprocessing
IMAGES = image_bundle().preprocessing
CSV = "x,y,word,extra\n1,0,left,7\n0,1,right,8\n"


def rows_of(paths, inputs, stdin=None):
    return stream(paths, inputs.kind, columns=inputs.columns, stdin=stdin)


def save_image(path, left=255, right=0):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.array([[left, right], [0, 0]], np.uint8)).save(path)


def test_a_folder_stands_for_the_images_in_it_and_below(tmp_path):
    for name in ("b.png", "sub/a.png", ".hidden.png", "__MACOSX/x.png"):
        save_image(tmp_path / "all" / name)
    (tmp_path / "all" / "notes.txt").write_text("no image")
    found = list(rows_of([str(tmp_path / "all")], IMAGES))
    assert [row.name for row in found] == [str(tmp_path / "all" / name) for name in ("b.png", "sub/a.png")]
    assert count_inputs([tmp_path / "all"], "images") == 2


def test_what_is_not_there_is_a_row_with_its_error(tmp_path):
    (tmp_path / "empty").mkdir()
    found = list(rows_of([str(tmp_path / "no.png"), str(tmp_path / "empty")], IMAGES))
    assert [row.error.reason for row in found] == ["there is no such file", "the folder holds no images"]


def test_files_of_a_folder_that_are_no_images_are_noted(tmp_path, capsys):
    Image.new("L", (2, 2)).save(tmp_path / "1.png")
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "notes.md").write_text("no image")
    os.mkfifo(tmp_path / "pipe.png")
    assert [row.name for row in stream([tmp_path], "images")] == [str(tmp_path / "1.png")]
    notes = capsys.readouterr().err
    assert "left out, not an image: 1 (sub/notes.md)" in notes
    assert "left out, not a regular file: 1 (pipe.png)" in notes


def test_paths_come_from_the_standard_input():
    found = list(rows_of(["-"], IMAGES, io.StringIO("a.png\n\nb c.png\r\n")))
    assert [row.raw for row in found] == ["a.png", "b c.png"]
    assert count_inputs(["-"], "images") is None


def test_images_of_an_npz_file_are_rows(tmp_path):
    pixels = np.arange(24, dtype=np.uint8).reshape(2, 3, 2, 2)
    np.savez(tmp_path / "x.npz", pixels=pixels)
    first, second = rows_of([str(tmp_path / "x.npz")], IMAGES)
    assert first.name == f"{tmp_path / 'x.npz'}:1"
    assert (second.raw == pixels[1].transpose(1, 2, 0)).all()


def write(path, form):
    if form == "csv":
        path.write_text(CSV)
    elif form == "jsonl":
        lines = ({"x": 1, "y": 0, "word": "left"}, {"x": 0, "y": 1, "word": "right"})
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    elif form == "npz":
        np.savez(path, x=[1.0, 0.0], y=[0.0, 1.0], word=["left", "right"])
    else:
        arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
        parquet.write_table(arrow.table({"x": [1.0, 0.0], "y": [0.0, 1.0], "word": ["left", "right"]}), path)


@pytest.mark.parametrize("form", ["csv", "jsonl", "npz", "parquet"])
def test_tables_of_every_form_give_the_same_rows(tmp_path, form):
    path = tmp_path / f"t.{form}"
    write(path, form)
    found = list(rows_of([str(path)], TABLE))
    assert [row.name for row in found] == [f"{path}:1", f"{path}:2"]
    said = table_bundle().predict([row.raw for row in found])
    assert said.names == ["a", "b"]
    assert said.distance.tolist() == [0, 0]


@pytest.mark.parametrize(
    "text", [CSV, CSV.replace(",", ";"), '\n{"x": 1, "y": 0, "word": "left"}\n{"x": 0, "y": 1, "word": null}\n']
)
def test_rows_come_from_the_standard_input_as_csv_or_json(text):
    found = list(rows_of(["-"], TABLE, io.StringIO(text)))
    assert table_bundle().predict([row.raw for row in found]).names == ["a", "b"]


def test_broken_lines_are_rows_with_their_error():
    found = list(rows_of(["-"], TABLE, io.StringIO('{"x": 1}\nnonsense\n[1, 2]\n')))
    assert found[0].error is None
    assert found[1].error.reason.startswith("the line is not valid JSON (")
    assert found[2].error.reason == "the line must be a JSON object of column names and values"
    found = list(rows_of(["-"], TABLE, io.StringIO("x,y,word\n1,2\n1,2,left\n")))
    assert "the header names 3 columns, but the row has 2 values" in found[0].error.reason
    assert found[0].error.row == 1
    assert found[1].name == "-:2"


def test_a_table_without_the_columns_of_the_model_is_refused_at_once():
    with pytest.raises(
        DataError,
        match=r"^-, column 'y': the model was fitted on the columns y, word, which are missing; there are x, words",
    ):
        list(rows_of(["-"], TABLE, io.StringIO("x,words\n1,2\n")))


def test_a_file_that_ends_in_the_middle_is_a_row_with_its_error(tmp_path):
    (tmp_path / "t.csv").write_bytes(CSV.encode() + b"\xff\xfe\n")
    *_, last = rows_of([str(tmp_path / "t.csv")], TABLE)
    assert last.error.reason.startswith("expected text in UTF-8, got invalid start byte")
    (tmp_path / "t.parquet").write_bytes(b"PAR1 no more")
    (only,) = rows_of([str(tmp_path / "t.parquet")], TABLE)
    assert only.error.reason.startswith("the Parquet file is damaged (")


def test_texts_are_files_or_lines(tmp_path):
    (tmp_path / "a.txt").write_text("all good", encoding="utf-8-sig")
    (tmp_path / "b.txt").write_bytes(b"\xff")
    good, bad = rows_of([str(tmp_path / "a.txt"), str(tmp_path / "b.txt")], text_inputs())
    assert good.raw == "all good"
    assert bad.error.reason.endswith("got invalid start byte at byte 0; save the file as UTF-8")
    assert [row.raw for row in rows_of(["-"], text_inputs(), io.StringIO("good\n\nbad\n"))] == ["good", "bad"]


def test_points_and_sequences_come_from_arrays(tmp_path):
    np.savez(tmp_path / "p.npz", points=np.eye(2))
    (tmp_path / "p.csv").write_text("x,y\n1,0\n0,1\n")
    for name in ("p.npz", "p.csv"):
        found = [row.raw for row in rows_of([str(tmp_path / name)], point_bundle().preprocessing)]
        assert point_bundle().predict(found).names == ["a", "b"]
    np.savez(tmp_path / "s.npz", s=np.zeros((3, 5, 2)))
    assert len(list(rows_of([str(tmp_path / "s.npz")], SequenceInputs(2)))) == 3


@pytest.mark.parametrize(
    ("name", "inputs", "error", "message"),
    [
        ("x.npz", IMAGES, DataError, "expected one array of uint8 images, got table"),
        ("t.zip", TABLE, OptionError, "a table must be one of .csv, .tsv, .txt, .jsonl"),
        ("", TABLE, OptionError, "this model takes table, but .* is a folder; name files"),
        (
            "t.zip",
            point_bundle().preprocessing,
            OptionError,
            "features are read from .npy, .npz, .parquet and .pq files",
        ),
    ],
)
def test_files_that_the_model_cannot_take_are_refused(tmp_path, name, inputs, error, message):
    np.savez(tmp_path / "x.npz", table=np.zeros((2, 2)))
    (tmp_path / "t.zip").touch()
    with pytest.raises(error, match=message):
        list(rows_of([str(tmp_path / name)], inputs))


def test_points_cannot_come_from_the_standard_input():
    with pytest.raises(OptionError, match="this model takes points, which cannot be read from the standard input"):
        list(rows_of(["-"], point_bundle().preprocessing, io.StringIO("1,2\n")))


@pytest.mark.parametrize("at_once", [1, 2, 3, 7, 100])
def test_broken_rows_cost_themselves_alone_whatever_the_batch(at_once):
    values = [(1, 0), ("no", 0), (0, 1), (9, 9), (None, "x"), (0, 1)]
    rows = [RawInput(str(i), {"x": x, "y": y, "word": "left"}) for i, (x, y) in enumerate(values)]
    rows.insert(3, RawInput("gone", None, DataError("there is no such file", path="gone")))
    found = [record for run in predict_rows(table_bundle().predict, rows, at_once) for record in records(run)]
    assert [record["input"] for record in found] == ["0", "1", "2", "gone", "3", "4", "5"]
    assert [record.get("label") for record in found] == ["a", None, "b", None, "unknown", None, "b"]
    assert found[1]["error"] == "column 'x': expected a number, got 'no'; correct it"
    assert found[3]["error"] == "there is no such file"


def test_rows_are_read_only_as_they_are_predicted():
    read = []

    def endless():
        for i in range(10**9):
            read.append(i)
            yield RawInput(str(i), {"x": 1, "y": 0, "word": "left"})

    runs = predict_rows(table_bundle().predict, endless(), batch_size=10)
    next(runs), next(runs)
    assert len(read) == 20


def test_an_error_does_not_repeat_the_name_of_its_input(tmp_path):
    (tmp_path / "bad.png").write_bytes(b"no image")
    (run,) = predict_rows(image_bundle().predict, rows_of([str(tmp_path / "bad.png")], IMAGES))
    assert run == PredictedRows([RawInput(run.rows[0].name, run.rows[0].raw)], None, run.error)
    assert run.error == "the image is not in a format that Pillow reads; replace it or leave it out"


def test_records_hold_what_json_can_hold():
    (run,) = predict_rows(table_bundle().predict, [RawInput("r", {"x": 0.9, "y": 0.1, "word": "left"})])
    (record,) = records(run)
    assert json.loads(json.dumps(record)) == record
    assert record["distance"] == pytest.approx(np.hypot(0.1, 0.1), rel=1e-5)
    assert record["probability"] == pytest.approx(np.exp(-np.hypot(0.1, 0.1)), rel=1e-5)
    assert [each["class"] for each in record["top"]] == ["a", "b"]
