# `make quickstart` for a first report, `make test` before a commit, `make test-all` for every test, as CI does; `make lint`
# is the first part of both. For maintainers: `make docs` builds the site, `make lock` writes requirements/ again (requirements/README.md), `make sbom`
# the bill of materials of this version.
PYTEST_ARGS ?=
QUICKSTART_MODEL ?= toy_cnn
QUICKSTART_DTYPE ?= fp16
LOCK_ARGS ?=
SBOM ?= sbom/sme2-profiling-kit.cdx.json

# Where it is set, every Python that the tests start would compile the kit and every test again.
unexport PYTHONDONTWRITEBYTECODE

.NOTPARALLEL:
.PHONY: quickstart test test-all test-setup lint docs lock sbom
quickstart:
	@bash model_profiling/scripts/setup_repo.sh
	@.venv/bin/sme2prof profile $(QUICKSTART_MODEL) --dtype $(QUICKSTART_DTYPE) --force
	@printf '\n%s\n' 'Next, your own model (my_model.py has a function make that returns (module, example_inputs)):' \
	  '  . .venv/bin/activate && sme2prof profile my_model.py:make --dtype fp16'

test: test-setup lint
	@.venv/bin/python -m pytest -n 3 --dist loadfile --no-loadscope-reorder -m "not slow" $(PYTEST_ARGS)

test-all: test-setup lint
	@.venv/bin/python -m pytest -n 3 --dist loadfile --no-loadscope-reorder $(PYTEST_ARGS)

test-setup:
	@bash model_profiling/scripts/install_test_packages.sh
	@bash model_profiling/scripts/setup_repo.sh --with-tests
	@.venv/bin/python tests/virtual_phone_parts.py

lint:
	@.venv/bin/python .ci/lint.py

# Writes what pages say of the code, then the site with search, in site/; its tools have an environment of their own.
docs:
	@[ -x .venv/bin/python ] || bash model_profiling/scripts/setup_repo.sh
	@.venv/bin/python docs/generate.py
	@[ -x build/docs/bin/zensical ] || { python3 -m venv build/docs && \
	  build/docs/bin/python -m pip install --quiet --no-deps --require-hashes -r requirements/docs.txt; }
	@build/docs/bin/python docs/make_pages.py
	@build/docs/bin/zensical build --clean --strict

lock:
	@[ -x .venv/bin/python ] || bash model_profiling/scripts/setup_repo.sh
	@.venv/bin/python -m pip install --quiet --no-deps --require-hashes -r requirements/make-lock.txt
	@.venv/bin/python .ci/make_lock.py $(LOCK_ARGS)

sbom:
	@.venv/bin/python .ci/sbom.py $(SBOM)
