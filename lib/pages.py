"""Start `python -m lib.pages`, the program of `lib.companion.pages`."""

from lib.base import extra

if __name__ == "__main__":
    with extra("lib.pages"):
        from lib.companion.pages.program import main

    main()
