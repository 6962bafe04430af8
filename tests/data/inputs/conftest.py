"""The tests of inputs use the small models of the tests of bundles."""

import sys
from pathlib import Path

BUNDLES = Path(__file__).parents[2] / "bundle"
if str(BUNDLES) not in sys.path:
    sys.path.insert(0, str(BUNDLES))
