"""Training: one loop for every network and objective, on one core or on many machines.

``fit`` trains, ``Settings`` say how, ``Devices`` say where, an ``Objective`` says what is minimised and ``History`` is
what comes back. ``OutlierObjective`` adds outliers made from the batch. :mod:`openradial.training.checkpoint` reads and
writes the files of a run.
"""

from openradial.nn.objective import BatchSource, Objective
from openradial.scorers.base import limited_threads
from openradial.training import checkpoint
from openradial.training.devices import Devices, threads_for
from openradial.training.loop import History, ObjectiveLike, Record, fit
from openradial.training.outliers import DEFAULTS, MAKERS, OutlierObjective, make_outliers
from openradial.training.settings import Settings

__all__ = ["DEFAULTS", "MAKERS", "BatchSource", "Devices", "History", "Objective", "ObjectiveLike"]
__all__ += ["OutlierObjective", "Record", "Settings", "checkpoint", "fit", "limited_threads", "make_outliers"]
__all__ += ["threads_for"]
