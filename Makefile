# Every target sets up what it needs. `make test` is what CI runs.
VENV := .venv
PY := $(VENV)/bin/python
# Arguments for demo, bench and the tests: make demo ARGS=--text
ARGS ?=
# Test processes.
JOBS ?= 2
# pyright brings its own copy and need not ask whether there is a newer one.
export PYRIGHT_PYTHON_IGNORE_WARNINGS := 1

.DEFAULT_GOAL := help
.PHONY: help venv check test hunt demo bench bench-peers docs format clean

help:
	@echo "make test    check, then run every test"
	@echo "make check   linter, format, types, generated pages"
	@echo "make hunt    the property tests with new examples, and more of them (ARGS=tests/store: only these)"
	@echo "make demo    the durable conversation, end to end (ARGS=--text: without sound)"
	@echo "make bench   the benchmarks (ARGS=--quick: only to see that they run; make bench-peers installs others to compare with)"
	@echo "make docs    write the generated pages anew"
	@echo "make format  put the code in the house's format"
	@echo "make clean   remove what make made"

venv:
	@bash scripts/setup.sh

check: venv
	$(VENV)/bin/ruff check
	$(VENV)/bin/ruff format --check
	$(VENV)/bin/mypy
	$(VENV)/bin/pyright --warnings
	@for page in scripts/*_doc.py; do $(PY) $$page --check || exit 1; done

test: check
	@bash scripts/debian.sh
	$(PY) -m pytest -q -m realtime $(ARGS)
	$(PY) -m pytest -q -n $(JOBS) -m "not realtime" $(ARGS)

hunt: venv
	$(PY) -m pytest -q -n $(JOBS) --hypothesis-profile=hunt --timeout=900 $(or $(ARGS),tests)

demo: venv
	@$(PY) -m antiphon.demo $(ARGS)

bench: venv
	$(PY) -m benchmarks $(ARGS)

bench-peers: venv
	$(PY) -m benchmarks.peers $(ARGS)

docs: venv
	@for page in scripts/*_doc.py; do $(PY) $$page || exit 1; done

format: venv
	$(VENV)/bin/ruff check --fix-only
	$(VENV)/bin/ruff format

clean:
	rm -rf $(VENV) dist build .mypy_cache .pytest_cache .ruff_cache .hypothesis .coverage
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
