import pytest
import torch
from fit_data import write_images, write_table

from openradial import models
from openradial.data import sources
from openradial.data.examples import Examples
from openradial.data.readers.images import ImageStatistics
from openradial.data.sources import DataSource
from openradial.errors import OptionError
from openradial.fitting import FitOptions, NetworkChoice, choose_network, choose_settings


def pictures(size, channels=1):
    return DataSource(
        "set",
        "images",
        Examples(torch.zeros(4, channels, size, size, dtype=torch.uint8), torch.arange(4), tuple("abcd")),
    )


def files(tmp_path, side, channels):
    source = sources.open(str(write_images(tmp_path / "set", each=1)))
    return DataSource(source.name, "images", source.train, image_statistics=ImageStatistics(side, channels))


@pytest.mark.parametrize(
    ("size", "channels", "network", "shift"),
    [(8, 1, "mlp", 0), (16, 1, "mnist_radial", 0), (28, 1, "fast_cnn", 1), (32, 3, "fast_cnn", 2)],
)
def test_images_get_a_network_by_their_size(size, channels, network, shift):
    choice = choose_network(FitOptions("set"), pictures(size, channels))
    assert (choice.name, choice.size, choice.channels, choice.shift) == (network, size, channels, shift)
    x = torch.zeros(2, channels, size, size)
    assert models.build(choice.name, 4, **choice.options).eval()(x).shape == (2, 4)


@pytest.mark.parametrize(("side", "size"), [(5, 8), (8, 8), (20, 16), (30, 28), (50, 32), (64, 64), (900, 64)])
def test_images_of_a_folder_get_the_largest_usual_size_not_above_theirs(tmp_path, side, size):
    assert choose_network(FitOptions("set"), files(tmp_path, side, 1)).size == size


def test_photographs_are_trained_from_scratch_unless_a_network_with_weights_is_named(tmp_path):
    source = files(tmp_path, 200, 3)
    assert choose_network(FitOptions("set"), source).name == "fast_cnn"
    choice = choose_network(FitOptions("set", model="efficientnet_lite0"), source)
    assert (choice.name, choice.weights, choice.size, choice.channels) == ("efficientnet_lite0", "imagenet", 128, 3)
    assert choose_network(FitOptions("set", model="efficientnet_lite0", size=96), source).size == 96


def test_a_table_and_points_get_a_fully_connected_network(tmp_path):
    source = sources.open(write_table(tmp_path / "t.csv"), label="kind")
    assert choose_network(FitOptions("t.csv"), source, num_inputs=5).options == {"inputs": 5, "hidden": (100, 100)}
    assert choose_network(FitOptions("spiral"), sources.open("spiral")).options["inputs"] == 2


def test_sequences_get_a_network_of_their_own():
    steps = DataSource("s", "sequences", Examples(torch.ones(4, 9, 3), torch.arange(4), tuple("abcd")))
    choice = choose_network(FitOptions("s"), steps)
    assert (choice.name, choice.options) == ("gru", {"channels": 3})


def test_what_the_user_says_of_the_network_wins():
    choice = choose_network(FitOptions("set", model="mlp", model_options={"hidden": [7]}), pictures(32, 3))
    assert choice.options == {"inputs": 3072, "hidden": [7]}
    assert choose_network(FitOptions("set", model="my.nets:make", model_options={"a": 1}), pictures(32)).options == {
        "a": 1
    }


@pytest.mark.parametrize(
    ("options", "source"),
    [(FitOptions("x", size=32), pictures(28)), (FitOptions("x", flip=True), sources.open("spiral"))],
)
def test_a_size_or_a_flip_where_there_is_none_is_refused(options, source):
    with pytest.raises(OptionError, match=r"size is for folders of images|flip is for images, and spiral holds points"):
        choose_network(options, source)


def test_small_sets_are_seen_more_often_in_smaller_batches():
    settings = [choose_settings(FitOptions("x"), NetworkChoice("mlp"), n) for n in (100, 4_000, 20_000, 1_000_000)]
    assert [each.epochs for each in settings] == [100, 75, 15, 5]
    assert [each.batch_size for each in settings] == [32, 64, 128, 256]


