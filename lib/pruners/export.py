"""Write a pruned model as other programs run it: ONNX, in floats or in int8, zeros kept, and GPUs' 2:4 tensors.

    from lib.pruners import calibration, export
    export.to_onnx(model, "small.onnx", example)                    # masks are baked in
    amax = calibration.ranges(model, batches)                       # what its int8 codes cover
    export.to_onnx(model, "small_int8.onnx", example, amax)         # quantise/dequantise pairs round each product
    fast = export.to_semi_structured(model)                         # torch's own sparse tensors, on a GPU

The model that is handed over stays as it is. ONNX needs the extra `export`: pip install "sparsity-reproduced[export]".
"""

from __future__ import annotations

import importlib.util
import inspect
import logging
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from lib import pruners
from lib.base import BadInput, atomic, to_write, type_of
from lib.kernels import two_four
from lib.pruners import kinds
from lib.pruners.calibration import Int8, called, quantised
from lib.pruners.inputs import Inputs, arguments, batch_of, duplicate, replaced
from lib.pruners.layers import refuse_no_model
from lib.pruners.masks import release

NEEDS = ("onnx", "onnxscript")
OPSET = 21


def to_onnx(
    model: nn.Module, path: str | Path, example: Inputs, amax: Mapping[str, float] | None = None, batch: bool = True
) -> None:
    """Write the model in evaluation mode as one ONNX file, whole or not at all.

    With `amax` each layer that it names reads its input through a pair of QuantizeLinear and DequantizeLinear, one step
    for the tensor, and its weight as int8 codes through a DequantizeLinear, one step an output channel: the codes of
    `lib.pruners.calibration`. A removed weight is code 0. ONNX Runtime and TensorRT make int8 products of such pairs.
    On a processor ONNX Runtime has no products of bfloat16: export such a model in floats.

    Args:
        example: what the model is called with, see `pruners.inputs`; at least two examples, along the first axis of
            each tensor. A model that wants another axis first, as nn.LSTM does, is exported with batch=False.
        amax: {parameter name: largest magnitude of the layer's input that is not clipped}; None: floats.
        batch: let batches of any size in; False: only of the example's.

    Raises:
        BadInput: packages that are not installed, a path that cannot be written to, a batch of one, or a model that
            does not take the example or that torch cannot export, or exports to a file that no runtime would take.
    """
    if missing := [name for name in NEEDS if importlib.util.find_spec(name) is None]:
        raise BadInput(f"{missing[0]} is not installed, which ONNX files need: pip install {' '.join(missing)}")
    refuse_no_model(model)
    path = to_write(path)
    if batch and batch_of(example) < 2:
        raise BadInput("example has a batch of 1, of which torch makes a fixed size: give two examples or more")
    baked = duplicate(model).eval()
    release(baked)
    if amax is not None:
        baked = _with_pairs(quantised(baked, amax))
    args, kwargs = arguments(example)
    sizes = _batches(baked, args, kwargs, batch_of(example)) if batch else None
    with _quietly(logging.getLogger("torch.onnx")), warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")  # torch's own deprecations
        try:
            program = torch.onnx.export(
                baked, args, kwargs=kwargs, dynamo=True, verbose=False, opset_version=OPSET, dynamic_shapes=sizes
            )
        except torch.onnx.OnnxExporterError as error:
            lines = [line.strip() for line in str(error.__cause__ or error).splitlines() if line.strip()]
            reason = " ".join(lines[:2] if lines[0].endswith(":") else lines[:1])
            raise BadInput(f"torch cannot export {type(model).__name__} to ONNX: {reason}") from error
    written = program.model_proto.SerializeToString()
    _refuse_unsound(written, type(model).__name__)
    with atomic(path) as file:
        file.write(written)


@contextmanager
def _quietly(logger: logging.Logger) -> Iterator[None]:
    """Let a logger tell of errors alone for a while."""
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(before)


