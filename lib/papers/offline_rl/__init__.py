"""Paper 1: SNIP and GraSP before offline reinforcement learning."""
