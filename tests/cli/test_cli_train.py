import json
import subprocess
import sys

import pytest

from openradial import cli
from openradial.training import checkpoint


@pytest.fixture
def train(monkeypatch, capsys):
    """Run ``openradial train``: its exit code and what it printed."""

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["openradial", "train", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        printed = capsys.readouterr()
        return ended.value.code or 0, printed.out + printed.err

    return run


DIGITS = ("--data", "digits", "--known", "random:6", "--epochs", 2, "--batch-size", 64)


def test_a_run_leaves_checkpoints_a_log_and_a_result(train, tmp_path):
    code, said = train(*DIGITS, "--out", tmp_path / "run")
    assert code == 0, said
    assert "epoch 2/2  loss" in said
    assert said.strip().endswith(f"novel ones; files in {tmp_path / 'run'}")
    names = {path.name for path in (tmp_path / "run").iterdir()}
    assert names == {"last.safetensors", "best.safetensors", "log.jsonl", "result.json"}
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert result["test"]["known_classes"] == 6
    assert result["job"]["training"]["epochs"] == 2
    facts = checkpoint.load(tmp_path / "run" / "best.safetensors")[1]["metadata"]
    assert len(facts["classes"]) == 6


def test_a_file_and_options_have_the_same_names_and_options_win(train, tmp_path):
    (tmp_path / "run.toml").write_text(
        'data = "digits"\nmodel = "mlp"\n[model_options]\nhidden = [8]\n[training]\nepochs = 9\nlearning_rate = 0.5\n'
    )
    code, said = train("--config", tmp_path / "run.toml", "--epochs", 1, "--beta", 2, "--out", tmp_path / "run")
    assert code == 0, said
    job = json.loads((tmp_path / "run" / "result.json").read_text())["job"]
    assert (job["training"]["epochs"], job["training"]["learning_rate"], job["beta"]) == (1, 0.5, 2.0)


def test_options_of_the_network_are_given_by_name(train, tmp_path):
    code, said = train(*DIGITS, "--model", "mlp", "--option", "dropout=0.25", "--out", tmp_path / "run")
    assert code == 0, said
    code, said = train(*DIGITS, "--model", "mlp", "--option", "droput=0.25", "--out", tmp_path / "other")
    assert code == 2
    assert "has no option 'droput'" in said


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--data", "digits", "--epochs", "0"], r"epochs must lie in \[1"),
        (["--data", "digits", "--head", "sigmoid"], "head must be"),
        (["--data", "digits", "--option", "dropout"], "is written name=value"),
        (["--data", "digts"], "did you mean 'digits'"),
        (["--data", "folder"], "needs a path, as in folder:PATH"),
        (["--data", "table:x.csv"], "a table needs label"),
        ([], "a job needs data"),
    ],
)
def test_impossible_values_are_refused_before_anything_starts(train, tmp_path, arguments, message):
    import re

    code, said = train(*arguments, "--out", tmp_path / "run")
    assert code == 2, said
    assert re.search(message, said)
    assert said.count("\n") == 1
    assert not (tmp_path / "run").exists()


def test_an_unknown_key_of_a_file_is_refused(train, tmp_path):
    (tmp_path / "run.toml").write_text('data = "digits"\nmodell = "mlp"\n')
    code, said = train("--config", tmp_path / "run.toml", "--out", tmp_path / "run")
    assert (code, said) == (2, "error: there is no setting 'modell'; did you mean 'model'?\n")


def test_a_network_of_the_users_is_found_beside_the_run(tmp_path):
    lines = [
        "from torch import nn",
        "def make(num_classes):",
        "    return nn.Sequential(nn.Flatten(), nn.Linear(64, num_classes))",
    ]
    (tmp_path / "my_net.py").write_text("\n".join(lines))
    command = [sys.executable, "-P", "-m", "openradial", "train", *map(str, DIGITS), "--model", "my_net:make"]
    done = subprocess.run([*command, "--out", "run"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "run" / "result.json").exists()


def test_a_run_goes_on_where_it_was(train, tmp_path):
    train(*DIGITS, "--out", tmp_path / "run")
    code, said = train(*DIGITS, "--out", tmp_path / "run")
    assert code == 1
    assert "already has a run" in said
    code, said = train(*DIGITS[:4], "--epochs", 3, "--batch-size", 64, "--out", tmp_path / "run", "--resume")
    assert code == 0
    assert "epoch 3/3" in said
    assert "epoch 2/3" not in said


@pytest.mark.distributed
def test_two_processes_train_one_job(tmp_path, programs):
    program = tmp_path / "program.py"
    program.write_text("from openradial.cli import main\nmain()\n")
    out = tmp_path / "run"
    both = programs.run_two(program, "train", *DIGITS, "--out", out, "--accelerator", "cpu")
    for done in both:
        assert done.returncode == 0, done.stderr
    assert sum(done.stdout.count("epoch 2/2") for done in both) == 1
    assert json.loads((out / "result.json").read_text())["test"]["known_examples"] == 212
