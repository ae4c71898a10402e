"""Keep, multiply and time sparse tensors."""
