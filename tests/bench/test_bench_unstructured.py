"""The benchmark of unstructured masks: rivals find the same, and memory is what the kernel saw. No time is asserted."""

import os
import subprocess
import sys

import pytest
import torch

from lib import pruners
from lib.bench import unstructured as bench
from lib.kernels.timing import peak_bytes

PEAK = """
import torch
from lib.kernels.timing import peak_bytes

def call():
    first = torch.ones(2**25)  # so large that no freed memory of the process is handed out again
    second = first + 1
    del first, second
    return torch.ones(2**24)

call()  # the first one also brings in code
print(peak_bytes(call))
"""


def test_the_peak_of_a_call_is_what_it_holds_at_once():
    """In a process of its own: what other tests have freed, a process may hold and hand out again."""
    outside = {name: value for name, value in os.environ.items() if not name.startswith("MALLOC_")}
    done = subprocess.run([sys.executable, "-c", PEAK], env=outside, capture_output=True, text=True, check=True)
    assert int(done.stdout) == pytest.approx(2**28, rel=0.1)


@pytest.mark.parametrize("ties", [False, True])
def test_a_mask_takes_at_most_eight_bytes_a_weight(ties):
    scores = torch.randn(4096, 4096, generator=torch.Generator().manual_seed(0)).abs()
    scores = scores.floor() if ties else scores
    pruners.unstructured({"w": scores[:8]}, 0.9)
    assert peak_bytes(lambda: pruners.unstructured({"w": scores}, 0.9)) <= 8.2 * scores.numel()


def test_rows_of_a_small_matrix_and_the_same_mask_by_sorting():
    scores = (10 * torch.rand(64, 64, generator=torch.Generator().manual_seed(0))).floor()
    rows = bench.measured(scores, 0.3, seconds=0)
    assert [set(bench.COLUMNS) - set(row) for row in rows] == [{"scores"}] * 3
    assert [row["method"] for row in rows] == ["kthvalue", "unstructured", "stable sort"]
    expected = bench.by_sorting(scores, round(0.3 * 64 * 64))
    assert torch.equal(pruners.unstructured({"w": scores}, 0.3)["w"], expected)
