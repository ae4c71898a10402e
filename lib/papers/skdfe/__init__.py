"""Reproduce paper 3: self-distillation for speaker verification."""
