import hashlib
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from openradial.data import progress
from openradial.data.inputs import ImageInputs
from openradial.encoders import Encoder, FeatureCache, encode, fit_tfidf
from openradial.errors import DataError
from openradial.scorers.base import limited_threads


class MeanColour(nn.Module):
    num_features = 3

    def __init__(self):
        super().__init__()
        self.images = 0

    def forward(self, x):
        self.images += len(x)
        return x.mean((2, 3))


@pytest.fixture
def encoder():
    return Encoder("colour", MeanColour(), ImageInputs(4), "sha256:0", "none")


@pytest.fixture
def files(tmp_path):
    paths = [tmp_path / f"{value}.png" for value in (10, 200, 10)]
    for i, path in enumerate(paths):
        Image.fromarray(np.full((6, 6, 3), int(path.stem), np.uint8)).save(path.with_name(f"{i}.png"))
    return [tmp_path / f"{i}.png" for i in range(3)]


def test_equal_files_are_encoded_once_and_files_in_the_cache_never(encoder, files):
    cache = FeatureCache(encoder.key)
    features, kept = encode(encoder, files, cache=cache)
    assert kept.tolist() == [0, 1, 2]
    assert features[:, 0].tolist() == pytest.approx([10 / 255, 200 / 255, 10 / 255])
    assert encoder.net.images == 2
    files[1] = files[1].rename(files[1].with_name("renamed.png"))
    again, _ = encode(encoder, files, cache=cache)
    assert torch.equal(again, features)
    assert encoder.net.images == 2


def test_features_of_another_width_in_the_cache_are_not_used(encoder, files):
    cache = FeatureCache(encoder.key)
    features, _ = encode(encoder, files)
    cache.write({hashlib.sha256(files[1].read_bytes()).digest(): torch.zeros(2)})
    assert torch.equal(encode(encoder, files, cache=cache)[0], features)


def test_arrays_are_encoded_like_files(encoder, files):
    arrays = [np.full((6, 6, 3), value, np.uint8) for value in (10, 200, 10)]
    assert torch.equal(encode(encoder, arrays)[0], encode(encoder, files)[0])


def test_a_broken_file_raises_or_is_left_out(encoder, files):
    Path(files[1]).write_bytes(b"no image")
    with pytest.raises(DataError, match=r"1\.png"):
        encode(encoder, files)
    features, kept = encode(encoder, [*files, Path("nowhere.png")], skip_broken=True)
    assert kept.tolist() == [0, 2]
    assert len(features) == 2


@pytest.mark.parametrize("saved", [32, 1024])  # inputs that are written together
def test_an_interrupted_run_keeps_what_it_has_encoded(encoder, monkeypatch, saved):
    arrays = [np.full((4, 4, 3), value, np.uint8) for value in range(100)]
    monkeypatch.setattr("openradial.encoders.encoding.SAVED", saved)
    cache, forward = FeatureCache(encoder.key), encoder.net.forward

    def interrupted(x):
        if encoder.net.images >= 64:
            raise KeyboardInterrupt
        return forward(x)

    monkeypatch.setattr(encoder.net, "forward", interrupted)
    with pytest.raises(KeyboardInterrupt):
        encode(encoder, arrays, cache=cache)
    monkeypatch.setattr(encoder.net, "forward", forward)
    encode(encoder, arrays, cache=cache)
    assert encoder.net.images == 100


@pytest.mark.parametrize(("threads", "events"), [(1, [32, "shown", 8, "shown"]), (2, [20, 20])])
def test_progress_is_shown_after_each_batch_and_few_inputs_are_shared_among_threads(
    encoder, monkeypatch, threads, events
):
    @contextmanager
    def bar(title, total, unit):
        yield lambda done: seen.append("shown")

    seen, forward = [], encoder.net.forward
    monkeypatch.setattr("openradial.encoders.encoding.bar", bar)
    monkeypatch.setattr(encoder.net, "forward", lambda x: seen.append(len(x)) or forward(x))
    with limited_threads(threads):
        encode(encoder, [np.full((4, 4, 3), value, np.uint8) for value in range(40)])
    assert [event for event in seen if threads == 1 or event != "shown"] == events


def test_texts_keep_their_order():
    texts = [
        f"{'card ' * (i % 5)}number {word}" for i, word in enumerate(("one", "two", "three", "four", "five", "six"))
    ]
    encoder = fit_tfidf(texts)
    assert encode(encoder, texts)[0].allclose(torch.cat([encoder.features(text) for text in texts]), atol=1e-6)


def test_nothing_gives_no_features(encoder):
    features, kept = encode(encoder, [])
    assert features.shape == (0, 3)
    assert len(kept) == 0


def test_inputs_in_the_cache_are_no_work_of_a_run(encoder):
    arrays, cache = [np.full((4, 4, 3), value, np.uint8) for value in range(40)], FeatureCache(encoder.key)
    encode(encoder, arrays[:30], cache=cache)
    with progress.whole_run():
        run = progress.current()
        run.begin(len(arrays))
        encode(encoder, arrays, cache=cache)
    assert run.total == run.done == 10
