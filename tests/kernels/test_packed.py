"""Packed weights: exact, near the fewest bits there can be, and a damaged file is never loaded."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from lib import pruners
from lib.base import BadInput
from lib.kernels.packed import decode_mask, encode_mask, floor_bits, load, pack, save, unpack
from lib.models.resnet import small_resnet


def random_mask(places: int, kept: float, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).random(places) < kept


def test_a_small_mask_coded_by_hand():
    """Kept at 1 and 6 of eight: gaps 1 and 4. With k = 1 unary 0 and 110, low bits 1 and 0."""
    mask = np.array([0, 1, 0, 0, 0, 0, 1, 0], dtype=bool)
    k, unary, low = encode_mask(mask)
    assert (k, unary, low) == (1, bytes([0b01100000]), bytes([0b10000000]))
    assert decode_mask(2, k, unary, low).tolist() == [1, 6]


def test_the_floor_is_the_logarithm_of_how_many_masks_there_are():
    assert floor_bits(16, 8) == pytest.approx(math.log2(math.comb(16, 8)))
    assert floor_bits(9, 0) == pytest.approx(0)


@pytest.mark.parametrize("kept", [0.0, 0.001, 0.05, 0.3, 0.5, 0.9, 1.0])
def test_every_mask_comes_back(kept: float):
    for places in (1, 7, 64, 5000):
        mask = random_mask(places, kept, places)
        assert decode_mask(int(mask.sum()), *encode_mask(mask)).tolist() == [p for p, on in enumerate(mask) if on]


def test_gaps_with_more_than_two_bytes_of_low_bits_come_back():
    """Kept at 3 and 2^20 places later: the gap between is twenty ones, and k nearly as many."""
    mask = np.zeros(2**20 + 9, dtype=bool)
    mask[[3, 3 + 2**20]] = True
    k, *streams = encode_mask(mask)
    assert k > 16
    assert decode_mask(2, k, *streams).tolist() == [3, 3 + 2**20]


@pytest.mark.parametrize(("kept", "within"), [(0.01, 1.05), (0.05, 1.05), (0.1, 1.05), (0.2, 1.06)])
def test_a_random_mask_takes_nearly_the_fewest_bits(kept: float, within: float):
    mask = random_mask(200_000, kept)
    _, unary, low = encode_mask(mask)
    assert 1 <= 8 * (len(unary) + len(low)) / floor_bits(len(mask), int(mask.sum())) <= within


def test_at_95_percent_a_whole_tensor_is_within_a_tenth_of_the_floor():
    mask = torch.from_numpy(random_mask(256 * 512, 0.05).reshape(256, 512))
    weight = torch.randn(256, 512, generator=torch.Generator().manual_seed(0)) * mask
    _, content = pack(weight + 0.0)  # without negative zeros
    kept = int(mask.sum())
    assert len(content) * 8 <= 1.1 * (floor_bits(mask.numel(), kept) + 32 * kept)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.int8, torch.int64, torch.bool])
def test_every_type_and_shape_comes_back(dtype: torch.dtype):
    for shape in ((), (0,), (5,), (3, 0, 2), (4, 3, 3, 3), (64, 100)):
        for kept in (0.0, 0.1, 1.0):
            mask = torch.from_numpy(random_mask(math.prod(shape), kept).reshape(shape))
            tensor = (torch.randint(1, 100, shape) * mask).to(dtype)
            back = unpack(*pack(tensor))
            assert back.dtype == dtype
            assert torch.equal(back, tensor)


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.uint16, torch.uint64, torch.complex128])
def test_types_that_torch_hardly_computes_with_come_back_too(dtype: torch.dtype):
    numbers = (torch.arange(400) % 97 == 3).reshape(20, 20).double().to(dtype)
    about, content = pack(numbers)
    assert about["form"] == "coded"
    assert unpack(about, content).view(torch.uint8).equal(numbers.view(torch.uint8))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.complex64])
def test_negative_zero_and_every_other_bit_comes_back(dtype: torch.dtype):
    numbers = torch.tensor([0.0, -0.0, 1.5, float("nan"), -float("inf"), -0.0] + [0.0] * 100).to(dtype)
    about, content = pack(numbers)
    assert about["form"] == "coded"
    back = unpack(about, content)
    assert torch.equal(back.view(torch.uint8), numbers.view(torch.uint8))


def test_what_torch_notes_beside_the_tensors_comes_back_and_paths_may_be_strings(tmp_path: Path):
    """Without its version a batch norm is taken for one of 2018, which had no count of batches."""
    state = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)).state_dict()
    save(state, str(tmp_path / "a.packed"))
    back = load(str(tmp_path / "a.packed"))
    assert back._metadata == state._metadata
    assert back._metadata["1"]["version"] == 2
    save(dict(state), tmp_path / "b.packed")
    assert not hasattr(load(tmp_path / "b.packed"), "_metadata")


def test_views_that_are_conjugate_or_negative_are_stored_as_the_numbers_they_show(tmp_path: Path):
    values = torch.complex(torch.tensor([1.0, 0.0, -2.0]), torch.tensor([3.0, 0.0, 4.0]))
    state = {"conjugate": values.conj(), "negative": values.conj().imag}
    save(state, tmp_path / "a")
    found = load(tmp_path / "a")
    assert all(torch.equal(found[name], tensor) for name, tensor in state.items())


def test_what_is_no_dense_tensor_and_a_missing_file_are_refused(tmp_path: Path):
    with pytest.raises(BadInput, match=r"^extra is no dense tensor"):
        save({"weight": torch.ones(2), "extra": 3}, tmp_path / "a")
    with pytest.raises(BadInput, match=r"^coo is no dense tensor"):
        save({"coo": torch.ones(2, 2).to_sparse()}, tmp_path / "a")
    with pytest.raises(BadInput, match=r"^empty is no dense tensor with values"):
        save({"empty": torch.ones(2, device="meta")}, tmp_path / "a")
    with pytest.raises(BadInput, match=r"^codes is no dense tensor"):
        save({"codes": torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.qint8)}, tmp_path / "a")
    with pytest.raises(BadInput, match=r"^a tensor is called __metadata__, .*: give it another name"):
        save({"__metadata__": torch.ones(2)}, tmp_path / "a")
    with pytest.raises(BadInput, match="a is no file"):
        load(tmp_path / "a")


@pytest.fixture
def saved(tmp_path: Path) -> tuple[Path, dict]:
    torch.manual_seed(0)
    model = small_resnet()
    pruners.attach(model, pruners.unstructured(pruners.magnitude(model), 0.95, floor=0.01))
    pruners.detach(model)
    path = tmp_path / "model.packed"
    save(model.state_dict(), path)
    return path, model.state_dict()


def test_a_whole_state_dict_comes_back_and_is_small(saved: tuple[Path, dict]):
    path, state = saved
    back = load(path)
    assert list(back) == list(state)
    assert all(torch.equal(back[name], state[name]) for name in state)
    small_resnet().load_state_dict(back)
    dense = sum(tensor.numel() * tensor.element_size() for tensor in state.values())
    assert path.stat().st_size < 0.15 * dense
    assert [p.name for p in path.parent.iterdir()] == [path.name]


def test_a_file_that_is_cut_off_or_altered_is_refused(saved: tuple[Path, dict]):
    path, _ = saved
    whole = path.read_bytes()
    for size in (len(whole) - 1, len(whole) // 2, 40):
        path.write_bytes(whole[:size])
        with pytest.raises(BadInput, match=r"model\.packed is cut off or altered"):
            load(path)
    for place in (10, 100, len(whole) // 2, len(whole) - 5):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        with pytest.raises(BadInput, match=r"model\.packed is cut off or altered"):
            load(path)
    path.write_bytes(b"something else")
    with pytest.raises(BadInput, match="no file of packed weights"):
        load(path)


def test_what_coding_would_not_make_smaller_stays_as_it_is():
    assert pack(torch.ones(3))[0]["form"] == "dense"


def test_more_kept_places_than_there_are_have_no_floor():
    for kept in (5, -1):
        with pytest.raises(BadInput, match=f"{kept} kept values do not fit 4 places: expected 0 to 4"):
            floor_bits(4, kept)
