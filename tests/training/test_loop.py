import json
import math

import pytest
import torch
from rounding import tolerance
from tensorboardX.proto import event_pb2
from torch import nn

import openradial
from openradial.data import progress
from openradial.data.batches import Batches
from openradial.data.sets.spiral import spiral
from openradial.errors import MissingError, OptionError, TrainingError
from openradial.training import Devices, Objective, Settings, checkpoint, fit
from openradial.training.loop import Log
from openradial.training.settings import learning_rate_factor

OBJECTIVE = Objective(openradial.RadialLoss())


def small_net(seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(2, 16), nn.ReLU(), nn.Linear(16, 3))


def batches(n=90, size=32, seed=0, shuffle=True):
    return Batches(spiral(n=n, seed=seed), size, shuffle=shuffle, seed=0)


def plain_loop(net, train, make, epochs):
    """The loop that everybody writes; the losses of all steps."""
    optimiser, losses = make(net.parameters()), []
    for epoch in range(epochs):
        for x, y in train.epoch(epoch):
            optimiser.zero_grad()
            loss = openradial.functional.radial_loss(net(x), y)
            loss.backward()
            optimiser.step()
            losses.append(loss.item())
    return losses


@pytest.mark.parametrize(
    ("settings", "make"),
    [
        ({"optimiser": "adam"}, lambda p: torch.optim.Adam(p, 1e-3)),
        ({"optimiser": "adamw", "weight_decay": 0.1}, lambda p: torch.optim.AdamW(p, 1e-3, weight_decay=0.1)),
        ({"optimiser": "sgd", "momentum": 0.9}, lambda p: torch.optim.SGD(p, 1e-3, momentum=0.9)),
        (
            {"optimiser": "sgd", "momentum": 0.9, "nesterov": True, "bias_factor": 64},
            lambda parameters: torch.optim.SGD(
                [{"params": [p], "lr": 1e-3 if p.ndim > 1 else 0.064} for p in parameters], momentum=0.9, nesterov=True
            ),
        ),
        ({"optimiser": "rmsprop", "decay": 0.9}, lambda p: torch.optim.RMSprop(p, 1e-3, alpha=0.9)),
    ],
)
def test_the_loop_does_what_a_plain_loop_does(settings, make):
    ours, theirs = small_net(), small_net()
    losses = plain_loop(theirs, batches(), make, 3)
    history = fit(ours, OBJECTIVE, batches(), settings=Settings(epochs=3, batch_size=32, **settings))
    for mine, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-5, atol=1e-6)
    sizes = [32, 32, 26]
    means = [sum(s * v for s, v in zip(sizes, losses[i : i + 3], strict=True)) / 90 for i in (0, 3, 6)]
    assert [record["loss"] for record in history.records] == pytest.approx(means, rel=1e-5)


def test_metrics_are_means_over_all_validation_examples():
    net, validation = small_net(), batches(n=70, seed=5, shuffle=False)
    history = fit(net, OBJECTIVE, batches(), validation, settings=Settings(epochs=1))
    examples = validation.examples
    o = net(examples.inputs).detach()
    assert history.records[0]["validation_accuracy"] == pytest.approx((o.argmax(-1) == examples.labels).float().mean())
    assert history.records[0]["validation_loss"] == pytest.approx(
        float(openradial.functional.radial_loss(o, examples.labels)), rel=tolerance(70 + 16)["rtol"]
    )


def test_averaged_weights_are_the_mean_of_all_steps_with_falling_weights():
    seen, net = [], small_net()
    settings = Settings(epochs=2, batch_size=32, ema=0.8, learning_rate=0.05)
    twin = small_net()
    optimiser = torch.optim.Adam(twin.parameters(), 0.05)
    for epoch in range(2):
        for x, y in batches().epoch(epoch):
            optimiser.zero_grad()
            openradial.functional.radial_loss(twin(x), y).backward()
            optimiser.step()
            seen.append([p.detach().clone() for p in twin.parameters()])
    expected = seen[0]  # as in torch.optim.swa_utils, the first step starts the average
    for step in seen[1:]:
        expected = [0.8 * e + 0.2 * s for e, s in zip(expected, step, strict=True)]
    fit(net, OBJECTIVE, batches(), settings=settings)
    for mine, other in zip(net.parameters(), expected, strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-4, atol=1e-6)


