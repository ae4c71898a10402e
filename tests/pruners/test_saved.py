"""A saved model comes back with its masks, bit for bit, goes on training alike, and a wrong file changes nothing."""

import copy
import json
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import nn
from torch.nn import functional as F

from lib import pruners
from lib.base import BadInput
from lib.kernels.two_four import decompress
from lib.models.lenet import small_lenet
from lib.models.resnet import small_resnet
from lib.pruners.layers import as_matrix
from lib.pruners.saved import NOTES


def pruned(pattern: str = "two_four") -> nn.Module:
    torch.manual_seed(0)
    model = small_lenet()
    scores = pruners.magnitude(model)
    pruners.attach(model, pruners.two_four(model) if pattern == "two_four" else pruners.unstructured(scores, 0.9))
    return model


def step(model: nn.Module) -> torch.Tensor:
    """A training step with momentum, and what the model then answers."""
    draw = torch.Generator().manual_seed(1)
    images, labels = torch.randn(8, 1, 8, 8, generator=draw), torch.randint(10, (8,), generator=draw)
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9, weight_decay=0.01)
    for _ in range(2):
        optimizer.zero_grad()
        F.cross_entropy(model(images), labels).backward()
        optimizer.step()
    return model(images).detach()


@pytest.mark.parametrize("form", ["bitmap", "two_four"])
@pytest.mark.parametrize("pattern", ["two_four", "unstructured"])
def test_a_fresh_model_gets_weights_and_masks_and_trains_on_alike(form: str, pattern: str, tmp_path: Path):
    model, fresh = pruned(pattern), small_lenet()
    step(model)  # momentum moves nothing beneath a mask
    pruners.save(model, tmp_path / "small.safetensors", form)
    pruners.load(str(tmp_path / "small.safetensors"), fresh)
    masks, again = pruners.attached(model), pruners.attached(fresh)
    assert list(masks) == list(again)
    assert all(torch.equal(masks[name], again[name]) for name in masks)
    assert all(torch.equal(a, b) for a, b in zip(model.state_dict().values(), fresh.state_dict().values(), strict=True))
    assert torch.equal(step(model), step(fresh))


def test_as_2_4_the_file_holds_what_sparse_tensor_cores_read_and_bitmaps_where_it_does_not_fit(tmp_path: Path):
    model = pruned()
    masks = pruners.attached(model)
    masks["fc2.weight"][0, :4] = False  # a group with none is 2:4 too, but the format cannot tell which two are held
    pruners.attach(model, masks)
    pruners.save(model, tmp_path / "a", "two_four")
    parts = load_file(tmp_path / "a")
    assert {"conv2.weight:metadata", "fc1.weight:metadata", "fc2.weight:bitmap", "conv1.weight"} <= set(parts)
    assert "fc1.weight" not in parts
    for name in ("conv2.weight", "fc1.weight"):
        matrix = decompress(parts[f"{name}:values"], parts[f"{name}:metadata"])
        assert torch.equal(matrix, as_matrix(model.get_submodule(name.removesuffix(".weight")).weight.detach()))
    fresh = small_lenet()
    pruners.load(tmp_path / "a", fresh)
    assert torch.equal(pruners.attached(fresh)["fc2.weight"], masks["fc2.weight"])


