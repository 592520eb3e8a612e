"""`python -m orchestrator.cli`: the same as `aclflow`."""

from __future__ import annotations

import sys

from orchestrator.cli.run import main

sys.exit(main())
