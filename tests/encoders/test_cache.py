import os
import secrets
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from openradial.encoders import FeatureCache
from openradial.encoders.cache import cached_files, most_bytes, trim
from openradial.errors import OptionError
from openradial.files import write_tensors


def rows(*numbers):
    return {bytes([n]) * 32: torch.full((3,), float(n)) for n in numbers}


def test_features_are_read_by_their_keys():
    cache = FeatureCache("minilm-1")
    cache.write(rows(1, 2))
    cache.write(rows(3))
    found = cache.read(rows(1, 3, 4))
    assert {key[0]: row.tolist() for key, row in found.items()} == {1: [1.0] * 3, 3: [3.0] * 3}
    assert FeatureCache("minilm-2").read(rows(1)) == {}


def test_a_damaged_file_is_removed_and_costs_only_its_features():
    cache = FeatureCache("a")
    cache.write(rows(1))
    (path,) = (path for path, _, _ in cached_files())
    path.write_bytes(path.read_bytes()[:-4])
    cache.write(rows(2))
    assert list(cache.read(rows(1, 2))) == list(rows(2))
    assert not path.exists()


@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    keys=st.lists(st.binary(min_size=32, max_size=32), min_size=1, max_size=12, unique=True),
    sizes=st.lists(st.integers(1, 5), min_size=1, max_size=4),
    cut=st.integers(0, 400),
)
def test_what_is_written_in_any_parts_is_read_again_and_half_a_file_costs_only_its_part(keys, sizes, cut):
    cache, parts = FeatureCache(secrets.token_hex(8)), []
    while keys:
        part, keys = keys[: sizes[len(parts) % len(sizes)]], keys[sizes[len(parts) % len(sizes)] :]
        parts.append({key: torch.tensor([float(key[0]), float(key[-1])]) for key in part})
        before = set(cache.folder.glob("*")) if cache.folder.exists() else set()
        cache.write(parts[-1])
        (last,) = set(cache.folder.glob("*")) - before
    written = {key: row for part in parts for key, row in part.items()}
    read = cache.read(written)
    assert read.keys() == written.keys()
    assert all(row.equal(written[key]) for key, row in read.items())
    last.write_bytes(last.read_bytes()[:cut])
    assert cache.read(written).keys() == {key for part in parts[:-1] for key in part} | (
        set(parts[-1]) if last.exists() else set()
    )


def test_the_files_that_were_not_used_for_longest_are_removed_first(monkeypatch):
    cache = FeatureCache("a")
    for n in range(4):
        cache.write(rows(n))
    files = list(cached_files())
    for age, (path, _, _) in enumerate(files):
        os.utime(path, (1000 - age, 1000 - age))
    trim(2 * files[0][1])
    assert [path for path, _, _ in cached_files()] == [path for path, _, _ in files[:2]]


def test_the_limit_is_a_number_of_megabytes(monkeypatch):
    assert most_bytes() == 4096 * 2**20
    monkeypatch.setenv("OPENRADIAL_FEATURES", "0")
    FeatureCache("a").write(rows(1))
    assert FeatureCache("a").read(rows(1)) == {}
    monkeypatch.setenv("OPENRADIAL_FEATURES", "many")
    with pytest.raises(OptionError, match="whole number of megabytes, got 'many'"):
        most_bytes()


def test_several_writers_and_readers_lose_nothing():
    def work(n):
        cache = FeatureCache("a")
        cache.write(rows(n))
        return cache.read(rows(n))

    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(work, range(40)))
    assert all(len(each) == 1 for each in found)
    assert len(FeatureCache("a").read(rows(*range(40)))) == 40


def test_a_disk_that_cannot_be_written_is_no_error(tmp_path):
    (tmp_path / "features").write_text("a file, not a folder")
    FeatureCache("a").write(rows(1))
    assert FeatureCache("a").read(rows(1)) == {}


def test_a_file_that_vanishes_while_it_is_opened_is_left_out(monkeypatch):
    cache = FeatureCache("encoder")
    cache.write({bytes([1]) * 32: torch.ones(3)})

    def remove_and_fail(path, framework):  # as safetensors does if it opens the file for the second time too late
        path.unlink()
        raise RuntimeError(f"unable to open file <{path}> in read-only mode: No such file or directory (2)")

    monkeypatch.setattr("openradial.files.safe_open", remove_and_fail)
    assert cache.read([bytes([1]) * 32]) == {}


KEYS = torch.ones(2, 32, dtype=torch.uint8)


@pytest.mark.parametrize(
    ("keys", "features"),
    [
        (KEYS, torch.zeros(1, 3)),
        (KEYS, torch.tensor(1.0)),
        (KEYS, torch.zeros(2, 3, dtype=torch.float16)),
        (KEYS[0], torch.zeros(32, 3)),
        (KEYS.bfloat16(), torch.zeros(2, 3)),
    ],
    ids=["fewer features", "one number", "half", "one key", "other keys"],
)
def test_a_file_of_other_keys_or_features_is_damaged(keys, features):
    cache = FeatureCache("encoder")
    path = cache.folder / "00.features"
    write_tensors(path, {"keys": keys, "features": features}, {})
    assert cache.read([bytes([1]) * 32]) == {}
    assert not path.exists()
