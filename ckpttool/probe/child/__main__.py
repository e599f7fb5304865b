"""`python <this folder> ORDERS`: become a package of another name, and run the script without leaving a trace.

This folder is taken off `sys.path`, its `__main__` and `sys.argv` are replaced by the script's.
"""

import importlib.util
import os
import sys


def _package() -> None:
    """Make `_ckpt_probe` of the folder that this file lies in."""
    folder = os.path.dirname(os.path.abspath(__file__))
    spec = importlib.util.spec_from_file_location(
        "_ckpt_probe",
        os.path.join(folder, "__init__.py"),
        submodule_search_locations=[folder],
    )
    package = importlib.util.module_from_spec(spec)  # type: ignore[arg-type] # a file that is there
    sys.modules["_ckpt_probe"] = package
    spec.loader.exec_module(package)  # type: ignore[union-attr]


if __name__ == "__main__":
    _package()
    importlib.import_module("_ckpt_probe.start").main(sys.argv[1])
