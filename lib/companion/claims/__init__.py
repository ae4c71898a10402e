"""Judge claims, which are data: what a paper says, how to measure it, and when it holds. Verdicts are never typed.

papers     lib/papers/NAME/claims.yaml, checked
judge      from runs to a value, an interval and a verdict, for each network or environment and for the claim
scorecard  for each claim the verdict that counts
readme     results/claims.md and the computed parts of README.md
program    python -m lib.claims
"""
