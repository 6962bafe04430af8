import dataclasses
import json
import os
import re
import signal
import subprocess
import sys
import types
import typing

import numpy as np
import pytest
import torch

from openradial.bundle import load
from openradial.cli import fit
from openradial.errors import OptionError
from openradial.training import Settings
from tests.rounding import tolerance

DIGITS = ("digits", "--known", "random:6", "--epochs", 2, "--batch-size", 64)
ALIKE = (*DIGITS, "--outliers", 0, "--accelerator", "cpu")  # each process makes outliers of its own


def test_fit_reports_what_it_does_and_prints_its_numbers_as_json(folder):
    root, numbers, messages = folder
    assert numbers["accuracy"] == 1.0
    assert numbers["false_rejects"]["asked"] == 0.05
    assert numbers["novel"]["classes"] == ["c"]
    assert set(numbers) == {
        "model",
        "accuracy",
        "false_rejects",
        "matrix",
        "confused",
        "hardest",
        "novel",
        "examples",
        "seconds",
        "notes",
        "guarantee",
        "closed_form",
        "per_class",
        "expected_detection",
        "baseline",
        "weak",
    }
    assert numbers["closed_form"] is None
    assert numbers["guarantee"].startswith("split conformal")
    assert "2 known classes; examples: 88 train" in messages
    assert "network mlp, 12 epochs" in messages
    assert (root / "model" / "bundle.json").is_file()


def test_fit_prints_accuracy_rates_and_the_next_commands(call, folder, tmp_path):
    root, _, _ = folder
    code, out, err = call("fit", root / "t.csv", "--label", "kind", "--epochs", 3, "--out", tmp_path / "m")
    assert code == 0, err
    for line in ("accuracy ", "called unknown ", "predicted class (rows: true class)", "time ", "95 % interval"):
        assert line in out
    assert f"model in {tmp_path / 'm'}" in out


def test_long_class_names_have_numbers_in_the_table_of_confusions(call, tmp_path):
    random, y = np.random.default_rng(0), np.arange(350) % 7
    names = np.array([f"a long name of class {k}{' and more' * 6 * (k == 5)}" for k in range(7)])
    np.savez(tmp_path / "t.npz", x=random.normal(size=(350, 6)) + 8 * np.eye(7, 6)[y], y=names[y])
    code, out, err = call("fit", tmp_path / "t.npz", "--label", "y", "--no-baseline", "--out", tmp_path / "m")
    assert code == 0, err
    assert re.search(r"^ +1 +2 +3 +4 +5 +6 +7$", out, re.MULTILINE)
    assert re.search(r"^ 7 a long name of class 6( +·)+ +50$", out, re.MULTILINE)
    assert re.search(r"^ 6 a long name of class 5 and [a-z ]+…( +·)+ +50 +·$", out, re.MULTILINE)  # one line


def test_fit_prints_what_to_expect_of_novel_classes_and_a_baseline(call, tmp_path):
    random, y = np.random.default_rng(0), np.arange(350) % 7
    for name, spread in (("good", 8), ("noise", 0)):
        np.savez(tmp_path / f"{name}.npz", x=random.normal(size=(350, 6)) + spread * np.eye(7, 6)[y], y=y)
    code, out, err = call("fit", tmp_path / "good.npz", "--label", "y", "--out", tmp_path / "m")
    assert code == 0, err
    assert re.search(r"^unknown most    \d: [\d.]+ % \([\d.]+ to [\d.]+ %\), \d: ", out, re.MULTILINE)
    assert re.search(
        r"^expected novel  [\d.]+ % of 250 examples of 5 left-out classes; AUROC [\d.]+ %; fewest of \d: [\d.]+ %, ",
        out,
        re.MULTILINE,
    )
    assert re.search(r"^baseline        logistic regression: [\d.]+ % of 350 known inputs$", out, re.MULTILINE)
    assert "weak " not in out
    assert "expected_detection" in call("inspect", tmp_path / "m")[1]
    code, out, err = call("fit", tmp_path / "noise.npz", "--label", "y", "--no-baseline", "--out", tmp_path / "n")
    assert code == 0, err
    assert out.startswith("weak            accuracy ")
    assert "weak            only " in out
    assert "baseline" not in out