class Turned(nn.Module):
    """A layer whose weight has its inputs first, as that of transformers' Conv1D."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(16, 8))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return inputs @ self.weight


@pytest.mark.parametrize(
    "layer",
    [nn.Conv1d(16, 8, 3), nn.Conv3d(16, 8, 1), nn.ConvTranspose2d(16, 8, 4, groups=2), nn.LSTM(16, 8), Turned()],
)
def test_as_2_4_every_layer_is_compressed_along_the_sums_of_its_own_product(
    layer: nn.Module, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    monkeypatch.setitem(pruners.kinds.KINDS, Turned, pruners.kinds.fixed(weight="io"))
    model = nn.Sequential(copy.deepcopy(layer))
    pruners.attach(model, pruners.n_of_m(pruners.magnitude(model)))
    pruners.save(model, tmp_path / "a", "two_four")
    parts, fresh = load_file(tmp_path / "a"), nn.Sequential(layer)
    for one in pruners.prunable(model):
        assert torch.equal(decompress(parts[f"{one.name}:values"], parts[f"{one.name}:metadata"]), one.matrix())
    pruners.load(tmp_path / "a", fresh)
    assert all(torch.equal(a, b) for a, b in zip(model.state_dict().values(), fresh.state_dict().values(), strict=True))


def test_a_file_from_before_layouts_were_noted_loads_as_it_did(tmp_path: Path):
    model, fresh = pruned(), small_lenet()
    pruners.save(model, tmp_path / "a", "two_four")
    with safe_open(tmp_path / "a", framework="pt") as file:
        notes, parts = json.loads(file.metadata()[NOTES]), {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    assert [about.pop("layout", None) for about in notes["masked"].values()].count(None) < len(notes["masked"])
    save_file(parts, tmp_path / "a", {NOTES: json.dumps(notes)})
    pruners.load(tmp_path / "a", fresh)
    assert all(torch.equal(a, b) for a, b in zip(model.state_dict().values(), fresh.state_dict().values(), strict=True))


def test_a_bitmap_has_its_first_place_in_the_highest_bit(tmp_path: Path):
    model = nn.Linear(5, 2, bias=False)
    mask = torch.tensor([[True, False, False, False, False], [True, True, False, False, True]])
    with torch.no_grad():
        model.weight.copy_(torch.arange(10.0).reshape(2, 5))
    pruners.attach(model, {"weight": mask})
    pruners.save(model, tmp_path / "a")
    parts = load_file(tmp_path / "a")
    assert parts["weight:bitmap"].tolist() == [0b10000110, 0b01000000]
    assert parts["weight:values"].tolist() == [0, 5, 6, 9]  # a kept zero stays kept
    assert set(parts) == {"weight:bitmap", "weight:values"}


def test_the_file_is_as_small_as_its_masks_say(tmp_path: Path):
    torch.manual_seed(0)
    model = nn.Linear(1000, 1000, bias=False)
    pruners.attach(model, pruners.unstructured(pruners.magnitude(model), 0.95))
    pruners.save(model, tmp_path / "a")
    assert (tmp_path / "a").stat().st_size == pytest.approx(4 * 50_000 + 1_000_000 / 8, abs=1000)
    assert [path.name for path in tmp_path.iterdir()] == ["a"]
    pruners.save(model, tmp_path / "again")
    assert (tmp_path / "a").read_bytes() == (tmp_path / "again").read_bytes()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_narrow_and_wide_types_come_back(dtype: torch.dtype, tmp_path: Path):
    model, fresh = pruned().to(dtype), small_lenet().to(dtype)
    pruners.save(model, tmp_path / "a", "two_four")
    pruners.load(tmp_path / "a", fresh)
    assert all(torch.equal(a, b) for a, b in zip(model.state_dict().values(), fresh.state_dict().values(), strict=True))


class Doubled(nn.Module):
    def forward(self, weight):
        return 2 * weight

    def right_inverse(self, weight):
        return weight / 2


def test_masks_on_what_other_parametrizations_compute_come_back_too(tmp_path: Path):
    """The file has what is trained behind the weight, and the mask of what is computed from that."""

    def build():
        model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 4))
        nn.utils.parametrize.register_parametrization(model[0], "weight", Doubled())
        return model

    model, fresh = build(), build()
    pruners.attach(model, pruners.unstructured(pruners.magnitude(model), 0.5))
    pruners.save(model, tmp_path / "a")
    pruners.load(tmp_path / "a", fresh)
    assert torch.equal(model[0].weight, fresh[0].weight)
    assert all(torch.equal(a, b) for a, b in zip(model.state_dict().values(), fresh.state_dict().values(), strict=True))
    with pytest.raises(BadInput, match=r"^a lacks 0\.weight: a weight is computed in one alone"):
        pruners.load(tmp_path / "a", nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 4)))


def test_what_layers_share_is_written_once_and_buffers_and_notes_come_back(tmp_path: Path):
    torch.manual_seed(0)
    model, fresh = small_resnet(), small_resnet()
    model.again = model.stem if hasattr(model, "stem") else next(model.children())
    fresh.again = fresh.stem if hasattr(fresh, "stem") else next(fresh.children())
    model(torch.randn(4, 1, 8, 8))  # moves the running statistics
    pruners.attach(model, pruners.two_four(model))
    pruners.save(model, tmp_path / "a")
    with safe_open(tmp_path / "a", framework="pt") as file:
        assert json.loads(file.metadata()["pruners.save"])["same"]
        assert not [name for name in file.keys() if name.startswith("again")]  # noqa: SIM118
    pruners.load(tmp_path / "a", fresh)
    assert all(torch.equal(a, b) for a, b in zip(model.state_dict().values(), fresh.state_dict().values(), strict=True))


def test_masks_that_the_file_has_not_are_taken_off(tmp_path: Path):
    dense, masked = small_lenet(), pruned()
    trained = list(masked.parameters())
    pruners.save(dense, tmp_path / "a")
    pruners.load(tmp_path / "a", masked)
    images = torch.randn(3, 1, 8, 8)
    assert torch.equal(dense(images), masked(images))
    assert pruners.attached(masked) == {}
    assert masked.state_dict().keys() == dense.state_dict().keys()
    assert {id(parameter) for parameter in masked.parameters()} == {id(parameter) for parameter in trained}
    pruners.learn(masked, pruners.n_of_m)  # which no layer with a mask may


def test_a_mask_that_the_file_has_not_is_taken_off_what_it_composes_with_and_off_a_shared_weight(tmp_path: Path):
    def build():
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 8))
        nn.utils.parametrize.register_parametrization(model[0], "weight", Doubled())
        model[2].weight = model[1].weight
        return model

    dense, masked = build(), build()
    pruners.attach(masked, pruners.unstructured(pruners.magnitude(masked), 0.5))
    pruners.save(dense, tmp_path / "a")
    pruners.load(tmp_path / "a", masked)
    assert pruners.attached(masked) == {}
    assert masked[2].weight is masked[1].weight
    inputs = torch.randn(3, 8)
    assert torch.equal(dense(inputs), masked(inputs))


def test_a_mask_beneath_another_parametrization_comes_back_in_a_model_that_has_both(tmp_path: Path):
    def build(seed: int) -> nn.Module:
        torch.manual_seed(seed)
        model = nn.Sequential(nn.Linear(8, 8))
        pruners.attach(model, pruners.unstructured(pruners.magnitude(model), 0.5))
        nn.utils.parametrizations.spectral_norm(model[0])
        return model

    model, fresh = build(0), build(1)
    pruners.save(model, tmp_path / "a")
    pruners.load(tmp_path / "a", fresh)
    assert all(torch.equal(a, b) for a, b in zip(model.state_dict().values(), fresh.state_dict().values(), strict=True))
    with pytest.raises(
        BadInput, match=r"^a lacks 0\.parametrizations\.weight\.0\._u: a weight is computed in one alone"
    ):
        pruners.load(tmp_path / "a", nn.Sequential(nn.utils.parametrizations.spectral_norm(nn.Linear(8, 8))))


def test_a_mask_on_what_has_no_rule_here_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    model = nn.Sequential(Turned(), nn.Linear(8, 8))
    with monkeypatch.context() as there:
        there.setitem(pruners.kinds.KINDS, Turned, pruners.kinds.fixed(weight="io"))
        pruners.attach(model, pruners.n_of_m(pruners.magnitude(model)))
    pruners.save(model, tmp_path / "a")
    fresh = nn.Sequential(Turned(), nn.Linear(8, 8))
    before = copy.deepcopy(fresh.state_dict())
    with pytest.raises(BadInput, match=r"^a has a mask on 0\.weight, which cannot be attached: there is no rule for"):
        pruners.load(tmp_path / "a", fresh)
    assert all(torch.equal(before[name], tensor) for name, tensor in fresh.state_dict().items())


def test_a_wrong_file_is_one_line_and_changes_nothing(tmp_path: Path):
    path, model = tmp_path / "a", pruned()
    before = copy.deepcopy(model.state_dict())
    pruners.save(small_lenet(), path)
    whole = path.read_bytes()
    path.write_bytes(whole[:-1])
    with pytest.raises(BadInput, match=r"^a is no safetensors file, or cut off"):
        pruners.load(path, model)
    path.write_bytes(whole[:-5] + bytes([whole[-5] ^ 1]) + whole[-4:])
    with pytest.raises(BadInput, match=r"^a is altered: its checksum does not fit"):
        pruners.load(path, model)
    save_file({"weight": torch.ones(2)}, path)
    with pytest.raises(BadInput, match=r"^a was not written by pruners\.save"):
        pruners.load(path, model)
    pruners.save(nn.Linear(3, 3), path)
    with pytest.raises(BadInput, match=r"^a lacks conv1\.bias: load it into a model of the same class"):
        pruners.load(path, model)
    pruners.save(pruned().half(), path)
    with pytest.raises(BadInput, match=r"^a: conv1\.weight is \[16, 1, 3, 3\] of torch\.float16, the model's is"):
        pruners.load(path, model)
    with pytest.raises(BadInput, match="nothing is no file"):
        pruners.load(tmp_path / "nothing", model)
    with pytest.raises(BadInput, match="form='csr': known are bitmap, two_four"):
        pruners.save(model, path, "csr")
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())


def test_what_cannot_be_written_or_read_is_one_line(tmp_path: Path):
    path, model = tmp_path / "a", pruned()
    pruners.save(model, path)
    for line, asked in {
        "None is no path of a file to write": (model, None),
        f"{tmp_path} is a folder: give the name of a file in it": (model, tmp_path),
        f"{path} cannot be written to: ": (model, path / "b"),
        "PosixPath.'.'. is no path of a file": (model, Path("")),
        "expected a model, a torch.nn.Module, found an OrderedDict": (model.state_dict(), path),
        "Linear is a class: expected a model of it": (nn.Linear, path),
        "weight has no values yet: run or load the model first": (nn.Linear(2, 2, device="meta"), path),
        "weight has no values yet": (nn.LazyLinear(2), path),
    }.items():
        with pytest.raises(BadInput, match=f"^{line}"):
            pruners.save(*asked)
    for line, asked in {
        "None is no path": (None, model),
        "expected a model, a torch.nn.Module, found None": (path, None),
    }.items():
        with pytest.raises(BadInput, match=f"^{line}"):
            pruners.load(*asked)
    pruners.save(nn.ReLU(), path)
    pruners.load(path, nn.ReLU())  # nothing to keep is no error


@pytest.mark.parametrize(
    "change",
    [
        lambda notes: "no notes",
        lambda notes: [],
        lambda notes: {},
        lambda notes: notes | {"masked": []},
        lambda notes: notes | {"same": {"one": "nobody"}},
        lambda notes: notes | {"masked": {f"{name}x": about for name, about in notes["masked"].items()}},
        lambda notes: notes | {"masked": {n: about | {"shape": [4, 4]} for n, about in notes["masked"].items()}},
        lambda notes: notes | {"masked": {n: about | {"parts": ["value"]} for n, about in notes["masked"].items()}},
    ],
)
def test_notes_that_do_not_fit_the_tensors_are_one_line(change, tmp_path: Path):
    model = nn.Linear(16, 4)
    pruners.attach(model, pruners.n_of_m(pruners.magnitude(model)))
    pruners.save(model, tmp_path / "a")
    with safe_open(tmp_path / "a", framework="pt") as file:
        notes, parts = json.loads(file.metadata()[NOTES]), {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    save_file(parts, tmp_path / "a", {NOTES: json.dumps(change(notes))})
    with pytest.raises(BadInput, match=r"^a is altered: its notes do not fit its tensors; fetch or save it again$"):
        pruners.load(tmp_path / "a", nn.Linear(16, 4))


def test_what_is_no_tensor_is_refused_by_name(tmp_path: Path):
    class Noting(nn.Linear):
        def get_extra_state(self):
            return {"steps": 3}

        def set_extra_state(self, state):
            pass

    layer = nn.Linear(4, 4)
    layer.register_buffer("phases", torch.zeros(3, dtype=torch.complex128))
    with pytest.raises(BadInput, match=r"^phases is of complex128, a type that safetensors do not hold$"):
        pruners.save(layer, tmp_path / "a")
    with pytest.raises(BadInput, match=r"^_extra_state is no dense tensor"):
        pruners.save(Noting(2, 2), tmp_path / "a")
    assert list(tmp_path.iterdir()) == []


class Hub(nn.Module):
    """As Hugging Face's packages save: the state_dict as it is. What a reader does not find is new and random."""

    def __init__(self, body: nn.Module):
        super().__init__()
        self.body = body

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.body(images)

    def save_pretrained(self, folder: Path) -> None:
        save_file({name: tensor.clone() for name, tensor in self.state_dict().items()}, folder / "model.safetensors")


