"""Networks, one module a family."""
