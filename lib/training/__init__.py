"""The loops that train."""
