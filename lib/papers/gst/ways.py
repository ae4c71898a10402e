"""Call paper 5's ways of training by their names: of a row, what its method, blocks and release are called."""

from __future__ import annotations

METHODS = {
    "dense": "dense",
    "gradual": "gradual pruning",
    "rwp": "reward-aware pruning",
    "regrow": "reward-aware pruning, weights may regrow",
    "gst": "GST",
}


def offline_method_of(row: object) -> str:
    """Say what a way of training from fixed data is called: of a row with the columns OFFLINE_KEYS."""
    return grouping(row) if row.choice == "none" else f"{row.choice}, {grouping(row)}, {100 * row.kept:g} % kept"


def grouping(row: object) -> str:
    """Say how its weights share numbers: of a row with the columns block and shift."""
    if row.block == 1:
        return "single weights"
    return f"B = {row.block} (released at {row.shift:g})" if row.shift < 1 else f"B = {row.block} to the end"


def method_of(row: object) -> str:
    """Say what a run's way of training is called: of a row with the columns KEYS."""
    text = METHODS[row.method]
    if row.conversion != "none":
        how = row.conversion.removesuffix("_block2").removesuffix("_block4").replace("_", " ")
        text += f", B = {row.block}, then {row.block // 2} (at {row.shift:g}, {how})"
    elif row.block > 1:
        text += f", {grouping(row)}"
    if start := getattr(row, "start", 0):
        text += f", from step {start}"
    return text + (", by evaluation" if getattr(row, "reward", "") == "evaluation" else "")
