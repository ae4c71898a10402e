"""Reproduce paper 5: group-sparse training of reinforcement learning."""
