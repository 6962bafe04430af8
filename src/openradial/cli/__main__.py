"""``python -m openradial.cli`` is the command openradial."""

from openradial.cli import main

main()
