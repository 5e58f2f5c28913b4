"""Why a node ends, and what it exits with."""


class NodeError(Exception):
    """A node cannot go on. The message says what to change."""

    code = 1


class SiteError(NodeError):
    """The site's own file, data or keys."""

    code = 2


class KeyRefused(NodeError):
    """The server does not accept this node's key."""

    code = 3


class ConnectionLost(Exception):
    """The server cannot be reached now; it is worth trying again."""
