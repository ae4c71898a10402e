"""Start `python -m lib.notebook`, the program of `lib.companion.notebook`."""

from lib.companion.sweep import portable

if __name__ == "__main__":
    portable.settle()  # before NumPy is loaded
    from lib.companion.notebook import main

    main()
