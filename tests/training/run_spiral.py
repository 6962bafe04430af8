"""Train a small network on a spiral: what the tests of resuming and of several processes start as a program.

run_spiral.py FOLDER [--epochs N] [--die-at STEP] [--die-writing N] [--signal-at STEP NAME] [--fail-rank R] ...
"""

import argparse
import os
import signal
import sys

import torch
from torch import nn

import openradial
from openradial import files
from openradial.data.batches import Batches
from openradial.data.sets.spiral import spiral
from openradial.training import Devices, Objective, Settings, fit


def options():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--die-at", type=int, default=-1, help="kill this process at this step")
    parser.add_argument("--die-writing", type=int, default=-1, help="kill it in the middle of writing this checkpoint")
    parser.add_argument("--signal-at", type=int, default=-1)
    parser.add_argument("--signal", default="SIGTERM")
    parser.add_argument("--fail-rank", type=int, default=-1, help="this process raises at step 3")
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--seconds", type=float, default=0.0, help="between checkpoints")
    parser.add_argument("--dropout", type=float, default=0.1)
    parser.add_argument("--ema", type=float, default=0.9)
    parser.add_argument("--patience", type=int)
    parser.add_argument("--devices", default="auto")
    parser.add_argument("--strategy", default="auto")
    return parser.parse_args()


def die():
    os.kill(os.getpid(), signal.SIGKILL)


class Trap(Objective):
    """Does something to its own process at a given step."""

    def __call__(self, model, x, y):
        if model.training:
            trap(self.step[0])
            self.step[0] += 1
        return super().__call__(model, x, y)


def trap(step):
    if step == asked.die_at:
        die()
    if step == asked.signal_at:
        os.kill(os.getpid(), getattr(signal, asked.signal))
    if step == 3 and asked.fail_rank == int(os.environ.get("RANK", 0)):
        raise RuntimeError("this process was told to fail")


def half_written(write, at):
    """``save_file`` that is killed half-way at its call number ``at``."""
    calls = iter(range(10**9))

    def save_file(tensors, path, metadata):
        write(tensors, path, metadata)
        if next(calls) == at:
            os.truncate(path, os.path.getsize(path) // 2)
            die()

    return save_file


def main():
    if asked.die_writing >= 0:
        files.save_file = half_written(files.save_file, asked.die_writing)
    settings = Settings(
        epochs=asked.epochs,
        batch_size=asked.batch_size,
        learning_rate=0.01,
        schedule="cosine",
        clip_norm=1.0,
        ema=asked.ema or None,
        patience=asked.patience,
        checkpoint_seconds=asked.seconds,
        seed=3,
    )
    devices = Devices(settings, accelerator="cpu", devices=asked.devices, strategy=asked.strategy)
    torch.manual_seed(settings.seed)
    net = nn.Sequential(
        nn.Linear(2, 16), nn.ReLU(), nn.Dropout(asked.dropout), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 3)
    )
    share = {"rank": devices.rank, "world": devices.world_size}
    train = Batches(spiral(n=210), settings.batch_size // devices.world_size, shuffle=True, seed=settings.seed, **share)
    validation = Batches(spiral(n=90, seed=1), 64 // devices.world_size, **share)
    objective = Trap(openradial.RadialLoss())
    object.__setattr__(objective, "step", [0])
    history = fit(
        net, objective, train, validation, settings=settings, devices=devices, folder=asked.folder, resume=asked.resume
    )
    sys.stdout.write(f"{history.stopped_by} {history.finished}\n")


if __name__ == "__main__":
    asked = options()
    main()
