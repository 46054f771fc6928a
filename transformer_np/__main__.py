"""`python -m transformer_np COMMAND`, the same as `transformer-np COMMAND`."""

import sys

from .cli import main

sys.exit(main())
