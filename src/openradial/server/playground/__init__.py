"""The playground: a page on which people see and try what softmax and the radial layer say.

:func:`create_playground` is the service's application with the page and its routes added.
"""

from openradial.server.playground.application import create_playground

__all__ = ["create_playground"]
