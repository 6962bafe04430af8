import pickle
import re

import pytest
import torch
from safetensors.torch import save_file
from small_networks import SMALL, small
from torch import nn

from openradial.errors import OptionError, WeightsError
from openradial.models import ResNet, build, load_weights


def torchvision_names(model):
    """The state of our ResNet under the names that torchvision gives it."""
    return {re.sub(r"^classifier\.", "fc.", name): value for name, value in model.state_dict().items()}


def error_of(model, path, **options):
    before = {name: value.clone() for name, value in model.state_dict().items()}
    with pytest.raises(WeightsError) as caught:
        load_weights(model, path, **options)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    return str(caught.value)


def like(model, seed=9, **changes):
    torch.manual_seed(seed)
    return build(model, 5, **{**SMALL[model][0], **changes})


@pytest.mark.parametrize("ending", ["pth", "safetensors"])
@pytest.mark.parametrize("name", SMALL)
def test_a_saved_network_is_loaded(name, ending, tmp_path):
    model, inputs = small(name)
    path = tmp_path / f"weights.{ending}"
    (save_file if ending == "safetensors" else torch.save)(model.state_dict(), path)
    other = load_weights(like(name), path).eval()
    x = inputs(2)
    assert torch.equal(other(x), model(x))


@pytest.mark.parametrize("name", ["resnet18", "resnet50"])
def test_the_names_of_torchvision_are_understood(name, tmp_path):
    model, inputs = small(name)
    torch.save(torchvision_names(model), tmp_path / "imagenet.pth")
    other = load_weights(like(name), tmp_path / "imagenet.pth").eval()
    x = inputs(2)
    assert torch.equal(other(x), model(x))


def test_the_names_of_torchvision_are_spelt_as_in_its_files():
    # The first and the last layer, as counted in resnet18.
    names = set(torchvision_names(ResNet(5, width=4)))
    assert {"conv1.weight", "layer2.0.downsample.0.weight", "layer4.1.bn2.running_var", "fc.bias"} <= names


def test_files_without_batch_counts_are_understood(tmp_path):
    model, inputs = small("resnet18")
    state = {name: value for name, value in model.state_dict().items() if "num_batches" not in name}
    torch.save(state, tmp_path / "old.pth")
    x = inputs(2)
    assert torch.equal(load_weights(like("resnet18"), tmp_path / "old.pth").eval()(x), model(x))


@pytest.mark.parametrize("prefix", ["module.", "_orig_mod.", "module._orig_mod.", "_orig_mod.module."])
@pytest.mark.parametrize("nest", [None, "state_dict", "model"])
def test_checkpoints_of_wrapped_networks_are_unwrapped(prefix, nest, tmp_path):
    model, inputs = small("mlp")
    state = {prefix + name: value for name, value in model.state_dict().items()}
    torch.save(state if nest is None else {"epoch": 3, nest: state}, tmp_path / "checkpoint.pth")
    x = inputs(2)
    assert torch.equal(load_weights(like("mlp"), tmp_path / "checkpoint.pth").eval()(x), model(x))


def test_half_precision_is_widened(tmp_path):
    model, _ = small("mlp")
    torch.save(model.half().state_dict(), tmp_path / "half.pth")
    loaded = load_weights(like("mlp"), tmp_path / "half.pth")
    assert loaded.classifier.weight.dtype == torch.float32
    assert torch.equal(loaded.classifier.weight, model.classifier.weight.float())


def test_old_pytorch_files_are_read(tmp_path):
    model, _ = small("mlp")
    torch.save(model.state_dict(), tmp_path / "old.pth", _use_new_zipfile_serialization=False)
    assert torch.equal(load_weights(like("mlp"), tmp_path / "old.pth").classifier.weight, model.classifier.weight)


def test_reset_names_the_layers_that_are_initialised_again(tmp_path):
    model, _ = small("mnist_radial")
    torch.save(model.state_dict(), tmp_path / "weights.pth")
    kept = {}
    for reset in ("none", "classifier", "fully_connected"):
        torch.manual_seed(5)
        loaded = load_weights(like("mnist_radial"), tmp_path / "weights.pth", reset=reset)
        same = [torch.equal(value, loaded.state_dict()[name]) for name, value in model.named_parameters()]
        kept[reset] = {n.rpartition(".")[0] for (n, _), s in zip(model.named_parameters(), same, strict=True) if not s}
    assert kept == {
        "none": set(),
        "classifier": {"classifier"},
        "fully_connected": {"fc1", "fc2", "classifier"},
    }