def test_buffers_are_copied_to_the_averaged_weights_and_not_averaged():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(2, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))
    buffers = {}

    class Watching(Objective):
        def __call__(self, model, x, y):
            result = super().__call__(model, x, y)
            buffers.update({name: value.clone() for name, value in net.named_buffers()})
            return result

    fit(net, Watching(openradial.RadialLoss()), batches(), settings=Settings(epochs=2, batch_size=32, ema=0.9))
    assert buffers["1.num_batches_tracked"] == 6
    for name, value in net.named_buffers():
        assert torch.equal(value, buffers[name]), name


def test_the_first_epoch_ends_with_a_checkpoint(tmp_path):
    saved = []
    settings = Settings(epochs=3, checkpoint_seconds=1000)

    def look(record):
        exists = (tmp_path / "last.safetensors").exists()
        saved.append(checkpoint.load(tmp_path / "last.safetensors")[1]["position"]["epoch"] if exists else None)

    fit(small_net(), OBJECTIVE, batches(), settings=settings, folder=tmp_path, report=look)
    assert saved == [None, 1, 1]  # the report of an epoch precedes its checkpoint


def test_early_stopping_ends_with_the_best_weights():
    net = small_net()
    settings = Settings(epochs=200, learning_rate=0.5, patience=3)  # so fast that it soon gets worse
    validation = batches(seed=5, shuffle=False)
    history = fit(net, OBJECTIVE, batches(), validation, settings=settings)
    losses = [record["validation_loss"] for record in history.records]
    assert len(losses) < 200
    assert history.best_epoch == 1 + losses.index(min(losses)) == len(losses) - 3
    o = net(validation.examples.inputs).detach()
    assert float(openradial.functional.radial_loss(o, validation.labels)) == pytest.approx(min(losses), rel=1e-5)


def test_a_nan_loss_stops_and_names_epoch_batch_and_learning_rate(tmp_path):
    train = batches(shuffle=False)
    train.examples.inputs[40] = math.nan
    settings = Settings(epochs=2, batch_size=32, checkpoint_seconds=0)
    with pytest.raises(TrainingError) as caught:
        fit(small_net(), OBJECTIVE, train, settings=settings, folder=tmp_path)
    assert "the loss became nan in epoch 1, batch 2, at learning rate 0.001; lower the learning rate" in str(
        caught.value
    )
    assert f"the last good checkpoint is {tmp_path / 'last.safetensors'}" in str(caught.value)
    tensors, metadata = checkpoint.load(tmp_path / "last.safetensors")
    assert metadata["position"]["batch"] == 1
    assert all(torch.isfinite(t).all() for t in tensors.values() if t.is_floating_point())


def test_an_exploding_loss_stops():
    train = batches(shuffle=False)
    train.examples.inputs[40] = 1e9
    with pytest.raises(TrainingError, match=r"the loss became .*e\+0\d in epoch 1, batch 2"):
        fit(small_net(), OBJECTIVE, train, settings=Settings(epochs=1, batch_size=32))


def test_weights_that_became_infinite_are_not_saved(tmp_path):
    settings = Settings(
        epochs=1, batch_size=32, optimiser="sgd", learning_rate=1e6, checkpoint_seconds=0, explosion=1e300
    )
    train = batches(shuffle=False)
    train.examples.inputs[:32] = 1e36
    with pytest.raises(TrainingError, match="became nan or infinite before epoch 1, batch 2"):
        fit(small_net(), OBJECTIVE, train, settings=settings, folder=tmp_path)
    assert not (tmp_path / "last.safetensors").exists()


def test_a_folder_with_a_run_is_not_overwritten(tmp_path):
    fit(small_net(), OBJECTIVE, batches(), settings=Settings(epochs=1), folder=tmp_path)
    with pytest.raises(TrainingError, match="already has a run; resume it"):
        fit(small_net(), OBJECTIVE, batches(), settings=Settings(epochs=1), folder=tmp_path)


