"""A claim is data: what a paper says, how to measure it, and when it holds. Verdicts are computed, never typed.

papers     lib/papers/*.yaml, checked
judge      from runs to a value, an interval and a verdict
readme     the table in README.md: for each claim the largest scale that has a verdict
__main__   the program: python -m lib.claims --scale SCALE
"""
