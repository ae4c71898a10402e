"""Paper 4: neural plasticity networks."""
