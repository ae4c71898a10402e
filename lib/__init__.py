"""Sparsity, Reproduced: five papers on smaller neural networks, rebuilt from their equations."""
