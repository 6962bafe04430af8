import csv
import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import openradial
from openradial.bundle import load
from openradial.cli.app import COMMANDS
from openradial.data.sources import RawInput
from openradial.errors import DataError
from openradial.evaluation import evaluation


def test_evaluate_writes_a_report_and_shows_a_table(call, folder, tmp_path):
    root, _, _ = folder
    known = ("--known", root / "t.csv", "--novel", root / "t.csv", "--label", "kind")
    code, out, err = call("evaluate", root / "model", *known, "--out", tmp_path / "r")
    assert code == 0, err
    assert "t.csv, other classes" in out
    assert "note: the model was fitted on data called t.csv" in out
    assert out.endswith(f"report in {tmp_path / 'r' / 'report.html'}\n")
    assert (tmp_path / "r" / "report.html").stat().st_size > 20_000


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    """A folder with a model of texts, and texts of its classes and of others."""
    root = tmp_path_factory.mktemp("texts")
    verbs, times = ("I lost", "please block", "show me"), ("now", "today", "at once", "this week", "again", "soon")
    rows = [
        f"{verb} my {thing} {when},{name}"
        for name, things in (("card", ("card", "visa", "pin")), ("rate", ("rate", "fee", "price")))
        for verb in verbs
        for thing in things
        for when in times
    ]
    (root / "train.csv").write_text("\n".join(["text,kind", *rows]))
    (root / "known.csv").write_text("\n".join(["text,kind", *rows[::5], "<b>show</b> me my card now,rate"]))
    (root / "novel.csv").write_text(f"text,kind\n{'show my card today ' * 50},other\n,other\nzebras sing,other\n")
    model = openradial.fit(root / "train.csv", label="kind", encoder="tfidf", out=root / "model")
    assert model.predict(["show my card today"]).names == ["card"]
    return root


def test_evaluate_shows_the_most_confident_mistakes_as_texts(call, texts, tmp_path):
    known = ("--known", texts / "known.csv", "--novel", texts / "novel.csv", "--label", "kind")
    code, out, err = call("evaluate", texts / "model", *known, "--out", tmp_path / "r")
    assert code == 0, err
    assert "\nnovel, accepted: show my card today show" in out
    assert "\nmisclassified: <b>show</b> me my card now\n  card (0." in out
    assert "), is rate\n" in out
    page = (tmp_path / "r" / "report.html").read_text()
    assert "<th>text</th><th>true class</th><th>predicted</th><th>probability</th><th>p-value</th>" in page
    assert "<td>&lt;b&gt;show&lt;/b&gt; me my card now</td><td>rate</td><td>card</td><td>0." in page
    assert f"{('show my card today ' * 50)[:200]}…</td><td>other</td>" in page


def test_predict_shows_the_text_and_not_another_column(call, texts, tmp_path):
    (tmp_path / "more.csv").write_text("id,text\nT-1,I lost my visa today\n")
    code, out, err = call("predict", texts / "model", tmp_path / "more.csv")
    assert code == 0, err
    assert out.splitlines()[1].startswith("I lost my visa today  ")
    out = call("predict", texts / "model", tmp_path / "more.csv", "--format", "jsonl")[1]
    assert json.loads(out)["text"] == "I lost my visa today"


def test_evaluate_gives_its_numbers_as_json(call, folder, tmp_path):
    root, _, _ = folder
    code, out, _ = call("evaluate", root / "model", "--known", root / "t.csv", "--json", "--out", tmp_path / "r")
    assert code == 0
    found = json.loads(out)
    assert found["known"]["examples"] == 160
    assert found["report"] == str(tmp_path / "r" / "report.html")


def test_evaluate_goes_past_inputs_that_cannot_be_read(call, folder, tmp_path, monkeypatch):
    root, _, _ = folder
    rows = evaluation._rows

    def with_a_broken_one(*arguments):
        return [RawInput("gone", None, DataError("there is no such file")), *rows(*arguments)[1:]]

    monkeypatch.setattr(evaluation, "_rows", with_a_broken_one)
    code, out, _ = call("evaluate", root / "model", "--known", root / "t.csv", "--out", tmp_path / "r")
    assert code == 3
    assert "1 input could not be read; the report names them" in out
    assert "could not be read: gone: there is no such file" in (tmp_path / "r" / "report.html").read_text()


def test_evaluate_names_what_the_report_needs_before_it_starts(call, folder, monkeypatch):
    root, _, _ = folder
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    code, _, err = call("evaluate", root / "model", "--known", root / "t.csv")
    assert code == 1
    assert err.endswith("which is not installed; run: pip install 'openradial[plot]'\n")


def test_predict_writes_lines_of_json(call, folder):
    root, _, _ = folder
    code, out, err = call("predict", root / "model", root / "t.csv", "--format", "jsonl")
    rows = [json.loads(line) for line in out.splitlines()]
    assert (code, err, len(rows)) == (0, "", 240)
    assert rows[0]["label"] in ("a", "unknown")
    assert list(rows[0]) == [
        "input",
        "label",
        "is_unknown",
        "nearest",
        "probability",
        "distance",
        "p_value",
        "unknown_score",
        "top",
    ]


FORMATS = """
import sys
from openradial import cli

model, path = sys.argv[1:]
for form in ("jsonl", "csv", "table"):
    sys.argv = ["openradial", "predict", model, path, "--format", form]
    try:
        cli.main()
    except SystemExit as ended:
        assert not ended.code
    print("---")
"""


