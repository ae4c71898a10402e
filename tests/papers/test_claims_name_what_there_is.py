"""A misspelt name in a claim's measure selects no run, which would read as "not run": each must be known somewhere."""

from dataclasses import replace

import pytest

from lib.base import BadInput
from lib.companion.claims import judge, papers
from lib.companion.claims.known import refuse_unknown

PAPERS = papers.read()
ASKED = {
    (paper.name, claim.measure["run"]): paper for paper in PAPERS for claim in paper.claims if "run" in claim.measure
}


@pytest.mark.parametrize(("name", "experiment"), ASKED)
def test_every_name_that_a_claim_asks_for_is_known_to_its_experiment(name, experiment):
    paper = ASKED[name, experiment]
    for claim in paper.claims:
        if claim.measure.get("run") == experiment:
            refuse_unknown(claim, paper, judge.measure_of(claim, paper))


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"chosen": {"env": "braekout"}}, "asks for 'braekout', which is in no run of gst_games"),
        ({"run": "gst_gmaes"}, "no experiment 'gst_gmaes'; there are: .*gst_games"),
        ({"chsen": {}}, "score: .* 'chsen'"),
    ],
)
def test_what_is_misspelt_is_refused_before_it_is_written(change, line):
    (paper,) = (one for one in PAPERS if one.name == "gst")
    (claim,) = (one for one in paper.claims if one.id == "gst-breakout-dense-learns")
    bent = replace(claim, measure={**claim.measure, **change})
    claims = tuple(bent if one is claim else one for one in paper.claims)
    with pytest.raises(BadInput, match=line):
        judge.refuse_misspelt(replace(paper, claims=claims), [claim.id])
