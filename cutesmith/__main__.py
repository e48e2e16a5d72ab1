"""`python -m cutesmith VERB …`."""

import os

from cutesmith.cli import main
from cutesmith.verb_process import PARENT_VARIABLE

if os.environ.pop(PARENT_VARIABLE, None):
    from cutesmith.sandbox.confinement import die_with_parent

    die_with_parent()

raise SystemExit(main())
