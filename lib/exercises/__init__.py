"""Exercises of the notebooks, a module a paper. `check("20.1", answer)` says right, or wrong with a hint.

It never says the solution. The right answer is computed by the library, so it cannot go stale; worked solutions live
in the tests.
"""
