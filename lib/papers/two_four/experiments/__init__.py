"""Run what paper 2's claims need: a module an experiment, and what only this paper trains."""
