import multiprocessing
import os
import re
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from openradial import models
from openradial.data.batches import Batches, FolderBatches
from openradial.data.examples import Examples
from openradial.data.readers.folder import scan
from openradial.data.transforms import Compose, Normalise, RandomFlip, RandomShift
from openradial.errors import DataError, OptionError
from tests.data.pictures import encoded, jpeg, noise, read_image, tree

sizes = st.integers(1, 60)


def numbered(n):
    """Examples that know their own place."""
    return Examples(torch.arange(n).view(n, 1).float(), torch.arange(n) % 3, ("a", "b", "c"))


def places(batches, epoch=0, **options):
    return [x.flatten().int().tolist() for x, _ in batches.epoch(epoch, **options)]


def flat(lists):
    return [value for values in lists for value in values]


@given(n=sizes, batch_size=sizes, shuffle=st.booleans(), epoch=st.integers(0, 5))
def test_every_example_comes_once_in_an_epoch_with_its_label(n, batch_size, shuffle, epoch):
    batches = Batches(numbered(n), batch_size, shuffle=shuffle)
    found = list(batches.epoch(epoch))
    assert sorted(flat(x.flatten().int().tolist() for x, _ in found)) == list(range(n))
    assert all(torch.equal(x.flatten().long() % 3, y) for x, y in found)
    assert all(len(x) == batch_size for x, _ in found[:-1])
    assert len(found) == len(batches)


@given(n=st.integers(4, 60), batch_size=st.integers(1, 20), world=st.integers(1, 4), epoch=st.integers(0, 3))
def test_ranks_share_every_example_once_in_equally_many_batches(n, batch_size, world, epoch):
    ranks = [Batches(numbered(n), batch_size, shuffle=True, rank=rank, world=world) for rank in range(world)]
    found = [places(batches, epoch) for batches in ranks]
    assert sorted(flat(flat(found))) == list(range(n))
    assert len({len(rank) for rank in found}) == 1
    for step in zip(*found, strict=True):
        assert max(map(len, step)) - min(map(len, step)) <= 1
        assert min(map(len, step)) >= 1


def test_a_last_batch_with_one_example_for_a_rank_joins_the_batch_before_it():
    assert [len(batch) for batch in places(Batches(numbered(9), 4))] == [4, 5]
    assert [len(batch) for batch in places(Batches(numbered(10), 4))] == [4, 4, 2]
    assert [len(batch) for batch in places(Batches(numbered(1), 4))] == [1]
    assert [len(batch) for batch in places(Batches(numbered(11), 4, rank=1, world=2))] == [6]
    net = models.build("resnet18", 3).train()  # batch normalisation needs two examples
    for x, _ in Batches(Examples(torch.rand(9, 3, 32, 32), torch.arange(9) % 3, ("a", "b", "c")), 4).epoch(0):
        assert net(x).isfinite().all()


@given(n=sizes, batch_size=sizes, data=st.data())
def test_an_epoch_started_in_the_middle_goes_on_as_if_never_stopped(n, batch_size, data):
    batches = Batches(numbered(n), batch_size, shuffle=True, seed=7)
    start = data.draw(st.integers(0, len(batches)))
    assert places(batches, 3, start_batch=start) == places(batches, 3)[start:]


def test_the_order_follows_from_seed_and_epoch():
    def order(seed, epoch):
        return flat(places(Batches(numbered(50), 8, shuffle=True, seed=seed), epoch))

    assert order(0, 0) == order(0, 0)
    assert len({tuple(order(seed, epoch)) for seed in range(3) for epoch in range(3)}) == 9


def test_iterating_again_goes_to_the_next_epoch():
    batches = Batches(numbered(20), 6, shuffle=True)
    found = [[x.flatten().int().tolist() for x, _ in batches] for _ in range(3)]
    assert found == [places(batches, epoch) for epoch in range(3)]


def test_the_random_numbers_of_the_training_are_left_alone():
    torch.manual_seed(0)
    before = torch.get_rng_state()
    list(Batches(numbered(9), 2, shuffle=True, transform=lambda x, generator: x + torch.rand(1, generator=generator)))
    assert torch.equal(torch.get_rng_state(), before)


