"""openradial: classifiers that answer a class or "unknown".

The names below are the public ones. They are imported when first used, so that ``openradial.reference`` works without
torch and an import costs only what is needed.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0.dev0"

_NN = ("AxisPrototypes", "FixedPrototypes", "LearnedPrototypes", "RadialLayer", "RadialLinear", "RadialLoss")
_NAMES = dict.fromkeys((*_NN, "SimplexPrototypes", "replace_head"), "nn") | {"OpenClassifier": "classifier"}
_NAMES |= {"OpenRadialError": "errors", "RadialClassifier": "estimator", "Recipe": "recipe", "fit": "fitting"}
_NAMES |= {"load": "bundle"}

__all__ = ["AxisPrototypes", "FixedPrototypes", "LearnedPrototypes", "OpenClassifier", "OpenRadialError"]
__all__ += ["RadialClassifier", "RadialLayer", "RadialLinear", "RadialLoss", "Recipe", "SimplexPrototypes", "attacks"]
__all__ += ["bayes", "bundle", "classifier", "conformal", "data", "encoders", "errors", "estimator", "evaluation"]
__all__ += ["export", "fit", "fitting", "functional", "heads", "load", "metrics", "models", "nn", "recipe", "reference"]
__all__ += ["replace_head", "scorers", "server", "training"]
MODULES = tuple(name for name in __all__ if name not in _NAMES)

if TYPE_CHECKING:
    from openradial import (
        attacks,
        bayes,
        bundle,
        classifier,
        conformal,
        data,
        encoders,
        errors,
        estimator,
        evaluation,
        export,
        fitting,
        functional,
        heads,
        metrics,
        models,
        nn,
        recipe,
        reference,
        scorers,
        server,
        training,
    )
    from openradial.bundle import load
    from openradial.classifier import OpenClassifier
    from openradial.errors import OpenRadialError
    from openradial.estimator import RadialClassifier
    from openradial.fitting import fit
    from openradial.nn.layers import RadialLayer, RadialLinear, RadialLoss
    from openradial.nn.prototypes import AxisPrototypes, FixedPrototypes, LearnedPrototypes, SimplexPrototypes
    from openradial.nn.replace import replace_head
    from openradial.recipe import Recipe


def __getattr__(name: str) -> Any:
    if name in MODULES:
        return import_module(f"openradial.{name}")
    if name not in _NAMES:
        raise AttributeError(f"module 'openradial' has no attribute {name!r}; public names: {', '.join(__all__)}")
    value = getattr(import_module(f"openradial.{_NAMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
