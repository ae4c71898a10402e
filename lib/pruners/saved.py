"""Save weights with their masks in a safetensors file, and load them: training goes on where it was, every zero held.

    pruners.save(model, "small.safetensors")              # or form="two_four", as sparse tensor cores read it
    pruners.load("small.safetensors", build_the_model())  # a fresh model of the same class: masks are attached again

A masked weight NAME becomes two tensors. As a bitmap: `NAME:values`, those that are kept, row after row, and
`NAME:bitmap`, a bit a place, the first in the highest bit. As 2:4: `NAME:values` [R, C/2] and `NAME:metadata` [R, C/8]
of `kernels.two_four.compress`, of a weight as the left matrix of its product. Everything else stands under its own
name, so that any program which reads safetensors finds it. The file's metadata say which is which.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
from collections import OrderedDict
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save as serialised
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch.nn.utils import parametrize

from lib.base import BadInput, atomic, to_write
from lib.kernels.sparse_linear import SparseLinear
from lib.kernels.two_four import DTYPES, compress, decompress
from lib.pruners.grouped import Grouped
from lib.pruners.kinds import Layout, layout_of
from lib.pruners.layers import prunable, refuse_no_model, refuse_replicated, refused, survey
from lib.pruners.masks import Masked, attach, lift, refuse_inference

FORMS = ("bitmap", "two_four")
SLOPES = "gates._extra_state"  # see `gates.Gates.get_extra_state`
NOTES = "pruners.save"  # in the file's metadata: which weights are masked, which are the same, a checksum


def save(model: nn.Module, path: str | Path, form: str = "bitmap") -> None:
    """Write a model's weights, buffers and masks, whole or not at all.

    Of a masked weight only what the mask keeps is written. Tensors that several layers share are written once. Of a
    layer that `sparse` has made the weight and its mask are written, which `load` puts into the plain model.

    Args:
        form: one of FORMS. "two_four" compresses the weights whose masks keep exactly two of every four, along the
            reduction of their products, whose length must be a multiple of eight; other masked weights are stored as
            bitmaps, and so are those of stacks, which have a matrix a run.

    Raises:
        BadInput: an unknown form, a path that cannot be written to, or something in the model's `state_dict()` that is
            no dense tensor with values.
    """
    if form not in FORMS:
        raise BadInput(f"form={form!r}: known are {', '.join(FORMS)}")
    path = to_write(path)
    state, masks = plain(model)
    _fill(model, state, masks)
    if not_dense := [n for n, t in state.items() if not isinstance(t, Tensor) or t.layout != torch.strided]:
        raise BadInput(f"{not_dense[0]} is no dense tensor, which is all that safetensors hold")
    if complex_ones := [name for name, tensor in state.items() if tensor.dtype == torch.complex128]:
        raise BadInput(f"{complex_ones[0]} is of complex128, a type that safetensors do not hold")
    if empty := [name for name, tensor in state.items() if is_lazy(tensor) or tensor.is_meta]:
        raise BadInput(f"{empty[0]} has no values yet: run or load the model first")
    first, same, parts, about = {}, {}, {}, {}
    for name, tensor in state.items():
        place = (tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride())
        if tensor.numel() and (owner := first.setdefault(place, name)) != name:
            same[name] = owner
        elif name not in masks:
            parts[name] = tensor
    compressed = survey(model)[0] if form == "two_four" else []
    layouts = {owner: layer.layout for layer in compressed for owner in layer.owners}
    for name in (name for name in masks if name not in same):
        module, _, attribute = name.rpartition(".")
        layout = layouts.get((model.get_submodule(module), attribute))
        pieces = _packed(state.get(name), masks[name], layout)
        parts |= {f"{name}:{part}": piece for part, piece in pieces.items()}
        about[name] = {"parts": list(pieces), "shape": list(masks[name].shape)}
        if "metadata" in pieces:
            about[name]["layout"] = [layout.axes, layout.groups]
    parts = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in parts.items()}
    notes = {"masked": about, "same": same, "modules": getattr(state, "_metadata", {}), "sha256": _digest(parts)}
    metadata = {NOTES: json.dumps(notes)}  # one entry: safetensors writes several in any order
    with atomic(path) as file:
        file.write(serialised(parts, metadata))


def load(path: str | Path, model: nn.Module) -> None:
    """Put what `save` wrote into a model of the same class, and attach the masks; others that it has are taken off.

    Of a file that an older version has written of a gated model, which has no slopes, the gates keep the model's own.
    The model is left as it was if the file does not fit it. The state of an optimizer that was made before the masks
    fits one that is made before this call (`attach`). A model that `sparse` has made is loaded before it is.

    Raises:
        BadInput: the file is not there, damaged, or not written by `save`; or it has other tensors than the model, or
            a mask on what is not `prunable` here.
    """
    state, masks = read(path)
    own, held = plain(model)
    name_of = Path(path).name
    for names, what in (
        ({name for name in own.keys() - state.keys() if not name.endswith(SLOPES)}, "lacks"),
        (state.keys() - own.keys(), "has, and the model has not,"),
    ):
        if names:
            raise BadInput(f"{name_of} {what} {min(names)}: {_cure(own.keys(), state.keys())}")
    for name in (name for name in own if name in state):
        if own[name].shape != (tensor := state[name]).shape or own[name].dtype != tensor.dtype:
            found, expected = (f"{list(one.shape)} of {one.dtype}" for one in (tensor, own[name]))
            raise BadInput(f"{name_of}: {name} is {found}, the model's is {expected}")
    if masks or held:
        layers = prunable(model)
        names, owners = {layer.name for layer in layers}, {owner for layer in layers for owner in layer.owners}
        for name in masks:
            module, _, attribute = name.rpartition(".")
            if (model.get_submodule(module), attribute) not in owners:
                why = refused(model).get(name, "it is no prunable weight of the model")
                raise BadInput(f"{name_of} has a mask on {name}, which cannot be attached: {why}")
        refuse_replicated(model, [layer for layer in layers if layer.name in held.keys() - masks.keys()])
        refuse_inference(layers)
        with _grouped_as(model, state):
            attach(model, {name: mask for name, mask in masks.items() if name in names})
        lift(model, held.keys() - masks.keys())
    names, _ = _names(model)
    complete = OrderedDict((key, state.get(names.get(key), tensor)) for key, tensor in model.state_dict().items())
    complete._metadata = state._metadata
    model.load_state_dict(complete)


@contextmanager
def _grouped_as(model: nn.Module, state: Mapping[str, Tensor]) -> Iterator[None]:
    """Let a state's tables of groups hold: a mask of released groups would cut those that a fresh model has. If what is
    done with them fails, the model has its own again.
    """
    tables = {f"{path}.table": one.table for path, one in model.named_modules() if isinstance(one, Grouped)}
    own = {name: table.clone() for name, table in tables.items()}
    try:
        for name, table in tables.items():
            table.copy_(state[name])
        yield
    except BaseException:
        for name, table in tables.items():
            table.copy_(own[name])
        raise


def _cure(own: Collection[str], file: Collection[str]) -> str:
    """What would be right where a model and a file have tensors of other names."""
    inner = [{re.sub(r"\b(_orig_mod|module)\.", "", name) for name in names} for names in (own, file)]
    if inner[0] == inner[1]:
        return "torch.compile puts _orig_mod. before names, DataParallel module.: wrap the model as the saved one was"
    odd = set(own) ^ set(file)
    if any(name.endswith("by_output_places") for name in set(own) - set(file)):
        return "what pruners.sparse has made holds other tensors: load into the plain model, and make it sparse then"
    if any(name.endswith("by_output_places") for name in odd):
        return "an older version has written it of a sparse model: load it into such a one, and save that anew"
    if any(name.endswith("_mask") and f"{name.removesuffix('_mask')}_orig" in odd for name in odd):
        return "torch.nn.utils.prune holds a mask: pruners.attach(model, pruners.attached(model)) before pruners.save"
    if any("parametrizations." in name for name in odd):
        ways = "a norm of torch.nn.utils.parametrizations, pruners.learn or groups.group"
        return f"a weight is computed in one alone: prepare the model as the saved one was, by {ways}"
    return "load it into a model of the same class and sizes"


def read(path: str | Path) -> tuple[OrderedDict[str, Tensor], dict[str, Tensor]]:
    """Read what `save` wrote: a state_dict with each weight under its plain name, removed ones zero, and the masks.

    Raises:
        BadInput: the file is not there, damaged, or not written by `save`.
    """
    if not isinstance(path, (str, os.PathLike)) or not Path(path).is_file():
        raise BadInput(f"{path} is no file" if isinstance(path, (str, os.PathLike)) else f"{path!r:.60} is no path")
    path = Path(path)
    try:
        with safe_open(path, framework="pt") as file:
            metadata, parts = file.metadata() or {}, {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except SafetensorError as error:
        raise BadInput(f"{path.name} is no safetensors file, or cut off: {error}") from error
    if NOTES not in metadata:
        raise BadInput(f"{path.name} was not written by pruners.save: safetensors.torch.load_file reads it")
    try:
        notes = json.loads(metadata[NOTES])
        if _digest(parts) != notes["sha256"]:
            raise BadInput(f"{path.name} is altered: its checksum does not fit; fetch or save it again")
        return _restored(parts, notes)
    except (AttributeError, IndexError, KeyError, RuntimeError, TypeError, ValueError) as error:
        if isinstance(error, BadInput):
            raise
        raise BadInput(f"{path.name} is altered: its notes do not fit its tensors; fetch or save it again") from error


def _restored(parts: dict[str, Tensor], notes: Mapping[str, Any]) -> tuple[OrderedDict[str, Tensor], dict[str, Tensor]]:
    """The state_dict and the masks of a file's tensors and of its notes about them."""
    masks, state = {}, OrderedDict()
    for name, about in notes["masked"].items():
        pieces = {part: parts.pop(f"{name}:{part}") for part in about["parts"]}
        weight, masks[name] = _unpacked(pieces, about["shape"], about.get("layout"))
        if weight is not None:
            state[name] = weight
    state |= parts
    for name, owner in notes["same"].items():
        state[name] = state[owner]
        if owner in masks:
            masks[name] = masks[owner]
    state._metadata = OrderedDict(notes["modules"])
    return state, masks