def test_random_transforms_differ_between_batches_epochs_and_ranks_but_not_between_runs():
    def draw(x, generator):
        return torch.rand(1, generator=generator)

    def drawn(epoch, start=0, rank=0):
        batches = Batches(numbered(12), 2, transform=draw, rank=rank, world=2)
        return [x.item() for x, _ in batches.epoch(epoch, start_batch=start)]

    assert drawn(1) == drawn(1)
    assert drawn(1)[2:] == drawn(1, start=2)
    assert len({*drawn(0), *drawn(1), *drawn(0, rank=1)}) == 9


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch_size": 0}, "batch_size must be a whole number of at least 1, got 0"),
        ({"rank": 2, "world": 2}, "rank must be below world, the number of processes, got rank 2 of 2"),
        ({"seed": -1}, "seed must be a whole number of at least 0, got -1"),
        ({"world": 6}, "5 examples cannot be shared among 6 processes; use at most 5 processes"),
    ],
)
def test_wrong_options_are_refused(options, message):
    with pytest.raises(OptionError, match=f"^{re.escape(message)}$"):
        Batches(numbered(5), **({"batch_size": 2} | options))


@pytest.fixture
def folder(tmp_path):
    files = {f"{'ab'[i % 2]}/{i:02}.jpg": jpeg(24 + i, 30, seed=i) for i in range(20)}
    return scan(tree(tmp_path / "set", files))


def collected(batches, epoch=0, **options):
    return list(batches.epoch(epoch, **options))


def assert_same(one, two):
    assert len(one) == len(two)
    for (x, y), (u, v) in zip(one, two, strict=True):
        assert torch.equal(x, u)
        assert torch.equal(y, v)


def test_folder_batches_hold_what_reading_each_file_gives(folder):
    found = collected(FolderBatches(folder, 16, 8, workers=0))
    assert torch.equal(torch.cat([x for x, _ in found]), torch.stack([read_image(p, size=16) for p in folder.paths]))
    assert torch.equal(torch.cat([y for _, y in found]), folder.labels)


TRAINING = {"shuffle": True, "seed": 5, "transform": Compose(RandomFlip(), Normalise())}


@pytest.mark.parametrize("options", [{}, TRAINING])
def test_the_number_of_workers_changes_nothing(folder, options):
    expected = collected(FolderBatches(folder, 16, 3, workers=0, **options), 2)
    for workers in (1, 2):
        assert_same(collected(FolderBatches(folder, 16, 3, workers=workers, **options), 2), expected)


def test_a_folder_resumes_in_the_middle_of_an_epoch(folder):
    batches = FolderBatches(folder, 16, 3, workers=0, **TRAINING)
    assert_same(collected(batches, 1, start_batch=4), collected(batches, 1)[4:])


def test_ranks_share_a_folder(folder):
    shared = [collected(FolderBatches(folder, 8, 4, shuffle=True, workers=0, rank=r, world=3)) for r in range(3)]
    assert sum(len(y) for rank in shared for _, y in rank) == 20
    assert len({len(rank) for rank in shared}) == 1


def test_memory_and_files_give_the_same_batches(folder):
    options = {"shuffle": True, "transform": Compose(RandomShift(2), RandomFlip(), Normalise(0.5, 0.2))}
    memory = Batches(folder.load(16, workers=0), 6, **options)
    files = FolderBatches(folder, 16, 6, workers=0, **options)
    assert_same(collected(memory, 1), collected(files, 1))


def test_batches_keep_their_values_while_the_workers_go_on(folder):
    kept = [x for x, _ in FolderBatches(folder, 8, 2, workers=2)]
    expected = [x.clone() for x, _ in FolderBatches(folder, 8, 2, workers=0)]
    assert all(torch.equal(x, u) for x, u in zip(kept, expected, strict=True))


@pytest.fixture
def broken(folder):
    tree(folder.root, {"a/05-broken.jpg": b"", "b/30.jpg": jpeg()[:-50]})
    return scan(folder.root)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_broken_image_stops_the_iteration_and_is_named(broken, workers):
    path = broken.root / "a" / "05-broken.jpg"
    message = (
        f"{path}: the image is empty (0 bytes); replace it, or leave broken images out with skip_broken=True "
        "(--skip-broken); ImageFolder.check finds all of them"
    )
    with pytest.raises(DataError, match=f"^{re.escape(message)}$"):
        collected(FolderBatches(broken, 8, 4, workers=workers))
    assert_no_workers()


@pytest.mark.parametrize("workers", [0, 2])
def test_broken_images_are_left_out_by_choice_and_counted(broken, folder, workers):
    batches = FolderBatches(broken, 8, 4, skip_broken=True, workers=workers)
    found = collected(batches)
    assert torch.equal(torch.cat([y for _, y in found]), folder.labels)
    assert torch.equal(torch.cat([x for x, _ in found]), torch.stack([read_image(p, size=8) for p in folder.paths]))
    assert sorted(os.path.basename(name) for name in batches.broken) == ["05-broken.jpg", "30.jpg"]


