import re

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from openradial.data.transforms import (
    Compose,
    Normalise,
    RandomAffine,
    RandomColour,
    RandomErase,
    RandomFlip,
    RandomShift,
)
from openradial.errors import OptionError, ShapeError


def images(n=6, c=3, h=5, w=4, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, 256, (n, c, h, w), dtype=torch.uint8, generator=generator)


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


@given(n=st.integers(0, 4), mean=st.lists(st.floats(0, 1), min_size=3, max_size=3), std=st.floats(0.01, 2))
def test_normalising_equals_the_formula(n, mean, std):
    x = images(n)
    expected = (x.double() / 255 - torch.tensor(mean, dtype=torch.float64).view(3, 1, 1)) / std
    found = Normalise(mean, [std, std, std])(x)
    assert found.dtype == torch.float32
    assert torch.allclose(found.double(), expected, atol=1e-6 / std)


def test_floats_are_normalised_without_the_division_by_255():
    assert Normalise(1.0, 2.0)(torch.tensor([[3.0, 5.0]])).tolist() == [[1.0, 2.0]]


def test_one_value_is_for_all_channels():
    assert torch.equal(Normalise(0.5, 0.2)(images()), Normalise([0.5] * 3, [0.2] * 3)(images()))


def test_a_batch_that_is_still_held_keeps_its_values():
    transform = Normalise(0.0, 1.0)
    kept = [transform(torch.full((2, 1, 3, 3), i, dtype=torch.uint8)) for i in range(10)]
    views = [transform(torch.full((2, 1, 3, 3), i, dtype=torch.uint8))[1:, 0] for i in range(10)]
    for i in range(10):
        assert torch.allclose(kept[i] * 255, torch.tensor(float(i)))
        assert torch.allclose(views[i] * 255, torch.tensor(float(i)))


def test_wrong_means_and_shapes_name_the_way_out():
    with pytest.raises(OptionError, match="mean and std must have one value per channel each, got 3 and 1"):
        Normalise([0.1, 0.2, 0.3], 1.0)
    with pytest.raises(OptionError, match=r"std must be a finite number above 0, got 0.0"):
        Normalise(0.0, 0.0)
    message = (
        "mean and std are for 3 channels, got images of shape (6, 1, 5, 4); give one value, or one for each channel"
    )
    with pytest.raises(ShapeError, match=re.escape(message)):
        Normalise([0.1] * 3, [1.0] * 3)(images(c=1))


def test_each_image_is_mirrored_or_not():
    x = images(200)
    found = RandomFlip()(x, seeded())
    flipped = [torch.equal(a, b.flip(-1)) for a, b in zip(found, x, strict=True)]
    same = [torch.equal(a, b) for a, b in zip(found, x, strict=True)]
    assert all(a or b for a, b in zip(flipped, same, strict=True))
    assert 60 < sum(flipped) < 140
    assert torch.equal(RandomFlip(1.0)(x, seeded()), x.flip(-1))
    assert torch.equal(RandomFlip(0.0)(x, seeded()), x)


@given(pixels=st.integers(1, 3), seed=st.integers(0, 50))
def test_each_image_is_cut_from_its_reflected_self(pixels, seed):
    x = images(5, seed=seed)
    found = RandomShift(pixels)(x, seeded(seed))
    assert found.shape == x.shape
    assert found.dtype == x.dtype
    for image, original in zip(found.numpy(), x.numpy(), strict=True):
        padded = np.pad(original, ((0, 0), (pixels,) * 2, (pixels,) * 2), mode="reflect")
        cuts = [padded[:, i : i + 5, j : j + 4] for i in range(2 * pixels + 1) for j in range(2 * pixels + 1)]
        assert any(np.array_equal(image, cut) for cut in cuts)


@given(pixels=st.integers(1, 8), seed=st.integers(0, 50))
def test_a_square_of_each_image_is_erased(pixels, seed):
    x = torch.ones(6, 2, 7, 5)
    erased = RandomErase(pixels)(x, seeded(seed)) == 0
    assert torch.equal(x, torch.ones(6, 2, 7, 5))  # the batch itself is unchanged
    for image in erased:
        assert torch.equal(image[0], image[1])
        rows, columns = image[0].any(1), image[0].any(0)
        assert torch.equal(image[0], rows[:, None] & columns)  # a rectangle ...
        for side in (rows, columns):
            (inside,) = side.nonzero(as_tuple=True)
            assert inside.tolist() == list(range(int(inside[0]), int(inside[-1]) + 1))  # ... without gaps
            assert (pixels + 1) // 2 <= len(inside) <= pixels or len(inside) == len(side)