def plain(model: nn.Module) -> tuple[OrderedDict[str, Tensor], dict[str, Tensor]]:
    """Return the model's `state_dict()`, each masked weight under its plain name, and the masks.

    A mask on what another parametrization computes, groups of weights say, has no weight of its name beside it: the
    state has what is trained behind it. A mask before another parametrization is a part of what computes the weight,
    and stays in the state as it is: attached to another model it would act after that one, on other numbers.

    Raises:
        BadInput: what is no module.
    """
    refuse_no_model(model)
    whole, (names, places) = model.state_dict(), _names(model)
    masks = {name: whole[key] for name, key in places.items()}
    state = OrderedDict((name, whole[key]) for key, name in names.items())
    state._metadata = getattr(whole, "_metadata", OrderedDict())
    return state, masks


def _fill(model: nn.Module, state: dict[str, Tensor], masks: dict[str, Tensor]) -> None:
    """Put the weights of layers that `sparse` has made in the place of what these hold, and their masks."""
    made: dict[int, tuple[Tensor, Tensor]] = {}  # a layer at several places is one
    for path, module in model.named_modules(remove_duplicate=False):
        if isinstance(module, SparseLinear):
            base = f"{path}." if path else ""
            for name in ("values", *module._buffers):
                state.pop(f"{base}{name}", None)
            weight, left = made.setdefault(id(module), (module.weight.detach(), module.left))
            state[f"{base}weight"], masks[f"{base}weight"] = weight, left


