import pytest
import torch

from openradial.errors import ShapeError
from openradial.models import build
from openradial.nn import hidden_layers


def test_features_stay_as_they_are_or_become_float64():
    z = torch.tensor([[3.0, 4.0], [0.0, 0.0]])
    net = build("features", 2)
    assert torch.equal(net(z), z)
    assert list(net.parameters()) == []
    assert build("features", 2, float64=True)(z).dtype == torch.float64


@pytest.mark.parametrize("shape", [(4, 3), (4,), (1, 2, 2)])
def test_features_of_another_shape_are_refused(shape):
    with pytest.raises(ShapeError, match=r"features must have the shape \(b, 2\), got"):
        build("features", 2)(torch.zeros(shape))


def test_the_last_columns_may_be_features_of_a_middle_layer_and_bands():
    z = torch.arange(24.0).view(2, 12)
    found = hidden_layers(build("features", 12, num_middle=9), z, ("outputs", "middle", "bands"))
    assert torch.equal(found["outputs"], z[:, :3])
    assert torch.equal(found["middle"], z[:, 3:5])
    assert torch.equal(found["bands"], z[:, 5:])
