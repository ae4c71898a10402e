"""The executed notebooks as linked pages and as slides, without executing anything.

`python -m lib.pages` writes html/, `python -m lib.slides` writes slides/.
"""
