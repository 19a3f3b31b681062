# Two commands for a fresh clone, `make demo` and `make test`; nothing is needed but Python and make.
PYTHON ?= python3
VENV ?= .venv
# More arguments for pip, e.g. an index with another build of torch.
PIP_ARGS ?=
BIN := $(VENV)/bin
# Most of what torch brings is never imported: it is compiled when it is.
PIP_INSTALL := python -m pip install --quiet --no-compile --constraint constraints.txt $(PIP_ARGS)
INSTALL := $(BIN)/$(PIP_INSTALL)
# One process a core, each with one thread; the tests of a file stay together, as they share fixtures.
IN_PARALLEL := --numprocesses auto --dist loadfile
INSTALL_FROM := setup.cfg pyproject.toml constraints.txt

.PHONY: demo test coverage check wheel-test bench clean

demo: $(VENV)/.demo
	$(BIN)/python -m spacy project run demo

test: $(VENV)/.test
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest $(IN_PARALLEL)

# The same tests, which take half as long again where each line is noted.
coverage: $(VENV)/.test
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest $(IN_PARALLEL) --cov --cov-report=term:skip-covered

check: $(VENV)/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy spacy_spans
	rm -rf build dist
	$(BIN)/python -m build --wheel --outdir dist . >/dev/null
	$(MAKE) wheel-test

# The wheel alone in an empty environment, tests copied away from the source tree: those of what is
# declared, installed and needed.
wheel-test:
	rm -rf $(VENV)-wheel build/wheel-test
	$(PYTHON) -m venv $(VENV)-wheel
	$(VENV)-wheel/bin/$(PIP_INSTALL) dist/*.whl pytest hypothesis
	mkdir -p build/wheel-test
	cp -r tests build/wheel-test/
	cd build/wheel-test && OMP_NUM_THREADS=1 $(CURDIR)/$(VENV)-wheel/bin/python -m pytest tests -m installed -W error --import-mode=importlib -p no:cacheprovider -c /dev/null --rootdir .
	rm -rf $(VENV)-wheel

bench: $(VENV)/.bench
	$(BIN)/python benchmarks/enumerator.py all

clean:
	rm -rf $(VENV) $(VENV)-wheel build dist corpus training packages downloads renders

$(VENV)/.created:
	$(PYTHON) -m venv $(VENV)
	touch $@

# Entry points exist only when installed: install again whenever setup.cfg changes.
$(VENV)/.demo: $(VENV)/.created $(INSTALL_FROM)
	$(INSTALL) --editable .
	touch $@

$(VENV)/.test: $(VENV)/.created $(INSTALL_FROM)
	$(INSTALL) --editable '.[dev,viz]'
	touch $@ $(VENV)/.demo

$(VENV)/.bench: $(VENV)/.test
	touch $@
