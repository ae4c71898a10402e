"""Laws of the 2:4 workflow's controls (paper 2, section 4.1): what they share with `retrained` and what they do not."""

from collections.abc import Callable
from dataclasses import asdict, replace

import pytest
import torch
from torch import Tensor, nn

from lib import pruners
from lib.companion.sweep.context import Context
from lib.data import vision
from lib.papers.two_four.experiments import two_four_workflow as experiment
from lib.papers.two_four.experiments.variants import Variants
from lib.training.supervised import Training

TASK = experiment.Task("digits", "small_lenet", 2, 2, Training(1, batch=16, learning_rate=0.1))
Begun = dict[str, tuple[dict[str, Tensor], dict[str, Tensor]]]


@pytest.fixture(scope="module")
def begun() -> Callable[[int], Begun]:
    """Of a seed's sessions, by variant: the weights and the masks that each begins with."""
    found: dict[int, Begun] = {}

    def of(seed: int) -> Begun:
        if seed not in found:
            found[seed] = watched(seed)
        return found[seed]

    return of


def watched(seed: int) -> Begun:
    data, began, session = vision.load("digits"), {}, Variants.session

    def watch(self: Variants, variant: str, model: nn.Module, number: int, before: int, **more: object) -> nn.Module:
        weights = {layer.name: layer.weight.detach().clone() for layer in pruners.prunable(model)}
        began[variant] = weights, {name: mask.clone() for name, mask in pruners.attached(model).items()}
        return session(self, variant, model, number, before, **more)

    few = {name: getattr(data, name)[:64] for name in ("train_inputs", "train_labels", "test_inputs", "test_labels")}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Variants, "session", watch)
        patch.setattr(vision, "load", lambda name: replace(data, **few))
        configuration = experiment.configurations(experiment.Settings((TASK,)))[seed]
        assert configuration["training"] == asdict(TASK.training)
        experiment.run(configuration, Context())
    return began


def alike(one: dict[str, Tensor], other: dict[str, Tensor]) -> list[bool]:
    assert one.keys() == other.keys()
    return [torch.equal(one[name], other[name]) for name in one]


def test_fresh_has_the_mask_of_retrained_on_weights_that_the_dense_network_never_had(begun):
    (first, none), (weights, masks) = begun(0)["dense"], begun(0)["fresh"]
    assert not none
    assert all(alike(masks, begun(0)["retrained"][1]))
    for name, mask in masks.items():
        left = weights[name][mask]
        assert not (left == first[name][mask]).any(), name
        assert not (left == begun(0)["retrained"][0][name][mask]).any(), name


def test_every_control_prunes_half_of_the_layers_of_retrained(begun):
    _, wanted = begun(0)["retrained"]
    for variant in experiment.CONTROLS:
        _, masks = begun(0)[variant]
        assert masks.keys() == wanted.keys()
        assert sum(int(mask.sum()) for mask in masks.values()) == sum(int(mask.sum()) for mask in wanted.values())
        assert not all(alike(masks, wanted)), variant


def test_random_masks_differ_between_seeds(begun):
    one, other = (begun(seed)["random"][1] for seed in (0, 1))
    assert not any(alike(one, other))


def test_the_rival_that_is_trained_as_long_is_dense_and_begins_where_pruning_does(begun):
    weights, masks = begun(0)["dense_twice"]
    assert not masks
    pruned, kept = begun(0)["retrained"]
    for name, mask in kept.items():
        assert torch.equal(weights[name] * mask, pruned[name])
        assert (weights[name] != 0).all()
