# `make demo` and `make test` do everything, set-up included. They need Python 3.10 or newer and nothing else:
# no GPU, no CUDA toolkit, no compiler. Another Python: make test PYTHON=python3.12

# Images of containers set this. Each process that tests start would compile all it imports: 0.8 s of CPU, not 0.4 s.
unexport PYTHONDONTWRITEBYTECODE

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
BASE   := $(VENV)/.installed
DEV    := $(VENV)/.installed-dev
PIP    := $(BIN)/python -m pip install --quiet --disable-pip-version-check

# Two distributions of one checkout: lapidist, and lapidist-lab with what it is measured and studied with.
PROJECTS := pyproject.toml lab/pyproject.toml
LAB      := --editable ./lab

# torch and JAX for the CPU, in an environment of their own: `make test` shows that nothing needs them.
FULL     := .venv-full
FULL_DEV := $(FULL)/.installed
FULL_PIP := $(FULL)/bin/python -m pip install --quiet --disable-pip-version-check

# The oldest NumPy, torch and JAX that pyproject.toml allows, and the newest. JAX needs Python 3.11.
OLD_LIBS := .venv-libraries-oldest
NEW_LIBS := .venv-libraries-newest
OLD_LIBS_DEV := $(OLD_LIBS)/.installed
NEW_LIBS_DEV := $(NEW_LIBS)/.installed
$(OLD_LIBS_DEV): LIBRARIES := torch==2.11.0 jax==0.10.0 numpy==2.0.0 ml_dtypes==0.5.0
$(NEW_LIBS_DEV): LIBRARIES := --upgrade torch jax numpy ml_dtypes
# torch without CUDA, where its index can be reached. Elsewhere the package index's own, with CUDA: 6 GB an environment.
TORCH_INDEX := https://download.pytorch.org/whl/cpu
TORCH_CPU = $(shell $(PYTHON) -c 'import urllib.request as u; u.urlopen("$(TORCH_INDEX)/torch/", timeout=20)' 2> /dev/null && \
              echo --extra-index-url $(TORCH_INDEX))
# What torch 2.14 warns of in itself: its fake tensors read .grad, its derivatives are scripted, a test traces.
OF_TORCH  := -W "ignore:The .grad attribute:UserWarning" -W 'ignore:`torch.jit.script` is deprecated:FutureWarning' \
             -W 'ignore:`torch.jit.trace` is deprecated:FutureWarning'
WITH_LIBS := tests/test_dtypes.py tests/calls/test_numpy_users.py tests/backends/test_host.py tests/frameworks/test_arrays.py \
             tests/frameworks/test_alike.py tests/frameworks/test_jax_products.py tests/frameworks/test_torch_ops.py \
             tests/frameworks/test_torch_layers.py tests/frameworks/test_torch_everywhere.py

# Other NVRTCs than $(VENV) has: the first that pyproject.toml allows, and the newest, which another package may bring.
# And CUDA 12's, for older drivers.
OLDEST     := .venv-oldest
NEWEST     := .venv-newest
CUDA12     := .venv-cuda12
OLDEST_DEV := $(OLDEST)/.installed
NEWEST_DEV := $(NEWEST)/.installed
CUDA12_DEV := $(CUDA12)/.installed
$(OLDEST_DEV): NVRTC := nvidia-cuda-nvrtc==13.0.48 nvidia-cuda-runtime==13.0.48
$(NEWEST_DEV): NVRTC := "nvidia-cuda-nvrtc>=13.1,<14" "nvidia-cuda-runtime>=13.1,<14"
COMPILED   := tests/kernels/test_kernels.py tests/kernels/test_chips.py tests/kernels/test_fragments_in_flight.py \
              tests/commands/test_machine_commands.py tests/kernels/test_wgmma_registers.py \
              -k "compiles or registers or bounds_its_choice"
RUN_BY_12  := tests/build/test_toolkit.py tests/machine/test_registered_kernels.py -k "toolkit or wgmma"

# The site and the package, each with tools of its own.
DOCS     := .venv-docs
DOCS_DEV := $(DOCS)/.installed
DOCS_PIP := $(DOCS)/bin/python -m pip install --quiet --disable-pip-version-check

