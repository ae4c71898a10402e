"""Rebuild five papers on smaller neural networks from their equations: Sparsity, Reproduced."""
