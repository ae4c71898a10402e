"""Record a function's kernels once as a CUDA graph and start them all together, without Python between them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils import _pytree as pytree

WARM_UP = 3  # calls before the recording, on a stream of their own as CUDA asks for: libraries set themselves up


class Graphed:
    """Call a function; all calls after the first few replay a recording of one call.

    The function must do the same at each call: fixed shapes, no value of a tensor read by Python, and all that changes
    from call to call in its arguments. It may change other tensors in place, as an optimizer does. What it returns is
    overwritten by the next call.

    Args:
        function: of any arguments made of tensors (tuples, lists, dicts), which returns tensors likewise.
    """

    def __init__(self, function: Callable):
        self.function, self.calls, self.graph = function, 0, None

    def __call__(self, *arguments: Any) -> Any:
        """Return what the function returns for these arguments, each of the same shapes as at the first call."""
        self.calls += 1
        if self.calls <= WARM_UP:
            return self._aside(arguments)
        if self.graph is None:
            self._record(arguments)
        else:
            for own, new in zip(pytree.tree_leaves(self.arguments), pytree.tree_leaves(arguments), strict=True):
                own.copy_(new)
        self.graph.replay()
        return self.returned

    def _aside(self, arguments: tuple) -> Any:
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            returned = self.function(*arguments)
        torch.cuda.current_stream().wait_stream(stream)
        return returned

    def _record(self, arguments: tuple) -> None:
        self.arguments = pytree.tree_map(torch.clone, arguments)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.returned = self.function(*self.arguments)
