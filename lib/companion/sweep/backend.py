"""Set where a sweep sends its work: to processes of this machine, or to the workers of a Dask scheduler."""

from __future__ import annotations

import _thread
import logging
import signal
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import BrokenExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING

import joblib
from tqdm import tqdm

from lib.base import BadInput

if TYPE_CHECKING:  # it takes a second to load, and most sweeps need no cluster
    from distributed import Client

WATCH_SECONDS = 5  # between two looks at a Dask scheduler
LOST = "a worker or the scheduler was killed (out of memory?); what is finished is kept, the same command goes on"


@contextmanager
def backend(scheduler: str | None, processes: int) -> Iterator[int]:
    """Set where joblib sends the work: processes of this machine, or the workers of a Dask scheduler.

    Yields:
        How many configurations are computed side by side: the processes, or the threads of the workers there are.

    Raises:
        BadInput: no scheduler answers, it has no workers, or a worker or a process of this machine was lost within.
    """
    if scheduler is None:
        deaf = {"initializer": signal.signal, "initargs": (signal.SIGINT, signal.SIG_IGN)}  # Ctrl-C is for this process
        with joblib.parallel_config("loky", n_jobs=processes, **deaf):
            try:
                yield processes
            except BrokenExecutor as error:
                raise BadInput(LOST) from error
        return
    from distributed import CancelledError, Client, KilledWorker

    try:
        client = Client(scheduler, timeout="10s")
    except (OSError, ValueError) as error:
        raise BadInput(f"no Dask scheduler answers at {scheduler}; `dask scheduler` starts one") from error
    for name in ("distributed", "distributed.client", "tornado", "asyncio"):  # what they would say is said here
        logging.getLogger(name).setLevel(logging.CRITICAL)
    no_worker = f"the scheduler at {scheduler} has no workers; `dask worker {scheduler} --nthreads 1` starts one"
    with client, joblib.parallel_config("dask", client=client, n_jobs=-1):
        try:
            client.wait_for_workers(1, timeout=10)
        except TimeoutError as error:
            raise BadInput(no_worker) from error
        with watched(client, no_worker):
            try:
                yield sum(client.nthreads().values())
            except (KilledWorker, CancelledError) as error:
                raise BadInput(LOST) from error


@contextmanager
def watched(client: Client, no_worker: str) -> Iterator[None]:
    """Look after a scheduler while its workers compute: joblib waits without a word and without an end.

    Where no worker is left this is said once, and the sweep goes on when one comes. Where the scheduler is gone the
    block is left.

    Raises:
        BadInput: the scheduler does not answer any more.
    """
    over, lost = threading.Event(), threading.Event()

    def look() -> None:
        said = False
        while not over.wait(WATCH_SECONDS):
            if client.status != "running":
                lost.set()
                _thread.interrupt_main()
                return
            try:
                workers = len(client.nthreads())
            except Exception:  # whatever a connection that is breaking raises: its status tells the next time
                continue
            if not workers and not said:
                tqdm.write(f"lib.sweep: {no_worker}, the sweep waits for it", file=sys.stderr)
            said = not workers

    watch = threading.Thread(target=look, daemon=True)
    watch.start()
    try:
        yield
    except KeyboardInterrupt as error:
        if lost.is_set():
            raise BadInput(LOST) from error
        raise
    finally:
        over.set()
