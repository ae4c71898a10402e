"""Start `python -m lib.sweep`, the program of `lib.companion.sweep`."""

from lib.base import extra

if __name__ == "__main__":
    with extra("lib.sweep"):
        from lib.companion.sweep import portable

        portable.settle()  # before NumPy is loaded
        from lib.companion.sweep.program import main

    main()