def test_fit_says_why_there_is_no_baseline(call, folder, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "scipy.optimize", None)
    code, out, err = call("fit", folder[0] / "t.csv", "--label", "kind", "--out", tmp_path / "m")
    assert code == 0, err
    assert "note            no baseline: logistic regression needs the package scipy" in out


def test_fit_of_a_table_prints_method_choices_and_guarantee(call, folder, tmp_path):
    table, out = folder[0] / "t.csv", tmp_path / "m"
    options = ("--class-weight", "auto", "--random-features", 50)
    code, printed, messages = call("fit", table, "--label", "kind", "--novel", "c", *options, "--out", out)
    assert code == 0, messages
    assert "2 known classes; examples: 160 train, 80 novel" in messages
    assert "closed-form head on 2 features; no network is trained" in messages
    chosen = load(out).metadata["training"]
    expected = f"alpha {chosen['alpha']:.3g}; 50 random features of width {chosen['width']:.3g}; class weights: none"
    assert f"closed form     {expected}\n" in printed
    assert "guarantee       cross-fitting: about the asked share" in printed
    code, printed, _ = call("inspect", out)
    assert code == 0
    for line in (
        "method: closed-form",
        "guarantee: cross-fitting",
        "class_weight: auto",
        "score of the head, Neighbour",
    ):
        assert line in printed
    code, printed, messages = call("fit", table, "--label", "kind", "--calibration", "split", "--out", tmp_path / "n")
    assert code == 0, messages
    assert "guarantee       split conformal: on average, at most the asked share" in printed


def test_fit_does_not_replace_a_model_unless_asked(call, folder):
    root, _, _ = folder
    code, out, err = call("fit", "--config", root / "run.toml", "--out", root / "model")
    assert (code, out) == (2, "")
    assert err.endswith("choose another folder, or replace it with overwrite (--overwrite)\n")


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ([], 2, "a model needs data"),
        (["digts"], 2, "did you mean 'digits'"),
        (["digits", "--false-reject-rate", "5"], 2, "must be a number above 0 and below 1"),
        (["digits", "--known", "0,11"], 2, "there is no class '11'"),
        (["digits", "--epochs", "0"], 2, "epochs must lie in [1"),
        (["digits", "--head", "sigmoid"], 2, "head must be one of 'radial', 'softmax', 'doc', 'cac', got 'sigmoid'"),
        (["digits", "--option", "dropout"], 2, "is written name=value, got 'dropout'"),
        (["digits", "--model", "mlp", "--option", "droput=0.25"], 2, "has no option 'droput'"),
        (["digits", "--group", "patient"], 2, "group"),
        (
            ["digits", "--method", "closed-form"],
            2,
            "closed form needs rows of numbers, such as a table, and digits holds",
        ),
        (
            ["digits", "--calibration", "cross", "--method", "gradient"],
            2,
            "calibration='cross' is for method='closed-form'",
        ),
        (["digits", "--calibration", "cross", "--epochs", "3"], 2, "epochs is for a network that is trained"),
        (["/no/where"], 1, "/no/where"),
    ],
)
def test_wrong_values_are_refused_in_one_line_before_anything_starts(call, tmp_path, arguments, code, message):
    got, out, err = call("fit", *arguments, "--out", tmp_path / "m")
    assert (got, out, err.count("\n")) == (code, "", 1)
    assert message in err
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_class_is_corrected(call, folder, tmp_path):
    root, _, _ = folder
    (tmp_path / "t.csv").write_text((root / "t.csv").read_text().replace(",c\n", ",cement\n"))
    code, _, err = call("fit", tmp_path / "t.csv", "--label", "kind", "--novel", "cemen", "--out", tmp_path / "m")
    assert code == 2
    assert "there is no class 'cemen'; did you mean 'cement'?" in err


def test_a_missing_file_is_named_before_the_folder(call, folder):
    root, _, _ = folder
    code, _, err = call("fit", root / "nothere.csv", "--label", "kind", "--out", root / "model")
    assert code in (1, 2)
    assert "nothere.csv" in err
    assert "exists already" not in err


