"""Write slow.txt: the tests that take more than 0.1 seconds, all parameters together, which `make quick` leaves out.

python -m pytest -n 2 -vv --durations=0 --durations-min=0.005 | python tests/slow.py
"""

import re
import sys
from collections import Counter
from pathlib import Path

LIMIT = 0.1  # seconds
LIST = Path(__file__).with_name("slow.txt")


def main() -> None:
    seconds: Counter[str] = Counter()
    for line in sys.stdin:
        if found := re.match(r"([\d.]+)s (?:call|setup|teardown) +(\S+?::[^\[\s]+)", line):
            seconds[found[2]] += float(found[1])
    LIST.write_text("".join(f"{name}\n" for name in sorted(seconds) if seconds[name] >= LIMIT))


if __name__ == "__main__":
    main()
