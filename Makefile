# Two commands: `make quickstart` for a first report, `make test` for the whole test suite. For maintainers: `make lock`
# writes requirements/ anew (requirements/README.md), `make sbom` the bill of materials of this version.
PYTEST_ARGS ?=
QUICKSTART_MODEL ?= toy_cnn
QUICKSTART_DTYPE ?= fp16
LOCK_ARGS ?=
SBOM ?= sbom/sme2-profiling-kit.cdx.json

.PHONY: quickstart test lock sbom
quickstart:
	@bash model_profiling/scripts/setup_repo.sh
	@.venv/bin/sme2prof profile $(QUICKSTART_MODEL) --dtype $(QUICKSTART_DTYPE) --force
	@printf '\n%s\n' 'Next, your own model (my_model.py has a function make that returns (module, example_inputs)):' \
	  '  . .venv/bin/activate && sme2prof profile my_model.py:make --dtype fp16'

test:
	@bash model_profiling/scripts/install_test_packages.sh
	@bash model_profiling/scripts/setup_repo.sh --with-tests
	@.venv/bin/python tests/virtual_phone_parts.py
	@.venv/bin/python tests/model_explorer_parts.py
	@.venv/bin/python -m pytest -n 3 --dist worksteal $(PYTEST_ARGS)

lock:
	@[ -x .venv/bin/python ] || bash model_profiling/scripts/setup_repo.sh
	@.venv/bin/python -m pip install --quiet --no-deps --require-hashes -r requirements/make-lock.txt
	@.venv/bin/python .ci/make_lock.py $(LOCK_ARGS)

sbom:
	@.venv/bin/python .ci/sbom.py $(SBOM)
