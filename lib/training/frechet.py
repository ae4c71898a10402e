"""Compute the Fréchet distance between two sets of images, by the features of a network (Heusel et al. 2017).

Their measure, FID, takes the features of Inception. Any network that knows the images serves; only distances by the
same network are comparable.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from lib.base import BadInput
from lib.training.evaluation import measuring

Moments = tuple[Tensor, Tensor]  # mean [F] and covariance [F, F], float64


def moments(features: Tensor) -> Moments:
    """Compute mean and covariance of features [N, F], in float64.

    Raises:
        BadInput: fewer than two images, no feature, or a feature that is not finite.
    """
    if features.dim() != 2 or len(features) < 2 or not features.shape[1]:
        raise BadInput(f"features of shape {list(features.shape)}: expected [N, F] with at least two images")
    if not features.isfinite().all():
        raise BadInput("features are not finite: the images or the network that reads them have diverged")
    features = features.double()
    return features.mean(0), torch.atleast_2d(features.T.cov())  # of a single feature torch gives a number


def frechet(one: Moments, other: Moments) -> float:
    r"""Compute the squared Fréchet distance of two normal distributions (Heusel et al. 2017, equation 6).

    |m - m'|^2 + tr(C + C' - 2 (C C')^(1/2)). The trace of the last is that of (C^(1/2) C' C^(1/2))^(1/2), which is
    symmetric, so that its eigenvalues are real and no square root of a general matrix is needed.
    """
    (mean, covariance), (other_mean, other_covariance) = one, other
    values, vectors = torch.linalg.eigh(covariance)
    root = vectors * values.clamp(min=0).sqrt() @ vectors.T
    between = torch.linalg.eigvalsh(root @ other_covariance @ root).clamp(min=0).sqrt().sum()
    means = (mean - other_mean).square().sum()
    return float(means + covariance.trace() + other_covariance.trace() - 2 * between)


def features(network: nn.Module, images: Tensor, layer: str, batch: int = 1000) -> Tensor:
    """Read what enters a layer of the network, [N, F], for images [N, C, H, W] as the network takes them.

    Args:
        layer: name of the layer, such as "fc2", the last of a LeNet.

    Raises:
        BadInput: no such layer, or one that the network does not call.
    """
    modules = dict(network.named_modules())
    if layer not in modules:
        raise BadInput(f"no layer {layer!r}; the network has {', '.join(name for name in modules if name)}")
    found: list[Tensor] = []
    keep: Callable[..., None] = lambda module, inputs: found.append(inputs[0].flatten(1))  # noqa: E731
    handle = modules[layer].register_forward_pre_hook(keep)
    try:
        with measuring(network):
            for part in images.split(batch):
                network(part)
    finally:
        handle.remove()
    if not found:
        raise BadInput(f"layer {layer!r} is there and is never called: nothing enters it")
    return torch.cat(found)
