"""From a data set to a calibrated open-world classifier: the network, its training, its calibration, its numbers.

Known data serve four times, and no example twice: to train, to combine scores, to calibrate, and to report.
"""

from openradial.fitting.choosing import Choice, choose, choose_settings
from openradial.fitting.job import FitJob
from openradial.fitting.parts import Parts, hold_out
from openradial.fitting.recipe import Recipe, make_recipe, open_classifier
from openradial.fitting.report import FitReport
from openradial.fitting.running import Fitted, fit_job

__all__ = [
    "Choice",
    "FitJob",
    "FitReport",
    "Fitted",
    "Parts",
    "Recipe",
    "choose",
    "choose_settings",
    "fit_job",
    "hold_out",
    "make_recipe",
    "open_classifier",
]