def test_save_pretrained_bakes_masks_and_every_other_state_dict_has_them(tmp_path: Path):
    model = Hub(pruned())
    model.save_pretrained(tmp_path)
    fresh = Hub(small_lenet())
    fresh.load_state_dict(load_file(tmp_path / "model.safetensors"))  # strict: every name, and no other
    images = torch.randn(2, 1, 8, 8)
    assert torch.equal(model(images), fresh(images))
    assert pruners.sparsity(fresh) == pruners.sparsity(model) > 0.4
    assert "body.fc1.parametrizations.weight.0.mask" in model.state_dict()


def test_save_pretrained_refuses_a_mask_on_what_another_parametrization_computes(tmp_path: Path):
    class Negated(nn.Module):
        def forward(self, weight):
            return -weight

        right_inverse = forward

    model = Hub(nn.Linear(8, 4))
    nn.utils.parametrize.register_parametrization(model.body, "weight", Negated())
    pruners.attach(model, pruners.unstructured(pruners.magnitude(model), 0.5))
    with pytest.raises(BadInput, match=r"^save_pretrained: body\.weight is computed by more than its mask"):
        model.save_pretrained(tmp_path)


def test_a_masked_model_exports_as_what_it_computes():
    """torch.export sees no view of a mask's bits, for which other programs have no word; the numbers are the same."""
    model = pruned().eval()
    images = torch.randn(2, 1, 8, 8)
    program = torch.export.export(model, (images,))
    assert not [node for node in program.graph.nodes if "view.dtype" in str(node.target)]
    assert torch.equal(program.module()(images), model(images))
    traced = torch.jit.trace(model, images)
    assert torch.equal(traced(images), model(images))


def test_transformers_read_back_what_a_masked_model_of_theirs_saves(tmp_path: Path):
    """GPT-2's head is tied to its embedding, and its layers are of a kind of their own."""
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    torch.manual_seed(0)
    settings = {"n_embd": 32, "n_layer": 1, "n_head": 2, "vocab_size": 40, "n_positions": 16}
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(**settings)).eval()
    pruners.attach(model, pruners.unstructured(pruners.magnitude(model), 0.5))
    model.save_pretrained(tmp_path)
    again = transformers.GPT2LMHeadModel.from_pretrained(tmp_path).eval()
    tokens = torch.randint(40, (2, 8))
    with torch.no_grad():
        assert torch.equal(model(tokens).logits, again(tokens).logits)
    assert pruners.sparsity(again, select="*") == pruners.sparsity(model, select="*")
