"""Kernels forked from a warm process are processes of their own, with what notebooks import there already."""

import json
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from lib import base
from lib.companion import warm

# Kernels come from the fork server of a program of its own: tests that run later in this process keep theirs.
PROGRAM = """
import json, os, signal, sys
from jupyter_client.manager import KernelManager
from lib.companion import warm

CODE = '''
import json, os, sys
there = [name for name in {preloaded} if name in sys.modules]
import pandas
print(json.dumps([there, os.getcwd(), os.environ.get("COLOUR"), "HIDDEN" in os.environ, os.getpid(), os.getpgid(0),
                  os.getppid(), pandas.get_option("display.max_columns")]))
'''

def asked(client, code):
    found = []
    reply = client.execute_interactive(code, timeout=120, output_hook=lambda one: found.append(one["content"]))
    return reply["content"], "".join(one.get("text", "") for one in found)

def main():
    warm.use()
    folder, kernels, told = sys.argv[1], [], []
    for number in range(2):
        kernel = KernelManager(kernel_name="python3", transport="ipc", connection_file=f"{folder}/{number}.json")
        environment = {name: value for name, value in os.environ.items() if name != "HIDDEN"} | {"COLOUR": str(number)}
        kernel.start_kernel(cwd=folder, env=environment)
        client = kernel.blocking_client()
        client.start_channels()
        client.wait_for_ready(timeout=120)
        kernels.append((kernel, client))
        told.append(json.loads(asked(client, CODE.format(preloaded=warm.PRELOADED))[1]))
    asked(kernels[0][1], "only_here = 1")
    other, _ = asked(kernels[1][1], "only_here")
    kernels[0][0].interrupt_kernel()
    asked(kernels[0][1], "pass")
    kernels[0][0].shutdown_kernel(now=True)
    alive = [kernel.is_alive() for kernel, _ in kernels]
    kernels[1][0].shutdown_kernel(now=True)
    for _, client in kernels:
        client.stop_channels()
    print(json.dumps({"told": told, "other": other["ename"], "alive": alive, "own": os.getpid()}))

if __name__ == "__main__":
    main()
"""


def nap() -> None:
    """Sleep until somebody ends this process."""
    time.sleep(600)


@pytest.fixture
def napping():
    process = multiprocessing.get_context("spawn").Process(target=nap)
    process.start()
    yield warm.Forked(process)
    process.kill()
    process.join()


@pytest.mark.parametrize(("end", "status"), [("terminate", -signal.SIGTERM), ("kill", -signal.SIGKILL)])
def test_a_forked_process_has_the_face_of_popen(napping: warm.Forked, end: str, status: int):
    assert napping.poll() is None
    getattr(napping, end)()
    assert napping.wait() == status == napping.poll()


def test_a_signal_reaches_a_forked_process(napping: warm.Forked):
    napping.send_signal(signal.SIGTERM)
    assert napping.wait() == -signal.SIGTERM


def test_kernels_are_processes_of_their_own_with_all_that_is_preloaded(tmp_path: Path):
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    environment = os.environ | {"HIDDEN": "1", "PYTHONPATH": str(base.ROOT)}
    done = subprocess.run(
        [sys.executable, program, tmp_path], env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    pids, parents = set(), set()
    for number, (there, folder, colour, hidden, pid, group, parent, columns) in enumerate(found["told"]):
        assert there == warm.PRELOADED  # before the notebook imports anything
        assert (Path(folder), colour, hidden, columns) == (tmp_path, str(number), False, 20)
        assert group == pid  # signals to its group are for it alone
        pids.add(pid)
        parents.add(parent)
    assert (len(pids), len(parents)) == (2, 1)  # two kernels of one fork server
    assert found["own"] not in pids | parents
    assert found["other"] == "NameError"  # what one defines the other does not know
    assert found["alive"] == [False, True]  # ending one leaves the other
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)
