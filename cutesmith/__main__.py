"""`python -m cutesmith VERB …`."""

from cutesmith.cli import main

raise SystemExit(main())