def _refuse_unsound(written: bytes, name: str) -> None:
    """Refuse a graph that contradicts itself, as torch writes of an nn.LSTM with projections.

    Raises:
        BadInput: what ONNX's own checker found.
    """
    import onnx  # an extra

    try:
        onnx.checker.check_model(written, full_check=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
        reason = str(error).splitlines()[0]
        raise BadInput(f"torch exports {name} to an ONNX graph that contradicts itself: {reason:.200}") from error


def _batches(model: nn.Module, args: tuple, kwargs: Mapping[str, Any], count: int) -> dict[str, Any]:
    """Say of each argument which tensors have as many examples along their first axis as there are."""

    def of(value: Any) -> dict[int, Any] | None:
        counted = isinstance(value, Tensor) and value.dim() > 0 and len(value) == count
        return {0: torch.export.Dim.DYNAMIC} if counted else None

    try:
        bound = inspect.signature(model.forward).bind(*args, **kwargs)
    except TypeError as error:
        raise BadInput(f"{type(model).__name__} cannot take the example: {error}") from error
    return {name: tree_map(of, value) for name, value in bound.arguments.items()}


class Paired(nn.Module):
    """An `Int8` layer in ONNX's words: its product stands between quantise/dequantise pairs."""

    def __init__(self, layer: Int8):
        super().__init__()
        inner, codes = layer.layer, layer.codes
        layout = kinds.find(inner)[0].weights(inner)["weight"]
        if layout.groups > 1:
            raise BadInput(f"ONNX has no steps a channel for {type_of(inner)} of {layout.groups} groups")
        self.axis = layout.output
        self.register_buffer("codes", codes)
        self.register_buffer("weight_scale", layer.weight_scale.flatten().float())
        self.register_buffer("weight_zero", torch.zeros(codes.shape[self.axis], dtype=torch.int8))
        self.register_buffer("input_scale", layer.input_scale.float())
        self.register_buffer("input_zero", torch.zeros((), dtype=torch.int8))
        if layer.bias is not None:
            inner.bias = nn.Parameter(layer.bias.flatten().float(), requires_grad=False)
        inner.weight = nn.Parameter(torch.empty(0), requires_grad=False)  # the codes stand for it
        self.layer = inner
        self.register_forward_pre_hook(called)  # as in `Int8`

    @property
    def weight(self) -> Tensor:
        """Return the weight that the codes stand for, for whoever looks at it."""
        shape = [1] * self.codes.dim()
        shape[self.axis] = -1
        return self.codes * self.weight_scale.reshape(shape)

    def forward(self, input: Tensor) -> Tensor:
        """Write the pairs, and the product between them in float32, which a runtime does in int8."""
        step = (self.input_scale, self.input_zero)
        codes = _onnx("QuantizeLinear", (input.float(), *step), torch.int8, input.shape)
        values = _onnx("DequantizeLinear", (codes, *step), torch.float32, input.shape)
        parts = (self.codes, self.weight_scale, self.weight_zero)
        weight = _onnx("DequantizeLinear", parts, torch.float32, self.codes.shape, axis=self.axis)
        return torch.func.functional_call(self.layer, {"weight": weight}, (values,)).to(input.dtype)


def _onnx(name: str, inputs: tuple[Tensor, ...], dtype: torch.dtype, shape: torch.Size, **attributes: int) -> Tensor:
    return torch.onnx.ops.symbolic(name, inputs, attributes, dtype=dtype, shape=shape, version=OPSET)


def _with_pairs(model: nn.Module) -> nn.Module:
    """The model with each `Int8` as a `Paired`; a layer at several places stays one."""
    return replaced(model, {id(layer): Paired(layer) for layer in model.modules() if isinstance(layer, Int8)})


def semi_structured_layers(model: nn.Module, dtype: torch.dtype = torch.float16) -> pd.DataFrame:
    """Say which layers `to_semi_structured` would convert, on any machine: columns layer, taken, why.

    Raises:
        BadInput: a type that sparse tensor cores do not multiply.
    """
    if dtype not in (torch.float16, torch.bfloat16):
        raise BadInput(f"dtype={dtype}: sparse tensor cores multiply a model's torch.float16 or torch.bfloat16")
    name = "cusparselt" if torch.backends.cusparselt.is_available() else "cutlass"
    rows, columns, _ = two_four.multiples(name, dtype)
    found = []
    for layer in pruners.prunable(model):
        size = tuple(layer.weight.shape)
        if not isinstance(layer.module, nn.Linear):
            why = "torch has sparse tensors for nn.Linear only"
        elif size[0] % rows or size[1] % columns:
            why = f"{size[0]} x {size[1]} is not a multiple of {rows} x {columns}"
        elif not two_four.has_pattern(layer.weight):
            why = "not 2:4"
        else:
            why = ""
        found.append({"layer": layer.name, "taken": not why, "why": why or "2:4, and of a size that the cores take"})
    return pd.DataFrame(found)


def to_semi_structured(model: nn.Module, dtype: torch.dtype = torch.float16, device: str = "cuda") -> nn.Module:
    """Return a copy for inference on a GPU in which each 2:4 `nn.Linear` holds torch's own sparse tensor.

    Layers that `semi_structured_layers` does not take stay dense, of the same type. It needs a GPU:
    `tests/pruners/test_export.py` compares the copy with the model where there is one, and is skipped elsewhere.

    Raises:
        BadInput: no GPU with sparse tensor cores, no layer to convert, or another type than float16 and bfloat16.
    """
    table = semi_structured_layers(model, dtype)
    if not torch.cuda.is_available() or torch.device(device).type != "cuda":
        need = "torch's 2:4 tensors need a GPU of compute capability 8.0 or newer"
        raise BadInput(f"device={device!r}: {need}; semi_structured_layers says on any machine what it would take")
    two_four.backend(dtype, device)
    if not table.taken.any():
        raise BadInput(f"no layer is taken; {table.layer[0]}: {table.why[0]}")
    fast = duplicate(model).eval()
    release(fast)
    fast = fast.to(device, dtype)
    names = set(table.layer[table.taken])
    for layer in pruners.prunable(fast):
        if layer.name in names:
            sparse = torch.sparse.to_sparse_semi_structured(layer.module.weight.detach())
            layer.module.weight = nn.Parameter(sparse, requires_grad=False)
    return fast