def test_a_reset_layer_starts_as_published_whatever_it_was(tmp_path):
    torch.manual_seed(0)
    model = build("efficientnet_lite0", 400)
    torch.save(model.state_dict(), tmp_path / "weights.pth")
    with torch.no_grad():
        model.classifier.weight.fill_(7.0)
        model.classifier.bias.fill_(7.0)
    load_weights(model, tmp_path / "weights.pth", reset="classifier")
    assert model.classifier.weight.abs().max().item() == pytest.approx(400**-0.5, rel=0.01)
    assert not model.classifier.bias.any()


def test_building_with_weights_resets_the_fully_connected_layers_as_in_the_paper(tmp_path):
    model, _ = small("mnist_radial")
    torch.save(model.state_dict(), tmp_path / "weights.pth")
    # Another size of images and number of classes: both belong to layers that are reset.
    built = build("mnist_radial", 7, weights=tmp_path / "weights.pth", size=32)
    assert torch.equal(built.conv1.weight, model.conv1.weight)
    assert built.classifier.out_features == 7


def test_resetting_the_classifier_allows_another_number_of_classes(tmp_path):
    model, _ = small("resnet18")
    torch.save(torchvision_names(model), tmp_path / "imagenet.pth")
    built = build("resnet18", 9, weights=tmp_path / "imagenet.pth", reset="classifier", **SMALL["resnet18"][0])
    assert torch.equal(built.layer4[1].conv2.weight, model.layer4[1].conv2.weight)


def test_another_number_of_classes_is_named_with_the_way_out(tmp_path):
    model, _ = small("mlp")
    torch.save(model.state_dict(), tmp_path / "weights.pth")
    other = build("mlp", 6, **SMALL["mlp"][0])
    assert error_of(other, tmp_path / "weights.pth") == (
        f"{tmp_path}/weights.pth does not fit the network: classifier.weight should have the shape (6, 6) and has "
        "(5, 6); classifier.bias should have the shape (6,) and has (5,); build the network that the file was saved "
        "from, or leave layers out with reset='classifier' or 'fully_connected'"
    )


def test_missing_and_unknown_names_are_listed(tmp_path):
    model, _ = small("mlp")
    state = {name.replace("fc1", "first"): value for name, value in model.state_dict().items()}
    torch.save(state, tmp_path / "weights.pth")
    assert error_of(like("mlp"), tmp_path / "weights.pth") == (
        f"{tmp_path}/weights.pth does not fit the network: it lacks hidden.fc1.weight, hidden.fc1.bias; it has "
        "hidden.first.weight, hidden.first.bias, which the network does not have; build the network that the file was "
        "saved from, or leave layers out with reset='classifier' or 'fully_connected'"
    )


def test_long_lists_are_cut(tmp_path):
    torch.save(small("mlp")[0].state_dict(), tmp_path / "weights.pth")
    lacks = r"it lacks conv1\.weight, bn1\.weight, bn1\.bias, bn1\.running_mean and \d+ more; it has"
    assert re.search(lacks, error_of(like("resnet18"), tmp_path / "weights.pth"))


@pytest.mark.parametrize(
    ("value", "what"),
    [(torch.nan, "NaN or infinity"), (torch.inf, "NaN or infinity"), (torch.int32, "torch.int32")],
)
def test_values_that_are_no_numbers_to_compute_with_are_named(value, what, tmp_path):
    state = small("mlp")[0].state_dict()
    if isinstance(value, torch.dtype):
        state["hidden.fc1.bias"] = state["hidden.fc1.bias"].to(value)
    else:
        state["hidden.fc1.bias"][2] = value
    torch.save(state, tmp_path / "weights.pth")
    assert error_of(like("mlp"), tmp_path / "weights.pth") == (
        f"{tmp_path}/weights.pth does not fit the network: hidden.fc1.bias should hold finite floating-point numbers "
        f"and holds {what}; use another file"
    )


