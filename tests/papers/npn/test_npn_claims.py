"""What the claims of paper 4 rest on: rows about an expanded network presuppose that it has grown."""

from dataclasses import replace

from lib.companion.claims import papers
from lib.companion.claims.papers import Claim


def of_images() -> list[Claim]:
    (paper,) = (one for one in papers.read() if one.name == "npn")
    return [claim for claim in paper.claims if claim.measure.get("run") == "npn_images"]


def without_growth(claims: list[Claim]) -> list[str]:
    """Rows about the expanded network, after its first stage, that do not presuppose that it grows."""
    asked = [one for one in claims if "expand" in (one.measure.get("variant"), *one.measure.get("variants", ()))]
    later = [one for one in asked if one.measure.get("stage") != 1 and not one.id.endswith("-expansion-grows")]
    return [one.id for one in later if not any(ground.endswith("-expansion-grows") for ground in one.presupposes)]


def test_rows_about_an_expanded_network_presuppose_that_it_has_grown():
    claims = of_images()
    assert {one.id for one in claims if one.id.endswith("-expansion-grows")} == {
        f"npn-{data}-expansion-grows" for data in ("mnist", "cifar10", "cifar100")
    }
    assert without_growth(claims) == []
    broken = [replace(one, presupposes=()) if one.id == "npn-cifar100-similar-sizes" else one for one in claims]
    assert without_growth(broken) == ["npn-cifar100-similar-sizes"]


def test_what_the_paper_prints_of_the_moons_is_judged_by_the_authors_schedule():
    """Where sizes rest a few or nearly all weights are left: that is our question, and its rows are controls."""
    (paper,) = (one for one in papers.read() if one.name == "npn")
    claims = {claim.id: claim for claim in paper.claims}
    for what in ("sparsified-keeps", "expanded-keeps", "alike", "sparsified-accuracy", "expanded-accuracy", "sizes"):
        printed, ours = claims[f"npn-moons-{what}"], claims[f"npn-moons-{what}-at-rest"]
        assert "_script" in str(printed.measure)
        assert "_script" not in str(ours.measure)
        assert (printed.kind != "control", ours.kind, ours.holds_if) == (True, "control", printed.holds_if)
