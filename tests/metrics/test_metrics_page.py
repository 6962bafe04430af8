import pytest

from openradial import metrics


def test_the_code_of_the_metrics_page_runs_block_after_block(python_blocks):
    names = {}
    blocks = python_blocks("metrics.md")
    for code in blocks:
        exec(code, names)
    assert len(blocks) == 2
    assert names["interval"].low < names["values"]["auroc"] == names["interval"].value < names["interval"].high


def test_swapped_arrays_turn_the_auroc_around():
    known, novel = [0.1, 0.2, 0.4], [0.3, 0.9]
    assert metrics.auroc(novel, known) == pytest.approx(1 - metrics.auroc(known, novel))
