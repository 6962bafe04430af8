"""Install packages with pip and show how far it is: pip alone is either silent for minutes or prints hundreds of lines.

python tools/install.py LOCK [pip's arguments]
"""

import re
import subprocess
import sys
import sysconfig
import threading
import time
from pathlib import Path

SECONDS = 5.0  # between two lines where the output is no terminal


class Progress:
    """Prints a state: over the line before on a terminal, else every few seconds."""

    def __init__(self) -> None:
        self.start = time.monotonic()
        self.printed = self.start - SECONDS
        self.width = 0
        self.overwrite = sys.stdout.isatty()

    def show(self, text: str, last: bool = False) -> None:
        now = time.monotonic()
        line = f"  {text}, {now - self.start:.0f} s"
        if self.overwrite:
            end = "\n" if last else ""
            print(f"\r{line.ljust(self.width)}", end=end, flush=True)
            self.width = len(line)
        elif last or now - self.printed >= SECONDS:
            print(line, flush=True)
            self.printed = now


def main() -> int:
    lock, *arguments = sys.argv[1:]
    known = sum(1 for line in Path(lock).read_text().splitlines() if "==" in line)
    command = [sys.executable, "-m", "pip", "install", "--disable-pip-version-check", "--progress-bar", "off"]
    process = subprocess.Popen(
        [*command, "-c", lock, *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    assert process.stdout is not None
    progress, log, found = Progress(), [], 0
    for line in process.stdout:
        log.append(line)
        if name := re.match(r"\s*(?:Collecting|Processing) (?:.*/)?([A-Za-z0-9_.]+?)(?:-[0-9]|[ <>=!\[(;~]|$)", line):
            found += 1
            progress.show(f"found {found} of up to {known} packages: {name[1]}")
        elif line.startswith("Installing collected packages"):
            count = line.count(",") + 1
            threading.Thread(target=watch, args=(process, progress, count), daemon=True).start()
    code = process.wait()
    if code:
        print("".join(log[-15:]), f"pip failed with exit code {code}", sep="\n", file=sys.stderr)
    else:
        progress.show("done", last=True)
    return code


def watch(process: "subprocess.Popen[str]", progress: Progress, count: int) -> None:
    """Count what pip has unpacked, since it says nothing while it does so."""
    folder = Path(sysconfig.get_path("purelib"))
    before = installed(folder)
    while process.poll() is None:
        progress.show(f"installed {max(0, installed(folder) - before)} of {count} packages")
        time.sleep(0.5)


def installed(folder: Path) -> int:
    return sum(1 for _ in folder.glob("*.dist-info"))


if __name__ == "__main__":
    sys.exit(main())
