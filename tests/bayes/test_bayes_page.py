import re

import torch


def test_the_code_of_the_page_runs_from_top_to_bottom(tmp_path, monkeypatch, python_blocks):
    monkeypatch.chdir(tmp_path)
    names = {}
    for code in python_blocks("bayes.md"):
        exec(re.sub(r"epochs=\d+", "epochs=1", code), names)  # it must be whole, not good
    found = names["found"]
    assert found.log_probs.shape == (100, 2, 3)
    assert (found.probs.sum(-1) + found.missing_mass >= 1 - 1e-5).all()
    assert torch.equal(found.labels, found.probs.argmax(-1))
    assert list(tmp_path.iterdir()) == []
