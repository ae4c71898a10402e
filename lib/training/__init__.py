"""Train networks: a loop for each way to learn."""
