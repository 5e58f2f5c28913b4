"""Federations on Flower: `server_app` and `client_app` are the two halves as Flower's apps.

It needs Flower: `pip install 'fedelity[flower]'`.
"""

from .client import app as client_app
from .server import app as server_app

__all__ = ["client_app", "server_app"]
