"""Every test, and every notebook that nbval executes, computes with the same bits on every processor."""

import os

import pytest

from lib.companion.sweep import portable

os.environ.update(portable.SETTINGS)  # before anything loads NumPy


def pytest_configure(config: pytest.Config) -> None:
    """Let nbval's kernels start at once, as those of `python -m lib.notebook --all` do."""
    if config.getoption("nbval", False) or config.getoption("nbval_lax", False):
        from lib.companion import warm

        warm.use()
