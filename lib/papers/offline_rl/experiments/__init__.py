"""What is run for paper 1's claims: a module an experiment, and what only this paper trains."""
