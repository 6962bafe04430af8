from functools import partial

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from openradial.data import Batches, load
from openradial.training import Settings
from paper import Plan
from paper.trained_nets import outputs, trained

SETTINGS = Settings(epochs=2, batch_size=50, learning_rate=0.01, checkpoint_seconds=0)
POINTS = load("spiral", n=120)


def batches():
    return Batches(POINTS, 50, shuffle=True, seed=0)


def run(plan, loss=F.cross_entropy, make=batches):
    return trained(plan, "net", partial(nn.Linear, 2, 3), loss, make, SETTINGS)


def never():
    raise AssertionError("a trained network was trained again")


def test_every_step_is_recorded_as_a_plain_loop_sees_it(tmp_path):
    torch.manual_seed(SETTINGS.seed)
    net = nn.Linear(2, 3)
    optimiser = torch.optim.Adam(net.parameters(), 0.01)
    losses, hits = [], []
    for epoch in range(2):
        for x, y in batches().epoch(epoch):
            o = net(x)
            loss = F.cross_entropy(o, y)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            losses.append(loss.item())
            hits.append(sum(int(row.argmax() == label) for row, label in zip(o, y, strict=True)) / len(y))
    found = run(Plan(tmp_path))
    torch.testing.assert_close(found.steps["loss"], torch.tensor(losses), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(found.steps["top_1"], torch.tensor(hits), rtol=1e-5, atol=1e-5)
    assert found.steps["top_5"].tolist() == [1.0] * 6  # of three classes, one is always among the first five


def test_a_network_is_trained_once(tmp_path):
    first = run(Plan(tmp_path))
    again = run(Plan(tmp_path), make=never)
    assert torch.equal(first.net.weight, again.net.weight)
    assert torch.equal(first.steps["loss"], again.steps["loss"])
    assert not again.net.training


def test_a_training_that_was_broken_off_ends_as_if_it_was_not(tmp_path):
    calls = []

    def breaks(o, y):
        calls.append(1)
        if len(calls) == 5:
            raise RuntimeError("power cut")
        return F.cross_entropy(o, y)

    whole = run(Plan(tmp_path / "whole"))
    with pytest.raises(RuntimeError, match="power cut"):
        run(Plan(tmp_path / "broken"), breaks)
    resumed = run(Plan(tmp_path / "broken"))
    assert torch.equal(resumed.net.weight, whole.net.weight)
    assert torch.equal(resumed.steps["loss"], whole.steps["loss"])


def test_a_training_that_is_asked_to_stop_stops_everything(tmp_path, monkeypatch):
    import signal

    def asked(o, y):
        signal.raise_signal(signal.SIGTERM)
        return F.cross_entropy(o, y)

    with pytest.raises(KeyboardInterrupt, match="stopped by SIGTERM"):
        run(Plan(tmp_path), asked)
    assert torch.equal(run(Plan(tmp_path)).net.weight, run(Plan(tmp_path / "other")).net.weight)


def test_outputs_do_not_depend_on_the_batch_size():
    net, x = nn.Linear(2, 3), torch.randn(7, 2)
    torch.testing.assert_close(outputs(net, x, batch_size=3), net(x).detach())
