"""From a table of sentences to a model that answers an intent or "unknown", as with any other data.

The sentences are questions to a bank, a part of BANKING77: 24 intents to learn, and 12 others that the model never
sees. Three commands do everything, and are shown as they run.
"""

import argparse
import shlex
from pathlib import Path

from openradial.cli.app import app

DATA = Path(__file__).parent / "banking77"
ASKED = (
    "Why was my card payment reversed?",
    "My top up is still pending, what is going on?",
    "I cannot remember my passcode",
    "The machine has swallowed my card",  # of an intent that is not known
    "Will it rain in Berlin tomorrow?",
    "Please recommend a good book about whales",
)

NEXT = """
What to try next
  open {out}/report/report.html            curves, classes, the most confident mistakes
  openradial predict {out}/model - --false-reject-rate 0.01   type sentences, one per line
  openradial inspect {out}/model           what the model holds
  openradial export {out}/model --to onnx  one file to deploy
  openradial fit YOUR.csv --label COLUMN --out model   your own sentences or tables
  openradial fit YOUR_FOLDER --out model   your own photographs: a folder with one folder of images per class
  openradial play {out}/model              the playground: open the address that it prints in a browser
"""


def main(argv: list[str] | None = None) -> None:
    """Fit, evaluate and predict."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("demo"), help="folder of the model and the report")
    parser.add_argument("--encoder", default="auto", help="of the sentences (default: the best one that is available)")
    options = parser.parse_args(argv)
    out: Path = options.out
    encoder = [] if options.encoder == "auto" else ["--encoder", options.encoder]
    openradial("fit", _path("train.csv"), "--label", "category", "--out", f"{out}/model", "--overwrite", *encoder)
    data = ["--known", _path("test.csv"), "--novel", _path("novel.csv"), "--out", f"{out}/report"]
    openradial("evaluate", f"{out}/model", *data, "--title", "Questions to a bank: 24 intents known, 12 novel")
    questions = out / "questions.csv"
    questions.write_text("\n".join(["text", *(f'"{text}"' for text in ASKED)]) + "\n", encoding="utf-8")
    openradial("predict", f"{out}/model", str(questions))
    print(NEXT.format(out=out))


def openradial(*arguments: str) -> None:
    """Show a command, and run it in this process."""
    print(f"\n$ openradial {shlex.join(arguments)}", flush=True)
    app(list(arguments), standalone_mode=False)


def _path(name: str) -> str:
    """Return the path of a file of sentences, relative to the current folder where it lies below it."""
    path = DATA / name
    return str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)


if __name__ == "__main__":
    main()
