"""load.missing-class: objects of classes that are not there to load them."""

from collections.abc import Iterator
from importlib.util import find_spec
from typing import ClassVar

from ckpttool.blocks import Finding, Severity
from ckpttool.model import GlobalUse
from ckpttool.protocols import Case, Needs
from ckpttool.rules._globals import named, of_files, top_level
from ckpttool.rules._loaders import loader_of
from ckpttool.values import Trust

_MAIN = "__main__"


class MissingClass:
    """The file holds objects of classes that only the script which saved it had, or of a package that is not here.

    What: classes and functions of `__main__`, and those of packages that are not installed beside this program. Only
    the package's name is looked up; nothing is imported.

    Why: unpickling them raises `AttributeError` (`Can't get attribute 'Config' on <module '__main__'>`) in any other
    script, and `ModuleNotFoundError` where the package or its module is gone. Whether the script that resumes has them
    is not known here, so this is a warning.

    Example: `warning: last.pt: it holds objects of the script that saved it: __main__.Config at config; in another
    script torch.load(weights_only=False) raises AttributeError`

    Reference: torch/serialization.py `_load` (`find_class`), torch 2.13; issue pytorch#7812.
    """

    code: ClassVar[str] = "load.missing-class"
    needs: ClassVar[Needs] = Needs.INSTALLED

    def check(self, case: Case) -> Iterator[Finding]:
        for file, uses in of_files(case):
            if not loader_of(case, file).call:
                continue
            where = file or case.checkpoint.contents[file].name
            refused = [use for use in uses if use.trust is Trust.REFUSED]
            own = [use for use in refused if use.ref.module == _MAIN]
            if own:
                yield self._warned(
                    where,
                    f"it holds objects of the script that saved it: {named(own)}; in another script "
                    "torch.load(weights_only=False) raises AttributeError",
                    "resume with that script, or move the classes to a module that both import",
                )
            absent: dict[str, list[GlobalUse]] = {}
            for use in refused:
                package = top_level(use.ref)
                if package and package != _MAIN and not _is_here(package):
                    absent.setdefault(package, []).append(use)
            for package, several in absent.items():
                yield self._warned(
                    where,
                    f"the package {package!r} is not installed here, and the file holds objects of it: "
                    f"{named(several)}; torch.load(weights_only=False) raises ModuleNotFoundError",
                    "install it, or run where the script that resumes finds it",
                )

    def _warned(self, where: str, message: str, hint: str) -> Finding:
        return Finding(code=self.code, severity=Severity.WARNING, where=where, message=message, hint=hint)


def _is_here(package: str) -> bool:
    """Whether a top-level package can be found; asking for it imports nothing."""
    try:
        return package.isidentifier() and find_spec(package) is not None
    except (ImportError, ValueError, AttributeError):
        return False
