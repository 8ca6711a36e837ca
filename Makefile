# make run   serves the page          make lint         ruff, lint and format
# make test  runs every test          make screenshots  takes the README's pictures
# make bench  measures beside peers, the quick set; make bench-full  everything
# make soak   500 requests over 200 shapes under a memory limit: half an hour
# make load   50 visitors for 5 minutes    make fuzz    requests of any shape
# make audit  known vulnerabilities of what is installed
# The environment in .venv is made at the first call, and again when the requirements change.

VENV := .venv
PEERS := .venv-bench
TOOLS := .venv-tools
PYTHON ?=
ARGS ?=
IN_VENV := $(VENV)/bin/python

.DEFAULT_GOAL := help
.PHONY: help run test lint screenshots bench bench-full soak load fuzz audit
.DELETE_ON_ERROR:

help:
	@sed -n 's/^# \?//; 1,6p' $(MAKEFILE_LIST)

run: $(VENV)/.runtime
	@$(IN_VENV) app.py $(ARGS)

# Compiling is most of what the tests do, so most of them do without XLA's optimisations: a third of
# the time to compile. Those marked `as_shipped` come after, and need what users get.
UNOPTIMIZED := XLA_FLAGS="--xla_backend_optimization_level=0 --xla_cpu_use_fusion_emitters=false"
PYTEST := $(IN_VENV) -m pytest -n 2 --dist loadfile

test: $(VENV)/.development
ifdef ARGS
	@$(PYTEST) $(ARGS)
else
	@$(UNOPTIMIZED) $(PYTEST) -m "not as_shipped"
	@$(PYTEST) -m as_shipped
endif

lint: $(VENV)/.development
	@$(IN_VENV) -m ruff check .
	@$(IN_VENV) -m ruff format --check .

screenshots: $(VENV)/.development
	@$(IN_VENV) tests/browser/screenshots.py

bench: $(VENV)/.development $(PEERS)/.installed
	@$(IN_VENV) -m benchmarks.peers $(ARGS)

bench-full: $(VENV)/.development $(PEERS)/.installed
	@$(IN_VENV) -m benchmarks.peers --full $(ARGS)

soak: $(VENV)/.runtime
	@$(IN_VENV) -m benchmarks.soak $(ARGS)

load: $(VENV)/.runtime
	@$(IN_VENV) -m benchmarks.load $(ARGS)

fuzz: $(VENV)/.development $(TOOLS)/.installed
	@$(IN_VENV) -m tests.fuzz $(ARGS)

# Fails where a package cannot be looked up, too: what was not asked about is not known to be sound.
audit: $(VENV)/.runtime $(TOOLS)/.installed
	@$(TOOLS)/bin/pip-audit --strict --progress-spinner off \
	  --path $(wildcard $(VENV)/lib/python3.*/site-packages) $(ARGS)

# One stamp a requirements file: pip runs only when the file is newer than its last installation.
$(VENV)/.runtime: requirements.txt | $(VENV)/.created
	$(IN_VENV) -m pip install --disable-pip-version-check -r requirements.txt
	@touch $@

$(VENV)/.development: requirements-dev.txt requirements-mcp.txt requirements-ray.txt \
  requirements.txt | $(VENV)/.created
	$(IN_VENV) -m pip install --disable-pip-version-check -r requirements-dev.txt
	@touch $@

$(PEERS)/.installed: benchmarks/requirements.txt | $(VENV)/.created
	@test -x $(PEERS)/bin/python || $(IN_VENV) -m venv $(PEERS)
	$(PEERS)/bin/python -m pip install --disable-pip-version-check -r $<
	@touch $@

$(TOOLS)/.installed: requirements-tools.txt | $(VENV)/.created
	@test -x $(TOOLS)/bin/python || $(IN_VENV) -m venv $(TOOLS)
	$(TOOLS)/bin/python -m pip install --disable-pip-version-check -r $<
	@touch $@

# TensorFlow has wheels for Python 3.11 to 3.13. Each candidate is run, not only looked for: a
# pyenv shim exists for versions that are not switched on, and Debian's python3 may lack ensurepip.
SUITABLE := import sys, venv, ensurepip; \
  sys.exit(not ((3, 11) <= sys.version_info[:2] <= (3, 13) and sys.maxsize > 2**32))
CANDIDATES = $(if $(PYTHON),$(PYTHON),python3.11 python3.12 python3.13 python3 python \
  $(wildcard $(HOME)/.pyenv/versions/3.1[123].*/bin/python))

$(VENV)/.created:
	@if $(IN_VENV) -c '$(SUITABLE)' 2>/dev/null && $(IN_VENV) -m pip --version >/dev/null 2>&1; then \
	  touch $@; exit 0; \
	fi; \
	for candidate in $(CANDIDATES); do \
	  if "$$candidate" -c '$(SUITABLE)' 2>/dev/null; then \
	    echo "Creating $(VENV) with $$("$$candidate" --version)"; \
	    "$$candidate" -m venv --clear --upgrade-deps $(VENV) && touch $@; exit $$?; \
	  fi; \
	done; \
	echo "This needs Python 3.11, 3.12 or 3.13 (64 bit, with venv; on Debian: python3-venv)," \
	  "and none was found: install one, or name it with make PYTHON=/path/to/python." >&2; \
	exit 1
