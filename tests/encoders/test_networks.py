import math
from copy import deepcopy

import numpy as np
import pytest
import torch
from rounding import tolerance
from scipy.fft import dctn

from openradial.encoders.networks import BertEncoder, ImageEncoder, TokenEncoder, band_energies
from openradial.models import build
from openradial.models.weights import load_state
from openradial.nn import hidden_layers


def random_bert(pooling="mean"):
    torch.manual_seed(0)
    net = BertEncoder(num_tokens=30, width=8, layers=2, heads=2, positions=16, pooling=pooling).eval()
    for parameter in net.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    return net


def norm(x, weight, bias):
    centred = x - x.mean(-1, keepdims=True)
    return centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-12) * weight + bias


def naive_bert(net, tokens):
    """One text without padding, in NumPy and float64."""
    p = {name: value.double().numpy() for name, value in net.state_dict().items()}

    def linear(x, name):
        return x @ p[f"{name}.weight"].T + p[f"{name}.bias"]

    x = p["word.weight"][tokens] + p["position.weight"][: len(tokens)] + p["token_type.weight"][0]
    x = norm(x, p["norm.weight"], p["norm.bias"])
    means = [unit(x.mean(0))]
    for i in range(2):
        at, mixed = f"layers.{i}", []
        for h in range(2):
            q, k, v = (linear(x, f"{at}.{part}")[:, 4 * h : 4 * h + 4] for part in ("query", "key", "value"))
            scores = np.exp(q @ k.T / 2.0)
            mixed.append(scores / scores.sum(1, keepdims=True) @ v)
        attended = linear(np.concatenate(mixed, 1), f"{at}.attended")
        x = norm(x + attended, p[f"{at}.attention_norm.weight"], p[f"{at}.attention_norm.bias"])
        up = linear(x, f"{at}.expand")
        gelu = up * (1 + np.vectorize(math.erf)(up / math.sqrt(2))) / 2
        x = norm(x + linear(gelu, f"{at}.project"), p[f"{at}.norm.weight"], p[f"{at}.norm.bias"])
        means.append(unit(x.mean(0)))
    if net.pooling == "mean":
        return means[-1]
    return unit(np.concatenate([unit(means[2] + unit(means[0] + means[1])), unit(x.max(0))]))


def unit(x):
    return x / np.linalg.norm(x)


@pytest.mark.parametrize("pooling", ["mean", "layers"])
def test_bert_equals_the_definition_and_ignores_padding_and_other_rows(pooling):
    net = random_bert(pooling)
    texts = [[2, 5, 7, 3], [2, 3], [2, 9, 9, 9, 1, 4, 3]]
    tokens = torch.zeros(3, 9, dtype=torch.int64)
    for row, text in zip(tokens, texts, strict=True):
        row[: len(text)] = torch.tensor(text)
    with torch.no_grad():
        features = net(tokens)
        alone = torch.cat([net(row[None]) for row in tokens])
    expected = np.stack([naive_bert(net, text) for text in texts])
    assert features.shape == (3, net.num_features)
    torch.testing.assert_close(features.double(), torch.from_numpy(expected), **tolerance(1000, torch.float32))
    torch.testing.assert_close(alone, features, **tolerance(1000, torch.float32))


def test_many_texts_keep_their_order():
    net = random_bert()
    tokens = torch.randint(1, 30, (70, 6))
    tokens[::3, 2:] = 0
    with torch.no_grad():
        assert net(tokens).allclose(torch.cat([net(row[None]) for row in tokens]), atol=1e-5)


def test_published_names_become_ours():
    net = random_bert()
    theirs = {"word": "embeddings.word_embeddings", "position": "embeddings.position_embeddings"}
    theirs |= {"token_type": "embeddings.token_type_embeddings", "norm": "embeddings.LayerNorm"}
    parts = {"attended": "attention.output.dense", "attention_norm": "attention.output.LayerNorm"}
    parts |= {each: f"attention.self.{each}" for each in ("query", "key", "value")}
    parts |= {"expand": "intermediate.dense", "project": "output.dense", "norm": "output.LayerNorm"}
    theirs |= {f"layers.{i}.{ours}": f"encoder.layer.{i}.{name}" for i in range(2) for ours, name in parts.items()}
    state = {}
    for name, value in net.state_dict().items():
        layer, _, kind = name.rpartition(".")
        state[f"{theirs[layer]}.{kind}"] = value + 1
    loaded = load_state(random_bert(), state, origin="published")
    for name, value in loaded.state_dict().items():
        assert torch.equal(value, net.state_dict()[name] + 1)


