"""The closed-form head saved, copied, moved, exported and compiled."""

import copy
import io
import json

import numpy as np
import pytest
import torch
from naive_ridge import assert_equal, made_data
from rounding import tolerance
from safetensors.torch import save_file

from openradial.errors import DataError, HeadError
from openradial.files import read_tensors
from openradial.heads import ClosedFormRadialHead, load_head, make_head, save_head

OPTIONS = {
    "squares": {"squares": True},
    "given": {"alpha": 0.7},
    "auto": {},
    "weights": {"class_weight": [1.0, 2.0, 3.0], "beta": 2.0, "scale": 1.5, "score": "probability"},
    "balanced": {"class_weight": "balanced"},
    "random": {"random_features": 9, "seed": 4},
    "random, weights": {"random_features": 9, "width": 4.0, "class_weight": "auto"},
}
every_option = pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
NAMES = ["ant", "bee", "cat"]


def fitted(options):
    return ClosedFormRadialHead(NAMES, 5, **options).fit(*made_data())


def saved(head, path):
    save_head(head, path / "head.safetensors")
    return load_head(path / "head.safetensors")


def assert_same(one, other):
    """Assert that two heads have the same settings, examples and answers, bit for bit."""
    z = made_data(seed=5)[0]
    assert one.settings() == other.settings()
    for mine, theirs in zip(one.compute(z), other.compute(z), strict=True):
        assert torch.equal(mine, theirs)
    a, b = one.tensors(), other.tensors()
    assert a.keys() == b.keys()
    assert all(torch.equal(a[name], b[name]) and a[name].dtype == b[name].dtype for name in a)


@every_option
def test_a_head_goes_on_after_loading_as_before(options, tmp_path):
    head, (z, y) = fitted(options), made_data()
    more, labels = made_data(n=20, seed=1)
    loaded = saved(head, tmp_path)
    assert_same(loaded, head)
    assert torch.equal(loaded.leave_one_out(z, y), head.leave_one_out(z, y))
    for each in (head, loaded):
        each.partial_fit(more, labels).remove(z[:7], y[:7]).add_class("dog", more + 3).rename_class("ant", "emu")
    assert_same(loaded, head)
    assert loaded.merge(head).counts.tolist() == (2 * head.counts).tolist()
    assert_same(loaded.fit(z, y), head.fit(z, y))
    assert_same(saved(loaded, tmp_path), head)


def test_alpha_of_a_stream_is_chosen_again_after_loading(tmp_path):
    z, y = made_data()
    head = ClosedFormRadialHead(NAMES, 5).partial_fit(z, y)
    loaded = saved(head, tmp_path)
    for each in (head, loaded):
        each.partial_fit(50 * z, y)
    assert_same(loaded, head)


@every_option
def test_a_head_without_examples_is_saved(options, tmp_path):
    head = ClosedFormRadialHead(NAMES, 5, **options)
    loaded = saved(head, tmp_path)
    assert not loaded.is_fitted
    assert loaded.settings() == head.settings()
    assert_same(loaded.fit(*made_data()), fitted(options))


def test_numbers_of_numpy_are_saved(tmp_path):
    head = ClosedFormRadialHead(
        np.int64(3),
        np.int32(5),
        np.float32(2),
        alpha=np.float32(0.5),
        class_weight=np.array([1, 2, 4]),
        seed=np.int8(1),
    ).fit(*made_data())
    assert_same(saved(head, tmp_path), head)
    assert head.class_weight == (1.0, 2.0, 4.0)


@every_option
def test_a_copy_is_independent(options):
    head, (z, y) = fitted(options), made_data()
    twin, buffer = copy.deepcopy(head), io.BytesIO()
    torch.save(head, buffer)
    buffer.seek(0)
    assert_same(twin, head)
    assert_same(torch.load(buffer, weights_only=False), head)
    before = head.outputs(z)
    twin.partial_fit(z + 1, y).drop_class("ant", torch.cat([z[y == 0], z[y == 0] + 1]))
    assert torch.equal(head.outputs(z), before)
    assert_same(head, fitted(options))


@every_option
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
def test_another_precision_costs_no_digits(options, dtype):
    head = fitted(options)
    assert_same(copy.deepcopy(head).to(dtype), head)
    assert_same(copy.deepcopy(head).to(dtype).fit(*made_data()), head)
    assert head.weight.dtype == torch.float64


def test_outputs_are_computed_on_the_device_of_the_features():
    head, (z, _) = fitted(OPTIONS["random"]), made_data()
    head.outputs(z)
    assert head.outputs(z.to("meta")).device.type == "meta"
    assert head.outputs(z).device.type == "cpu"


def test_features_have_gradients_also_after_inference_mode():
    z, y = made_data(dtype=torch.float32)
    for options in OPTIONS.values():
        head = ClosedFormRadialHead(NAMES, 5, **options)
        with torch.inference_mode():
            head.fit(z, y).predict(z)
        x = z.clone().requires_grad_()
        head.loss(x, y).backward()
        assert x.grad.isfinite().all()
        assert x.grad.any()
        torch.autograd.gradcheck(lambda x, head=head: head.loss(x, y[:4]), z[:4].double().requires_grad_())


