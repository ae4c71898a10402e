"""Hold the five papers, a folder each: its claims, its experiments, the measures that judge them, and its exercises."""
