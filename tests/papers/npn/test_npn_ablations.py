"""What the ablations of paper 4 compare, on a shortened schedule."""

from dataclasses import asdict, replace

import pytest
import torch

from lib.base import BadInput, build
from lib.companion.sweep import settings
from lib.companion.sweep.context import Context
from lib.companion.sweep.grid import Grid
from lib.papers.npn.experiments import npn_ablations
from lib.papers.npn.experiments.npn_ablations import Settings, Variant
from lib.training.gated import GatedTraining

SHORT = GatedTraining((1, 2, 1), (9.0, 0.9, 2.0, 13.0), 7.0, 64, learning_rate=0.005, gate_speed=10.0)
EXPAND = replace(SHORT, epochs=(1, 3, 1), k=0.5, expand=True, patience=1, tolerance=1e9)


@pytest.fixture(scope="module")
def rows():
    """Of one seed of each variant, by variant and epoch."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    variants = (
        Variant("sparsify", SHORT, taus=(0.5, 0.9)),
        Variant("few", EXPAND, start=(3, 3, 12, 3)),
        Variant("concrete", replace(SHORT, estimator="hard_concrete"), kind="hard_concrete"),
    )
    found = []
    for configuration in npn_ablations.configurations(Settings((2,), variants)):
        found += npn_ablations.run(configuration, Context())
    torch.set_num_threads(threads)
    table = Grid("npn_ablations", "quick", npn_ablations, {}, "").table(found)
    return table.set_index(["variant", "tau", "epoch"]).sort_index()


def test_rows_are_kept_of_the_end_of_each_stage(rows):
    for tau in (0.5, 0.9):
        assert rows.loc["sparsify", tau].index.tolist() == [1, 3, 4]
        assert rows.loc["sparsify", tau].stage.tolist() == [1, 2, 3]
    assert rows.index.droplevel("epoch").unique().tolist() == [
        ("concrete", 0.5),
        ("few", 0.5),
        ("sparsify", 0.5),
        ("sparsify", 0.9),
    ]
    assert set(rows.seed) == {2}
    assert rows.direction.groupby(level=0).first().to_dict() == {
        "sparsify": "sparsify",
        "few": "expand",
        "concrete": "sparsify",
    }


def test_tau_matters_at_the_end_of_stage_2_only(rows):
    same = ["accuracy", "regularised_loss", "architecture", "parameters"]
    for epoch in (1, 4):
        assert rows.loc[("sparsify", 0.9, epoch), same].tolist() == rows.loc[("sparsify", 0.5, epoch), same].tolist()
    assert rows.loc[("sparsify", 0.9, 3), "parameters"] < rows.loc[("sparsify", 0.5, 3), "parameters"]
    assert rows.loc[("sparsify", 0.9, 3), "accuracy"] != rows.loc[("sparsify", 0.5, 3), "accuracy"]


def test_until_stage_3_a_session_measured_at_several_tau_is_the_one_whose_gates_have_that_tau(rows):
    """Stage 3 keeps what is open at the gates' own."""
    (configuration,) = npn_ablations.configurations(Settings((2,), (Variant("sparsify", SHORT, taus=(0.9,)),)))
    alone = Grid("npn_ablations", "quick", npn_ablations, {}, "").table(npn_ablations.run(configuration, Context()))
    among, columns = rows.loc["sparsify", 0.9].reset_index(), alone.columns.drop(["variant", "tau"])
    assert among.loc[among.stage < 3, columns].equals(alone.loc[alone.stage < 3, columns])
    kept = alone.set_index("stage").architecture
    assert kept[3] == kept[2]
    assert among.set_index("stage").architecture[3] == rows.loc[("sparsify", 0.5, 3), "architecture"] != kept[3]


@pytest.mark.parametrize(
    ("variant", "line"),
    [
        (Variant("few", EXPAND, (3, 3, 12, 3), taus=(0.5, 0.9)), "an expansion asks for tau, measure it at the gates'"),
        (Variant("sparsify", SHORT, taus=(0.5, 1.0)), r"taus=\[0.5, 1.0\]: 1.0 is not in \[0, 1\)"),
    ],
)
def test_thresholds_that_cannot_be_measured_at_are_refused(variant, line):
    (configuration,) = npn_ablations.configurations(Settings((2,), (variant,)))
    with pytest.raises(BadInput, match=line):
        npn_ablations.run(configuration, Context())


def test_an_expansion_starts_with_few_gates_and_other_gates_are_trained_otherwise(rows):
    assert rows.loc[("few", 0.5, 1), "architecture"] == "3-3-12-3"
    assert rows.loc[("few", 0.5, 5), "architecture"] == "4-4-13-4"
    loss = rows.regularised_loss
    assert loss["concrete", 0.5, 3] != loss["sparsify", 0.5, 3]


@pytest.mark.parametrize("scale", ["quick", "real"])
def test_each_variant_differs_from_its_base_in_one_thing(scale):
    found = build(Settings, settings.read("npn_ablations", scale), f"{scale}.npn_ablations")
    variants = {variant.name: variant for variant in found.variants}
    named = {"hard concrete": ["kind", "estimator"]}  # its gates have an estimator of their own
    for variant in found.variants:
        base = variants["expand" if variant.training.expand else "sparsify"]
        given, plain = (asdict(one) | asdict(one.training) for one in (variant, base))
        changed = [name for name in given if given[name] != plain[name] and name not in ("name", "training", "taus")]
        assert len(changed) == (variant is not base) or changed == named.get(variant.name), variant.name
    one_stage = variants["one stage"].training
    assert (one_stage.epochs[0], one_stage.epochs[2]) == (0, 0)
    assert sum(one_stage.epochs) == sum(variants["sparsify"].training.epochs)
    assert sum(variants["expand"].training.epochs) == 30  # what `npn-expansion-ends` and its rival are judged by


def test_variants_are_those_of_the_network_and_the_data_that_are_named():
    whole = Settings((4,), (Variant("sparsify", SHORT),), data="mnist", network="lenet5")
    (configuration,) = npn_ablations.configurations(whole)
    assert (configuration["data"], configuration["network"], configuration["seed"]) == ("mnist", "lenet5", 4)
    with pytest.raises(BadInput, match="network 'lenet6': known are small_lenet, lenet5"):
        replace(whole, network="lenet6")


@pytest.mark.parametrize("taus", [(), (0.5, 0.5)])
def test_a_variant_is_measured_at_some_tau_once_each(taus):
    with pytest.raises(BadInput, match=r"variant 'a': taus=\[.*\]: expected at least one, each once"):
        Variant("a", SHORT, taus=taus)


def test_two_variants_of_one_name_are_refused():
    with pytest.raises(BadInput, match="two variants are called 'a'"):
        Settings((0,), (Variant("a", SHORT), Variant("a", EXPAND)))
