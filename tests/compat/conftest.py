"""Which tests can run: those whose library is installed. `./task test compat` has an environment with all of them."""

from importlib.util import find_spec

collect_ignore = ["programs", "stand_in.py", "cases.py"] + ([] if find_spec("pottery") else ["test_pottery.py"])
