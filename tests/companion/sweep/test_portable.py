"""The settings are in force before NumPy is loaded, at the quick scale alone; who comes too late is refused."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from lib import base
from lib.base import BadInput
from lib.companion.sweep import portable

BARE = {name: value for name, value in os.environ.items() if name not in portable.SETTINGS}
SEEN = "import os; print(os.environ.get('MKL_CBWR'), os.environ.get('OPENBLAS_CORETYPE'), 'numpy' in sys.modules)"


def printed(program: str, *words: str) -> str:
    """What a program prints that begins without the settings."""
    command = [sys.executable, "-c", f"import sys; from lib.companion.sweep import portable; {program}; {SEEN}", *words]
    done = subprocess.run(command, env=BARE, cwd=base.ROOT, capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ((), "COMPATIBLE Haswell False"),
        (("toy", "--scale", "quick"), "COMPATIBLE Haswell False"),
        (("--scale=real", "toy"), "None None False"),
        (("toy", "--sc", "real"), "None None False"),
        (("--scale",), "None None False"),  # the program itself says that a scale is missing
    ],
)
def test_a_program_settles_at_the_quick_scale_alone(words: tuple[str, ...], expected: str):
    assert printed("portable.settle()", *words) == expected


def test_where_numpy_is_loaded_already_the_program_begins_anew(tmp_path: Path):
    assert printed("import numpy; portable.settle()") == "COMPATIBLE Haswell True"
    look = "import numpy._core._multiarray_umath as c; print(c.__cpu_features__['X86_V4'])"
    assert printed(f"import numpy; portable.settle(); {look}").startswith("False")


def test_who_has_loaded_numpy_too_early_computes_nothing(monkeypatch: pytest.MonkeyPatch):
    portable.prepare(portable.SETTINGS)  # in force here, see conftest.py
    monkeypatch.delenv("OPENBLAS_CORETYPE")
    portable.prepare({})  # nobody asked for it
    with pytest.raises(BadInput, match=r"has loaded NumPy before .* start it anew, after eval"):
        portable.prepare(portable.SETTINGS)
    assert "OPENBLAS_CORETYPE" not in os.environ


def test_numpy_multiplies_with_one_thread_whatever_the_environment_says():
    ask = (
        "import numpy; import threadpoolctl as t; threads = lambda: {one['num_threads'] for one in t.threadpool_info()}"
    )
    command = [sys.executable, "-c", f"{ask}; portable.prepare({{}}); print(threads())"]
    command[-1] = "from lib.companion.sweep import portable; " + command[-1]
    several = BARE | {"OPENBLAS_NUM_THREADS": "2", "OMP_NUM_THREADS": "2"}
    done = subprocess.run(command, env=several, cwd=base.ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "{1}"


def test_the_settings_are_printed_for_a_shell():
    command = 'eval "$("$0" -m lib.companion.sweep.portable)"; printf "%s|" "$MKL_CBWR" "$NPY_DISABLE_CPU_FEATURES"'
    done = subprocess.run(
        ["sh", "-c", command, sys.executable], env=BARE, cwd=base.ROOT, capture_output=True, text=True
    )
    assert done.stdout == "COMPATIBLE|X86_V4 AVX512_ICL AVX512_SPR|", done.stderr


def test_tests_and_their_children_compute_under_the_settings():
    assert portable.in_force(os.environ)
    assert not portable.in_force(BARE)


def test_who_asks_for_help_gets_no_exports():
    command = [sys.executable, "-m", "lib.companion.sweep.portable", "--help"]
    done = subprocess.run(command, cwd=base.ROOT, capture_output=True, text=True, check=True)
    assert "for a shell" in done.stdout
    assert "export " not in done.stdout
