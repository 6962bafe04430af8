"""Train a small Bayesian network on a spiral, in one process or in several: run_bayes.py FOLDER."""

import sys

import torch

from openradial import RadialLoss
from openradial.bayes import ElboObjective, GaussianPrior, to_bayesian
from openradial.data import Batches
from openradial.data.sets.spiral import spiral
from openradial.models import MLP
from openradial.training import Devices, Settings, fit


def train(folder):
    settings = Settings(epochs=2, batch_size=32, learning_rate=0.01, seed=3, checkpoint_seconds=1000.0)
    devices = Devices(settings, accelerator="cpu")
    torch.manual_seed(settings.seed)
    net = to_bayesian(MLP(3, inputs=2, hidden=(16, 16)), GaussianPrior(0.5), sigma=1e-6)
    share = {"rank": devices.rank, "world": devices.world_size}
    batches = Batches(spiral(n=210), 32 // devices.world_size, shuffle=True, seed=3, **share)
    validation = Batches(spiral(n=90, seed=1), 64 // devices.world_size, **share)
    objective = ElboObjective(RadialLoss(beta=5.0), batches=7, batch_size=32)
    fit(net, objective, batches, validation, settings=settings, devices=devices, folder=folder, show_progress=False)


if __name__ == "__main__":
    train(sys.argv[1])
