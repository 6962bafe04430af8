"""Networks of the user's, named ``"package.module:factory"``."""

import inspect
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

from torch import nn

from openradial.errors import OptionError

Factory = Callable[..., Any]


def import_factory(name: str) -> Factory:
    """The function or class that ``"package.module:factory"`` names."""
    module_name, _, attribute = name.partition(":")
    if not module_name or not attribute:
        raise OptionError(f"expected a factory as package.module:factory, got {name!r}")
    found: Any = _import(module_name)
    for part in attribute.split("."):
        if not hasattr(found, part):
            known = getattr(found, "__dict__", {}).items()
            public = ", ".join(sorted(n for n, value in known if callable(value) and not n.startswith("_")))
            raise OptionError(f"{module_name!r} has no {attribute!r}; it has: {public or 'nothing to call'}")
        found = getattr(found, part)
    if not callable(found):
        raise OptionError(f"{name!r} is a {type(found).__name__}, expected a function or class that makes a network")
    return found  # type: ignore[no-any-return]


def call_factory(factory: Factory, name: str, num_classes: int, options: Mapping[str, object]) -> nn.Module:
    """Call a factory with ``num_classes`` and options, and check what comes back."""
    arguments: tuple[object, ...] = ()
    try:
        signature = inspect.signature(factory)
    except ValueError:  # a function written in C need not have one
        keywords = {"num_classes": num_classes, **options}
    else:
        takes_name = any(p.name == "num_classes" or p.kind is p.VAR_KEYWORD for p in signature.parameters.values())
        keywords = {**({"num_classes": num_classes} if takes_name else {}), **options}
        arguments = () if takes_name else (num_classes,)
        _check_call(signature, name, arguments, keywords)
    model = factory(*arguments, **keywords)
    if not isinstance(model, nn.Module):
        raise OptionError(f"{name!r} must return an nn.Module, it returned a {type(model).__name__}")
    return model


def _check_call(
    signature: inspect.Signature, name: str, arguments: tuple[object, ...], keywords: Mapping[str, object]
) -> None:
    try:
        signature.bind(*arguments, **keywords)
    except TypeError as error:
        raise OptionError(f"{name!r} cannot be called so: {error}; it takes {signature}") from error


def _import(name: str) -> Any:
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            raise OptionError(
                f"there is no module {name!r}; install its package, or add its folder to PYTHONPATH"
            ) from error
        raise OptionError(f"{name!r} cannot be imported: {error}; install what it needs") from error
    except ImportError as error:
        raise OptionError(f"{name!r} cannot be imported: {error}") from error
    except TypeError as error:  # a relative name
        raise OptionError(f"expected a factory as package.module:factory, got {name!r} for the module") from error
