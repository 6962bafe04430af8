"""A small convolutional network that trains fast from scratch on images of 28 to 96 pixels."""

from collections.abc import Sequence
from itertools import pairwise

import torch
import torch.nn.functional as TF
from torch import Tensor, nn

from openradial.errors import check_count
from openradial.models.contract import Network, check_counts, check_images

LEAST = 16  # pixels: the first layer and three halvings leave one
DIVISOR = 36.0  # of the features, so that one rate suits the steps of Muon for the classifier and for convolutions
PATCHES = 500_000  # that the covariance of patches is computed from


class ConvGroup(nn.Module):
    """Convolution, pooling, normalisation, GELU; and again without the pooling. Normalisation learns no factor."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, padding=1, bias=False)
        self.pool = nn.MaxPool2d(2)
        self.norm1 = nn.BatchNorm2d(outputs, momentum=0.4)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(outputs, momentum=0.4)
        for norm in (self.norm1, self.norm2):
            norm.weight.requires_grad = False

    def forward(self, x: Tensor) -> Tensor:
        x = TF.gelu(self.norm1(self.pool(self.conv1(x))))
        return TF.gelu(self.norm2(self.conv2(x)))


class FastCNN(Network):
    r"""Six convolutions behind a fixed layer that whitens patches, after airbench94 (Jordan, 2024).

    :meth:`fit_whitening` computes the first layer from images before training. Convolutions begin as the identity as
    far as they have as many outputs as inputs. The classifier has no bias.

    Several ``members`` are an ensemble. Each has its own convolutions and its own columns of the classifier, and trains
    on its own part of every batch. In evaluation mode the outputs are the mean of their outputs and the features those
    of all members side by side, divided by :math:`\sqrt{m}`.

    Args:
        widths: channels of the three groups of two convolutions.
        members: number of networks in the ensemble.
        test_flip: in evaluation mode, use the mean of the features of an image and its mirror image.
        test_shift: in evaluation mode, move the image by so many pixels to the lower right, and its mirror image to the
            upper left; without ``test_flip`` use the mean of the features of the image moved to both.

    >>> FastCNN(10, widths=(8, 16, 16)).eval()(torch.zeros(5, 3, 32, 32)).shape
    torch.Size([5, 10])
    """

    def __init__(
        self,
        num_classes: int,
        channels: int = 3,
        widths: Sequence[int] = (64, 256, 256),
        members: int = 1,
        test_flip: bool = False,
        test_shift: int = 0,
    ) -> None:
        super().__init__()
        check_count("test_shift", test_shift, least=0, most=LEAST // 2)
        check_count("channels", channels)
        check_count("members", members, most=100)
        check_counts("widths", widths)
        self.channels, self.test_flip, self.test_shift = channels, test_flip, test_shift
        patch = 4 * channels
        self.whiten = nn.Conv2d(channels, 2 * patch, 2)
        self.whiten.weight.requires_grad = False
        sizes = list(pairwise((2 * patch, *widths)))
        self.members = nn.ModuleList(nn.Sequential(*(ConvGroup(*each) for each in sizes)) for _ in range(members))
        self.classifier = nn.Linear(members * sizes[-1][1], num_classes)
        self.apply(self.initialise)

    def forward_features(self, x: Tensor) -> Tensor:
        check_images(x, self.channels, LEAST)
        count, width = len(self.members), self.num_features // len(self.members)
        if self.training:  # other columns of a row are 0, so its outputs are those of one member
            parts = self._whitened(x).tensor_split(min(count, max(1, len(x) // 2)))  # normalisation needs two examples
            features = (member(part).amax((2, 3)) for member, part in zip(self.members, parts, strict=False))
            wide = [TF.pad(z, (m * width, (count - m - 1) * width)) for m, z in enumerate(features)]
            return torch.cat(wide) / (DIVISOR / count**0.5)  # type: ignore[no-any-return]
        if not (self.test_flip or self.test_shift):
            return self._view(x)
        views, n, (height, width) = [x, x.flip(-1) if self.test_flip else x], self.test_shift, x.shape[2:]
        if n:
            wide = [TF.pad(view, (n, n, n, n), mode="reflect") for view in views]
            views = [view[:, :, i : i + height, i : i + width] for view, i in zip(wide, (0, 2 * n), strict=True)]
        return (self._view(views[0]) + self._view(views[1])) / 2

    def _view(self, x: Tensor) -> Tensor:
        """Return the features of all members."""
        white, divisor = self._whitened(x), DIVISOR * len(self.members) ** 0.5
        return torch.cat([member(white).amax((2, 3)) for member in self.members], 1) / divisor  # type: ignore[no-any-return]

    def _whitened(self, x: Tensor) -> Tensor:
        return TF.gelu(self.whiten(x))

    @torch.no_grad()
    def fit_whitening(self, x: Tensor) -> None:
        """Set the first layer to the whitening of 2 x 2 patches of images, each filter and its negative."""
        check_images(x, self.channels, LEAST)
        patches = x.unfold(2, 2, 1).unfold(3, 2, 1).movedim(1, 3).flatten(3).flatten(0, 2)  # (patches, 4 c)
        patches = patches[:: max(1, len(patches) // PATCHES)].double()
        values, vectors = torch.linalg.eigh(patches.T @ patches / len(patches))
        factors = vectors / (values + 5e-4).sqrt()
        # a sign that no machine chooses: the largest component is positive
        signs = factors.gather(0, factors.abs().argmax(0, keepdim=True)).sign()
        filters = (factors * signs).flip(1).T.reshape(-1, *self.whiten.weight.shape[1:])
        self.whiten.weight.copy_(torch.cat([filters, -filters]))

    def initialise(self, layer: nn.Module) -> None:
        super().initialise(layer)
        if isinstance(layer, nn.Conv2d) and layer.kernel_size == (3, 3):
            nn.init.dirac_(layer.weight[: layer.in_channels])
        elif isinstance(layer, nn.Conv2d | nn.Linear) and layer.bias is not None:
            nn.init.zeros_(layer.bias)
            # the squared loss bends by 2 along a bias of the outputs: it would diverge at learning rates above 0.7
            layer.bias.requires_grad = isinstance(layer, nn.Conv2d)
