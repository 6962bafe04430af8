"""A network without layers, for inputs that are features already."""

from torch import Tensor, nn

from openradial.errors import ShapeError

NUM_BANDS = 7  # octaves of an image whose energy an encoder measures


class Features(nn.Module):
    """Features as they are, or in float64; ``(b, d) -> (b, d)``.

    Args:
        num_classes: the number of outputs, which is the number of features here.
        float64: whether features become float64, so that the result for a row does not depend on the other rows.
        num_middle: how many of the last columns are no outputs, but those of the layers ``middle`` and ``bands`` of an
            encoder of images; the last seven are the bands.
    """

    def __init__(self, num_classes: int, float64: bool = False, num_middle: int = 0) -> None:
        super().__init__()
        self.num_features, self.float64, self.num_middle = num_classes, float64, num_middle
        if num_middle:
            self.middle, self.bands = nn.Identity(), nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        if x.ndim != 2 or x.shape[1] != self.num_features:
            raise ShapeError(f"features must have the shape (b, {self.num_features}), got {tuple(x.shape)}")
        x = x.double() if self.float64 else x
        if self.num_middle:
            self.middle(x[:, -self.num_middle : -NUM_BANDS])
            self.bands(x[:, -NUM_BANDS:])
            x = x[:, : -self.num_middle]
        return x
