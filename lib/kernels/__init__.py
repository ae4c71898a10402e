"""Keep and multiply sparse tensors."""