def test_a_run_is_not_resumed_with_other_settings(tmp_path):
    fit(small_net(), OBJECTIVE, batches(), settings=Settings(epochs=1), folder=tmp_path)
    other = Settings(epochs=1, learning_rate=0.5)
    with pytest.raises(TrainingError, match=r"was trained with learning_rate = 0\.001, now it is 0\.5; change it back"):
        fit(small_net(), OBJECTIVE, batches(), settings=other, folder=tmp_path, resume=True)


def test_a_run_is_not_resumed_with_another_network(tmp_path):
    fit(small_net(), OBJECTIVE, batches(), settings=Settings(epochs=1), folder=tmp_path)
    other = nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 3))
    with pytest.raises(TrainingError, match="holds another network"):
        fit(other, OBJECTIVE, batches(), settings=Settings(epochs=1), folder=tmp_path, resume=True)


def test_a_run_may_be_made_longer(tmp_path):
    for epochs in (2, 4):
        history = fit(small_net(), OBJECTIVE, batches(), settings=Settings(epochs=epochs), folder=tmp_path, resume=True)
    assert [record["epoch"] for record in history.records] == [1, 2, 3, 4]
    lines = (tmp_path / "log.jsonl").read_text().splitlines()
    assert [json.loads(line)["epoch"] for line in lines] == [1, 2, 3, 4]


def test_metadata_is_stored_with_the_weights(tmp_path):
    fit(
        small_net(),
        OBJECTIVE,
        batches(),
        settings=Settings(epochs=1),
        folder=tmp_path,
        metadata={"classes": ["a", "b", "c"]},
    )
    for name in ("last", "best"):
        assert checkpoint.load(tmp_path / f"{name}.safetensors")[1]["metadata"] == {"classes": ["a", "b", "c"]}


def test_tensorboard_gets_the_same_numbers(tmp_path):
    history = fit(small_net(), OBJECTIVE, batches(), settings=Settings(epochs=2), folder=tmp_path, tensorboard=True)
    events = scalars(next((tmp_path / "tensorboard").iterdir()))
    expected = [(name, r["epoch"], r[name]) for r in history.records for name in r if name != "epoch"]
    assert [event[:2] for event in events] == [row[:2] for row in expected]
    assert [event[2] for event in events] == pytest.approx([row[2] for row in expected], rel=1e-6)  # float32


def scalars(path):
    """Read the name, the epoch and the value of each scalar of a TensorBoard file."""
    data, events = path.read_bytes(), []
    while data:  # length (8 bytes), its checksum (4), the event, its checksum (4)
        length = int.from_bytes(data[:8], "little")
        event = event_pb2.Event.FromString(data[12 : 12 + length])
        events += [(value.tag, event.step, value.simple_value) for value in event.summary.value]
        data = data[16 + length :]
    return events


def test_tensorboard_that_is_not_installed_names_the_command(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "tensorboardX", None)
    with pytest.raises(MissingError, match=r"pip install 'openradial\[tensorboard\]'"):
        fit(small_net(), OBJECTIVE, batches(), settings=Settings(epochs=1), folder=tmp_path, tensorboard=True)


@pytest.mark.parametrize("precision", ["bfloat16", "float64"])
def test_other_precisions_train(precision):
    train = batches()
    if precision == "float64":
        object.__setattr__(train.examples, "inputs", train.examples.inputs.double())
    history = fit(small_net(), OBJECTIVE, train, settings=Settings(epochs=3, learning_rate=0.01, precision=precision))
    assert history.records[-1]["loss"] < history.records[0]["loss"]


def test_float16_without_a_gpu_names_the_way_out():
    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    with pytest.raises(OptionError, match="float16 needs a GPU that scales gradients, got a CPU; use bfloat16"):
        Devices(Settings(precision="float16"))


def test_each_epoch_is_reported():
    seen = []
    fit(small_net(), OBJECTIVE, batches(), settings=Settings(epochs=2), report=seen.append)
    assert [record["epoch"] for record in seen] == [1, 2]
    assert {"loss", "accuracy", "learning_rate", "seconds", "examples_per_second"} <= seen[0].keys()