def test_images_cannot_move_farther_than_they_are_wide():
    with pytest.raises(OptionError, match="images of 3 x 3 pixels cannot move by 3; shift less"):
        RandomShift(3)(torch.zeros(2, 1, 3, 3), seeded())


def test_all_shifts_occur():
    x = torch.arange(9, dtype=torch.uint8).view(1, 1, 3, 3).repeat(400, 1, 1, 1)
    assert len({tuple(image.flatten().tolist()) for image in RandomShift(1)(x, seeded())}) == 9


def test_the_same_generator_gives_the_same_batch():
    transform = Compose(RandomShift(2), RandomFlip(), Normalise(0.5, 0.25))
    assert torch.equal(transform(images(), seeded(3)), transform(images(), seeded(3)))
    assert not torch.equal(transform(images(), seeded(3)), transform(images(), seeded(4)))


def test_options_out_of_range_are_refused():
    with pytest.raises(OptionError, match=r"probability must lie in 0..1, got 1.5"):
        RandomFlip(1.5)
    with pytest.raises(OptionError, match="pixels must be a whole number of at least 1, got 0"):
        RandomShift(0)


def naive_affine(image, matrix):
    """Read each pixel (c, h, w) at the place where the matrix moves it, between four pixels, in float64."""
    height, width = image.shape[1:]
    made = np.zeros(image.shape)

    def reflected(place, side):  # at the outer borders of the outermost pixels
        place = (place + 0.5) % (2 * side)
        return np.clip(min(place, 2 * side - place) - 0.5, 0, side - 1)

    for i in range(height):
        for j in range(width):
            u, v = matrix @ np.array([(2 * j + 1) / width - 1, (2 * i + 1) / height - 1, 1.0])
            x = reflected(((u + 1) * width - 1) / 2, width)
            y = reflected(((v + 1) * height - 1) / 2, height)
            for di in (0, 1):
                for dj in (0, 1):
                    row, column = min(int(y) + di, height - 1), min(int(x) + dj, width - 1)
                    share = (1 - abs(y - int(y) - di)) * (1 - abs(x - int(x) - dj))
                    made[:, i, j] += share * image[:, row, column]
    return made


@pytest.mark.parametrize("strength", [1e-6, 1.0, 3.0])
def test_affine_changes_are_those_of_the_naive_twin(strength):
    x, n = images(12, h=6, w=6).float(), 12
    made = RandomAffine(strength)(x, seeded(3))
    draws, generator = [], seeded(3)
    for bound in (0.35, 0.25, 0.25, 0.25):
        values, used = torch.rand(2, n, generator=generator).double().numpy()
        draws.append(np.where(used < 0.5, (2 * values - 1) * bound * strength, 0.0))
    for k, (angle, across, along, zoom) in enumerate(zip(*draws, strict=True)):
        c, s = np.cos(angle) * np.exp(zoom), np.sin(angle)
        expected = naive_affine(x[k].double().numpy(), np.array([[c, across - s, 0], [along + s, c, 0]]))
        # float32 places in 6 pixels of values up to 255 are known to about 1e-5 of a pixel
        np.testing.assert_allclose(made[k].numpy(), expected, atol=255 * 2e-5)
    same = [k for k in range(n) if not any(draw[k] for draw in draws)]
    assert strength != 1 or all(torch.allclose(made[k], x[k], atol=1e-2) for k in same)


@given(st.integers(1, 3), st.floats(0.1, 3), st.integers(0, 2**31))
def test_colours_change_as_the_formula_says(channels, strength, seed):
    x = Normalise(0.5, 0.25)(images(5, c=channels))
    made, generator = RandomColour(strength)(x, seeded(seed)), seeded(seed)
    draws = []
    for bound in (0.8, 0.5, 0.7):
        values, used = torch.rand(2, 5, generator=generator).double().numpy()
        draws.append(np.where(used < 0.5, (2 * values - 1) * bound * strength, 0.0))
    for k, (brightness, contrast, saturation) in enumerate(zip(*draws, strict=True)):
        image = x[k].double().numpy() + brightness
        image = image.mean() + np.exp(contrast) * (image - image.mean())
        grey = image.mean(0, keepdims=True)
        expected = grey + (1 + saturation) * (image - grey)
        np.testing.assert_allclose(made[k].numpy(), expected, atol=1e-5 * (1 + np.abs(expected).max()))


@pytest.mark.parametrize("kind", [RandomAffine, RandomColour])
def test_random_changes_follow_the_generator_and_need_a_strength(kind):
    x = Normalise(0.5, 0.25)(images())
    assert torch.equal(kind()(x, seeded(1)), kind()(x, seeded(1)))
    assert not torch.equal(kind()(x, seeded(1)), kind()(x, seeded(2)))
    with pytest.raises(OptionError, match="strength must be a finite number above 0, got 0"):
        kind(0.0)
