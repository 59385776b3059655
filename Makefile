# Two commands: `make quickstart` for a first report, `make test` for the whole test suite.
PYTEST_ARGS ?=
QUICKSTART_MODEL ?= toy_cnn
QUICKSTART_DTYPE ?= fp16

.PHONY: quickstart test
quickstart:
	@bash model_profiling/scripts/setup_repo.sh
	@.venv/bin/sme2prof profile $(QUICKSTART_MODEL) --dtype $(QUICKSTART_DTYPE) --force

test:
	@bash model_profiling/scripts/install_test_packages.sh
	@bash model_profiling/scripts/setup_repo.sh --with-tests
	@.venv/bin/python tests/virtual_phone_parts.py
	@.venv/bin/python tests/model_explorer_parts.py
	@.venv/bin/python -m pytest -n 3 --dist worksteal $(PYTEST_ARGS)
