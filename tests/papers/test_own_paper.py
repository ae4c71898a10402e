"""A paper of your own is a folder: made here as README says, run, judged and executed, with nothing else edited."""

import os
import subprocess
import sys
from pathlib import Path

import nbformat
import pandas as pd
from nbformat import v4

# One experiment: its settings, what is run, the columns of its rows, and how a row comes about.
EXPERIMENT = '''"""Does it matter which weights of a linear classifier of digits go?"""

from dataclasses import dataclass

import torch
from torch.nn import functional as F

from lib.base import Count
from lib.data import vision

COLUMNS = ("data", "pruner", "seed", "accuracy")


@dataclass(frozen=True)
class Settings:
    seeds: Count
    sparsity: float


def configurations(settings):
    pairs = [(name, seed) for name in ("magnitude", "random") for seed in range(settings.seeds)]
    return [{"data": "digits", "pruner": p, "seed": s, "sparsity": settings.sparsity} for p, s in pairs]


def run(configuration, context):
    torch.manual_seed(configuration["seed"])
    data = vision.load("digits")
    inputs, test = (torch.tensor(x).flatten(1) / 255 for x in (data.train_inputs, data.test_inputs))
    weight = torch.zeros(10, inputs.shape[1], requires_grad=True)
    for _ in range(100):
        F.cross_entropy(inputs @ weight.t(), torch.tensor(data.train_labels)).backward()
        weight = (weight - weight.grad).detach().requires_grad_()
    score = weight.abs() if configuration["pruner"] == "magnitude" else torch.rand(weight.shape)
    pruned = weight * (score > score.quantile(configuration["sparsity"]))
    right = (test @ pruned.t()).argmax(1) == torch.tensor(data.test_labels)
    row = {name: configuration[name] for name in COLUMNS[:-1]}
    return [row | {"accuracy": 100 * right.float().mean().item()}]
'''

MEASURES = '''"""From the rows of a run file to what a claim is judged on: {cell: {seed: value}}."""


def gain(runs, pruner, over):
    accuracy = runs.pivot(index="seed", columns="pruner", values="accuracy")
    return {"digits": (accuracy[pruner] - accuracy[over]).to_dict()}
'''

CLAIMS = """
paper: 6
title: A paper of my own
authors: Me
year: 2026
address: https://example.org
data: [digits]
claims:
  - id: own-magnitude-matters
    where: section 1
    says: what magnitude prunes classifies digits better than what chance prunes (points)
    printed: no number
    measure: {function: gain, run: own_first, pruner: magnitude, over: random}
    holds_if: {above: 0}
    kind: relation
"""

SETTINGS = """
  own_first: # paper 6
    seeds: 3
    sparsity: 0.8
"""

NOTEBOOK = [
    v4.new_markdown_cell("# A paper of my own"),
    v4.new_code_cell(
        "from lib.companion.results import read_claims, read_runs\n\nout = None", metadata={"tags": ["parameters"]}
    ),
    v4.new_code_cell('read_runs("own_first", "quick").groupby("pruner").accuracy.count().to_dict()'),
    v4.new_code_cell('read_claims("quick").set_index("id").verdict["own-magnitude-matters"]'),
]


def program(tree: Path, *words: str) -> str:
    """What one of the project's programs prints, run in the copy."""
    environment = os.environ | {"PYTHONPATH": str(tree), "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-m", *words], cwd=tree, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_folder_becomes_a_paper_that_is_run_judged_and_read(tree: Path):
    for claims in (tree / "lib" / "papers").glob("*/claims.yaml"):  # judged elsewhere; here it would take time
        claims.unlink()
    own = tree / "lib" / "papers" / "own"
    (own / "experiments").mkdir(parents=True)
    (own / "experiments" / "own_first.py").write_text(EXPERIMENT)
    (own / "measures.py").write_text(MEASURES)
    (own / "claims.yaml").write_text(CLAIMS)
    params = tree / "params.yaml"
    params.write_text(params.read_text().replace("quick:\n", f"quick:{SETTINGS}\n", 1))
    notebook = v4.new_notebook(cells=NOTEBOOK)
    notebook.metadata["kernelspec"] = {"display_name": "Python 3", "language": "python", "name": "python3"}
    nbformat.write(notebook, tree / "notebooks" / "70_own.ipynb")

    assert "own_first.csv: all 6 configurations" in program(tree, "lib.sweep", "own_first", "--jobs", "1")
    runs = pd.read_csv(tree / "results" / "quick" / "runs" / "own_first.csv")
    assert runs[["pruner", "seed"]].to_numpy().tolist() == [[p, s] for p in ("magnitude", "random") for s in range(3)]

    program(tree, "lib.claims", "--scale", "quick")
    claims = pd.read_csv(tree / "results" / "quick" / "claims.csv").set_index("id")
    gains = runs.set_index(["pruner", "seed"]).accuracy
    expected = (gains["magnitude"] - gains["random"]).mean()
    assert claims.paper["own-magnitude-matters"] == 6
    assert abs(claims.measured["own-magnitude-matters"] - expected) < 1e-3
    assert claims.verdict["own-magnitude-matters"] == "reproduced"

    program(tree, "lib.notebook", "70_own")
    text = next((tree / "results").rglob("70_own.ipynb")).read_text()
    assert "{'magnitude': 3, 'random': 3}" in text
    assert "'reproduced'" in text
