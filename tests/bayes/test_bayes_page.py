import re

import torch


def test_the_code_of_the_page_runs_from_top_to_bottom(tmp_path, monkeypatch, python_blocks):
    monkeypatch.chdir(tmp_path)
    names = {}
    for code in python_blocks("bayes.md"):
        exec(re.sub(r"epochs=\d+", "epochs=1", code), names)  # it must run, not train well
    sampled = names["sampled"]
    assert sampled.log_probs.shape == (100, 2, 3)
    assert (sampled.probs.sum(-1) + sampled.missing_mass >= 1 - 1e-5).all()
    assert torch.equal(sampled.labels, sampled.probs.argmax(-1))
    assert list(tmp_path.iterdir()) == []
