# Every command a newcomer needs. `make help` lists them.

PYTHON ?= python3
# The environment is named by the lock files' checksum: a changed lock makes a new one, a touched file does not.
READY := .venv/.ready-$(shell cat requirements.txt requirements-no-deps.txt | cksum | cut -d" " -f1)
RUN := .venv/bin/python
export PATH := $(CURDIR)/.venv/bin:$(PATH)

.DEFAULT_GOAL := help
.PHONY: help env repro test real html slides bench data lab lock

help: ## list these targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-9s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

env: $(READY) ## the locked environment in .venv (about two minutes, once)

$(READY):
	@$(PYTHON) -c 'import sys; sys.exit(0 if (3, 11) <= sys.version_info < (3, 14) else "Python 3.11 to 3.13 is needed, this is %d.%d; try make PYTHON=python3.12" % sys.version_info[:2])'
	@if [ -L .venv ] || { [ -e .venv ] && ! ls .venv/.ready-* .venv/.begun 2>/dev/null | grep -q .; }; then \
		echo "make: .venv is a link, or an environment that make env did not make and would delete: move it away" >&2; exit 2; fi
	$(PYTHON) -m venv --clear .venv
	touch .venv/.begun
	.venv/bin/pip install --quiet --disable-pip-version-check -r requirements.txt
	.venv/bin/pip install --quiet --disable-pip-version-check --no-deps -r requirements-no-deps.txt
	.venv/bin/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	touch $@

# `dvc repro --force` runs the same programs, one stage after the other; here all sweeps share one pool of processes, all
# notebooks one process that has imported what they import, and DVC is told in the end that its stages have been run
repro: env ## every quick result anew, then in ten lines how it compares with what is committed
	$(RUN) -m lib.sweep --all --scale quick
	$(RUN) -m lib.claims
	$(RUN) -m lib.notebook --all
	dvc commit --quiet --force dvc.yaml
	@$(RUN) -m lib.compare --scale quick

# tests run two at a time; more threads would only wait for each other
test: export OPENBLAS_NUM_THREADS = 1
test: env ## every check that CI runs
	ruff check .
	ruff format --check .
	$(RUN) -m pytest -n 2 --dist loadscope --no-loadscope-reorder tests
	$(RUN) -m pytest -n 2 --dist loadscope --nbval-lax results/notebooks

real: data ## the real scale: hours on two cores; stop it at will, the same command goes on
	-dvc repro --keep-going results/real/dvc.yaml  # what cannot run here is named; the rest is judged all the same
	$(RUN) -m lib.claims
	dvc repro --quiet

html: env ## the executed notebooks as linked pages, html/index.html
	$(RUN) -m lib.pages

slides: env ## a deck for each part, slides/part_1.html and so on; arrow keys move
	$(RUN) -m lib.pages --slides

bench: env ## timings, into results/bench/ (keep the machine quiet)
	$(RUN) -m lib.bench

data: env ## the public data sets that data.dvc locks, into data/ (240 MB; not needed at the quick scale)
	$(RUN) -m lib.data

# with the settings under which the notebooks were executed: a sentence that they state would stop at other numbers
lab: env ## Jupyter on the notebooks
	eval "$$($(RUN) -m lib.companion.sweep.portable)" && jupyter lab $(OPTIONS) notebooks

lock: ## requirements.txt from the ranges in pyproject.toml; OPTIONS=--upgrade also moves what is locked already
	$(PYTHON) -m venv --clear .lock
	.lock/bin/pip install --quiet --disable-pip-version-check uv
	.lock/bin/uv pip compile pyproject.toml --extra companion -o requirements.txt --universal --python-version 3.11 --fork-strategy fewest --no-annotate --quiet $(OPTIONS)
	rm -rf .lock
