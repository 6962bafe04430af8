"""Keras' first ResNet-50 from its own description: an oracle that shares nothing with our network."""

import json
from itertools import pairwise

import numpy as np
import torch
from torch.nn import functional as TF

STAGES = (3, 4, 6, 3)


def run(topology, weights, x):
    """Outputs before the softmax of a Keras layers model for images (b, h, w, 3), one layer after the other."""
    layers = topology["model_config"]["config"]["layers"]
    values = {}
    for layer in layers:
        inputs = [values[node[0]] for node in layer["inbound_nodes"][0]] if layer["inbound_nodes"] else [x]
        values[layer["name"]] = _apply(layer["class_name"], layer["config"], weights, inputs)
    return values[layers[-1]["name"]]


def _apply(kind, config, weights, inputs):
    x = inputs[0]
    if kind == "InputLayer":
        return x
    if kind == "ZeroPadding2D":
        (top, bottom), (left, right) = config["padding"]
        return TF.pad(x, (0, 0, left, right, top, bottom))
    if kind == "Conv2D":
        return _convolve(config, weights, x)
    if kind == "BatchNormalization":
        gamma, beta, mean, var = (
            weights[f"{config['name']}/{part}"] for part in ("gamma", "beta", "moving_mean", "moving_variance")
        )
        return gamma * (x - mean) / (var + config["epsilon"]).sqrt() + beta
    if kind == "Activation":
        assert config["activation"] == "relu"
        return x.relu()
    if kind == "MaxPooling2D":
        assert config["padding"] == "valid"
        return TF.max_pool2d(x.movedim(-1, 1), config["pool_size"], config["strides"]).movedim(1, -1)
    if kind == "Add":
        return inputs[0] + inputs[1]
    if kind == "GlobalAveragePooling2D":
        return x.mean((1, 2))
    if kind == "Dense":
        return x @ weights[f"{config['name']}/kernel"] + weights[f"{config['name']}/bias"]
    raise NotImplementedError(kind)


def _convolve(config, weights, x):
    kernel, bias = weights[f"{config['name']}/kernel"], weights[f"{config['name']}/bias"]
    assert config["padding"] == "valid" or config["strides"] == [1, 1]
    out = TF.conv2d(x.movedim(-1, 1), kernel.permute(3, 2, 0, 1), bias, config["strides"], config["padding"])
    return out.movedim(1, -1)


def describe(width, num_classes, epsilon=1e-3):
    """The description of a narrow ResNet-50 as Keras writes it, and the shapes of its weights."""
    layers, shapes = [], {}

    def add(kind, name, inputs, **config):
        nodes = [[[node, 0, 0, {}] for node in inputs]] if inputs else []
        layers.append({"class_name": kind, "name": name, "config": {"name": name, **config}, "inbound_nodes": nodes})
        return name

    def conv_norm(x, names, size, before, after, stride=1):
        conv, norm = names
        padding = "same" if size == 3 else "valid"
        add("Conv2D", conv, [x], strides=[stride, stride], padding=padding, use_bias=True)
        shapes[f"{conv}/kernel"], shapes[f"{conv}/bias"] = [size, size, before, after], [after]
        shapes.update({f"{norm}/{part}": [after] for part in ("gamma", "beta", "moving_mean", "moving_variance")})
        return add("BatchNormalization", norm, [conv], epsilon=epsilon)

    def relu(x):
        return add("Activation", f"relu_{x}", [x], activation="relu")

    x = add("InputLayer", "input_1", [])
    x = add("ZeroPadding2D", "conv1_pad", [x], padding=[[3, 3], [3, 3]])
    x = relu(conv_norm(x, ("conv1", "bn_conv1"), 7, 3, width, stride=2))
    x = add("ZeroPadding2D", "pool1_pad", [x], padding=[[1, 1], [1, 1]])
    x = add("MaxPooling2D", "pool1", [x], pool_size=[3, 3], strides=[2, 2], padding="valid")
    before = width
    for i, repeats in enumerate(STAGES):
        middle = width * 2**i
        for j in range(repeats):
            block, stride = f"{i + 2}{'abcdef'[j]}_branch", 2 if i and not j else 1
            widths, y = (before, middle, middle, 4 * middle), x
            for k, (inputs, outputs) in enumerate(pairwise(widths)):
                names = f"res{block}2{'abc'[k]}", f"bn{block}2{'abc'[k]}"
                y = conv_norm(y, names, (1, 3, 1)[k], inputs, outputs, stride if k == 0 else 1)
                y = relu(y) if k < 2 else y
            if j == 0:
                x = conv_norm(x, (f"res{block}1", f"bn{block}1"), 1, before, 4 * middle, stride)
            x, before = relu(add("Add", f"add_{block}", [y, x])), 4 * middle
    x = add("GlobalAveragePooling2D", "avg_pool", [x])
    add("Dense", "fc1000", [x], units=num_classes)
    shapes["fc1000/kernel"], shapes["fc1000/bias"] = [before, num_classes], [num_classes]
    return {"model_config": {"class_name": "Model", "config": {"layers": layers}}}, shapes


def random_weights(shapes, seed=0):
    """Weights under which the signal neither dies nor explodes, with biases and means that matter."""
    generator = torch.Generator().manual_seed(seed)
    weights = {}
    for name, shape in shapes.items():
        value = torch.randn(shape, generator=generator)
        if name.endswith(("gamma", "moving_variance")):
            value = value.abs() * 0.5 + 0.5
        if name.endswith("kernel"):
            value *= np.prod(shape[:-1]) ** -0.5
        weights[name] = value
    return weights


def write(folder, topology, weights, shards=3):
    """Write a model as TensorFlow.js does: one description, and shards that cut through tensors."""
    numbers = b"".join(value.numpy().tobytes() for value in weights.values())
    size = -(-len(numbers) // shards)
    paths = [f"group1-shard{i + 1}of{shards}.bin" for i in range(shards)]
    for i, path in enumerate(paths):
        (folder / path).write_bytes(numbers[i * size : (i + 1) * size])
    entries = [{"name": name, "shape": list(value.shape), "dtype": "float32"} for name, value in weights.items()]
    manifest = [{"paths": paths, "weights": entries}]
    (folder / "model.json").write_text(json.dumps({"modelTopology": topology, "weightsManifest": manifest}))
