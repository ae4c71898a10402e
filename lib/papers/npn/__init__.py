"""Reproduce paper 4: neural plasticity networks."""
