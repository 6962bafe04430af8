import sys

import pytest
import torch
from torch import nn

from openradial.bundle import save
from openradial.classifier import OpenClassifier
from openradial.data.inputs import PointInputs
from openradial.heads import RadialHead

NETWORK = "from torch.nn import Linear\nmake = lambda num_classes: Linear(2, num_classes)\n"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with a model whose network comes from a module beside it."""
    (tmp_path / "nets_of_mine.py").write_text(NETWORK)
    (tmp_path / "points.csv").write_text("a,b\n1,2\n3,4\n")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    torch.manual_seed(0)
    model = OpenClassifier(nn.Linear(2, 2), RadialHead(2))
    save(
        model.replace(network=("nets_of_mine:make", {}), classes=("a", "b"), preprocessing=PointInputs(2)),
        tmp_path / "model",
    )
    sys.modules.pop("nets_of_mine")
    return tmp_path


@pytest.fixture
def openradial(folder, programs):
    """Run the command line in the folder of the model."""
    # the console script has its own folder on sys.path, not the one it is started in; so has this one
    script = folder / "bin" / "command.py"
    script.parent.mkdir()
    script.write_text(f"import os\nos.chdir({str(folder)!r})\nfrom openradial.cli import main\nmain()\n")
    return lambda *arguments: programs.run(script, *arguments)


def test_every_command_that_opens_a_model_finds_a_module_beside_the_run(openradial):
    lost = openradial("predict", "model", "points.csv")
    assert lost.returncode == 1
    assert "--module nets_of_mine" in lost.stderr
    found = openradial("predict", "model", "points.csv", "--module", "nets_of_mine", "--format", "jsonl")
    assert (found.returncode, found.stderr) == (0, "")
    assert found.stdout.count('"label"') == 2
