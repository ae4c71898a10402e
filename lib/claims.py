"""Start `python -m lib.claims`, the program of `lib.companion.claims`."""

from lib.base import extra
from lib.companion.sweep import portable

if __name__ == "__main__":
    portable.settle([])  # before NumPy is loaded; verdicts of any scale are the same everywhere
    with extra("lib.claims"):
        from lib.companion.claims.program import main

    main()
