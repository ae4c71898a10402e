"""Run the experiments behind paper 3's claims, a module each, and the training that only this paper does."""