def test_token_vectors_are_averaged_without_padding_and_divided_by_their_length():
    net = TokenEncoder(4, 2)
    net.table.data = torch.tensor([[9.0, 9.0], [1.0, 0.0], [0.0, 1.0], [3.0, 4.0]])
    features = net(torch.tensor([[1, 2, 0], [3, 0, 0], [0, 0, 0]]))
    assert features.tolist() == [pytest.approx([0.5**0.5, 0.5**0.5]), pytest.approx([0.6, 0.8]), [0.0, 0.0]]


@pytest.mark.parametrize(("name", "stages"), [("efficientnet_lite0", 8), ("mobilenetv2", 10), ("resnet18", 2)])
def test_the_middle_layer_has_the_mean_of_each_channel_half_way_and_bands_follow(name, stages):
    torch.manual_seed(0)
    body = build(name, 3).eval()
    x = torch.randn(6, 3, 64, 64)  # more than one part
    with torch.no_grad():
        if name == "resnet18":
            maps = body.layer2(body.layer1(body.maxpool(body.relu(body.bn1(body.conv1(x))))))
        else:
            maps = body.blocks[:stages](body.stem(x))
        found = hidden_layers(ImageEncoder(body).eval(), x, ("outputs", "middle", "bands"))
    assert maps.shape[2:] == ((4, 4) if name != "resnet18" else (8, 8))
    torch.testing.assert_close(found["middle"], maps.mean((2, 3)), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(found["bands"], band_energies(x), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(found["outputs"].norm(dim=1), torch.ones(6))


def naive_bands(image):
    """The energy of the brightness of one image ``(c, n, n)`` in octaves, one coefficient after the other."""
    coefficients, side = dctn(image.mean(0), norm="ortho"), image.shape[1]
    energy = np.zeros(7)
    for row, column in np.ndindex(coefficients.shape):
        octaves = [k for k in range(7) if max(row, column) < side >> 6 - k]
        if max(row, column) >= 1:
            energy[octaves[0]] += coefficients[row, column] ** 2 / side**2
    return np.log(energy + 1e-6)


@pytest.mark.parametrize("side", [224, 160, 65, 32])
def test_bands_are_the_energy_of_a_cosine_transform_in_octaves(side):
    images = np.random.default_rng(0).normal(size=(2, 3, side, side))
    found = band_energies(torch.from_numpy(images))
    np.testing.assert_allclose(found, [naive_bands(image) for image in images], rtol=1e-9, atol=1e-9)
    in_float32 = band_energies(torch.from_numpy(images).float())
    np.testing.assert_allclose(in_float32, found, atol=1e-4)
    one = band_energies(torch.from_numpy(images[:1]).float())
    np.testing.assert_allclose(one, in_float32[:1], atol=1e-4)


def test_an_enlarged_image_has_next_to_no_energy_in_the_highest_octaves():
    small = torch.randn(4, 3, 28, 28, generator=torch.Generator().manual_seed(0))
    enlarged = torch.nn.functional.interpolate(small, size=224, mode="bicubic")
    full = torch.randn(4, 3, 224, 224, generator=torch.Generator().manual_seed(1))
    assert (band_energies(enlarged)[:, -2:] < band_energies(full)[:, -2:] - 5).all()
    flat = band_energies(torch.zeros(1, 3, 224, 224))
    assert torch.isfinite(flat).all()


def test_a_power_of_features_is_taken_before_their_length_is_divided_out():
    torch.manual_seed(0)
    body, x = build("efficientnet_lite0", 3).eval(), torch.randn(3, 3, 64, 64, requires_grad=True)
    features = ImageEncoder(deepcopy(body), power=0.5).eval()(x)
    body.classifier = torch.nn.Identity()
    plain = body(x).detach().double().numpy()
    expected = np.sqrt(np.maximum(plain, 1e-12))
    expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    np.testing.assert_allclose(features.detach(), expected, atol=1e-5)
    features.sum().backward()
    assert torch.isfinite(x.grad).all()  # though the slope of a root at 0 is infinite


def test_views_are_the_mean_of_features_of_the_image_its_mirror_image_and_its_middle():
    torch.manual_seed(0)
    body, x = build("efficientnet_lite0", 3).eval(), torch.randn(2, 3, 64, 64)
    with torch.no_grad():
        one, flip, crops = (ImageEncoder(deepcopy(body), views).eval()(x) for views in ("one", "flip", "crops"))
        mirrored = ImageEncoder(deepcopy(body)).eval()(x.flip(3))
        middle = torch.nn.functional.interpolate(x[:, :, 8:56, 8:56], size=64, mode="bilinear")
        enlarged = ImageEncoder(deepcopy(body)).eval()(middle)
    normalize = torch.nn.functional.normalize
    torch.testing.assert_close(flip, normalize(one + mirrored), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(crops, normalize(one + mirrored + enlarged), rtol=1e-4, atol=1e-5)