def _names(model: nn.Module) -> tuple[dict[str, str], dict[str, str]]:
    """{key in the `state_dict()`: plain name} of all tensors but the masks, and {masked weight: key of its mask}."""
    names, masks = {key: key for key in model.state_dict()}, {}
    for path, module in model.named_modules(remove_duplicate=False):
        lists = module.parametrizations.items() if parametrize.is_parametrized(module) else ()
        for attribute, chain in lists:
            base = f"{path}." if path else ""
            if isinstance(chain[-1], Masked):
                masks[f"{base}{attribute}"] = f"{base}parametrizations.{attribute}.{len(chain) - 1}.mask"
                del names[masks[f"{base}{attribute}"]]
                if len(chain) == 1:
                    names[f"{base}parametrizations.{attribute}.original"] = f"{base}{attribute}"
    return names, masks


def _packed(weight: Tensor | None, mask: Tensor, layout: Layout | None) -> dict[str, Tensor]:
    """The tensors that stand for a masked weight, or for its mask alone; as 2:4 where there is a layout and it fits."""
    bitmap = {"bitmap": torch.from_numpy(np.packbits(mask.cpu().numpy()))}
    if weight is None:
        return bitmap
    if layout is not None and not layout.stacked and weight.dtype in DTYPES:
        kept = layout.matrix(mask)
        if kept.shape[1] % 8 == 0 and bool((kept.reshape(len(kept), -1, 4).sum(-1) == 2).all()):
            _, metadata = compress(kept.to(torch.int8))
            return {"values": layout.matrix(weight)[kept].reshape(len(kept), -1), "metadata": metadata}
    return {"values": weight[mask]} | bitmap


def _unpacked(
    pieces: Mapping[str, Tensor], shape: Sequence[int], layout: Sequence | None
) -> tuple[Tensor | None, Tensor]:
    """The weight, if there is one, and the mask of what `_packed` made; files without a layout had it of the shape."""
    if (metadata := pieces.get("metadata")) is not None:
        lies = Layout(*layout) if layout else layout_of(torch.empty(shape, device="meta"))
        values = pieces["values"]
        kept = decompress(torch.ones_like(values, dtype=torch.int8), metadata).bool()
        return lies.tensor(decompress(values, metadata), shape).contiguous(), lies.tensor(kept, shape).contiguous()
    bits = np.unpackbits(pieces["bitmap"].numpy(), count=math.prod(shape))
    mask = torch.from_numpy(bits.astype(bool)).reshape(shape)
    if "values" not in pieces:
        return None, mask
    weight = torch.zeros(shape, dtype=pieces["values"].dtype)
    weight[mask] = pieces["values"]
    return weight, mask


def _digest(parts: Mapping[str, Tensor]) -> str:
    """sha256 over names and contents."""
    digest = hashlib.sha256()
    for name in sorted(parts):
        digest.update(f"{name}\0".encode() + parts[name].reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()
