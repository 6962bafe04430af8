"""The playground: a page that compares the predictions of softmax and the radial layer.

:func:`create_playground` returns the service's application with the page and its routes added.
"""

from openradial.server.playground.app import create_playground

__all__ = ["create_playground"]
