"""Choose which configuration of a pool comes next, so that no process is left alone with a long one at the end."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping


class LongestFirst:
    """Put the configurations of several experiments into an order, by what others of their experiment took.

    How long a unit of an experiment's work takes is not known before one of its configurations is finished. So the
    largest configuration of each comes first, and from then on whichever will take longest.

    Args:
        sizes: {key of a configuration: (its experiment, its units of work)}.
    """

    def __init__(self, sizes: Mapping[str, tuple[str, int]]):
        self.sizes = dict(sizes)
        self.begun: set[str] = set()
        self.spent: dict[str, tuple[float, int]] = {}  # of each experiment the seconds and the units that are done

    def took(self, key: str, seconds: float) -> None:
        """Learn from a configuration that is finished."""
        experiment, units = self.sizes[key]
        before = self.spent.get(experiment, (0.0, 0))
        self.spent[experiment] = before[0] + seconds, before[1] + units

    def over(self, keys: Iterable[str]) -> Iterator[str]:
        """Yield each of these keys, the next one chosen when it is asked for; among equal ones the first goes first."""
        waiting = list(keys)
        while waiting:
            key = max(waiting, key=self._rank)
            waiting.remove(key)
            self.begun.add(self.sizes[key][0])
            yield key

    def _rank(self, key: str) -> tuple[int, float]:
        """Who is tried for the first time goes before who is known, and that before who is under way unknown."""
        experiment, units = self.sizes[key]
        if experiment not in self.begun:
            return 2, units
        seconds, done = self.spent.get(experiment, (0.0, 0))
        return (1, units * seconds / done) if done else (0, units)
