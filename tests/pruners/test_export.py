"""What other programs run is what the pruned model computes: zeros stay zeros, in floats and in int8."""

import importlib.util
import math
import re
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from lib import pruners
from lib.base import BadInput
from lib.data import vision
from lib.kernels import two_four
from lib.models.lenet import small_lenet
from lib.pruners import calibration, export

MISSING = [name for name in ("onnx", "onnxscript", "onnxruntime") if importlib.util.find_spec(name) is None]
needs_onnx = pytest.mark.skipif(bool(MISSING), reason=f"{', '.join(MISSING)} not installed: the extra `export`")


@pytest.fixture(scope="module")
def trained() -> tuple[nn.Module, torch.Tensor, torch.Tensor]:
    """A small network with 2:4 masks that knows the digits, and those it has not seen."""
    torch.manual_seed(0)
    digits = vision.load("digits")
    seen, unseen = (torch.from_numpy(part) / 127.5 - 1 for part in (digits.train_inputs, digits.test_inputs))
    labels, truth = torch.from_numpy(digits.train_labels), torch.from_numpy(digits.test_labels)
    model = small_lenet()
    pruners.attach(model, pruners.two_four(model))
    optimizer = torch.optim.Adam(model.parameters(), 3e-3)
    for _ in range(3):
        for batch in torch.randperm(len(labels)).split(64):
            optimizer.zero_grad()
            F.cross_entropy(model(seen[batch]), labels[batch]).backward()
            optimizer.step()
    return model.eval(), unseen, truth


