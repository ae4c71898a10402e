"""Run Adam on the weights that are kept alone: what is removed before has no gradient, no memory and no cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from lib.base import BadInput
from lib.training.checkpoints import checksum


class MaskedAdam:
    """Run Adam (Kingma and Ba 2015), which here moves the kept weights of masked parameters, and all of the others.

    The kept weights of all masked parameters are one long vector to it. So at 95 % sparsity it has a twentieth of the
    numbers to go through, and what it removed stays at zero because nothing ever touches it.

    So masks that are set before training and never change cost an update nothing. A mask that `pruners.attach` puts on
    a weight is multiplied with it in each forward pass and with its gradient in each backward one; it is for masks that
    change during training, or that must hold whatever optimizer comes. The trained numbers are the same, bit for bit.

    Args:
        parameters: all that is trained; removed weights must be zero already.
        masks: {parameter: bool tensor of its shape, True = kept}, of some of the parameters.
        capturable: of `torch.optim.Adam`, for CUDA graphs.

    Raises:
        BadInput: a mask that is not bool or not of its parameter's shape, or masked parameters of several types.
    """

    def __init__(
        self,
        parameters: Sequence[nn.Parameter],
        masks: Mapping[nn.Parameter, Tensor],
        learning_rate: float,
        capturable: bool = False,
    ):
        self.parameters = list(parameters)
        self.masked = [parameter for parameter in parameters if parameter in masks]
        for parameter in self.masked:
            mask = masks[parameter]
            if mask.dtype != torch.bool or mask.shape != parameter.shape:
                found = f"{str(mask.dtype)[6:]} {list(mask.shape)}"
                raise BadInput(f"a mask is {found}, expected bool {list(parameter.shape)}, True where a weight is kept")
        if len(types := {str(parameter.dtype)[6:] for parameter in self.masked}) > 1:
            raise BadInput(f"masked parameters are {' and '.join(sorted(types))}: expected one type for all")
        self.masks = [checksum(masks[parameter]) for parameter in self.masked]
        self.places = [masks[parameter].flatten().nonzero().squeeze(1) for parameter in self.masked]
        trained = [parameter for parameter in parameters if parameter not in masks]
        if self.masked:
            self.kept = nn.Parameter(self._gathered(self.masked))
            trained.append(self.kept)
        # foreach: torch's fused Adam rounds by an element's place in memory, so a run would depend on its stack
        self.adam = torch.optim.Adam(trained, learning_rate, foreach=True, capturable=capturable)

    def zero_grad(self) -> None:
        """Forget the gradients."""
        for parameter in self.parameters:
            parameter.grad = None

    @torch.no_grad()
    def step(self) -> None:
        """Take one step on the gradients that the parameters hold.

        Raises:
            BadInput: a masked parameter has none.
        """
        if any(parameter.grad is None for parameter in self.masked):
            raise BadInput("a masked parameter has no gradient: expected one of every parameter with a mask")
        if self.masked:
            self.kept.copy_(self._gathered(self.masked))  # the parameters are the truth, they may have been loaded
            self.kept.grad = self._gathered([parameter.grad for parameter in self.masked])
        self.adam.step()
        if self.masked:
            parts = self.kept.split([len(place) for place in self.places])
            for parameter, place, part in zip(self.masked, self.places, parts, strict=True):
                parameter.put_(place, part)

    def state_dict(self) -> dict:
        """Say what Adam remembers and of which masks; the weights themselves are the parameters'."""
        return self.adam.state_dict() | {"masks": self.masks}

    def load_state_dict(self, content: dict) -> None:
        """Go on from where `state_dict` was called, with the same masks.

        Raises:
            BadInput: the masks are others, whose moments would be given to the wrong weights.
        """
        if content.get("masks", self.masks) != self.masks:  # older checkpoints do not say
            raise BadInput("what Adam remembers is of other masks: expected those that it was made with")
        self.adam.load_state_dict({key: value for key, value in content.items() if key != "masks"})

    def _gathered(self, tensors: Sequence[Tensor]) -> Tensor:
        with torch.no_grad():
            pairs = zip(tensors, self.places, strict=True)
            return torch.cat([tensor.flatten().index_select(0, place) for tensor, place in pairs])
