"""Training: one loop for every network and head, on one core or on many machines."""

from openradial.nn.objective import Objective
from openradial.training.loop import fit
from openradial.training.machine import Machine
from openradial.training.run_state import History
from openradial.training.settings import Settings

__all__ = ["History", "Machine", "Objective", "Settings", "fit"]
