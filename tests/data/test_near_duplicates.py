import io
import itertools

import numpy as np
import pytest
import torch
from PIL import Image

from openradial.data import Examples, near_duplicate_groups, scan
from openradial.data.near_duplicates import MOST_BITS, image_hashes
from openradial.errors import OptionError
from tests.data.pictures import encoded, photo, tree


def copies(image):
    """The image compressed twice, at three sizes, and brighter."""
    smaller, larger = image.resize((32, 32), Image.Resampling.LANCZOS), image.resize((96, 96), Image.Resampling.BICUBIC)
    files = [encoded(image, quality=90), encoded(image, quality=50), encoded(smaller, "PNG"), encoded(larger, "WEBP")]
    return [image, *(Image.open(io.BytesIO(file)).convert("RGB") for file in files), image.point(lambda v: v * 0.9 + 9)]


def as_tensor(images, side=48):
    pixels = [np.asarray(each.resize((side, side), Image.Resampling.BILINEAR)) for each in images]
    return torch.from_numpy(np.stack(pixels)).permute(0, 3, 1, 2)


def naive_hash(image):
    """The definition, pixel by pixel, for sides that are multiples of 32: bits in the order of the frequencies."""
    grey = image.astype(float).sum(0)
    cell = len(grey) // 32
    g = np.array([[grey[y * cell :][:cell, x * cell :][:, :cell].mean() for x in range(32)] for y in range(32)])
    pairs = sorted(itertools.product(range(12), repeat=2), key=lambda pair: (pair[0] ** 2 + pair[1] ** 2, pair))
    at = (np.arange(32) + 0.5) * np.pi / 32
    return [float((np.outer(np.cos(u * at), np.cos(v * at)) * (g - g.mean())).sum()) for u, v in pairs[1:65]]


@pytest.mark.parametrize("side", [32, 64])
def test_the_hash_is_that_of_the_definition(side):
    images = as_tensor([photo(seed) for seed in range(5)], side)
    for value, image in zip(image_hashes(images).tolist(), images.numpy(), strict=True):
        sums = naive_hash(image)
        assert min(map(abs, sums)) > 1e-6  # no bit depends on rounding
        assert value == sum((each > 0) << i for i, each in enumerate(sums))


def test_copies_are_one_group_and_other_images_are_not():
    images = as_tensor([each for seed in range(40) for each in copies(photo(seed))])
    expected = torch.arange(40).repeat_interleave(6) * 6
    assert torch.equal(near_duplicate_groups(images), expected)
    order = torch.randperm(240, generator=torch.Generator().manual_seed(0))
    groups = near_duplicate_groups(Examples(images[order], torch.zeros(240, dtype=torch.int64), ("a",)))
    assert all(len(groups[expected[order] == each].unique()) == 1 for each in expected.unique())
    assert torch.equal(groups, torch.tensor([groups.tolist().index(each) for each in groups.tolist()]))  # of the first


def test_copies_in_files_of_any_format_and_size_are_one_group(tmp_path):
    large = photo(0, 300)
    files = {"a/1.png": encoded(large, "PNG"), "a/2.jpg": encoded(large.resize((100, 100)), quality=60)}
    files |= {"b/3.webp": encoded(large, "WEBP", quality=60), "b/4.jpg": encoded(photo(1, 300))}
    assert near_duplicate_groups(scan(tree(tmp_path, files))).tolist() == [0, 0, 0, 3]


@pytest.mark.parametrize("most", [0, 1, 3, MOST_BITS, 7])
def test_groups_are_those_of_all_pairs(monkeypatch, most):
    random = np.random.default_rng(most)
    hashes = random.integers(0, 2**63, 60).astype(np.uint64)
    for _ in range(4):  # chains of hashes that differ in a few bits
        flips = [sum(1 << int(bit) for bit in random.choice(64, most, replace=False)) for _ in range(60)]
        hashes = np.concatenate([hashes, hashes[-60:] ^ np.array(flips, dtype=np.uint64)])
    module = "openradial.data.near_duplicates"
    monkeypatch.setattr(f"{module}.image_hashes", lambda images: hashes)
    monkeypatch.setattr(f"{module}.PAIRS", 50)
    expected = list(range(len(hashes)))
    for i, j in itertools.combinations(range(len(hashes)), 2):
        if (int(hashes[i]) ^ int(hashes[j])).bit_count() <= most:
            low, high = sorted((expected[i], expected[j]))
            expected = [low if each == high else each for each in expected]
    assert near_duplicate_groups(torch.empty(len(hashes), 1, 1, 1), most).tolist() == expected


def test_tens_of_thousands_of_images_are_compared_in_parts(monkeypatch):
    hashes = np.random.default_rng(0).integers(0, 2**63, 30_000).astype(np.uint64)
    hashes[20_000:] = hashes[:10_000] ^ np.uint64(0b111)
    monkeypatch.setattr("openradial.data.near_duplicates.image_hashes", lambda images: hashes)
    groups = near_duplicate_groups(torch.empty(30_000, 1, 1, 1))
    assert torch.equal(groups, torch.cat([torch.arange(20_000), torch.arange(10_000)]))


def test_only_distances_that_the_search_finds_are_accepted():
    with pytest.raises(OptionError, match="from 0 to 7, got 8"):
        near_duplicate_groups(torch.zeros(1, 3, 8, 8), 8)


def test_images_without_content_are_one_group_and_no_images_have_none():
    flat = torch.arange(0, 250, 50, dtype=torch.uint8)[:, None, None, None].expand(5, 3, 20, 20)
    assert near_duplicate_groups(flat).tolist() == [0] * 5
    assert near_duplicate_groups(flat[:0]).tolist() == []
