"""The apps that Flower starts. What they do is in the installed package, fedelity.flower."""

from fedelity.flower import client_app as client
from fedelity.flower import server_app as server

__all__ = ["client", "server"]
