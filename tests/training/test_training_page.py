import re
import tomllib
from pathlib import Path

import pytest
import torch

from openradial import models
from openradial.training import Settings, checkpoint

PAGE = (Path(__file__).parents[2] / "docs" / "training.md").read_text()
FILES = re.findall(r"^```toml\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


def test_the_snippets_of_the_page_run_one_after_the_other(python_blocks, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    namespace = {}
    for block in python_blocks("training.md"):
        exec(block, namespace)
    assert float(capsys.readouterr().out) > 0.5
    best = checkpoint.under("model", checkpoint.load(tmp_path / "runs" / "spiral" / "best.safetensors")[0])
    assert all(torch.equal(value, best[name]) for name, value in namespace["net"].state_dict().items())


@pytest.mark.parametrize("text", FILES)
def test_the_settings_files_of_the_page_are_valid(text):
    values = tomllib.loads(text)
    assert Settings.from_mapping(values.get("training", {})).epochs == 10
    with torch.device("meta"):
        net = models.build(values["model"], 10, **values.get("model_options", {}))
    assert net.num_features > 0
