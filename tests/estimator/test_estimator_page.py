import runpy
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]


def test_the_code_of_the_page_runs_with_the_results_it_states(python_blocks):
    names = {}
    first, *others = python_blocks("estimator.md")
    exec(first, names)
    classifier, known = names["classifier"], names["known"]
    assert (classifier.predict(names["test_X"]) == -1).mean() == pytest.approx(0.05, abs=0.04)
    assert (classifier.predict(names["X"][~known]) == -1).mean() > 0.5
    for code in others:
        exec(code, names)
        if "to_bundle" in code:
            labels = names["classifier"].predict(names["test_X"])
            np.testing.assert_array_equal(names["same"].predict(names["test_X"]), labels)
            rows = [{f"x{i}": value for i, value in enumerate(row)} for row in names["test_X"]]
            assert names["model"].predict(rows).names == ["unknown" if k == -1 else str(k) for k in labels]
    assert (names["closed"].predict(names["X"][~known]) == -1).mean() > 0.5
    for name in ("classifier", "closed", "stream", "pipeline", "search", "calibrated"):
        assert names[name].score(names["test_X"], names["test_y"]) > 0.8


def test_the_example_rejects_novel_digits_more_often_than_known_ones(capsys):
    rejected = runpy.run_path(str(ROOT / "examples" / "reject_digits.py"))["main"]()
    known, novel = np.array(list(rejected.values())).T
    assert (np.diff(known) >= 0).all()
    assert (novel > known).all()
    assert len(capsys.readouterr().out.splitlines()) == 5
