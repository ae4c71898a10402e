"""Start kernels at once: each is forked from a process that has imported what the notebooks import.

Importing torch, pandas and matplotlib takes a notebook longer than much of what it computes. Python's own fork server
does it once; a kernel forked from it is a process of its own, as fresh as any, with these modules there already.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from importlib.metadata import EntryPoint
from multiprocessing.process import BaseProcess
from typing import Any

from jupyter_client.provisioning import KernelProvisionerFactory, LocalProvisioner

NAME = "warm"
# What nearly every notebook imports, and what a forked process needs to find its way back here. A module that starts
# threads or computes when it is imported would not survive the fork: none of these does.
PRELOADED = [
    "lib.companion.notebook",
    "ipykernel.kernelapp",
    "torch",
    "torch._dynamo",
    "lib.companion.lesson",
    "lib.companion.plots",
    "lib.companion.results",
    "lib.companion.tables",
    "lib.pruners",
    "lib.training.supervised",
]


def kernel(words: list[str], environment: dict[str, str], folder: str) -> None:
    """Be a kernel in this process.

    Args:
        words: the kernel's command line after "python -m ipykernel_launcher".
        environment: its variables.
        folder: where it works.
    """
    os.setsid()  # signals to the kernel's group are for it alone
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    import pandas as pd
    from ipykernel.kernelapp import IPKernelApp
    from tqdm import tqdm

    tqdm.set_lock(threading.RLock())  # its own is a semaphore of the system, which a kernel ended at once leaves behind

    # What pandas and pyplot find out about where they run, when a notebook imports them, they would find out too early.
    pd.set_option("display.max_columns", 20)
    # Its parent is the fork server, with which it ends.
    IPKernelApp.launch_instance(argv=[*words, f"--IPKernelApp.parent_handle={os.getppid()}", "--matplotlib=inline"])


class Forked:
    """Give a forked process the face of `subprocess.Popen`, which jupyter_client expects."""

    stdin = stdout = stderr = None

    def __init__(self, process: BaseProcess):
        self.process, self.pid = process, process.pid

    def poll(self) -> int | None:
        """Return the exit status, None while it runs."""
        return self.process.exitcode

    def wait(self) -> int | None:
        """Wait for its end and return the exit status."""
        self.process.join()
        return self.process.exitcode

    def send_signal(self, number: int) -> None:
        """Send it a signal."""
        os.kill(self.pid, number)

    def kill(self) -> None:
        """End it at once."""
        self.process.kill()

    def terminate(self) -> None:
        """Ask it to end."""
        self.process.terminate()


class WarmProvisioner(LocalProvisioner):
    """Start kernels from the fork server instead of by a command."""

    async def launch_kernel(self, cmd: list[str], **kwargs: Any) -> dict[str, Any]:
        """Fork a kernel; arguments as jupyter_client gives them."""
        words = cmd[cmd.index("ipykernel_launcher") + 1 :]
        environment, folder = dict(kwargs.get("env") or os.environ), kwargs.get("cwd") or os.getcwd()
        process = multiprocessing.get_context("forkserver").Process(target=kernel, args=(words, environment, folder))
        process.start()
        self.process = Forked(process)
        self.pid, self.pgid = process.pid, None  # the kernel makes a group of its own, which may not be there yet
        return self.connection_info


def use() -> None:
    """Start the fork server with its modules, and let all kernels of this process come from it."""
    multiprocessing.get_context("forkserver").set_forkserver_preload(PRELOADED)
    factory = KernelProvisionerFactory.instance()
    factory.provisioners[NAME] = EntryPoint(NAME, f"{__name__}:WarmProvisioner", factory.GROUP_NAME)
    factory.default_provisioner_name = NAME
