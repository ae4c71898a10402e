"""Build networks, one module a family."""
