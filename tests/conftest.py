"""What several tests share."""

import shutil
import subprocess
from pathlib import Path

import pytest
import torch

from lib import base

torch.set_num_threads(1)  # tests run side by side; two threads each would wait for one another


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
