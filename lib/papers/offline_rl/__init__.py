"""Reproduce paper 1: SNIP and GraSP before offline reinforcement learning."""
