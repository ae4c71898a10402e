"""Start `python -m lib.claims`, the program of `lib.companion.claims`."""

from lib.base import extra

if __name__ == "__main__":
    with extra("lib.claims"):
        from lib.companion.sweep import portable

        portable.settle([])  # before NumPy is loaded; verdicts of any scale are the same everywhere
        from lib.companion.claims.program import main

    main()
