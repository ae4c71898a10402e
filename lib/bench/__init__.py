"""Measure everything that depends on the clock, with the rival in the same run. Results: results/bench/*.csv."""
