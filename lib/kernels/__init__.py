"""How sparse tensors are kept and multiplied."""