def test_a_batch_of_nothing_but_broken_images_is_left_out(tmp_path):
    folder = scan(tree(tmp_path, {"a/1.jpg": b"", "a/2.jpg": b"", "b/3.jpg": jpeg()}))
    found = collected(FolderBatches(folder, 8, 2, skip_broken=True, workers=0))
    assert [y.tolist() for _, y in found] == [[1]]


def assert_no_workers():
    """They end by themselves; a busy machine may take a while."""
    end = time.monotonic() + 120
    while multiprocessing.active_children() and time.monotonic() < end:
        time.sleep(0.01)
    assert multiprocessing.active_children() == []


def test_workers_end_with_the_epoch_and_when_nobody_goes_on(folder):
    batches = FolderBatches(folder, 8, 2, workers=2)
    list(batches)
    assert_no_workers()
    iterator = iter(batches)
    next(iterator)
    assert len(multiprocessing.active_children()) == 2
    del iterator
    assert_no_workers()


def test_workers_end_when_the_training_fails(folder):
    def train():
        for _ in FolderBatches(folder, 8, 2, workers=2):
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        train()
    assert_no_workers()


def test_a_killed_worker_is_an_error_and_no_hang(folder):
    def kill_and_go_on():
        iterator = iter(FolderBatches(folder, 8, 1, workers=1))
        next(iterator)
        (worker,) = multiprocessing.active_children()
        os.kill(worker.pid, signal.SIGKILL)
        list(iterator)

    # torch raises in whatever line runs when the news comes; inside of the iteration the error is ours
    with pytest.raises(
        (DataError, RuntimeError), match=r"(ended unexpectedly|DataLoader worker \(pid \d+\) is killed)"
    ):
        kill_and_go_on()
    assert_no_workers()


def test_the_error_for_a_dead_worker_names_the_way_out(folder, monkeypatch):
    from openradial.data import workers

    def died(*arguments, **options):
        raise RuntimeError("DataLoader worker (pid 7) is killed by signal: Killed. ")

    monkeypatch.setattr(workers.DataLoader, "__iter__", died)
    message = (
        "a process that decodes images ended unexpectedly (DataLoader worker (pid 7) is killed by signal: Killed. ); "
        "often memory ran out: use fewer workers or smaller batches, or workers=0 to decode in this process"
    )
    with pytest.raises(DataError, match=f"^{re.escape(message)}$"):
        collected(FolderBatches(folder, 8, 2, workers=1))


INTERRUPTED = """
import multiprocessing, sys
from openradial.data.batches import FolderBatches
from openradial.data.readers.folder import scan

try:
    for number, _ in enumerate(FolderBatches(scan(sys.argv[1]), 8, 2, workers=2)):
        if number == 2:
            raise KeyboardInterrupt
except KeyboardInterrupt:
    for child in multiprocessing.active_children():
        child.join(120)
    print("interrupted", len(multiprocessing.active_children()))
"""


def test_an_interrupt_ends_the_workers(folder):
    strict = ["-W", "error", "-W", "ignore:This DataLoader will create:UserWarning"]  # on a machine with one core
    command = [sys.executable, *strict, "-c", INTERRUPTED, str(folder.root)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert (result.stdout, result.stderr) == ("interrupted 0\n", "")


def test_no_image_package_is_loaded_with_the_module():
    code = (
        "import sys, openradial.data.batches, paper.imagenet.ilsvrc, paper.imagenet.tiny_imagenet; "
        "print([name for name in ('PIL', 'scipy') if name in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "[]\n"


def test_grey_batches_have_one_channel(tmp_path):
    folder = scan(tree(tmp_path, {"a/1.png": encoded(noise(9, 9).convert("L"), "PNG"), "b/1.jpg": jpeg(9, 9)}))
    ((x, _),) = collected(FolderBatches(folder, 9, 2, channels=1, workers=0))
    assert x.shape == (2, 1, 9, 9)
    assert np.array_equal(x[0, 0].numpy(), np.asarray(noise(9, 9).convert("L")))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"crop": 0.0}, "crop must be the share of the short side to keep, above 0 and at most 1, got 0.0"),
        ({"channels": 2}, "channels must be one of '1', '3', got '2'"),
        ({"workers": -1}, "workers must be a whole number of at least 0, got -1"),
        ({"size": 0}, "size must be a whole number of at least 1, got 0"),
    ],
)
def test_wrong_options_for_folders_are_refused(folder, options, message):
    with pytest.raises(OptionError, match=f"^{re.escape(message)}$"):
        FolderBatches(folder, **({"size": 8, "batch_size": 4} | options))
