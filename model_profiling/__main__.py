"""`python -m model_profiling` is `sme2prof`."""

import sys

from model_profiling.cli.main import main

sys.exit(main())
