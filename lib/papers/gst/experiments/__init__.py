"""What is run for paper 5's claims: a module an experiment, and what only this paper trains."""
