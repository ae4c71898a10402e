"""Make quick sweeps, notebooks and tests compute the same bits on every x86-64 processor with AVX2, and say why so.

A library that multiplies or takes a root asks the processor who made it, which instructions it knows and how large its
cache is, and takes another kernel on each; another kernel rounds elsewhere, and training is chaotic. Each setting here
takes one such choice away. What is left is held by `lib.bench.same_bits`, which hashes every kind of operation.
Runs at the other scales do not use them, because they cost time and nobody compares those runs bit by bit.

A library reads its variable when it is loaded, so `settle` comes before the first import of NumPy.
"""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from collections.abc import Mapping, Sequence

from lib.base import BadInput

SETTINGS = {
    # MKL, torch's products. AVX2 is an instruction set on an Intel and nothing at all on an AMD; COMPATIBLE, which has
    # no fused multiplication, is the one branch that Intel promises for every x86-64.
    "MKL_CBWR": "COMPATIBLE",
    # MKL's vector functions (torch's exp, log, sqrt, tanh and others) do not heed the former. By default each processor
    # has its own; several begin a square root with the processor's own estimate (rsqrtps), of which the makers promise
    # twelve bits and no more, so Adam's denominators differ. Type 1 is plain SSE without an estimate.
    "MKL_VML_DEBUG_CPU_TYPE": "1",
    # Torch's own loops: sums are added in as many lanes as a register has.
    "ATEN_CPU_CAPABILITY": "avx2",
    # oneDNN's convolutions and its LSTM. Torch's own convolutions, which would not need oneDNN, take up to three times
    # as long; where oneDNN blocks its sums it asks for the size of the caches, and none of those tried changes a bit.
    "ONEDNN_MAX_CPU_ISA": "AVX2",
    # NumPy's and SciPy's products: a kernel for each family of processors; this one has fixed blocks.
    "OPENBLAS_CORETYPE": "Haswell",
    # They add in other pieces with each number of threads, and there are as many as cores unless this says otherwise.
    "OPENBLAS_NUM_THREADS": "1",
    # NumPy's functions and sums: no kernel beyond AVX2, by the names of NumPy 2.4.
    "NPY_DISABLE_CPU_FEATURES": "X86_V4 AVX512_ICL AVX512_SPR",
    # Numba compiles for the processor it finds, and with fastmath adds in as many lanes as that one has.
    "NUMBA_CPU_NAME": "haswell",
    "NUMBA_CPU_FEATURES": "+sse4.2,+popcnt,+avx,+avx2,+fma,+bmi,+bmi2,+lzcnt,+movbe,+f16c",
}
LOADED_FIRST = "numpy"  # of the libraries that read a setting when they are loaded


def main() -> None:
    """Print the settings for a shell: eval "$(python -m lib.companion.sweep.portable)" before a Dask worker."""
    argparse.ArgumentParser(prog="lib.companion.sweep.portable", description=main.__doc__).parse_args()
    for name, value in SETTINGS.items():
        print(f"export {name}={shlex.quote(value)}")


def settle(words: Sequence[str] | None = None) -> None:
    """Put the settings in force in this program if it computes at the quick scale, as it does unless told otherwise.

    It is called first of all. Where NumPy has been loaded already, the program is started anew with the same words.

    Args:
        words: of the command line; None: this program's.
    """
    parser = argparse.ArgumentParser(add_help=False, exit_on_error=False)
    parser.add_argument("--scale", default="quick")
    try:
        scale = parser.parse_known_args(words)[0].scale
    except argparse.ArgumentError:  # the program itself will say what is wrong
        return
    if scale == "quick" and not in_force(os.environ):
        os.environ.update(SETTINGS)
        if LOADED_FIRST in sys.modules:
            os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])


def in_force(environment: Mapping[str, str]) -> bool:
    """Say whether an environment has all the settings."""
    return SETTINGS.items() <= environment.items()


def prepare(environment: Mapping[str, str]) -> None:
    """Set how this process computes: with one thread, and with SETTINGS or with nothing more.

    Raises:
        BadInput: NumPy was loaded before the settings were in force, so that it computes as this processor can.
    """
    if environment and not in_force(os.environ) and LOADED_FIRST in sys.modules:
        raise BadInput(
            "this process has loaded NumPy before it was told to compute the same bits on every processor: start it "
            'anew, after eval "$(python -m lib.companion.sweep.portable)"'
        )
    os.environ.update(environment)
    import torch
    from threadpoolctl import threadpool_limits

    torch.set_num_threads(1)
    threadpool_limits(1)  # of NumPy's products too, which torch does not know of
    capability = torch.backends.cpu.get_cpu_capability()
    if environment.get("ATEN_CPU_CAPABILITY") == "avx2" and capability == "AVX512":
        raise BadInput("this process has computed with AVX-512 before; these results need AVX2: start it anew")


if __name__ == "__main__":
    main()