class Opened:
    """Writes a file when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (str(self.path), "w")


def half(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


@pytest.mark.parametrize(
    ("name", "write", "message"),
    [
        ("empty.pth", lambda p, s: p.write_bytes(b""), "is empty; copy or download it again"),
        ("empty.safetensors", lambda p, s: p.write_bytes(b""), "is empty; copy or download it again"),
        (
            "page.pth",
            lambda p, s: p.write_text("<html>404</html>"),
            "is neither a safetensors nor a PyTorch file; save model.state_dict() as one",
        ),
        (
            "keras.h5",
            lambda p, s: p.write_bytes(b"\x89HDF\r\n\x1a\n" + bytes(99)),
            "is neither a safetensors nor a PyTorch file; save model.state_dict() as one",
        ),
        ("cut.pth", lambda p, s: (torch.save(s, p), half(p)), "is not a complete PyTorch file ("),
        (
            "old-cut.pth",
            lambda p, s: (torch.save(s, p, _use_new_zipfile_serialization=False), half(p)),
            "is not a complete PyTorch file (",
        ),
        ("cut.safetensors", lambda p, s: (save_file(s, p), half(p)), "is not a complete safetensors file ("),
        ("short.safetensors", lambda p, s: p.write_bytes(b"\x01\x02"), "is not a complete safetensors file ("),
        ("words.safetensors", lambda p, s: p.write_text("not tensors at all"), "is not a complete safetensors file ("),
        (
            "model.pth",
            lambda p, s: torch.save(nn.Linear(2, 2), p),
            "holds more than tensors, and reading that could run code; save model.state_dict() alone",
        ),
        ("list.pth", lambda p, s: torch.save([s], p), "holds a list, not names and tensors; save model.state_dict()"),
        (
            "numbers.pth",
            lambda p, s: torch.save({"epoch": 3}, p),
            "should hold nothing but tensors by name, but 'epoch' is not a tensor; save model.state_dict()",
        ),
        (
            "nothing.pth",
            lambda p, s: torch.save({}, p),
            "should hold nothing but tensors by name, but it holds none; save model.state_dict()",
        ),
    ],
)
def test_a_damaged_or_foreign_file_is_described(name, write, message, tmp_path):
    path = tmp_path / name
    model = like("mlp")
    write(path, model.state_dict())
    assert error_of(model, path).startswith(f"{path} {message}")


def test_a_missing_file_and_a_folder_are_named(tmp_path):
    way_out = "pass a safetensors or PyTorch file"
    missing = tmp_path / "no.pth"
    assert error_of(like("mlp"), missing) == f"expected a weights file, but {missing} does not exist; {way_out}"
    assert error_of(like("mlp"), tmp_path) == f"expected a weights file, but {tmp_path} is a folder; {way_out}"


@pytest.mark.parametrize("save", [torch.save, lambda value, path: path.write_bytes(pickle.dumps(value, protocol=2))])
def test_no_code_in_a_file_is_run(save, tmp_path):
    path, trace = tmp_path / "evil.pth", tmp_path / "trace"
    save({"weight": Opened(trace)}, path)
    error_of(like("mlp"), path)
    assert not trace.exists()


def test_resets_that_do_not_exist_are_refused(tmp_path):
    torch.save(small("mlp")[0].state_dict(), tmp_path / "weights.pth")
    with pytest.raises(OptionError, match=r"^reset must be one of 'none', 'classifier', 'fully_connected', got 'all'$"):
        load_weights(like("mlp"), tmp_path / "weights.pth", reset="all")
    model = nn.Sequential(nn.Linear(2, 3))
    torch.save(model.state_dict(), tmp_path / "weights.pth")
    assert error_of(model, tmp_path / "weights.pth", reset="classifier") == (
        "reset='classifier' needs a linear layer of this name, and Sequential has none; its linear layers are 0; "
        "name the last one classifier or use reset='fully_connected'"
    )


def test_weights_of_which_nothing_would_be_used_are_refused(tmp_path):
    torch.save(small("mlp")[0].state_dict(), tmp_path / "weights.pth")
    assert error_of(like("mlp"), tmp_path / "weights.pth", reset="fully_connected") == (
        f"nothing of {tmp_path}/weights.pth would be used: all layers of MLP are fully connected and are reset; "
        "use reset='classifier' or 'none'"
    )
