import json
import sys

import numpy as np
import pytest

from openradial.evaluation.comparison import comparison as steps


@pytest.fixture
def compare(call, monkeypatch):
    """Run ``openradial compare`` with one epoch: its exit code and what it printed."""
    monkeypatch.setitem(steps.QUICK, "digits", 1)

    def run(*arguments):
        code, out, err = call("compare", "--data", "digits", *arguments)
        return code, out + err

    return run


def test_compare_writes_table_numbers_and_picture(compare, tmp_path):
    np.savez(tmp_path / "grey.npz", images=np.full((30, 8, 8), 9, np.uint8))
    out = tmp_path / "out"
    code, said = compare("--quick", "--splits", 0, "--novel", f"grey={tmp_path / 'grey.npz'}", "--out", out)
    assert code == 0, said
    assert "AUROC against novel inputs" in said
    assert "| softmax: msp |" in (out / "comparison.md").read_text()
    summary = json.loads((out / "comparison.json").read_text())["summary"]
    assert list(summary) == ["digits"]
    assert list(summary["digits"][0]["novel"]) == ["grey"]
    assert (out / "comparison.png").stat().st_size > 10_000


def test_a_novel_set_without_a_file_is_refused(compare):
    code, said = compare("--novel", "clothes")
    assert code == 2
    assert "a novel set must be NAME=FILE, got 'clothes'" in said


def test_a_folder_that_cannot_be_made_is_refused(compare, tmp_path):
    (tmp_path / "file").touch()
    code, said = compare("--quick", "--out", tmp_path / "file" / "out")
    assert code == 2
    assert "cannot be written (Not a directory); choose another path" in said


def test_a_missing_novel_file_is_named_before_anything_starts(compare, tmp_path):
    code, said = compare("--novel", "letters=nofile.npz", "--out", tmp_path / "out")
    assert code != 0
    assert "there is no file nofile.npz" in said
    assert "run 1" not in said


def test_a_missing_matplotlib_is_named_before_anything_starts(compare, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    code, said = compare("--quick", "--out", tmp_path / "out")
    assert (code, (tmp_path / "out").exists()) == (1, False)
    assert said == (
        "error: openradial compare needs the package matplotlib, which is not installed; "
        "run: pip install 'openradial[plot]'\n"
    )
