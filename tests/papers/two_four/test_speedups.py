"""From rows of the benchmark to the numbers of claims: the fastest way counts, failures do not, devices stay apart."""

import pandas as pd
import pytest

from lib.base import BadInput
from lib.papers.two_four.measures import nearer_to_two, speedup

COLUMNS = ["device", "backend", "dtype", "m", "n", "k", "pattern", "sparsity", "speedup"]
ROWS = [
    ("A100", "dense", "int8", 64, 64, 512, "dense", 0.0, 1.0),
    ("A100", "cusparselt 802", "int8", 64, 64, 512, "2:4", 0.5, 1.2),
    ("A100", "cusparselt 802 searched", "int8", 64, 64, 512, "2:4", 0.5, 1.3),
    ("A100", "cutlass", "int8", 64, 64, 512, "2:4", 0.5, 0.7),
    ("A100", "cusparselt 802", "int8", 64, 64, 8192, "2:4", 0.5, 1.9),
    ("A100", "cutlass failed: no such kernel", "int8", 64, 64, 8192, "2:4", 0.5, None),
    ("A100", "cusparselt 802", "int8", 64, 1, 8192, "2:4", 0.5, 0.5),
    ("A100", "cusparselt 802", "float16", 64, 64, 8192, "2:4", 0.5, 1.6),
    ("H200", "cutlass", "int8", 64, 64, 512, "2:4", 0.5, 1.8),
    ("H200", "cutlass", "int8", 64, 64, 1024, "2:4", 0.5, 1.4),
    ("H200", "cutlass failed: out of memory", "int8", 64, 64, 2048, "2:4", 0.5, None),
    ("a processor", "dense", "int8", 64, 64, 512, "2:4", 0.5, 5.0),
    ("a processor", "select", "float32", 64, 1, 512, "2:4", 0.5, 1.1),
    ("a processor", "csr", "float32", 64, 1, 512, "unstructured", 0.9, 3.0),
    ("a processor", "csr", "float32", 64, 1, 512, "unstructured", 0.99, 9.0),
]
PRODUCTS = pd.DataFrame(ROWS, columns=COLUMNS)


def test_each_product_counts_once_with_its_fastest_way():
    assert speedup(PRODUCTS, "int8", "cuda") == {
        "A100/int8 64 x 64 x 512": 1.3,
        "A100/int8 64 x 64 x 8192": 1.9,
        "A100/int8 64 x 1 x 8192": 0.5,
        "H200/int8 64 x 64 x 512": 1.8,
        "H200/int8 64 x 64 x 1024": 1.4,
    }


def test_sizes_types_patterns_and_devices_can_be_chosen():
    assert speedup(PRODUCTS, "int8", "cuda", min_k=8192, min_n=2) == {"A100/int8 64 x 64 x 8192": 1.9}
    assert speedup(PRODUCTS, "float16", "cuda") == {"A100/float16 64 x 64 x 8192": 1.6}
    assert speedup(PRODUCTS, "float32", "cpu") == {"a processor/float32 64 x 1 x 512": 1.1}
    unstructured = speedup(PRODUCTS, "float32", "cpu", pattern="unstructured", sparsity=0.9)
    assert unstructured == {"a processor/float32 64 x 1 x 512": 3.0}


def test_how_much_nearer_to_two_the_largest_product_is():
    found = nearer_to_two(PRODUCTS, "int8", "cuda", m=64, n=64)
    assert found == {"A100/int8 64 x 64": pytest.approx(0.7 - 0.1), "H200/int8 64 x 64": pytest.approx(0.2 - 0.6)}
    assert nearer_to_two(PRODUCTS, "float16", "cuda", m=64, n=64) == {}  # one size says nothing
    above = PRODUCTS.assign(speedup=PRODUCTS.speedup.replace({1.3: 1.9, 1.9: 2.3}))
    assert nearer_to_two(above, "int8", "cuda", m=64, n=64)["A100/int8 64 x 64"] == pytest.approx(0.1 - 0.3)


def test_without_such_rows_there_is_nothing_and_an_unknown_device_is_refused():
    assert speedup(PRODUCTS[PRODUCTS.device == "a processor"], "int8", "cuda") == {}
    assert nearer_to_two(PRODUCTS[:0], "int8", "cuda", m=64, n=64) == {}
    with pytest.raises(BadInput, match="device 'gpu': known are cpu, cuda"):
        speedup(PRODUCTS, "int8", "gpu")
