"""Start `python -m lib.compare`, the program of `lib.companion.compare`."""

from lib.base import extra

if __name__ == "__main__":
    with extra("lib.compare"):
        from lib.companion.compare import main

    main()
