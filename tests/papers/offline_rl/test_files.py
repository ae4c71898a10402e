"""File sizes: the cells of paper 1's Table 1, and what a format's definition says."""

import pytest
import torch

from lib import pruners
from lib.base import BadInput
from lib.kernels.packed import floor_bits
from lib.papers.offline_rl import file_sizes, measures

PARAMETERS = {"actor": 131_706, "critic": 260_402, "vae": 1_189_530}
WEIGHTS = {"actor": 131_000, "critic": 259_000, "vae": 1_186_500}  # without biases


@pytest.fixture(scope="module")
def networks():
    return file_sizes.bcq_networks()


def test_the_networks_have_the_sizes_behind_table_1(networks):
    for name, network in networks.items():
        assert sum(parameter.numel() for parameter in network.parameters()) == PARAMETERS[name]
        assert sum(layer.weight.numel() for layer in pruners.prunable(network)) == WEIGHTS[name]


@pytest.mark.parametrize(
    ("form", "sparsity", "printed", "margin"),
    [
        ("dense", 0.0, {"actor": 0.5287, "critic": 1.04492, "vae": 4.7621}, 0.005),
        ("coo", 0.0, {"actor": 2.6318, "critic": 5.2035, "vae": 23.7739}, 0.03),
        ("coo", 0.95, {"actor": 0.14099, "critic": 0.2768, "vae": 1.2122}, 0.03),
        ("coo", 0.95, {"actor": 0.14297, "critic": 0.2824, "vae": 1.2303}, 0.03),
    ],
)
def test_table_1_as_printed(form: str, sparsity: float, printed: dict[str, float], margin: float):
    for network, size in printed.items():
        assert file_sizes.megabytes(network, form, sparsity) == pytest.approx(size, rel=margin)


def test_a_file_is_what_its_format_holds_and_a_small_container(networks):
    state = file_sizes.pruned(networks["vae"], 0.95)
    weights, biases = WEIGHTS["vae"], PARAMETERS["vae"] - WEIGHTS["vae"]
    kept, rows = weights - round(0.95 * weights), biases  # a row of a weight has a bias
    expected = {
        "dense": 4 * (weights + biases),
        "coo": kept * (4 + 16) + biases * (4 + 8),
        "csr": kept * (4 + 8) + (rows + 8) * 8 + biases * 4,  # a pointer a row, and one more in each of 8 layers
        "bitmap": kept * 4 + weights / 8 + biases * 4,
        "dense_float16": 2 * (weights + biases),
    }
    for form, size in expected.items():
        assert 0 < file_sizes.FORMATS[form](state) - size < 12_000, form


def test_packed_weights_come_close_to_the_floor_and_nothing_below_it(networks):
    for name, network in networks.items():
        state = file_sizes.pruned(network, 0.95)
        for dtype, suffix in ((torch.float32, ""), (torch.float16, "_float16")):
            floor = file_sizes.floor(state, dtype)
            assert floor < file_sizes.FORMATS[f"packed{suffix}"](state) < 1.06 * floor + 1_000, name
    # one layer by hand: the values of 6,550 weights, and which of 131,000 places they have
    kept = torch.zeros(131_000)
    kept[:6550] = 1
    assert file_sizes.floor({"w": kept}) == pytest.approx((6550 * 32 + floor_bits(131_000, 6550)) / 8, abs=1)
    assert file_sizes.floor({"w": kept}) * 8 / 131_000 == pytest.approx(1.886, abs=0.002)  # 32 * 0.05 + H(0.05)


@pytest.mark.parametrize("name", WEIGHTS)
def test_pruned_removes_the_smallest_weights_of_the_network_and_no_bias(name: str, networks):
    state, before = file_sizes.pruned(networks[name], 0.9), networks[name].state_dict()
    names = [name for name in before if name.endswith("weight")]
    weights, left = (torch.cat([one[name].abs().flatten() for name in names]) for one in (before, state))
    assert int((left == 0).sum()) == round(0.9 * len(weights))
    assert weights[left == 0].max() <= left[left > 0].min()
    assert all(torch.equal(state[name], before[name]) for name in before if name.endswith("bias"))


def test_which_weights_are_gone_changes_a_sparse_file_by_less_than_two_percent(networks):
    network = networks["critic"]
    masks = pruners.unstructured(pruners.random(network, 0), 0.95)
    state = {name: tensor * masks.get(name, 1) for name, tensor in network.state_dict().items()}
    assert file_sizes.coo(state) == pytest.approx(file_sizes.coo(file_sizes.pruned(network, 0.95)), rel=0.02)


def test_the_table_has_a_row_a_cell():
    table = file_sizes.table([0.5, 0.95], formats=("dense", "coo"))
    assert list(table.columns) == ["network", "format", "sparsity", "megabytes"]
    assert len(table) == 3 * 2 * 2
    actor = table[table.network == "actor"].set_index(["format", "sparsity"]).megabytes
    assert actor["dense", 0.5] == actor["dense", 0.95] == file_sizes.megabytes("actor", "dense")
    assert actor["coo", 0.95] == file_sizes.megabytes("actor", "coo", 0.95) < actor["dense", 0.95] < actor["coo", 0.5]


def test_an_unknown_network_or_format_is_refused():
    for wrong in (("agent", "coo"), ("actor", "csc")):
        with pytest.raises(BadInput, match=f"{wrong[0]} as {wrong[1]}: known are actor, critic, vae, as dense, coo"):
            file_sizes.megabytes(*wrong)


def test_the_worst_gap_is_that_of_the_network_which_is_farthest_off():
    """The actor's file is compared with itself and with one 1.25 times as large: 20 % off."""
    actor, critic = (file_sizes.megabytes(name, "dense") for name in ("actor", "critic"))
    assert measures.worst_gap("dense", 0.0, {"actor": actor, "critic": critic}) == 0
    assert measures.worst_gap("dense", 0.0, {"actor": 1.25 * actor, "critic": critic}) == pytest.approx(20)
    assert measures.worst_gap("dense", 0.0, {"actor": actor / 1.25}) == pytest.approx(25)


@pytest.mark.parametrize(("form", "percent"), [("coo", 80), ("csr", 200 / 3)])
def test_a_sparse_file_breaks_even_where_its_definition_says(form: str, percent: float):
    """A kept weight takes 4 + 16 bytes in COO and 4 + 8 in CSR, against 4 dense."""
    found = measures.break_even(form)
    assert found == pytest.approx(percent, abs=1)
    assert measures.times_smaller(form, found / 100) == pytest.approx(1, rel=0.005)


def test_all_networks_together_are_so_many_times_smaller():
    assert measures.times_smaller("dense", 0.95) == 1
    assert measures.times_smaller("coo", 0.0) < 0.21  # an index for every weight: five times as large
    assert measures.times_smaller("packed", 0.95) > measures.times_smaller("coo", 0.95) > 3
