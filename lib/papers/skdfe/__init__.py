"""Paper 3: self-distillation for speaker verification."""
