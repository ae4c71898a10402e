"""One module an experiment: its settings, its grid, and what one run does."""
