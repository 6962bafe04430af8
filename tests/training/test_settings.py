import pytest

from openradial.errors import OptionError
from openradial.training import Settings
from openradial.training.settings import read_toml


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"epochs": 0}, r"epochs must lie in \[1, 1000000000\], got 0"),
        ({"epochs": 1.5}, r"epochs must be a whole number, got 1\.5"),
        ({"epochs": "ten"}, "epochs must be a whole number, got 'ten'"),
        ({"seed": True}, "seed must be a whole number, got True"),
        ({"learning_rate": 0}, r"learning_rate must lie in \(0, 1000000\.0\], got 0\.0"),
        ({"learning_rate": float("nan")}, "learning_rate must be a number, got nan"),
        ({"optimiser": "adan"}, "optimiser must be one of 'adam', 'adamw', 'muon', 'rmsprop', 'sgd', got 'adan'"),
        (
            {"optimiser": "adam", "bias_factor": 2},
            "bias_factor is for optimiser='sgd' or 'muon', got 'adam'; leave it out",
        ),
        ({"betas": [0.9]}, r"betas must be 2 numbers, got \[0\.9\]"),
        ({"betas": [0.9, 1.0]}, r"betas must lie in \[0, 0\.999999999\], got 1\.0"),
        ({"clip_norm": -1}, r"clip_norm must lie in \(0, inf\], got -1\.0"),
        ({"channels_last": 1}, "channels_last must be true or false, got 1"),
        ({"lerning_rate": 1}, "there is no setting 'lerning_rate'; did you mean 'learning_rate'?"),
        ({"xyz": 1}, "there is no setting 'xyz'; the settings are: epochs, batch_size"),
    ],
)
def test_a_bad_setting_is_refused_by_name(values, message):
    with pytest.raises(OptionError, match=message):
        Settings.from_mapping(values)


def test_settings_come_from_a_toml_file_with_the_same_names(tmp_path):
    (tmp_path / "run.toml").write_text(
        '[training]\nepochs = 3\noptimiser = "rmsprop"\nbetas = [0.5, 0.9]\nema = 0.99\n'
    )
    settings = Settings.from_mapping(read_toml(tmp_path / "run.toml")["training"])
    assert settings == Settings(epochs=3, optimiser="rmsprop", betas=(0.5, 0.9), ema=0.99)
    assert Settings.from_mapping(settings.as_dict()) == settings


def test_a_missing_toml_file_is_named(tmp_path):
    with pytest.raises(OptionError, match=r"the settings file .*run\.toml cannot be read: No such file"):
        read_toml(tmp_path / "run.toml")


def test_a_broken_toml_file_is_named(tmp_path):
    (tmp_path / "run.toml").write_text("[training\n")
    with pytest.raises(OptionError, match=r"run\.toml is not a TOML file: .*line 1"):
        read_toml(tmp_path / "run.toml")


@pytest.mark.parametrize("text", ["epochs = 1" + "0" * 5000, "epochs = " + "[" * 100_000], ids=["digits", "brackets"])
def test_a_toml_file_beyond_the_limits_of_python_is_named(tmp_path, text):
    (tmp_path / "run.toml").write_text(text)
    with pytest.raises(OptionError, match=r"run\.toml is not a TOML file: "):
        read_toml(tmp_path / "run.toml")


def test_whole_numbers_serve_as_numbers():
    assert Settings(learning_rate=1).learning_rate == 1.0
