"""load.device-tag: tensors that want to come back to a GPU that may not be there, or is taken."""

import re
from collections.abc import Iterator
from typing import ClassVar

from ckpttool.blocks import Finding, Severity
from ckpttool.protocols import Case, Needs
from ckpttool.rules._loaders import loader_of

_CUDA = re.compile(r"cuda(?::(\d{1,6}))?")


class DeviceTag:
    """Storages are tagged with the GPU they were saved from, and `torch.load` without `map_location` puts them there.

    What: the device tags of the storages of files that the script itself loads. Accelerate, the Trainer and Lightning
    load to the CPU, so their files are not looked at.

    Why: without that device `torch.load` raises `RuntimeError` (`Attempting to deserialize object on CUDA device …`).
    With it, each rank of a distributed run loads to the GPU of the rank that saved: out of memory on GPU 0.

    Example: `warning: last.pt: 148 storages (1,204,224 bytes) are tagged cuda:3; torch.load without map_location raises
    RuntimeError where there are fewer GPUs`

    Reference: torch/serialization.py `_validate_device`, torch 2.13; issue transformers#22123.
    """

    code: ClassVar[str] = "load.device-tag"
    needs: ClassVar[Needs] = Needs.NOTHING

    def check(self, case: Case) -> Iterator[Finding]:
        for file, contents in case.checkpoint.contents.items():
            if contents.container not in ("torch-zip", "torch-legacy", "legacy-tar") or loader_of(case, file).to_cpu:
                continue
            tagged = [s for s in contents.storages if _CUDA.fullmatch(s.location)]
            if not tagged:
                continue
            tags = sorted({s.location for s in tagged})
            nbytes = sum(s.nbytes for s in tagged)
            first = tags in (["cuda"], ["cuda:0"])
            needs = "where there is no GPU" if first else "where there are fewer GPUs"
            yield Finding(
                code=self.code,
                severity=Severity.NOTE if first else Severity.WARNING,
                where=file or contents.name,
                message=f"{len(tagged):,} storages ({nbytes:,} bytes) are tagged {', '.join(tags)}; "
                f"torch.load without map_location raises RuntimeError {needs}",
                hint="load with map_location='cpu'",
            )
