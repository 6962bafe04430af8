import pytest
import torch

from openradial.errors import DTypeError, OptionError, ShapeError
from openradial.models import EfficientNetLite, MnistCNN, ResNet, build
from openradial.models.imagenet import SameConv2d


@pytest.mark.parametrize("make", [lambda: ResNet(5, width=4), lambda: EfficientNetLite(5)])
@pytest.mark.parametrize("size", [1, 17, 32])
def test_resnet_and_efficientnet_take_images_of_any_size(make, size):
    assert make().eval()(torch.zeros(1, 3, size, size + 2)).shape == (1, 5)


@pytest.mark.parametrize("size", [32, 64])
def test_the_form_for_small_images_takes_32_and_64_pixels(size):
    assert build("resnet18", 5, stem="small", width=8).eval()(torch.zeros(1, 3, size, size)).shape == (1, 5)


def test_the_small_stem_keeps_the_size_that_the_other_quarters():
    small, usual = ResNet(5, width=4, stem="small").eval(), ResNet(5, width=4).eval()
    for model, size in ((small, 32), (usual, 8)):
        seen = []
        model.layer1.register_forward_pre_hook(lambda _, inputs, seen=seen: seen.append(inputs[0].shape[2:]))
        model(torch.zeros(1, 3, 32, 32))
        assert seen == [(size, size)]


@pytest.mark.parametrize(("stride_in", "strides"), [("3x3", (1, 2)), ("1x1", (2, 1))])
def test_the_halving_convolution_can_be_chosen(stride_in, strides):
    block = ResNet(5, depth=50, width=4, stride_in=stride_in).layer2[0]
    assert (block.conv1.stride[0], block.conv2.stride[0]) == strides


@pytest.mark.parametrize("size", [8, 9])
@pytest.mark.parametrize("kernel", [3, 5])
@pytest.mark.parametrize("stride", [1, 2])
def test_same_padding_is_that_of_tensorflow(size, kernel, stride):
    # TensorFlow's rule: ceil(size / stride) outputs; what is missing is added, the larger half at the end.
    torch.manual_seed(0)
    layer, x = SameConv2d(1, 1, kernel, stride), torch.randn(1, 1, size, size)
    outputs = -(-size // stride)
    padded = torch.zeros(size + 2 * kernel, size + 2 * kernel)
    before = max((outputs - 1) * stride + kernel - size, 0) // 2
    padded[before : before + size, before : before + size] = x[0, 0]
    expected = torch.empty(outputs, outputs)
    for i in range(outputs):
        for j in range(outputs):
            window = padded[i * stride : i * stride + kernel, j * stride : j * stride + kernel]
            expected[i, j] = (window * layer.weight[0, 0]).sum()
    torch.testing.assert_close(layer(x)[0, 0], expected)


@pytest.mark.parametrize("name", ["resnet18", "efficientnet_lite0"])
def test_other_numbers_of_channels_work(name):
    model = build(name, 5, channels=1).eval()
    assert model(torch.zeros(1, 1, 64, 64)).shape == (1, 5)


IMAGES = "expected images of shape (b, 1, h, w), got "


@pytest.mark.parametrize(
    ("x", "error", "message"),
    [
        (torch.zeros(2, 3, 28, 28), ShapeError, f"{IMAGES}(2, 3, 28, 28)"),
        (torch.zeros(1, 28, 28), ShapeError, f"{IMAGES}(1, 28, 28); add the batch with x[None]"),
        (
            torch.zeros(2, 1, 12, 28),
            ShapeError,
            "the network needs images of at least 16 x 16 pixels, got 12 x 28; enlarge them or use a network for small "
            "images",
        ),
        (torch.zeros(2, 784), ShapeError, f"{IMAGES}(2, 784)"),
        (
            torch.zeros(2, 1, 32, 30),
            ShapeError,
            "the network was built for images of 28 x 28 pixels, got 32 x 30; build it with size=(32, 30)",
        ),
        (
            torch.zeros(2, 1, 28, 28, dtype=torch.uint8),
            DTypeError,
            "expected floating-point inputs, got torch.uint8; convert them with x.float()",
        ),
    ],
)
def test_wrong_images_are_described(x, error, message):
    with pytest.raises(error) as caught:
        MnistCNN(10)(x)
    assert str(caught.value) == message


def test_a_table_of_the_wrong_width_is_described():
    with pytest.raises(ShapeError, match=r"^expected inputs of shape \(b, 4\), got \(2, 5\)$"):
        build("mlp", 3, inputs=4)(torch.zeros(2, 5))
    with pytest.raises(ShapeError, match=r"^expected inputs of shape \(b, 4\), got \(4,\)$"):
        build("mlp", 3, inputs=4)(torch.zeros(4))


def test_an_mlp_flattens_images():
    assert build("mlp", 3, inputs=12)(torch.zeros(2, 3, 2, 2)).shape == (2, 3)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"depth": 19}, "depth must be one of '18', '34', '50', got '19'"),
        ({"stem": "tiny"}, "stem must be one of 'imagenet', 'small', got 'tiny'"),
        ({"stride_in": "5x5"}, "stride_in must be one of '3x3', '1x1', got '5x5'"),
        ({"channels": 0}, "channels must be a whole number of at least 1, got 0"),
    ],
)
def test_a_bad_setting_of_a_resnet_is_named(options, message):
    with pytest.raises(OptionError) as caught:
        ResNet(5, **options)
    assert str(caught.value) == message
