"""A network without layers, for inputs that are features already."""

from torch import Tensor, nn

from openradial.errors import ShapeError


class Features(nn.Module):
    """Features as they are, divided by their length, or in float64; ``(b, d) -> (b, d)``.

    Args:
        num_classes: the number of outputs, which is the number of features here.
        normalise: whether each row is divided by its length.
        float64: whether features become float64, so that the result for a row does not depend on the other rows.
    """

    def __init__(self, num_classes: int, normalise: bool = False, float64: bool = False) -> None:
        super().__init__()
        self.num_features, self.normalise, self.float64 = num_classes, normalise, float64

    def forward(self, x: Tensor) -> Tensor:
        if x.ndim != 2 or x.shape[1] != self.num_features:
            raise ShapeError(f"features must have the shape (b, {self.num_features}), got {tuple(x.shape)}")
        x = x.double() if self.float64 else x
        return nn.functional.normalize(x) if self.normalise else x
