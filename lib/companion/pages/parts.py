"""Name the parts of the book: a notebook's first digit is its part, and parts 1 to 5 are the papers'."""

PARTS = {
    "0": "Start here",
    "1": "Paper 1: single-shot pruning before offline reinforcement learning",
    "2": "Paper 2: the 2:4 pattern",
    "3": "Paper 3: self-distillation for speaker verification",
    "4": "Paper 4: neural plasticity networks",
    "5": "Paper 5: group-sparse training",
    "6": "All papers together",
    "7": "Papers of your own",
}


def same_part(one: str, other: str) -> bool:
    """Say whether two pages, by their names, are notebooks of one part."""
    return one[:2].isdigit() and other[:2].isdigit() and one[0] == other[0]
