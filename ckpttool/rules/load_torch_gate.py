"""load.torch-gate: transformers does not let old releases of torch load pickles."""

from collections.abc import Iterator
from typing import ClassVar

from ckpttool.blocks import Finding, Severity
from ckpttool.protocols import Case, Needs, NotChecked
from ckpttool.rules._loaders import loader_of
from ckpttool.rules._releases import release

_GATE = (2, 6)  # of torch
_SINCE = (4, 52)  # of transformers
_PICKLES = ("torch-zip", "torch-legacy")
_LAYOUTS = ("hf-trainer", "hf-model")


class TorchGate:
    """transformers refuses `torch.load` on torch before 2.6, for whatever a folder keeps in pickles.

    What: files of the folder that transformers reads with `torch.load` (`optimizer.pt`, `scheduler.pt`, the random
    states, `pytorch_model.bin`), against the installed releases of torch and transformers.

    Why: since CVE-2025-32434 transformers 4.52 and later raise `ValueError` there, even for `weights_only=True`. A
    machine with an older torch saves checkpoints that it cannot resume.

    Example: `error: optimizer.pt: transformers 5.24.0 raises ValueError in check_torch_load_is_safe with torch 2.5.1,
    before it reads this file and 3 more`

    Reference: transformers/utils/import_utils.py `check_torch_load_is_safe`, 5.24; issue LlamaFactory#8379.
    """

    code: ClassVar[str] = "load.torch-gate"
    needs: ClassVar[Needs] = Needs.INSTALLED

    def check(self, case: Case) -> Iterator[Finding | NotChecked]:
        if case.checkpoint.layout not in _LAYOUTS:
            return
        pickles = [
            name
            for name, contents in case.checkpoint.contents.items()
            if contents.container in _PICKLES and loader_of(case, name).call
        ]
        installed = case.installed or {}
        torch, transformers = installed.get("torch", ""), installed.get("transformers", "")
        if not pickles:
            return
        if not torch or not transformers:
            absent = "torch" if not torch else "transformers"
            yield NotChecked(code=self.code, why=f"{absent} is not installed here, so its release is not known")
        elif release(torch) < _GATE and release(transformers) >= _SINCE:
            more = f" and {len(pickles) - 1:,} more" if len(pickles) > 1 else ""
            yield Finding(
                code=self.code,
                severity=Severity.ERROR,
                where=pickles[0],
                message=f"transformers {transformers} raises ValueError in check_torch_load_is_safe with torch "
                f"{torch}, before it reads this file{more}",
                hint="resume with torch 2.6 or newer; weights alone can be made safetensors: ckpt convert FILE OUT",
            )