def test_settings_of_the_user_replace_the_chosen_ones():
    settings = choose_settings(
        FitOptions("x", seed=3, training={"epochs": 2, "optimiser": "sgd"}), NetworkChoice("mlp"), 100
    )
    assert (settings.epochs, settings.optimiser, settings.schedule, settings.seed) == (2, "sgd", "cosine", 3)
    assert choose_settings(FitOptions("x"), NetworkChoice("e", weights="imagenet"), 1000).warmup_epochs == 0.5


def test_convolutions_are_trained_with_channels_innermost():
    choices = (
        NetworkChoice("mlp"),
        NetworkChoice("mlp", size=8),
        NetworkChoice("mnist_radial", size=28),
        NetworkChoice("mine:net", size=28),
    )
    assert [choose_settings(FitOptions("x"), each, 100).channels_last for each in choices] == [
        False,
        False,
        True,
        False,
    ]
    asked = FitOptions("x", training={"channels_last": False})
    assert not choose_settings(asked, NetworkChoice("mnist_radial", size=28), 100).channels_last


def test_many_classes_get_wider_networks():
    names = tuple(map(str, range(51)))
    data = Examples(torch.zeros(51, 3, 8, 8, dtype=torch.uint8), torch.arange(51), names)
    options = choose_network(FitOptions("set"), DataSource("set", "images", data)).options
    assert options["hidden"] == (256, 256)


def test_colour_images_are_mirrored_and_all_are_moved_unless_the_options_differ():
    def augmentation(channels, **options):
        choice = choose_network(FitOptions("set", **options), pictures(32, channels))
        views = choice.options["test_flip"], choice.options["test_shift"]
        return choice.flip, choice.shift, choice.augment, choice.cutout, *views

    assert augmentation(3) == (True, 2, 1.0, 0, True, 1)
    assert augmentation(1) == (False, 2, 0.0, 0, False, 0)
    assert augmentation(3, flip=False, shift=0, augment=0, cutout=8) == (False, 0, 0.0, 8, False, 0)
    assert augmentation(1, flip=True, shift=4, augment=2) == (True, 4, 2.0, 0, True, 1)


def test_the_fast_network_takes_large_steps_on_large_batches():
    def settings(n, members=1, **training):
        choice = NetworkChoice("fast_cnn", {"members": members}, size=32)
        return choose_settings(FitOptions("set", training=training), choice, n)

    assert (settings(27_000).batch_size, settings(27_000).epochs) == (1024, 17)
    small, large = settings(500), settings(27_000, batch_size=2000)
    assert (small.batch_size, large.learning_rate, large.bias_factor) == (32, 0.24, 0.6)
    assert small.learning_rate == pytest.approx(0.24 * (32 / 2000) ** 0.5)  # of weights with the root of the batch
    assert small.learning_rate * small.bias_factor == pytest.approx(0.144 * 32 / 2000)  # of biases with the batch
    assert settings(27_000).optimiser == "muon"
    one, four = settings(27_000), settings(27_000, members=4)  # a member has its part of an epoch and of a batch
    assert (four.batch_size, four.epochs, four.learning_rate) == (4096, 67, one.learning_rate)
    assert four.bias_factor == 4 * one.bias_factor  # the loss is divided by the complete batch
    adam = settings(27_000, optimiser="adam")
    assert (adam.learning_rate, adam.bias_factor, adam.schedule) == (1e-3, 1.0, "linear")
    with pytest.raises(OptionError, match="members must be a whole number of at least 1, got 0"):
        settings(27_000, members=0)
    assert settings(27_000, precision="float32").precision == "float32"


def test_an_option_that_the_network_does_not_have_is_refused_before_data_are_prepared():
    with pytest.raises(OptionError, match="the network 'mlp' has no option 'droput'; did you mean 'dropout'"):
        choose_network(FitOptions("set", model="mlp", model_options={"droput": 0.1}), pictures(8))
