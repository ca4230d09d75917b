"""Entry point of `python -m nodeguard`."""

import sys

from nodeguard.cli.main import main

sys.exit(main())
