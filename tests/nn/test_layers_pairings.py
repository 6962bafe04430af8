"""Every network fits every loss, and what was computed from outputs is refused as outputs."""

import copy
import io
from functools import partial

import pytest
import torch
from torch import nn
from torch.nn import functional as TF

from openradial import (
    RadialLayer,
    RadialLinear,
    RadialLoss,
    functional,
    models,
    reference,
    replace_head,
)
from openradial.errors import DTypeError, OptionError
from openradial.heads import RadialHead


def affine_network():
    return nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 3))


NETWORKS = {
    "nn.Linear": affine_network,
    "RadialLinear": lambda: nn.Sequential(nn.Linear(2, 8), nn.ReLU(), RadialLinear(8, 3)),
    "replace_head": lambda: replace_head(nn.Sequential(affine_network(), nn.Linear(3, 7), nn.LogSoftmax(-1)), 3),
    "model": lambda: models.build("mlp", 3, inputs=2),
}


LOSSES = {
    "RadialLoss": lambda o, y: RadialLoss()(o, y),
    "RadialLayer": lambda o, y: RadialLayer(3).loss(o, y),
    "RadialHead": lambda o, y: RadialHead(3).loss(o, y),
    "functional": lambda o, y: functional.radial_loss(o, y),
}


COMPUTED = {
    "log-probabilities": [RadialLayer(3).log_probs, functional.radial_log_probs],
    "probabilities": [RadialLayer(3).probs, RadialLayer(3, cutoff="disjoint").probs, functional.radial_probs],
    "distances": [RadialLayer(3).distances, functional.radial_distances, lambda o: functional.radial_nearest(o, 3)[0]],
}


@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES.keys())
@pytest.mark.parametrize("build", NETWORKS.values(), ids=NETWORKS.keys())
def test_every_network_and_every_loss_make_the_radial_loss_of_the_affine_outputs(build, loss):
    torch.manual_seed(0)
    net, x, y = build().eval(), torch.randn(6, 2), torch.tensor([0, 1, 2, 2, 1, 0])
    affine = [m for m in net.modules() if isinstance(m, nn.Linear)][-1]
    seen = []
    affine.register_forward_hook(lambda m, args, out: seen.append(out.detach().numpy()))
    assert loss(net(x), y).item() == pytest.approx(reference.radial_loss(seen[0], y.numpy()), rel=1e-6)


@pytest.mark.parametrize(("kind", "compute"), [(kind, f) for kind, functions in COMPUTED.items() for f in functions])
def test_what_was_computed_from_outputs_is_refused_as_outputs(kind, compute):
    o, y, layer = torch.randn(4, 3), torch.tensor([0, 1, 2, 0]), RadialLayer(3)
    takers = [layer.log_probs, layer.probs, layer.distances, layer.nearest, *(partial(f, y=y) for f in LOSSES.values())]
    for take in takers:
        assert take(o) is not None
        with pytest.raises(DTypeError, match=f"expected the outputs of a network, got the {kind} computed from them"):
            take(compute(o))
    assert TF.nll_loss(compute(o), y).isfinite()  # only what takes outputs refuses


def test_a_layer_is_not_called_and_points_to_its_methods():
    with pytest.raises(OptionError, match=r"layer\.log_probs\(o\)"):
        RadialLayer(3)(torch.zeros(2, 3))


def test_the_note_on_a_result_survives_copies_and_files_and_not_arithmetic():
    log_probs = RadialLayer(3).log_probs(torch.zeros(2, 3))
    file = io.BytesIO()
    torch.save(log_probs, file)
    file.seek(0)
    for same in (copy.deepcopy(log_probs), torch.load(file)):
        with pytest.raises(DTypeError):
            functional.radial_loss(same, torch.tensor([0, 1]))
    assert functional.radial_loss(log_probs + 1, torch.tensor([0, 1])).isfinite()