def test_an_unknown_key_of_a_file_is_refused(call, tmp_path):
    (tmp_path / "run.toml").write_text('data = "digits"\nmodell = "mlp"\n')
    code, _, err = call("fit", "--config", tmp_path / "run.toml", "--out", tmp_path / "run")
    assert (code, err) == (2, "error: there is no setting 'modell'; did you mean 'model'?\n")


@pytest.mark.parametrize(("given", "out"), [((), "there"), (("--out", "here"), "here")])
def test_the_folder_of_the_model_may_stand_in_the_file(call, tmp_path, monkeypatch, given, out):
    (tmp_path / "run.toml").write_text('data = "digits"\nout = "there"\n')

    def stop(data, out, **options):
        raise OptionError(f"fit to {out}")

    monkeypatch.setattr("openradial.fitting.fit", stop)
    code, _, err = call("fit", "--config", tmp_path / "run.toml", *given)
    assert (code, err) == (2, f"error: fit to {out}\n")


def test_a_file_and_options_have_the_same_names_and_options_win(call, tmp_path):
    (tmp_path / "run.toml").write_text(
        'data = "digits"\nmodel = "mlp"\n[model_options]\nhidden = [8]\n[training]\nepochs = 9\nlearning_rate = 0.5\n'
    )
    options = ("--epochs", 1, "--beta", 2, "--option", "dropout=0.25", "--betas", 0.8, 0.99, "--channels-last")
    code, _, err = call("fit", "--config", tmp_path / "run.toml", *options, "--out", tmp_path / "run")
    assert code == 0, err
    model = load(tmp_path / "run")
    settings = model.metadata["training"]["settings"]
    assert (settings["epochs"], settings["learning_rate"], settings["betas"]) == (1, 0.5, [0.8, 0.99])
    assert settings["channels_last"] is True
    assert model.head.layer.beta == 2.0
    assert {**model.network[1], "inputs": 64} == {"hidden": [8], "inputs": 64, "dropout": 0.25}


@pytest.mark.parametrize("head", ["softmax", "doc", "cac"])
def test_every_head_can_be_fitted_predicted_and_evaluated(call, folder, tmp_path, head):
    root, _, _ = folder
    table = ("fit", root / "t.csv", "--label", "kind", "--novel", "c", "--head", head, "--epochs", 3)
    code, _, err = call(*table, "--out", tmp_path / "m")
    assert code == 0, err
    code, out, err = call("predict", tmp_path / "m", root / "t.csv", "--format", "jsonl")
    assert (code, len(out.splitlines())) == (0, 240), err
    known = ("--known", root / "t.csv", "--novel", root / "t.csv", "--label", "kind", "--out", tmp_path / "r")
    code, _, err = call("evaluate", tmp_path / "m", *known)
    assert code == 0, err


def test_a_network_of_the_user_is_imported_from_the_working_directory(tmp_path):
    lines = [
        "from torch import nn",
        "def make(num_classes):",
        "    return nn.Sequential(nn.Flatten(), nn.Linear(64, num_classes))",
    ]
    (tmp_path / "my_net.py").write_text("\n".join(lines))
    command = [sys.executable, "-P", "-c", "from openradial.cli import main; main()", "fit", *map(str, DIGITS)]
    done = subprocess.run(
        [*command, "--model", "my_net:make", "--out", "run"], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / "run" / "bundle.json").read_text())["network"]["name"] == "my_net:make"


@pytest.mark.usefixtures("interruptible")
def test_an_interrupted_fit_leaves_a_checkpoint_and_is_resumed(call, folder, tmp_path, monkeypatch):
    root, _, _ = folder
    arguments = ("fit", "--config", root / "run.toml", "--out", tmp_path / "m")
    with monkeypatch.context() as patch:
        patch.setattr(fit, "_print_epochs", lambda console: lambda record: os.kill(os.getpid(), signal.SIGINT))
        code, _, err = call(*arguments)
    assert code == 130
    assert "stopped by SIGINT after 1 epochs; resume with --resume" in err
    code, _, err = call(*arguments, "--resume")
    assert code == 0, err
    assert (tmp_path / "m" / "card.md").is_file()


