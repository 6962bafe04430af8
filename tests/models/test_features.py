import pytest
import torch

from openradial.errors import ShapeError
from openradial.models import build


def test_features_stay_as_they_are_or_get_length_one():
    z = torch.tensor([[3.0, 4.0], [0.0, 0.0]])
    net = build("features", 2)
    assert torch.equal(net(z), z)
    assert list(net.parameters()) == []
    torch.testing.assert_close(build("features", 2, normalise=True)(z), torch.tensor([[0.6, 0.8], [0.0, 0.0]]))


@pytest.mark.parametrize("shape", [(4, 3), (4,), (1, 2, 2)])
def test_features_of_another_shape_are_refused(shape):
    with pytest.raises(ShapeError, match=r"features must have the shape \(b, 2\), got"):
        build("features", 2)(torch.zeros(shape))
