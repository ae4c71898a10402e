"""`python -m lib.claims`: the program of `lib.companion.claims`."""

from lib.companion.claims.program import main

if __name__ == "__main__":
    main()
