"""The executed notebooks as linked pages, without executing anything: `python -m lib.pages` writes html/."""
