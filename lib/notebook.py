"""`python -m lib.notebook`: the program of `lib.companion.notebook`."""

from lib.companion.notebook import main

if __name__ == "__main__":
    main()