class Compute(torch.nn.Module):
    def __init__(self, head):
        super().__init__()
        self.head = head

    def forward(self, z):
        return self.head.compute(z)


@every_option
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_compute_is_exported_for_any_batch_size(options, dtype):
    head, z = fitted(options), made_data(dtype=dtype)[0]
    shapes = {"z": {0: torch.export.Dim("b")}}
    exported = torch.export.export(Compute(head), (z[:5],), dynamic_shapes=shapes).module()
    for mine, theirs in zip(exported(z), head.compute(z), strict=True):
        torch.testing.assert_close(mine, theirs, **tolerance(100, dtype, size=10))
    assert_same(head, fitted(options))  # tracing leaves nothing in the head


@every_option
def test_compute_is_compiled_without_a_graph_break(options):
    head, z = fitted(options), made_data(dtype=torch.float32)[0]
    compiled = torch.compile(Compute(head), backend="eager", fullgraph=True)
    for mine, theirs in zip(compiled(z), head.compute(z), strict=True):
        torch.testing.assert_close(mine, theirs, **tolerance(100, size=10))
    assert_same(head, fitted(options))


def test_a_head_must_be_solved_before_its_export():
    z, y = made_data()
    head = ClosedFormRadialHead(NAMES, 5).partial_fit(z, y)
    with pytest.raises(HeadError, match=r"solved before it is exported or compiled: call solve\(\) first"):
        torch.export.export(Compute(head), (z,))
    exported = torch.export.export(Compute(head.solve()), (z,)).module()
    assert_equal(exported(z).log_probs, head.log_probs(z))


def damaged(head, path, change):
    """The file of a head after a change of its tensors."""
    save_head(head, path / "head")
    tensors, header = read_tensors(path / "head")
    change(tensors)
    save_file(tensors, path / "head", metadata=header)
    return path / "head"


ALL_TENSORS = sorted(fitted({"random_features": 9, "class_weight": "balanced"}).tensors())


@pytest.mark.parametrize("name", [name for name in ALL_TENSORS if name != "sums.class_weight"])
def test_a_missing_tensor_is_named(name, tmp_path):
    head = fitted({"random_features": 9})
    path = damaged(head, tmp_path, lambda tensors: tensors.pop(name))
    with pytest.raises(
        DataError, match=rf"must have a tensor '{name.removeprefix('sums.')}' of the shape .*, got none"
    ):
        load_head(path)


@pytest.mark.parametrize("name", ALL_TENSORS)
def test_a_tensor_of_another_shape_is_named(name, tmp_path):
    head = fitted({"random_features": 9, "class_weight": "balanced"})
    path = damaged(head, tmp_path, lambda tensors: tensors.update({name: torch.ones(2, 2, dtype=torch.float64)}))
    with pytest.raises(
        DataError, match=rf"must have a tensor '{name.removeprefix('sums.')}' of the shape .*, got \(2, 2"
    ):
        load_head(path)


def test_counts_that_do_not_fit_the_hashes_are_named(tmp_path):
    for counts in ([1, 2, 3], [61, -1, 0]):
        path = damaged(fitted({}), tmp_path, lambda t, counts=counts: t.update({"sums.counts": torch.tensor(counts)}))
        with pytest.raises(DataError, match=r"'hashes' of the shape|must have no negative counts"):
            load_head(path)
    n = fitted({}).counts.sum()
    path = damaged(fitted({}), tmp_path, lambda t: t.update({"sums.counts": torch.tensor([n, -1, 0])}))
    with pytest.raises(DataError, match="must have no negative counts"):
        load_head(path)


@pytest.mark.parametrize("name", ["weight", "sums.means", "sums.scatter", "sums.weights"])
def test_numbers_that_are_not_finite_are_named(name, tmp_path):
    path = damaged(fitted({}), tmp_path, lambda t: t[name].fill_(torch.nan))
    with pytest.raises(DataError, match=rf"in '{name.removeprefix('sums.')}' must be finite"):
        load_head(path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"classes": ["ant", "bee"]}, "of the shape"),
        ({"num_features": 4}, "of the shape"),
        ({"random_features": 7}, "of the shape"),
        ({"alpha": -1.0}, "alpha must be a finite number above 0"),
        ({"colour": "red"}, "do not fit this version"),
        ({"classes": ["ant", "ant", "bee"]}, "class names must differ"),
    ],
)
def test_settings_that_do_not_fit_are_named(change, message):
    head = fitted({})
    with pytest.raises(DataError, match=message):
        make_head("ClosedFormRadialHead", head.settings() | change, head.tensors())


def test_settings_are_json():
    for options in OPTIONS.values():
        head = fitted(options)
        again = make_head("ClosedFormRadialHead", json.loads(json.dumps(head.settings())), head.tensors())
        assert_same(again, head)


def test_a_restore_that_fails_changes_nothing():
    head, other = fitted({"random_features": 9}), fitted({"random_features": 9, "seed": 1})
    tensors = other.tensors()
    del tensors["sums.means"]
    with pytest.raises(DataError):
        head.restore(tensors)
    assert_same(head, fitted({"random_features": 9}))
