"""Load data, one module a kind. Each has `load(name)`; `vision` holds images and the two moons."""
