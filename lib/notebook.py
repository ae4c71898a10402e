"""Start `python -m lib.notebook`, the program of `lib.companion.notebook`."""

from lib.base import extra

if __name__ == "__main__":
    with extra("lib.notebook"):
        from lib.companion.sweep import portable

        portable.settle()  # before NumPy is loaded
        from lib.companion.notebook import main

    main()
