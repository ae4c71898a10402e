"""Start `python -m lib.slides`, the program of `lib.companion.pages.slides`."""

from lib.companion.pages.slides import main

if __name__ == "__main__":
    main()
