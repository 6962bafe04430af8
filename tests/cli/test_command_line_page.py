import re
from pathlib import Path

import numpy as np
import pytest

from openradial import cli
from openradial.classifier import Predictions
from openradial.cli.app import COMMANDS, load

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "command-line.md").read_text()
GUIDE = (DOCS / "own-data.md").read_text()


def section(name):
    return re.search(rf"^## {name}\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL)[1]


def options(name):
    command = load(name)
    return {option for parameter in command.params for option in parameter.opts if option.startswith("--")}


def test_every_command_has_its_line():
    assert re.findall(r"^\| `(\w+)` \| ", PAGE, re.MULTILINE)[: len(COMMANDS)] == list(COMMANDS)


@pytest.mark.parametrize("name", ["fit", "evaluate", "predict"])
def test_every_option_is_described(name):
    first_cells = re.findall(r"^\| (`--.*?) \|", section(name), re.MULTILINE)
    assert set(re.findall(r"--[\w-]+", " ".join(first_cells))) == options(name) - {"--help"}


@pytest.mark.parametrize(
    "page", [PAGE, GUIDE, (DOCS.parent / "README.md").read_text()], ids=["page", "guide", "readme"]
)
def test_commands_that_are_shown_have_the_options_they_use(page):
    shown = re.findall(r"openradial (\w+)((?: [^\n`#|>]*)?)", page)
    for name, rest in shown:
        if name in COMMANDS and name != "data":
            assert set(re.findall(r"--[\w-]+", rest)) <= options(name) | {"--help"}, (name, rest)


def test_the_fields_of_a_prediction_are_described():
    none = np.zeros(1)
    said = Predictions.from_arrays(
        ("a",),
        labels=np.zeros(1, int),
        nearest=np.zeros(1, int),
        log_probs=np.zeros((1, 1)),
        distance=none,
        unknown_score=none,
        p_values=none,
    )
    fields = {"input", "error", *said[0].as_dict()}
    cells = re.findall(r"^\| (`[a-z_`, ]+) \|", section("predict"), re.MULTILINE)
    assert fields <= set(re.findall(r"`(\w+)`", " ".join(cells)))


def test_exit_codes_are_those_of_the_commands():
    codes = [int(code) for code in re.findall(r"^\| (\d+) \|", section("Exit codes"), re.MULTILINE)]
    assert codes == [0, cli.FAILURE, cli.WRONG_USE, cli.BROKEN_INPUTS, cli.INTERRUPTED]


def test_every_command_is_where_the_list_says():
    assert all(load(name).name == name for name in COMMANDS)
