"""Start `python -m lib.notebook`, the program of `lib.companion.notebook`."""

from lib.base import extra
from lib.companion.sweep import portable

if __name__ == "__main__":
    portable.settle()  # before NumPy is loaded
    with extra("lib.notebook"):
        from lib.companion.notebook import main

    main()
