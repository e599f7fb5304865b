"""How much a file may ask of us: one frozen record, passed down to every reader."""

import dataclasses
import re

from ckpttool.errors import UsageError

_MB = 1_000_000
_UNITS = {
    "": 1,
    "k": 10**3,
    "kb": 10**3,
    "m": 10**6,
    "mb": 10**6,
    "g": 10**9,
    "gb": 10**9,
    "kib": 2**10,
    "mib": 2**20,
    "gib": 2**30,
}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What one file may take before reading it stops with `LimitExceeded`.

    The defaults are well above what trainers write (a 70-billion-parameter training checkpoint has a pickle of a
    few MB) and keep a hostile file within seconds and 300 MB. `ckpt --limit NAME=VALUE` raises one of them.
    """

    pickle: int = 64 * _MB  # bytes of one pickle stream that is not tensor data
    header: int = 20 * _MB  # bytes of a safetensors header or of an index.json
    opcodes: int = 15_000_000  # pickle opcodes executed for one file
    depth: int = 100_000  # nesting of containers in the value tree
    text: int = 64 * _MB  # bytes of one string, or of bytes spelled as text, in a pickle
    members: int = 200_000  # members of an archive, or tensors that a header or an index names
    inflated: int = 256 * _MB  # bytes of one compressed member, inflated into memory
    memory: int = 200 * _MB  # growth of the resident memory while one pickle is read
    expanded: int = 4_000 * _MB  # bytes of a tensor's values beyond those stored (a stride of 0 repeats them)
    nodes: int = 2_000_000  # values visited when a tree is listed
    repeats: int = 20_000  # times that tensors are listed again because the container around them occurs again
    files: int = 10_000  # files of a folder

    def raised(self, settings: list[str]) -> "Limits":
        """Change limits by `NAME=VALUE`; a value may end in kB, MB, GB, KiB, MiB or GiB.

        Raises:
            UsageError: no such limit, or not a number.
        """
        changed: dict[str, int] = {}
        names = [f.name for f in dataclasses.fields(self)]
        for setting in settings:
            name, _, text = setting.partition("=")
            if name not in names:
                raise UsageError(f"no limit is called {name!r}", hint=f"the limits are {', '.join(names)}")
            number = re.fullmatch(r"\s*(\d[\d_]*)\s*([a-zA-Z]*)\s*", text)
            if number is None or number[2].lower() not in _UNITS:
                raise UsageError(f"{text!r} is not a limit", hint=f"write it like --limit {name}=100MB")
            changed[name] = int(number[1].replace("_", "")) * _UNITS[number[2].lower()]
        return dataclasses.replace(self, **changed)


DEFAULT_LIMITS = Limits()
