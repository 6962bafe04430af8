import re
from pathlib import Path

import pytest

from openradial import metrics

PAGE = (Path(__file__).parents[2] / "docs" / "metrics.md").read_text()


def test_the_code_of_the_metrics_page_runs_block_after_block():
    names = {}
    blocks = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    for code in blocks:
        exec(code, names)
    assert len(blocks) == 2
    assert names["interval"].low < names["found"]["auroc"] == names["interval"].value < names["interval"].high


def test_swapped_arrays_turn_the_auroc_around():
    known, novel = [0.1, 0.2, 0.4], [0.3, 0.9]
    assert metrics.auroc(novel, known) == pytest.approx(1 - metrics.auroc(known, novel))
