"""Count which weights SNIP and GraSP keep, layer by layer, before any training (paper 1, section 4.2, figure 3).

One configuration is an environment and a seed: the networks of BCQ are scored on one batch and pruned. BC's two
networks are BCQ's encoder and decoder, with the same scores.

`flow` is what is left of the gradient, which GraSP is to preserve (section 3.2): the squared norm of the gradient of
the loss over the weights that a layer keeps, on a batch that no score has seen, in percent of that over all weights of
its network before pruning. The layers of a network add up to what the network has left. Only that network is pruned
then: an actor's gradient comes through a critic and a decoder's depends on an encoder, whose masks are not its own.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from lib import pruners
from lib.base import BadInput, refuse_twice, refuse_unknown
from lib.companion.sweep.context import Context
from lib.data import offline_rl
from lib.data.offline_rl.names import QUALITIES, environment
from lib.training import offline
from lib.training.agents import SCORING, Agent, Draws, Transitions, draw_batch, normalised
from lib.training.bcq import BCQ, BCQSettings

# Observations scaled, as in the first author's later code; as they are; scaled, with GraSP's gradient and Hessian of
# the encoder and of the decoder each alone.
VARIANTS = {"normalised": {}, "raw": {"normalise": False}, "alone": {"ranked": "alone"}}
KEYS = ("data", "env", "variant", "seed")
INDEX = ("data", "env", "variant", "pruner", "sparsity", "seed", "network", "layer")
COLUMNS = (*INDEX, "weights", "kept", "flow")


@dataclass(frozen=True)
class Settings:
    """Hold what is varied; the networks are the paper's.

    Attributes:
        seeds: how many, from 0.
        source, quality, transitions: of the data that observations are normalised by and a batch is drawn from, see
            `lib.data.offline_rl.load`.
    """

    envs: tuple[str, ...]
    pruners: tuple[str, ...]
    sparsities: tuple[float, ...]
    seeds: int
    source: str = "recorded"
    quality: str = "expert"
    transitions: int | None = 10_000

    def __post_init__(self):
        if self.seeds < 1 or not self.envs or not self.pruners or not self.sparsities:
            raise BadInput("envs, pruners and sparsities must name something, and seeds be at least 1")
        refuse_unknown(self, quality=QUALITIES)
        offline_rl.check(self.source, self.quality, self.transitions)
        refuse_twice(pruners=self.pruners, sparsities=self.sparsities)
        for pruner in self.pruners:
            for sparsity in self.sparsities:
                offline.Run(0, pruner, sparsity)  # refuses what is no score, and what is no share


def configurations(settings: Settings) -> list[dict]:
    """Lay out the grid: an environment, a seed, and one of VARIANTS, of which the last is GraSP's alone."""
    shared = {
        "data": f"{settings.source}-{settings.quality}",
        "source": settings.source,
        "quality": settings.quality,
        "transitions": settings.transitions,
        "sparsities": list(settings.sparsities),
    }
    scores = {variant: list(settings.pruners) for variant in VARIANTS}
    scores["alone"] = [pruner for pruner in settings.pruners if pruner == "grasp"]
    return [
        shared | {"env": environment(env).name, "variant": variant, "seed": seed, "pruners": scores[variant]}
        for env in settings.envs
        for variant in VARIANTS
        for seed in range(settings.seeds)
        if scores[variant]
    ]


def units(configuration: dict) -> int:
    """Count one unit: nothing is trained; all configurations cost about the same."""
    return 1


def run(configuration: dict, context: Context) -> list[dict]:
    """Prune; one row a pruner, sparsity and layer, `kept` in percent of the layer's weights, `flow` as above."""
    env, seed = configuration["env"], configuration["seed"]
    bundle = load(*(configuration[name] for name in ("source", "env", "quality", "transitions")))
    settings = BCQSettings(**VARIANTS[configuration["variant"]])
    data, _ = normalised(Transitions.of(bundle, context.device), settings)
    stack = [offline.Run(seed, name, s) for name in configuration["pruners"] for s in configuration["sparsities"]]
    known = environment(env)
    agent, whole = (
        BCQ(known.observations, [1.0] * known.actions, [seed] * len(stack), settings, context.device) for _ in range(2)
    )
    offline.prune(agent, data, stack)
    before, after, rows = squared_gradients(whole, data), alone(agent, whole, data), []
    for layer in pruners.prunable(agent.networks):
        network, position = place(layer.name)
        all_of_it = torch.stack([squares for name, squares in before.items() if place(name)[0] == network]).sum(0)
        flow = 100 * after[layer.name] / all_of_it
        for number, of in enumerate(stack):
            kept = 100 * float((layer.weight[number] != 0).float().mean())
            key = {name: configuration[name] for name in KEYS} | {"pruner": of.pruner, "sparsity": of.sparsity}
            key |= {"network": network, "layer": position, "weights": layer.weight[number].numel(), "kept": kept}
            rows.append(key | {"flow": float(flow[number])})
    context.report_progress(f"{env} {seed}")
    return rows


load = lru_cache(maxsize=1)(offline_rl.load)  # configurations of an environment follow each other and share its data


def alone(pruned: Agent, whole: Agent, data: Transitions) -> dict[str, Tensor]:
    """Compute the `squared_gradients` of each network with its own weights pruned and all other networks whole.

    Args:
        whole: the same agent before it was pruned; it stays as it is.
    """
    found = {}
    for name, network in whole.networks.items():
        kept = copy.deepcopy(network.state_dict())
        network.load_state_dict(pruned.networks[name].state_dict())
        squares = squared_gradients(whole, data, name)
        found |= {layer: squares[layer] for layer in squares if layer.split(".")[0] == name}
        network.load_state_dict(kept)
    return found


def squared_gradients(agent: Agent, data: Transitions, of: str | None = None) -> dict[str, Tensor]:
    """Square the gradient of each network's own loss and add it up over the weights that are not zero.

    Args:
        of: a network whose loss is enough; None: all.

    Returns:
        {layer's name in `agent.networks`: [run]}.
    """
    names = {layer.module: layer.name for layer in pruners.prunable(agent.networks)}
    draws, settings = Draws(agent.seeds, agent.device), offline.Pruning()
    found = {}
    for objective in agent.objectives.values():
        if of is not None and of not in objective.ranked:
            continue
        # the place behind those of the batches that are scored
        batch, noise = draw_batch(agent, data, draws, settings.grasp_batch, SCORING, settings.batches)
        layers = pruners.prunable(objective.ranked)
        weights = [layer.module.weight for layer in layers]
        gradients = torch.autograd.grad(objective.loss(batch, noise).sum(), weights)
        for layer, gradient in zip(layers, gradients, strict=True):
            found[names[layer.module]] = ((layer.weight != 0) * gradient).square().flatten(1).sum(1)
    return found


def place(name: str) -> tuple[str, int]:
    """Say which network a weight is of, and in which of its layers, counted from 1; the critics are critic1 and
    critic2.
    """
    network, *rest = name.split(".")
    position = int(rest[rest.index("layers") + 1]) + 1
    return (f"critic{int(rest[0]) + 1}" if network == "critic" else network), position
