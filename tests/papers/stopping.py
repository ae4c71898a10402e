"""A run that is stopped on its way: what tests of resuming share."""

from dataclasses import dataclass

from lib.companion.sweep.context import Context, Stopped


@dataclass
class StoppedAt(Context):
    """Stops the run when this many units of its work are done."""

    units: int = 0

    def check(self) -> None:
        if self.done == self.units:
            raise Stopped
