"""A node for real sites: it speaks Flower's Fleet API and runs the installed Fedelity, never code from the server."""
