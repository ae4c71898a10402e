"""Run what paper 1's claims need: a module an experiment, and what only this paper trains."""
