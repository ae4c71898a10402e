"""Where things are. Every path of the project starts here, so nothing depends on the folder a program runs in."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DATA = ROOT / "data"
DOWNLOADS = ROOT / ".downloads"
NOTEBOOKS = ROOT / "notebooks"
PAPERS = ROOT / "lib" / "papers"
PARAMS = ROOT / "params.yaml"
README = ROOT / "README.md"
RESULTS = ROOT / "results"
STORE = ROOT / ".sweep"
