"""The probe's child with an examination that only writes down what was watched: run as a file, with the orders."""

import runpy
import sys
from pathlib import Path
from types import ModuleType

from ckpttool.probe import child

FOLDER = Path(child.__file__).parent


def notes(record, frame):
    """What the record holds beyond the facts, under a name that the facts do not have."""
    made = [
        {"cls": type(thing).__name__, "groups": made.groups, "state": made.state} for thing, made in record.made.alive()
    ]
    loaders = [{"cls": type(thing).__name__, **vars(note)} for thing, note in record.loaders.alive()]
    rng = {name: vars(note) for name, note in record.rng.items()}
    loaded = [type(thing).__name__ for thing, _ in record.loaded.alive()]
    stood = frame.f_code.co_name if frame is not None else None
    main = {name: value for name, value in record.main.items() if isinstance(value, (int, str, bool, type(None)))}
    return {"notes": {"made": made, "loaders": loaders, "rng": rng, "loaded": loaded, "stood": stood, "main": main}}


if __name__ == "__main__":
    orders = sys.argv[1]
    sys.modules["_ckpt_probe.examine"] = examining = ModuleType("_ckpt_probe.examine")
    examining.examine = notes
    sys.argv = [str(FOLDER), orders]
    runpy.run_path(str(FOLDER / "__main__.py"), run_name="__main__")
