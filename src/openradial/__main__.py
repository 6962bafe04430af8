"""``python -m openradial`` runs the command ``openradial``."""

from openradial.cli import main

main()
