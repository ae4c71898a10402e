"""Find the exercises of all notebooks by their numbers: `from lib.exercises import check, hint`."""

import sys

from lib.companion.exercises import check, hint

__all__ = ["check", "hint"]

if __name__ == "__main__":
    print("lib.exercises: exercises are answered in notebooks: from lib.exercises import check, hint", file=sys.stderr)
    sys.exit(2)
