import json

import numpy as np
import pytest

from benchmarks.comparison import runs
from benchmarks.comparison.__main__ import main
from openradial.errors import DataError


def test_a_comparison_writes_table_numbers_and_picture(monkeypatch, capsys, tmp_path):
    monkeypatch.setitem(runs.QUICK, "digits", 1)
    np.savez(tmp_path / "grey.npz", images=np.full((30, 8, 8), 9, np.uint8))
    out = tmp_path / "out"
    novel = f"grey={tmp_path / 'grey.npz'}"
    main(["--data", "digits", "--quick", "--splits", "0", "--novel", novel, "--out", str(out)])
    assert "**digits**, 1 runs" in capsys.readouterr().out
    assert "| softmax: msp |" in (out / "comparison.md").read_text()
    summary = json.loads((out / "comparison.json").read_text())["summary"]
    assert list(summary) == ["digits"]
    assert list(summary["digits"][0]["novel"]) == ["grey"]
    assert (out / "comparison.png").stat().st_size > 10_000


def test_a_novel_set_without_a_file_is_refused(capsys):
    with pytest.raises(SystemExit):
        main(["--novel", "clothes"])
    assert "a novel set must be NAME=FILE, got 'clothes'" in capsys.readouterr().err


def test_a_missing_novel_file_is_named_before_anything_starts(tmp_path):
    with pytest.raises(DataError, match=r"there is no file nofile\.npz"):
        main(["--novel", "letters=nofile.npz", "--out", str(tmp_path / "out")])
    assert not (tmp_path / "out").exists()
