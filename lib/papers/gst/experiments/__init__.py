"""Run what paper 5's claims need: a module an experiment, and what only this paper trains."""
