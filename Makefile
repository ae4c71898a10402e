# Every command a newcomer needs. `make help` lists them.

PYTHON ?= python3
# The environment is named by the lock file's checksum: a changed lock makes a new one, a touched file does not.
READY := .venv/.ready-$(shell cksum < requirements.txt | cut -d" " -f1)
export PATH := $(CURDIR)/.venv/bin:$(PATH)

.DEFAULT_GOAL := help
.PHONY: help env repro test bench data lab lock

help: ## list these targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

env: $(READY) ## the locked environment in .venv (about two minutes, once)

$(READY):
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "make: Python 3.11 or newer is needed, this is %d.%d; try make PYTHON=python3.12" % sys.version_info[:2])'
	$(PYTHON) -m venv --clear .venv
	.venv/bin/pip install --quiet -r requirements.txt
	.venv/bin/pip install --quiet --no-deps --no-build-isolation -e .
	touch $@
