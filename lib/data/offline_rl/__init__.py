"""Load data to learn a policy from without acting: `load(source, env)`, whatever the source, as one `Bundle`.

recorded    rollouts of this project's own experts and medium policies, made on demand; a stand-in for D4RL's
d4rl        the official version-2 files, which the papers use
minari      the same idea for Gymnasium's newer environments, where the package minari is installed
"""

from __future__ import annotations

from functools import lru_cache

from lib.base import BadInput, refuse_uncounted
from lib.data import policies
from lib.data.offline_rl.bundle import Bundle
from lib.data.offline_rl.files import d4rl, minari, prepare
from lib.data.offline_rl.names import environment, normalised, quality_in
from lib.data.offline_rl.recorded import recorded

__all__ = ["SOURCES", "Bundle", "check", "d4rl", "environment", "load", "minari", "normalised", "prepare", "recorded"]

SOURCES = ("recorded", "d4rl", "minari")
KEPT = 4  # recordings in memory: configurations of a sweep ask for the same ones, and one takes seconds to make

_recorded = lru_cache(maxsize=KEPT)(recorded)


def check(source: str, quality: str, transitions: int | None) -> None:
    """Refuse what `load` cannot give, before anything is recorded or fetched. Arguments as there.

    Raises:
        BadInput: another source, a quality that is not recorded, or fewer than one transition.
    """
    if source not in SOURCES:
        raise BadInput(f"offline data {source!r}: known are {', '.join(SOURCES)}")
    if source == "recorded" and quality not in policies.WHICH:
        raise BadInput(f"recorded data of quality {quality!r}: the project's own are {', '.join(policies.WHICH)}")
    if transitions is not None:
        refuse_uncounted(transitions=transitions)


def load(source: str, env: str, quality: str = "expert", transitions: int | None = None, seed: int = 0) -> Bundle:
    """Load the offline data of one environment.

    A recording is kept, so two calls may return the same bundle: change nothing in it.

    Args:
        source: one of SOURCES.
        env: hopper, halfcheetah or walker2d, or another of their names; one that carries a quality, such as
            hopper-medium-v2, must carry the one asked for.
        quality: of the policy that acted, "expert" or "medium"; D4RL and Minari know more.
        transitions: how many, the first ones; None: all that a file holds, or 100,000 recorded ones.
        seed: of recorded data; a file is the same for every seed.

    Raises:
        BadInput: the name carries another quality, and whatever else the source cannot give.
    """
    name = environment(env).name
    if (named := quality_in(env)) not in (None, quality):
        right = f"give quality={named!r}, or the name {name!r} alone"
        raise BadInput(f"environment {env!r} names data of quality {named!r}, and quality={quality!r} asks: {right}")
    check(source, quality, transitions)
    if source == "recorded":
        return _recorded(name, quality, 100_000 if transitions is None else transitions, seed)
    bundle = d4rl(f"{name}-{quality}-v2") if source == "d4rl" else minari(f"mujoco/{name}/{quality}-v0")
    return bundle if transitions is None else bundle.take(transitions)
