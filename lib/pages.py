"""Start `python -m lib.pages`, the program of `lib.companion.pages`."""

from lib.companion.pages.program import main

if __name__ == "__main__":
    main()
