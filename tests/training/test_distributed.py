import json
import socket
import sys
from pathlib import Path

import pytest
import torch

from openradial.errors import OptionError
from openradial.training import Settings, checkpoint
from openradial.training.devices import check_can_shard

pytestmark = pytest.mark.distributed

PROGRAM = str(Path(__file__).with_name("run_spiral.py"))
TORCHRUN = "from torch.distributed.run import main\nmain()\n"  # the command is this function
FABRIC = "from lightning_fabric.cli import _main\n_main()\n"


@pytest.fixture
def run(programs):
    """Train in one process or in two that share the work; how that ended."""

    def call(*command, processes=2):
        if processes == 1:
            return programs.run(PROGRAM, *command)
        both = programs.run_two(PROGRAM, *command)
        failed = [done for done in both if done.returncode > 0]  # the other one is killed
        return failed[0] if failed else both[0]

    return call


def records(folder):
    return [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]


def test_two_processes_do_what_one_does_with_the_same_global_batch(tmp_path, run):
    plain = ("--dropout", 0, "--seconds", 1000)
    assert run(tmp_path / "one", *plain, processes=1).returncode == 0
    done = run(tmp_path / "two", *plain)
    assert done.returncode == 0, done.stderr
    one, two = records(tmp_path / "one"), records(tmp_path / "two")
    assert [record["epoch"] for record in two] == [1, 2, 3]  # the first process alone writes
    for name in ("loss", "accuracy", "validation_loss", "validation_accuracy"):
        assert [r[name] for r in two] == pytest.approx([r[name] for r in one], rel=1e-5)
    metadata = checkpoint.load(tmp_path / "two" / "last.safetensors")[1]
    assert metadata["processes"] == 2


def test_two_resumed_processes_end_with_the_weights_of_an_uninterrupted_run(tmp_path, run):
    rarely = ("--seconds", 1000)
    assert run(tmp_path / "whole", *rarely).returncode == 0
    assert run(tmp_path / "parts", *rarely, "--signal-at", 9).returncode == 0
    assert checkpoint.load(tmp_path / "parts" / "last.safetensors")[1]["position"]["epoch"] == 1
    assert run(tmp_path / "parts", *rarely, "--resume").returncode == 0
    whole, parts = (checkpoint.load(tmp_path / name / "last.safetensors")[0] for name in ("whole", "parts"))
    assert all(whole[name].equal(parts[name]) for name in whole)


def test_a_dying_process_ends_the_job_with_an_error(tmp_path, programs):
    (tmp_path / "torchrun.py").write_text(TORCHRUN)
    options = ("--standalone", "--nproc-per-node", 2)
    done = programs.run(tmp_path / "torchrun.py", *options, PROGRAM, tmp_path, "--fail-rank", 1)
    assert done.returncode != 0
    assert "this process was told to fail" in done.stderr


AT_EXIT = """
import atexit
import contextlib
import os
import sys
import time
from pathlib import Path
import torch
from torch import nn

counts = Path(sys.argv[3], os.environ["RANK"])

def gloo_threads():
    names = []
    for task in Path("/proc/self/task").glob("*/comm"):
        with contextlib.suppress(OSError):  # a thread that has just ended
            names.append(task.read_text().strip())
    return names.count("pt_gloo_runloop")

def write_threads(seconds=0.0):
    end = time.monotonic() + seconds
    while (count := gloo_threads()) and time.monotonic() < end:
        time.sleep(0.01)  # a thread that was joined is still listed for a moment
    with counts.open("a") as file:
        file.write(f"{count} ")

atexit.register(write_threads, 200.0)  # runs last
import openradial
from openradial.data.batches import Batches
from openradial.data.sets.spiral import spiral
from openradial.training import Devices, Objective, Settings, fit

settings = Settings(epochs=1, batch_size=32)
devices = Devices(settings, accelerator="cpu", strategy=sys.argv[1])
net = nn.Sequential(nn.Linear(2, 16), nn.ReLU(), nn.Linear(16, 3))
train = Batches(spiral(n=210), 16, rank=devices.rank, world=devices.world_size)
fit(net, Objective(openradial.RadialLoss()), train, settings=settings, devices=devices)
write_threads()
if sys.argv[2] == "forgets":
    del net, devices
"""


