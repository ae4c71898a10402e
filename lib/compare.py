"""Start `python -m lib.compare`, the program of `lib.companion.compare`."""

from lib.companion.compare import main

if __name__ == "__main__":
    main()
