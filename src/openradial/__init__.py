"""openradial: classifiers that can say "I don't know".

The names below are the public ones. They are loaded when first used, so that ``openradial.reference`` works without
torch and an import costs nothing that is not needed.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0.dev0"

_HOMES = {
    "attacks": "openradial.attacks",
    "bayes": "openradial.bayes",
    "bundle": "openradial.bundle",
    "data": "openradial.data",
    "conformal": "openradial.conformal",
    "errors": "openradial.errors",
    "export": "openradial.export",
    "functional": "openradial.functional",
    "heads": "openradial.heads",
    "metrics": "openradial.metrics",
    "models": "openradial.models",
    "reference": "openradial.reference",
    "scorers": "openradial.scorers",
    "training": "openradial.training",
    "AxisPrototypes": "openradial.nn.prototypes",
    "FixedPrototypes": "openradial.nn.prototypes",
    "LearnedPrototypes": "openradial.nn.prototypes",
    "SimplexPrototypes": "openradial.nn.prototypes",
    "OpenRadialError": "openradial.errors",
    "RadialClassifier": "openradial.estimator",
    "RadialLayer": "openradial.nn",
    "RadialLinear": "openradial.nn",
    "RadialLoss": "openradial.nn",
    "replace_head": "openradial.nn",
}

__all__ = [
    "AxisPrototypes",
    "FixedPrototypes",
    "LearnedPrototypes",
    "OpenRadialError",
    "RadialClassifier",
    "RadialLayer",
    "RadialLinear",
    "RadialLoss",
    "SimplexPrototypes",
    "attacks",
    "bayes",
    "bundle",
    "conformal",
    "data",
    "errors",
    "export",
    "functional",
    "heads",
    "metrics",
    "models",
    "reference",
    "replace_head",
    "scorers",
    "training",
]

if TYPE_CHECKING:
    from openradial import (
        attacks,
        bayes,
        bundle,
        conformal,
        data,
        errors,
        export,
        functional,
        heads,
        metrics,
        models,
        reference,
        scorers,
        training,
    )
    from openradial.errors import OpenRadialError
    from openradial.estimator import RadialClassifier
    from openradial.nn import RadialLayer, RadialLinear, RadialLoss, replace_head
    from openradial.nn.prototypes import AxisPrototypes, FixedPrototypes, LearnedPrototypes, SimplexPrototypes


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'openradial' has no attribute {name!r}; public names: {', '.join(__all__)}")
    home = import_module(_HOMES[name])
    value = home if home.__name__ == f"openradial.{name}" else getattr(home, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
