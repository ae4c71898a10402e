"""Turn the executed notebooks into linked pages and slides, without executing anything.

`python -m lib.pages` writes html/, `python -m lib.pages --slides` writes slides/.
"""
