"""What several tests share."""

import shutil
import subprocess
from pathlib import Path

import pytest
import torch

from lib import base

torch.set_num_threads(1)  # tests run side by side; two threads each would wait for one another

# The modules that take longest, the longest first (in seconds, not in tests): they start first, so that two
# processes end at about the same time. `make test` keeps xdist from sorting modules by their number of tests instead.
LONGEST = (
    "test_pages.py",
    "test_gst_td3.py",
    "test_pipeline.py",
    "test_sweep_program.py",
    "test_sweep_dask.py",
    "test_callback.py",
    "test_quick_results.py",
    "test_online.py",
    "test_own_paper.py",
    "test_gst_bc.py",
    "test_experts.py",
    "test_sweep_toy.py",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    places = {name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: places.get(item.path.name, len(LONGEST)))


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A copy of the checkout as it is now (tracked files, and new ones that git does not ignore), as a repository."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=base.ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    copy = tmp_path / "tree"
    for name in listed.stdout.splitlines():
        if (base.ROOT / name).is_file():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(base.ROOT / name, copy / name)
    for words in (["init", "-q"], ["add", "-A"], ["-c", "user.name=t", "-c", "user.email=t@t", "commit", "-qm", "t"]):
        subprocess.run(["git", *words], cwd=copy, check=True)
    return copy
