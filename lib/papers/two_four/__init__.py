"""Reproduce paper 2: the 2:4 pattern."""