def ran(path: Path, images: torch.Tensor, optimised: bool = True) -> torch.Tensor:
    """What ONNX Runtime answers; optimised it rounds between layers, else it computes node by node."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    if not optimised:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    (answer,) = session.run(None, {session.get_inputs()[0].name: images.numpy()})
    return torch.from_numpy(answer)


@needs_onnx
def test_onnx_runtime_computes_what_the_masked_model_does_and_the_model_keeps_its_masks(trained, tmp_path: Path):
    import onnx

    model, images, _ = trained
    export.to_onnx(model, str(tmp_path / "a.onnx"), images[:2])
    with torch.no_grad():
        assert torch.allclose(ran(tmp_path / "a.onnx", images[:64]), model(images[:64]), atol=1e-4)
    assert len(pruners.attached(model)) == 3
    graph = onnx.load(tmp_path / "a.onnx").graph
    weights = {one.name: onnx.numpy_helper.to_array(one) for one in graph.initializer}
    zeros = [float((w == 0).mean()) for w in weights.values() if w.ndim > 1]
    assert sorted(zeros) == [0, 0.5, 0.5, 0.5]
    assert [path.name for path in tmp_path.iterdir()] == ["a.onnx"]


@needs_onnx
def test_int8_pairs_answer_as_the_simulation_within_a_tenth_of_a_point_and_removed_weights_are_code_0(
    trained, tmp_path
):
    import onnx

    model, images, labels = trained
    amax = calibration.ranges(model, [images[:256]])
    export.to_onnx(model, tmp_path / "a.onnx", images[:2], amax)
    simulated = calibration.quantised(model, amax)
    with torch.no_grad():
        expected = simulated(images)
    assert torch.allclose(ran(tmp_path / "a.onnx", images, optimised=False), expected, atol=1e-4)
    found = ran(tmp_path / "a.onnx", images)
    right, wanted = ((logits.argmax(1) == labels).double().mean() for logits in (found, expected))
    assert abs(100 * float(right - wanted)) <= 0.1
    assert wanted > 0.8
    graph = onnx.load(tmp_path / "a.onnx").graph
    pairs = [node.op_type for node in graph.node]
    assert (pairs.count("QuantizeLinear"), pairs.count("DequantizeLinear")) == (4, 8)
    codes = [onnx.numpy_helper.to_array(one) for one in graph.initializer if one.data_type == onnx.TensorProto.INT8]
    (fc1,) = (torch.from_numpy(one.copy()) for one in codes if one.shape == (64, 128))
    assert bool((fc1[model.fc1.weight == 0] == 0).all())
    assert two_four.has_pattern(fc1)
    values, metadata = two_four.compress(fc1)
    assert torch.equal(two_four.decompress(values, metadata), fc1)


def test_without_onnx_or_with_a_batch_of_one_it_is_one_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setattr(export.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(BadInput, match=r"^onnx is not installed, .*: pip install onnx onnxscript$"):
        export.to_onnx(small_lenet(), tmp_path / "a.onnx", torch.zeros(2, 1, 8, 8))
    monkeypatch.setattr(export.importlib.util, "find_spec", lambda name: name)
    with pytest.raises(BadInput, match=r"^example has a batch of 1"):
        export.to_onnx(small_lenet(), tmp_path / "a.onnx", torch.zeros(1, 1, 8, 8))
    example = torch.zeros(2, 1, 8, 8)
    with pytest.raises(BadInput, match=r"^LeNet cannot take the example: too many positional arguments"):
        export.to_onnx(small_lenet(), tmp_path / "a.onnx", (example, example))
    with pytest.raises(BadInput, match="is a folder: give the name of a file in it"):
        export.to_onnx(small_lenet(), tmp_path, example)
    with pytest.raises(BadInput, match="Linear is a class: expected a model of it"):
        export.to_onnx(nn.Linear, tmp_path / "a.onnx", example)
    with pytest.raises(BadInput, match=r"^amax of fc1\.weight is nan: expected the largest magnitude of an input"):
        export.to_onnx(small_lenet(), tmp_path / "a.onnx", example, {"fc1.weight": math.nan})
    assert list(tmp_path.iterdir()) == []


@needs_onnx
def test_several_inputs_by_name_and_a_weight_that_lies_the_other_way(tmp_path: Path):
    """A transposed convolution has its output channels on the second axis, and steps lie along it."""
    import onnxruntime

    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.up, self.mix = nn.ConvTranspose1d(4, 6, 3), nn.Linear(6, 2)

        def forward(self, x, shift=None):
            return self.mix(self.up(x).mean(-1) + shift)

    torch.manual_seed(0)
    model, inputs = Two(), ((torch.randn(5, 4, 7),), {"shift": torch.randn(5, 6)})
    amax = calibration.ranges(model, [inputs])
    export.to_onnx(model, tmp_path / "a.onnx", inputs, amax)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(tmp_path / "a.onnx", options, providers=["CPUExecutionProvider"])
    given = {"x": torch.randn(3, 4, 7), "shift": torch.randn(3, 6)}
    (found,) = session.run(None, {name: value.numpy() for name, value in given.items()})
    with torch.no_grad():
        assert torch.allclose(torch.from_numpy(found), calibration.quantised(model, amax)(**given), atol=1e-5)


@needs_onnx
@pytest.mark.parametrize("dtype", [torch.float16, torch.float64])
def test_int8_pairs_are_written_of_models_of_other_types(dtype: torch.dtype, tmp_path: Path):
    import onnx

    torch.manual_seed(0)
    model, inputs = nn.Sequential(nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 4)).to(dtype), torch.randn(5, 16).to(dtype)
    amax = calibration.ranges(model, [inputs])
    export.to_onnx(model, tmp_path / "a.onnx", inputs, amax)
    onnx.checker.check_model(tmp_path / "a.onnx")
    found, expected = ran(tmp_path / "a.onnx", inputs, optimised=False), calibration.quantised(model, amax)(inputs)
    assert found.dtype == dtype
    assert torch.allclose(found, expected, rtol=0, atol=2e-3)


@needs_onnx
def test_int8_pairs_inside_an_encoder_layer_which_reads_its_weights_to_choose_its_way(tmp_path: Path):
    torch.manual_seed(0)
    model, inputs = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval(), torch.randn(3, 5, 8)
    amax = calibration.ranges(model, [inputs])
    export.to_onnx(model, tmp_path / "a.onnx", inputs, amax)
    with torch.no_grad():
        expected = calibration.quantised(model, amax)(inputs)
    assert torch.allclose(ran(tmp_path / "a.onnx", inputs, optimised=False), expected, atol=1e-4)


@needs_onnx
def test_a_model_that_torch_cannot_export_is_one_line(tmp_path: Path):
    class Choosy(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.Linear(4, 4)

        def forward(self, x):
            return self.inner(x) if x.sum() > 0 else x

    with pytest.raises(BadInput, match=r"^torch cannot export Choosy to ONNX: ") as refusal:
        export.to_onnx(Choosy(), tmp_path / "a.onnx", torch.ones(2, 4))
    assert "\n" not in str(refusal.value)
    assert list(tmp_path.iterdir()) == []


def test_which_layers_sparse_tensor_cores_would_take_is_said_on_any_machine():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(16, 32, 3), nn.Flatten(), nn.Linear(128, 64), nn.Linear(64, 10), nn.Linear(64, 64))
    masks = pruners.two_four(model)
    pruners.attach(model, {name: mask for name, mask in masks.items() if name != "4.weight"})
    table = export.semi_structured_layers(model).set_index("layer")
    assert table.taken.to_dict() == {"0.weight": False, "2.weight": True, "3.weight": False, "4.weight": False}
    assert table.why["0.weight"] == "torch has sparse tensors for nn.Linear only"
    # which of the two depends on how torch was built: for CUTLASS or for cuSPARSELt
    assert re.match(r"10 x 64 is not a multiple of (32 x 64|16 x 16)", table.why["3.weight"])
    assert table.why["4.weight"] == "not 2:4"


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_without_a_gpu_sparse_tensors_are_refused_in_one_line():
    model = nn.Linear(64, 64)
    pruners.attach(model, pruners.two_four(model))
    with pytest.raises(BadInput, match=r"^device='cuda': torch's 2:4 tensors need a GPU of compute capability 8\.0"):
        export.to_semi_structured(model)
    with pytest.raises(BadInput, match=r"^dtype=torch\.float32: sparse tensor cores multiply"):
        export.to_semi_structured(model, torch.float32)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here: to_semi_structured was not checked")
def test_on_a_gpu_the_copy_computes_the_same():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 10))
    pruners.attach(model, pruners.two_four(model))
    fast = export.to_semi_structured(model)
    x = torch.randn(64, 128)
    expected = model(x).detach()
    assert torch.allclose(fast(x.cuda().half()).float().cpu(), expected, atol=0.02 * float(expected.abs().max()))
    assert len(pruners.attached(model)) == 2


@needs_onnx
def test_a_sparse_network_runs_elsewhere_as_the_masked_one(tmp_path):
    model, inputs = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 2)), torch.randn(3, 8)
    pruners.attach(model, pruners.unstructured(pruners.magnitude(model), 0.5))
    export.to_onnx(pruners.sparse(model), tmp_path / "sparse.onnx", inputs)
    torch.testing.assert_close(ran(tmp_path / "sparse.onnx", inputs), model(inputs).detach())


@needs_onnx
def test_a_graph_that_contradicts_itself_is_refused_and_nothing_is_written(tmp_path: Path):
    """Torch writes one of a recurrent layer with projections."""
    model = nn.LSTM(8, 16, proj_size=4, bidirectional=True, num_layers=2, batch_first=True)
    with pytest.raises(BadInput, match=r"^torch exports LSTM to an ONNX graph that contradicts itself: ") as refusal:
        export.to_onnx(model, tmp_path / "a.onnx", torch.randn(4, 5, 8))
    assert "\n" not in str(refusal.value)
    assert not list(tmp_path.iterdir())
