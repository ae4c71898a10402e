"""Run what paper 4's claims need: a module an experiment, and what only this paper trains."""
