"""`python -m lib.sweep`: the program of `lib.companion.sweep`."""

from lib.companion.sweep.program import main

if __name__ == "__main__":
    main()
