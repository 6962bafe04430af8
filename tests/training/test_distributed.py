import json
import subprocess
import sys
from pathlib import Path

import pytest

from openradial.training import checkpoint

PROGRAM = str(Path(__file__).with_name("run_spiral.py"))
TORCHRUN = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]


def run(folder, *options, processes=2):
    start = TORCHRUN if processes == 2 else []
    command = [sys.executable, *start, PROGRAM, str(folder), *map(str, options)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


def records(folder):
    return [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]


def test_two_processes_do_what_one_does_with_the_same_global_batch(tmp_path):
    plain = ("--dropout", 0, "--seconds", 1000)
    assert run(tmp_path / "one", *plain, processes=1).returncode == 0
    done = run(tmp_path / "two", *plain)
    assert done.returncode == 0, done.stderr
    one, two = records(tmp_path / "one"), records(tmp_path / "two")
    assert [record["epoch"] for record in two] == [1, 2, 3]  # the first process alone writes
    for name in ("loss", "accuracy", "validation_loss", "validation_accuracy"):
        assert [r[name] for r in two] == pytest.approx([r[name] for r in one], rel=1e-5)
    facts = checkpoint.load(tmp_path / "two" / "last.safetensors")[1]
    assert facts["processes"] == 2


def test_two_processes_go_on_as_if_they_had_not_been_stopped(tmp_path):
    assert run(tmp_path / "whole").returncode == 0
    assert run(tmp_path / "parts", "--signal-at", 9).returncode == 0
    assert checkpoint.load(tmp_path / "parts" / "last.safetensors")[1]["at"]["epoch"] == 1
    assert run(tmp_path / "parts", "--resume").returncode == 0
    whole, parts = (checkpoint.load(tmp_path / name / "last.safetensors")[0] for name in ("whole", "parts"))
    assert all(whole[name].equal(parts[name]) for name in whole)


def test_a_dying_process_ends_the_job_with_an_error(tmp_path):
    done = run(tmp_path, "--fail-rank", 1)
    assert done.returncode != 0
    assert "this process was told to fail" in done.stderr
