"""From data to a calibrated open-world classifier: network, training, calibration and report.

Known data have four uses, and no example serves twice: to train, to combine scores, to calibrate, and to report.
"""

from openradial.fitting.calibration import LabelledBatches, calibrate, calibrated_beta, closed_world_beta
from openradial.fitting.held_out import HeldOut, hold_out
from openradial.fitting.in_memory import FitData, as_source
from openradial.fitting.networks import NetworkChoice, choose_network, choose_settings
from openradial.fitting.options import FitOptions
from openradial.fitting.output import training_folder
from openradial.fitting.pipeline import StoppedError, fit
from openradial.fitting.preparation import PreparedData, prepare
from openradial.fitting.report import FitReport

__all__ = ["FitData", "FitOptions", "FitReport", "HeldOut", "LabelledBatches", "NetworkChoice", "PreparedData"]
__all__ += ["StoppedError", "as_source", "calibrate", "calibrated_beta", "choose_network", "choose_settings"]
__all__ += ["closed_world_beta", "fit", "hold_out", "prepare", "training_folder"]
