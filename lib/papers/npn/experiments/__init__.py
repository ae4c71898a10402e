"""What is run for paper 4's claims: a module an experiment, and what only this paper trains."""
