"""What the tests of several commands share: a call of the command line, and a model that it has fitted."""

import io
import json
import sys
from contextlib import redirect_stderr, redirect_stdout

import numpy as np
import pytest

from openradial import cli


@pytest.fixture
def call(monkeypatch, capsys):
    """Run ``openradial``: its exit code, output and errors."""

    def run(*arguments, stdin=None):
        monkeypatch.setattr(sys, "argv", ["openradial", *map(str, arguments)])
        if stdin is not None:
            monkeypatch.setattr(sys, "stdin", io.StringIO(stdin))
        with pytest.raises(SystemExit) as ended:
            cli.main()
        printed = capsys.readouterr()
        return ended.value.code or 0, printed.out, printed.err

    return run


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    """A folder with a table of three kinds and a model of two of them; the numbers and the messages of the fit."""
    root = tmp_path_factory.mktemp("own")
    random = np.random.default_rng(0)
    lines = ["length,width,kind"]
    for i in range(240):
        length, width = random.normal([3 * (i % 3), 5 - 2 * (i % 3)], 0.5)
        lines.append(f"{length:.3f},{width:.3f},{'abc'[i % 3]}")
    (root / "t.csv").write_text("\n".join(lines) + "\n")
    (root / "run.toml").write_text(
        f'data = "{root / "t.csv"}"\nlabel = "kind"\nnovel = "c"\n[training]\nepochs = 12\nlearning_rate = 0.01\n'
    )
    arguments = ["openradial", "fit", "--config", str(root / "run.toml"), "--json", "--out", str(root / "model")]
    printed, messages = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(printed), redirect_stderr(messages):
        patch.setattr(sys, "argv", arguments)
        with pytest.raises(SystemExit):
            cli.main()
    assert printed.getvalue(), messages.getvalue()
    return root, json.loads(printed.getvalue()), messages.getvalue()