def test_an_objective_of_its_own_may_look_into_the_network():
    class Penalised:
        metrics = {"outputs": lambda o, y: o.sum(-1)}  # noqa: RUF012

        def __call__(self, model, x, y):
            o = model(x)
            penalty = sum(p.square().sum() for p in model.parameters())
            return openradial.functional.radial_loss(o, y) + 100 * penalty, o

    net = small_net()
    fit(net, Penalised(), batches(), settings=Settings(epochs=100, learning_rate=0.01))
    assert max(p.abs().max() for p in net.parameters()) < 0.05


def test_the_step_schedule_falls_by_its_factor():
    settings = Settings(epochs=6, schedule="step", step_epochs=2, step_factor=0.1)
    assert [learning_rate_factor(settings, epoch * 10, 10) for epoch in range(6)] == pytest.approx(
        [1, 1, 0.1, 0.1, 0.01, 0.01]
    )


def test_the_linear_schedule_ends_just_above_zero():
    settings = Settings(epochs=2, schedule="linear")
    assert [learning_rate_factor(settings, step, 5) for step in (0, 5, 9)] == pytest.approx([1, 0.5, 0.1])


def test_warm_up_rises_to_the_full_rate():
    settings = Settings(epochs=4, warmup_epochs=2)
    assert [learning_rate_factor(settings, step, 5) for step in range(0, 12, 3)] == pytest.approx([0.1, 0.4, 0.7, 1.0])


class SlowObjective(Objective):
    """An objective with which each step takes a second of a clock."""

    def __init__(self):
        super().__init__(openradial.RadialLoss())
        self.now = 0

    def __call__(self, model, x, y):
        self.now += 1
        return super().__call__(model, x, y)

    def monotonic(self):
        return self.now


@pytest.mark.parametrize(
    ("deadline", "epochs", "steps"), [(None, 5, 15), (100, 5, 15), (13, 3, 9), (3, 1, 2), (-1, 1, 1)]
)
def test_training_ends_with_the_last_epoch_that_fits(monkeypatch, deadline, epochs, steps):
    slow = SlowObjective()
    monkeypatch.setattr("openradial.training.loop.time", slow)
    history = fit(
        small_net(), slow, batches(), settings=Settings(epochs=5, batch_size=32), deadline=deadline, show_progress=False
    )
    assert history.finished
    assert len(history.records) == epochs
    assert history.records[-1]["step"] == steps
    assert history.stopped_by == ("the time limit" if epochs < 5 else None)


@pytest.mark.parametrize("frozen", [False, True])
def test_batch_normalisation_keeps_its_statistics_on_request(frozen):
    net = nn.Sequential(nn.Linear(2, 8), nn.BatchNorm1d(8), nn.Linear(8, 3))
    before = net[1].running_mean.clone(), net[1].weight.detach().clone()
    fit(net, OBJECTIVE, batches(), settings=Settings(epochs=1, batch_size=32, frozen_statistics=frozen))
    assert torch.equal(net[1].running_mean, before[0]) == frozen
    assert not torch.equal(net[1].weight, before[1])


@pytest.mark.parametrize("content", [b'{"epoch": 1', b"\xff\n"], ids=["half", "bytes"])
def test_a_damaged_log_is_named(tmp_path, content):
    (tmp_path / "log.jsonl").write_bytes(content)
    with pytest.raises(TrainingError, match=r"log\.jsonl is damaged .*; delete it and resume again$"):
        Log(tmp_path, epochs=1)


def test_the_time_left_counts_all_remaining_epochs_their_validation_and_what_follows(monkeypatch):
    seen = []
    with progress.whole_run():
        run = progress.current()
        run.after, run.later, begin = 7, 5.0, run.begin

        def record(total, pace, later):
            seen.append((total, pace > 0, later))
            begin(total, pace, later)

        monkeypatch.setattr(run, "begin", record)
        train, validation = batches(90), batches(30, seed=1)
        fit(small_net(), OBJECTIVE, train, validation, settings=Settings(epochs=3, batch_size=32), show_progress=False)
    each = len(train.labels) + len(validation.labels)
    assert seen == [(3 * each + 7, False, 5.0), (2 * each + 7, True, 5.0), (each + 7, True, 5.0), (7, True, 5.0)]
