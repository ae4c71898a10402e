"""Run the grids of configurations of experiments: over processes or machines, stopped and resumed at will.

grid         an experiment at a scale: its configurations, their keys, and one of them run
store        finished configurations, kept under .sweep/ until the whole grid is there
provenance   what lies beside a run file at the real and paper scales: commit, sources, versions, device
progress     the bar
order        which configuration of several experiments comes next
program      python -m lib.sweep EXPERIMENT... --scale SCALE
"""
