"""What is measured on finished runs: pure functions from rows to numbers."""
