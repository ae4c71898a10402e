"""Start `python -m lib.sweep`, the program of `lib.companion.sweep`."""

from lib.base import extra
from lib.companion.sweep import portable

if __name__ == "__main__":
    portable.settle()  # before NumPy is loaded
    with extra("lib.sweep"):
        from lib.companion.sweep.program import main

    main()