def test_names_of_files_need_not_be_text(folder, tmp_path):
    root, _, _ = folder
    path = tmp_path / os.fsdecode(b"\x1b[2J\xff.csv")  # the first bytes would clear a terminal
    path.write_text("length,width\n1,2\n")
    command = [sys.executable, "-c", FORMATS, root / "model", path]  # one process: importing torch takes seconds
    done = subprocess.run(command, capture_output=True, env=os.environ | {"PYTHONUTF8": "1"})
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"\xff" not in done.stdout
    jsonl, csv_, table, rest = done.stdout.split(b"---\n")
    assert json.loads(jsonl)["input"] == f"{path}:1"
    assert csv_.count(b"\n") == 2
    assert b"\x1b" not in table
    assert "\ufffd[2J\\udcff.csv:1".encode() in table
    assert rest == b""


def test_predict_writes_csv_that_reads_back(call, folder):
    root, _, _ = folder
    code, out, _ = call("predict", root / "model", "-", "--format", "csv", stdin="length,width\n0,5\nx,5\n3,3\n")
    rows = list(csv.DictReader(io.StringIO(out)))
    assert code == 3
    assert [row["label"] for row in rows] == ["a", "", "b"]
    assert rows[1]["error"] == "column 'length': expected a number, got 'x'; correct it"
    assert rows[0]["class_1"] == "a"
    assert float(rows[0]["probability_1"]) == float(rows[0]["probability"])


def test_a_broken_row_is_a_line_and_exit_code_3_says_so(call, folder, tmp_path):
    root, _, _ = folder
    code, out, err = call("predict", root / "model", "-", tmp_path / "no.csv", stdin="length,width\n0,5\n1\n")
    assert code == 3
    assert err == "2 inputs could not be read\n"
    lines = out.splitlines()
    assert lines[0].split() == ["input", "label", "probability", "distance", "p-value", "nearest", "classes"]
    assert lines[1].split()[:2] == ["-:1", "a"]
    assert lines[2].split(None, 1)[1].startswith("error: the header names 2 columns, but the row has 1 values")
    assert lines[3].endswith("error: there is no such file")


def test_another_rate_rejects_more(call, folder):
    root, _, _ = folder

    def unknown(*options):
        out = call("predict", root / "model", root / "t.csv", "--format", "jsonl", *options)[1]
        return sum(json.loads(line)["is_unknown"] for line in out.splitlines())

    assert unknown("--false-reject-rate", "0.5") > unknown()


def test_a_rate_that_was_not_calibrated_for_is_refused(call, folder):
    root, _, _ = folder
    code, _, err = call("predict", root / "model", root / "t.csv", "--false-reject-rate", "0.001")
    assert code == 2
    assert "a rate of 0.001 needs at least 999 calibration scores" in err


def test_a_reader_that_goes_away_ends_the_run_quietly(folder, tmp_path):
    root, _, _ = folder
    (tmp_path / "big.csv").write_text("length,width\n" + "1,2\n" * 5_000)
    command = [sys.executable, "-m", "openradial", "predict", str(root / "model"), str(tmp_path / "big.csv")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as run:
        assert run.stdout.readline().startswith("input")
        run.stdout.close()
        assert run.stderr.read() == ""
        assert run.wait(timeout=600) == 1


def test_the_runtime_onnx_takes_a_file(call, folder):
    root, _, _ = folder
    code, _, err = call("predict", root / "model", root / "t.csv", "--runtime", "onnx")
    assert code == 2
    assert f"got the folder {root / 'model'}; run: openradial export {root / 'model'} --to onnx" in err


def test_the_runtime_onnx_runs_the_file_that_is_named(call, folder, monkeypatch):
    root, _, _ = folder
    named = []

    def model(path):
        named.append(path)
        return load(root / "model")

    monkeypatch.setattr("openradial.export.OnnxModel", model)
    code, out, _ = call("predict", "model.onnx", "-", "--runtime", "onnx", stdin="length,width\n0,5\n")
    assert (code, named) == (0, [Path("model.onnx")])
    assert out.splitlines()[1].split()[:2] == ["-:1", "a"]


def test_help_lists_all_commands_in_groups(call):
    code, out, _ = call("--help")
    assert code == 0
    for text in (
        "Your own data",
        "Data sets",
        "Exit codes: 0 success, 1 failure, 2 wrong use",
    ):
        assert text in out
    assert all(name in out for name in COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_a_help_page(call, name):
    code, out, err = call(name, "--help")
    assert code == 0, err
    assert f"Usage: openradial {name}" in out


def complete(words, place):
    environment = {"_OPENRADIAL_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(place)}
    code = (
        "import sys, os; os.environ.update(" + repr(environment) + "); sys.argv = ['openradial']\n"
        "from openradial import cli\n"
        "try:\n    cli.main()\nfinally:\n    print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    return done.stdout.split()


def test_commands_are_completed_without_waiting_for_torch():
    assert complete("openradial ", 1) == [*COMMANDS, "False"]


def test_options_are_completed(call, monkeypatch):
    monkeypatch.setenv("_OPENRADIAL_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", "openradial predict --f")
    monkeypatch.setenv("COMP_CWORD", "2")
    assert call()[1].split() == ["--format", "--false-reject-rate"]


def test_the_version_needs_no_torch():
    code = (
        "import sys; sys.argv = ['openradial', '--version']\nfrom openradial import cli\n"
        "try:\n    cli.main()\nfinally:\n    print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.split() == ["openradial", openradial.__version__, "False"]