# A minute of what a change breaks first: rules of the house, arguments, problems, schedules, the machine's arithmetic.
DEVICE_CODE = $(shell find src/lapidist/cuda src/lapidist_lab/bench/studies -name '*.cu' -o -name '*.cuh') \
              $(wildcard src/lapidist/machine/programs/runtime/*)

SMOKE := tests/test_house.py tests/test_names.py tests/test_docs.py tests/docs tests/test_dtypes.py tests/verify tests/problems \
         tests/schedule/test_schedule.py tests/calls/test_errors.py tests/calls/test_overlap.py tests/backends/test_host.py \
         tests/machine/test_alu.py tests/machine/test_flow.py

# Of surveys, the I-th of N parts: make surveys PART=2/4
PART ?= 1/1

ANYWHERE := not gpu and not frameworks and not browser and not census and not c_compiler

# What tests compile, for the next run. Its name follows from source, headers, options and compiler: none is stale.
smoke test surveys: export LAPIDIST_CACHE_DIR ?= $(CURDIR)/build/kernels_of_tests

.PHONY: demo smoke test full surveys census compilers frameworks libraries browser rung-in-browser programs check format doctor docs package clean

demo: $(BASE)       ## climb the ladder: on the GPU if there is one
	$(BIN)/lapidist climb

smoke: check        ## what a change needs first, in a minute
	$(BIN)/python -m pytest -n auto -m "$(ANYWHERE) and not survey" $(SMOKE)

test: check         ## lint, types, then what every user should see pass without a GPU
	$(BIN)/python -m pytest -n auto --dist worksteal -m "$(ANYWHERE) and not survey"

full: test surveys compilers frameworks browser programs  ## all that needs no GPU: surveys, what needs torch and JAX, Chromium, or a C compiler

surveys: $(DEV)     ## every kernel by every type, config and order of threads: what takes longer than `make test`
	$(BIN)/python -m pytest -n auto --dist worksteal -m "$(ANYWHERE) and survey" --part $(PART)

census: $(DEV)      ## the combinations that surveys leave to others: hours, before a release
	$(BIN)/python -m pytest -n auto --dist worksteal -m "census and not gpu and not frameworks"

compilers: $(OLDEST_DEV) $(NEWEST_DEV) $(CUDA12_DEV)  ## every kernel by the newest NVRTC, some by the first that is allowed and by CUDA 12's
	$(OLDEST)/bin/python -m pytest -n auto --dist worksteal -m "not survey and not census" $(COMPILED)
	$(NEWEST)/bin/python -m pytest -n auto --dist worksteal -m "not census" --part $(PART) $(COMPILED)
	$(CUDA12)/bin/python -m pytest -n auto --dist worksteal -m "not survey and not census" $(COMPILED)
	$(CUDA12)/bin/python -m pytest -n auto --dist worksteal -m "$(ANYWHERE) and not survey" $(RUN_BY_12)

frameworks: $(FULL_DEV)
	$(FULL)/bin/python -m pytest -n auto -m "frameworks and not gpu and not census"

libraries: $(OLD_LIBS_DEV) $(NEW_LIBS_DEV)  ## the oldest and the newest NumPy, torch and JAX that are allowed
	$(OLD_LIBS)/bin/python -m pytest -n auto -m "not gpu and not survey and not census" $(WITH_LIBS)
	$(NEW_LIBS)/bin/python -m pytest -n auto -m "not gpu and not survey and not census" $(OF_TORCH) $(WITH_LIBS)

browser: $(DEV)     ## pages in a browser (Debian: apt-get install chromium)
	$(BIN)/python -m pytest -m "browser and not gpu and not runtime"

rung-in-browser: $(DEV)  ## the page that runs a rung in Chromium, with Python for browsers (77 MB the first time)
	$(BIN)/python site/in_browser/parts.py build/in_browser
	$(BIN)/python -m pytest -m runtime tests/lessons/test_rung_in_browser.py

programs: $(DEV)    ## whole CUDA programs in the machine (Debian: apt-get install gcc)
	$(BIN)/python -m pytest -m c_compiler tests/machine/programs

check: $(DEV)
	$(BIN)/ruff check src lab tests site
	$(BIN)/ruff format --check src lab tests site
	$(BIN)/clang-format --dry-run --Werror $(DEVICE_CODE)
	$(BIN)/mypy

format: $(DEV)
	$(BIN)/ruff check --fix src lab tests site
	$(BIN)/ruff format src lab tests site
	$(BIN)/clang-format -i $(DEVICE_CODE)

doctor: $(BASE)     ## what was found on this computer
	$(BIN)/lapidist doctor

docs: $(DOCS_DEV)   ## the pages as a site, in build/site; it needs no network to be read
	rm -rf build/lessons
	$(DOCS)/bin/lapidist lesson --all --html build/lessons
	$(DOCS)/bin/python site/in_browser/parts.py build/in_browser || true
	NO_MKDOCS_2_WARNING=1 $(DOCS)/bin/mkdocs build --strict --quiet --config-file site/mkdocs.yml
	@echo "build/site/index.html"

package: $(DOCS_DEV)  ## wheels and source archives of lapidist and lapidist-lab, in dist
	rm -rf dist
	$(DOCS)/bin/python -m build --outdir dist .
	$(DOCS)/bin/python -m build --outdir dist lab
	$(DOCS)/bin/twine check --strict dist/*

clean:
	rm -rf $(VENV) $(FULL) $(OLDEST) $(NEWEST) $(CUDA12) $(OLD_LIBS) $(NEW_LIBS) $(DOCS) build dist

# ---- set-up: once, and again when a pyproject.toml changes ----

$(BASE): $(PROJECTS)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || \
	  { echo "Python 3.10 or newer is needed: make $(MAKECMDGOALS) PYTHON=/path/to/python3.12"; exit 1; }
	@$(PYTHON) -m venv $(VENV) || \
	  { echo "Python has no venv module. On Debian and Ubuntu: sudo apt install python3-venv"; rm -rf $(VENV); exit 1; }
	@echo "installing lapidist and what it needs into $(VENV) (about 160 MB the first time)"
	@$(PIP) --editable . $(LAB)
	@touch $@

$(DEV): $(BASE)
	@echo "installing the test tools into $(VENV)"
	@$(PIP) --editable ".[dev]" $(LAB)
	@touch $@

$(FULL_DEV): $(PROJECTS)
	@$(PYTHON) -m venv $(FULL)
	@echo "installing torch and JAX for the CPU beside lapidist into $(FULL)"
	@$(FULL_PIP) torch==2.13.0 jax==0.10.2 nbclient ipykernel safetensors==0.8.0
	@$(FULL_PIP) --editable ".[dev]" $(LAB)
	@touch $@

$(OLDEST_DEV) $(NEWEST_DEV): $(PROJECTS)
	@$(PYTHON) -m venv $(@D)
	@echo "installing lapidist with another NVRTC into $(@D)"
	@$(@D)/bin/python -m pip install --quiet --disable-pip-version-check --editable . $(LAB) pytest pytest-xdist hypothesis
	@$(@D)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --upgrade $(NVRTC)
	@touch $@

$(OLD_LIBS_DEV) $(NEW_LIBS_DEV): $(PROJECTS)
	@$(PYTHON) -m venv $(@D)
	@echo "installing lapidist with $(LIBRARIES) into $(@D)"
	@$(@D)/bin/python -m pip install --quiet --disable-pip-version-check --editable . $(LAB) pytest pytest-xdist hypothesis
	@$(@D)/bin/python -m pip install --quiet --disable-pip-version-check $(TORCH_CPU) $(LIBRARIES)
	@touch $@

$(CUDA12_DEV): $(PROJECTS)
	@$(PYTHON) -m venv $(@D)
	@echo "installing lapidist with CUDA 12's compiler into $(@D)"
	@$(@D)/bin/python -m pip install --quiet --disable-pip-version-check --editable ".[cuda12]" $(LAB) pytest pytest-xdist hypothesis
	@touch $@

$(DOCS_DEV): $(PROJECTS)
	@$(PYTHON) -m venv $(DOCS)
	@echo "installing mkdocs and the packaging tools into $(DOCS)"
	@$(DOCS_PIP) --editable ".[docs]" $(LAB) build==1.6.1 twine==7.0.0
	@touch $@