@pytest.fixture(scope="module")
def one_process(programs, tmp_path_factory):
    """A program that runs the command line, and a model that one process has fitted."""
    root = tmp_path_factory.mktemp("processes")
    (root / "program.py").write_text("from openradial.cli import main\nmain()\n")
    done = programs.run(root / "program.py", "fit", *ALIKE, "--out", root / "one")
    assert done.returncode == 0, done.stderr
    return root / "program.py", load(root / "one")


@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
def test_two_processes_fit_the_model_of_one(one_process, programs, tmp_path, strategy):
    program, one = one_process
    arguments = (*ALIKE, "--out", tmp_path / "m", "--strategy", strategy)
    both = programs.run_two(program, "fit", *arguments)
    for done in both:
        assert done.returncode == 0, done.stderr
    assert sum(done.stdout.count("model in") for done in both) == 1
    assert sum(done.stderr.count("known classes; examples") for done in both) == 1
    two = load(tmp_path / "m")
    assert two.metadata["data"] == one.metadata["data"]
    weights = one.net.state_dict()
    steps = 2 * -(-one.metadata["data"]["examples"]["train"] // 64)
    for name, tensor in two.net.state_dict().items():  # each step adds the rounding of a sum over a batch
        torch.testing.assert_close(tensor, weights[name], **tolerance(64 * steps, size=1), msg=name)
    assert two.head.layer.beta == pytest.approx(one.head.layer.beta, rel=1e-3)


def parsed_type(hint):
    """The type that the command line parses for a setting."""
    parts = typing.get_args(hint)
    if typing.get_origin(hint) is types.UnionType:
        return parsed_type(parts[0])
    return str if typing.get_origin(hint) is typing.Literal else hint


def test_every_training_setting_is_an_option_with_its_type():
    hints = typing.get_type_hints(Settings)
    names = [field.name for field in dataclasses.fields(Settings) if field.name not in ("seed", "epochs")]
    assert {name: kind for name, (kind, _) in fit.SETTINGS.items()} == {
        name: parsed_type(hints[name]) for name in names
    }
    assert all(text.endswith(".") for _, text in fit.SETTINGS.values())


def test_wrong_options_and_help_do_not_import_torch():
    for option in ("--epchs", "--help"):
        code = (
            f"import sys; sys.argv = ['openradial', 'fit', {option!r}]\nfrom openradial import cli\n"
            "try:\n    cli.main()\nfinally:\n    print('torch' in sys.modules)"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        assert done.stdout.split()[-1] == "False", done.stderr


def test_fit_prints_the_types_of_columns_and_predict_ignores_those_left_out(call, tmp_path):
    days = [f"2024-{1 + i % 12:02}-{1 + i % 28:02}" for i in range(120)]
    lines = [f"C{i},{day},north,{4 * (i % 2) + 0.01 * i:.2f},{'ab'[i % 2]}" for i, day in enumerate(days)]
    (tmp_path / "t.csv").write_text("\n".join(["id,when,site,length,kind", *lines]))
    (tmp_path / "new.csv").write_text("length,when\n0.1,2025-03-04\n3.9,04.03.2025\n")
    code, _, err = call("fit", tmp_path / "t.csv", "--label", "kind", "--out", tmp_path / "m")
    assert code == 0, err
    assert "columns: number: length; date: when; left out: id (identifier), site (constant)\n" in err
    assert "note: column 'id' is left out: 120 different values in 120 rows look like identifiers; categorical" in err
    code, out, _ = call("predict", tmp_path / "m", tmp_path / "new.csv", "--format", "jsonl")
    first, second = map(json.loads, out.splitlines())
    assert (code, first["nearest"]) == (3, "a")
    assert "expected a date like" in second["error"]
    code, _, err = call(
        "fit",
        tmp_path / "t.csv",
        "--label",
        "kind",
        "--drop",
        "when,id",
        "--categorical",
        "site",
        "--out",
        tmp_path / "n",
    )
    assert "columns: number: length; category: site\n" in err
    code, _, err = call("fit", tmp_path / "t.csv", "--label", "length", "--out", tmp_path / "o")
    assert code == 1
    assert "different numbers in 120 rows, which is a quantity" in err
