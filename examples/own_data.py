"""From a folder of images to a model that says class or unknown, as with any other data.

The digits of scikit-learn are written as image files: 0 to 5 as known classes, for training and for testing, and 6 to 9
as novel ones that the model never sees. Then three commands do the rest, and are shown as they run.
"""

import argparse
import shlex
from pathlib import Path

from PIL import Image

from openradial.cli.app import app
from openradial.data import load

KNOWN = "012345"
BRIGHTNESS = 15  # the set has grey values from 0 to 16
SHOWN = 3  # images of each part that are predicted one by one

NEXT = """
What to try next
  open {out}/report/report.html            curves, classes, the most confident mistakes
  openradial predict {out}/model FILES --false-reject-rate 0.01
  openradial inspect {out}/model           what the model holds
  openradial export {out}/model --to onnx  one file to deploy
  openradial fit YOUR_FOLDER --out model   a folder with one folder of images per class, or a table with --label
  python examples/digits_demo.py           softmax beside the radial layer, on the same digits
  openradial play {out}/model              the playground: open the address that it prints in a browser
"""


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("demo"), help="folder of images, model and report")
    parser.add_argument("--epochs", type=int, help="how often the network sees the data (default: chosen by fit)")
    options = parser.parse_args(argv)
    out: Path = options.out

    print(f"Writing digits to {out}/digits (0 to 5) and {out}/novel (6 to 9)")
    for part in ("train", "test"):
        write(part, out)

    epochs = ["--epochs", str(options.epochs)] if options.epochs else []
    openradial("fit", f"{out}/digits", "--out", f"{out}/model", "--overwrite", *epochs)
    data = ["--known", f"{out}/digits", "--novel", f"{out}/novel", "--out", f"{out}/report"]
    openradial("evaluate", f"{out}/model", *data, "--title", "Handwritten digits: 0 to 5 known, 6 to 9 novel")
    known, novel = (sorted(map(str, (out / part).glob("*/*.png"))) for part in ("digits/test", "novel"))
    step = max(1, len(novel) // SHOWN)
    openradial("predict", f"{out}/model", *known[:: len(known) // SHOWN][:SHOWN], *novel[::step][:SHOWN])
    print(NEXT.format(out=out))


def write(part: str, out: Path) -> None:
    """Write a part of the digits as PNG files, one folder per digit; novel digits are for testing only."""
    digits = load("digits", part)
    for index, (pixels, label) in enumerate(zip(digits.inputs, digits.labels.tolist(), strict=True)):
        name = digits.classes[label]
        if name not in KNOWN and part == "train":
            continue
        folder = out / "digits" / part / name if name in KNOWN else out / "novel" / name
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels[0].numpy() * BRIGHTNESS).save(folder / f"{index:04}.png")


def openradial(*arguments: str) -> None:
    """Show a command, and run it in this process."""
    print(f"\n$ openradial {shlex.join(arguments)}")
    app(list(arguments), standalone_mode=False)


if __name__ == "__main__":
    main()
