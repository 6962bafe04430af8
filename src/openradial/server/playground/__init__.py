"""The playground: a page that compares the predictions of softmax and the radial layer."""

from openradial.server.playground.app import create_playground

__all__ = ["create_playground"]