@pytest.mark.skipif(sys.platform != "linux", reason="threads have names in /proc on Linux alone")
@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
@pytest.mark.parametrize("network", ["keeps", "forgets"])
def test_no_thread_of_gloo_outlives_the_end_of_a_program(tmp_path, programs, strategy, network):
    # a thread that releases a tensor while Python exits sometimes aborts the process
    program = tmp_path / "program.py"
    program.write_text(AT_EXIT)
    for done in programs.run_two(program, strategy, network, tmp_path):
        assert done.returncode == 0, done.stderr
    for rank in ("0", "1"):
        training, ending = (tmp_path / rank).read_text().split()
        assert int(training) > 0
        assert int(ending) == 0


FAILING = """
import time
import torch
from openradial.training import Devices, Settings, devices

devices.EXIT_TIMEOUT = 0.5
if Devices(Settings(), accelerator="cpu", strategy="ddp").rank == 1:
    torch.distributed.all_reduce(torch.ones(10), async_op=True)  # the other never joins
    raise RuntimeError("this process was told to fail")
time.sleep(1000)
"""


def test_a_process_that_fails_does_not_wait_for_the_others(tmp_path, programs):
    program = tmp_path / "program.py"
    program.write_text(FAILING)
    _, done = programs.run_two(program)
    assert done.returncode == 1
    assert "this process was told to fail" in done.stderr


FSDP = ("--strategy", "fsdp", "--ema", 0)


def test_a_sharded_network_learns_what_an_unsharded_one_learns(tmp_path, run):
    plain = ("--dropout", 0, "--seconds", 1000)
    assert run(tmp_path / "one", *plain, "--ema", 0, processes=1).returncode == 0
    done = run(tmp_path / "two", *plain, *FSDP)
    assert done.returncode == 0, done.stderr
    one, two = records(tmp_path / "one"), records(tmp_path / "two")
    for name in ("loss", "accuracy", "validation_loss", "validation_accuracy"):
        assert [r[name] for r in two] == pytest.approx([r[name] for r in one], rel=1e-5)
    whole, parts = (checkpoint.load(tmp_path / name / "last.safetensors")[0] for name in ("one", "two"))
    names = [name for name in whole if name.startswith("model.")]
    assert sorted(names) == sorted(name for name in parts if name.startswith("model."))
    for name in names:  # a checkpoint holds the network in one piece, as any reader expects it
        torch.testing.assert_close(parts[name], whole[name], rtol=1e-4, atol=1e-5)


def test_a_resumed_sharded_network_ends_with_the_weights_of_an_uninterrupted_run(tmp_path, run):
    stopping = (*FSDP, "--patience", 2, "--seconds", 1000)
    assert run(tmp_path / "whole", *stopping).returncode == 0
    assert run(tmp_path / "parts", *stopping, "--signal-at", 9).returncode == 0
    assert checkpoint.load(tmp_path / "parts" / "last.safetensors")[1]["position"]["epoch"] == 1
    done = run(tmp_path / "parts", *stopping, "--resume")
    assert done.returncode == 0, done.stderr
    whole, parts = (checkpoint.load(tmp_path / name / "last.safetensors")[0] for name in ("whole", "parts"))
    assert whole.keys() == parts.keys()
    assert all(whole[name].equal(parts[name]) for name in whole)
    refused = run(tmp_path / "parts", *stopping[2:], "--resume")
    assert "was trained with strategy fsdp, now it is ddp or auto; change it back" in refused.stderr


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, "fsdp shards a network over at least 2 processes, got 1; start more with torchrun"),
        ({"precision": "float64"}, "fsdp works with float32 and bfloat16, got precision float64"),
        ({"ema": 0.9}, "ema cannot be combined with fsdp: leave one of them out"),
        ({"optimiser": "muon"}, "muon needs complete matrices, which fsdp shards; use another optimiser"),
    ],
)
def test_settings_that_cannot_be_combined_with_fsdp_are_refused(settings, message):
    with pytest.raises(OptionError, match=message):
        check_can_shard(Settings(**settings), 2 if settings else 1)


def test_the_same_program_runs_under_fabric_run(tmp_path, programs):
    (tmp_path / "fabric.py").write_text(FABRIC)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    options = ("run", "--accelerator", "cpu", "--devices", 2, "--main-port", port)
    done = programs.run(tmp_path / "fabric.py", *options, PROGRAM, tmp_path / "run", "--seconds", 1000)
    assert done.returncode == 0, done.stderr
    assert checkpoint.load(tmp_path / "run" / "last.safetensors")[1]["processes"] == 2
