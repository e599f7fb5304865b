"""Saves: noted, and not carried out.

What a trainer saves may be many gigabytes, and goes with the deletion of older checkpoints. Only what is no state of a
training run, such as prepared data, is written (into the cage), because a script may read it again. `pickle.dump` and
files that the script writes by itself are left to the cage.
"""

from __future__ import annotations

import functools
import os
import sys
from concurrent.futures import Future
from typing import Any, Callable, NamedTuple, Optional

from . import frames
from .imports import AfterImport
from .patching import argument, is_watched
from .places import name_of_file
from .record import Record

_MOST_KEYS, _MOST_VALUES = 200, 20_000
_WORDS = frozenset({  # keys of what trainers save, also where its tensors are copies
    "model", "state_dict", "model_state_dict", "net", "optimizer", "optimizer_state_dict", "optim", "epoch", "step",
    "global_step", "iteration", "iter_num",
})  # fmt: skip
Given = Callable[[tuple[Any, ...], dict[str, Any]], Any]


def install(record: Record, after: AfterImport) -> None:
    """Withhold saves of torch, safetensors and trainers, as soon as they are imported."""
    saving = _Saving(record)
    after.when("torch", saving.torch)
    after.when("torch.distributed.checkpoint", saving.distributed)
    after.when("safetensors", saving.safetensors)
    for name in ("torch", "numpy", "flax", "mlx"):
        after.when(f"safetensors.{name}", saving.safetensors)
    for module, kind, method, place, argument_name in _TRAINERS:
        after.when(module, functools.partial(saving.trainer, kind, method, place, argument_name))


_TRAINERS = (  # module, class, method, and where in its arguments the path is
    ("accelerate.accelerator", "Accelerator", "save_state", 1, "output_dir"),
    ("accelerate.accelerator", "Accelerator", "save_model", 2, "save_directory"),
    ("transformers.trainer", "Trainer", "_save_checkpoint", -1, ""),
    ("transformers.trainer", "Trainer", "save_model", 1, "output_dir"),
    ("transformers.trainer", "Trainer", "save_state", -1, ""),
    ("transformers.modeling_utils", "PreTrainedModel", "save_pretrained", 1, "save_directory"),
    ("peft.peft_model", "PeftModel", "save_pretrained", 1, "save_directory"),
    ("diffusers.models.modeling_utils", "ModelMixin", "save_pretrained", 1, "save_directory"),
    ("deepspeed.runtime.engine", "DeepSpeedEngine", "save_checkpoint", 1, "save_dir"),
    *(
        (f"{package}.{module}", kind, method, 1, "filepath")
        for package in ("lightning.pytorch", "pytorch_lightning")
        for module, kind, method in (
            ("trainer.trainer", "Trainer", "save_checkpoint"),
            ("strategies.strategy", "Strategy", "remove_checkpoint"),
        )
    ),
    *((f"{package}.fabric", "Fabric", "save", 1, "path") for package in ("lightning.fabric", "lightning_fabric")),
)


class _Save(NamedTuple):
    """A function that saves."""

    how: str
    place: int = -1  # where the path is among its arguments; below 0: only by name
    path: str = ""
    given: Optional[Given] = None  # what would be saved
    returns: Optional[Given] = None
    noted: bool = True  # False: it only removes what older saves wrote


class _Saving:
    def __init__(self, record: Record) -> None:
        self._record = record

    def torch(self, torch: Any) -> None:
        torch.save = torch.serialization.save = self._save_or_pass_on(torch.save)
        for owner in (torch.jit, torch.jit._serialization):
            self._withhold(owner, "save", _Save("torch.jit.save", 1, "f"))
        self._withhold(torch.jit.RecursiveScriptModule, "save", _Save("torch.jit.save", 1, "f"))

    def distributed(self, module: Any) -> None:
        for name in ("save", "save_state_dict", "async_save"):
            how = f"torch.distributed.checkpoint.{name}"
            self._withhold(module, name, _Save(how, -1, "checkpoint_id", _first, _done(name)))

    def safetensors(self, module: Any) -> None:
        for name in ("save_file", "serialize_file"):
            self._withhold(module, name, _Save(f"{module.__name__}.{name}", 1, "filename", _first))

    def trainer(self, kind: str, method: str, place: int, name: str, module: Any) -> None:
        """Withhold a trainer's method; one that only removes old checkpoints is no save."""
        owner = getattr(module, kind, None)
        if owner is None:
            return
        returns = _path_given if method == "save_state" and kind == "Accelerator" else None
        noted = method != "remove_checkpoint"
        self._withhold(owner, method, _Save(f"{kind}.{method}", place, name, _state_of, returns, noted))

    def _save_or_pass_on(self, save: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(save)
        def call(*args: Any, **kwargs: Any) -> None:
            if not self._record.on:
                save(*args, **kwargs)
                return
            thing, target = argument(args, kwargs, 0, "obj"), argument(args, kwargs, 1, "f")
            path = _path(target)
            if path is not None and self._is_state(thing):
                self._note("torch.save", path, thing)
            elif path is not None and not hasattr(target, "write") and self._record.orders.isolation != "namespaces":
                # torch opens a path in C++, past the patched functions of the cage; Python's `open` is one of them.
                with open(target, "wb") as file:
                    save(thing, file, *args[2:], **{key: value for key, value in kwargs.items() if key not in "obj f"})
            else:
                save(*args, **kwargs)

        call._ckpt_watched = True  # type: ignore[attr-defined]
        return call

    def _is_state(self, thing: Any) -> bool:
        try:
            return holds_state(thing)
        except Exception as error:
            self._record.could_not(f"torch.save: {frames.described(error)}")
            return False

    def _withhold(self, owner: Any, name: str, save: _Save) -> None:
        real = getattr(owner, name, None)
        if real is None or is_watched(real):
            return

        @functools.wraps(real)
        def call(*args: Any, **kwargs: Any) -> Any:
            if not self._record.on:
                return real(*args, **kwargs)
            path = argument(args, kwargs, save.place, save.path) if save.place >= 0 else kwargs.get(save.path)
            if save.noted:
                self._note(save.how, path, save.given(args, kwargs) if save.given is not None else None)
            return save.returns(args, kwargs) if save.returns is not None else None

        call._ckpt_watched = True  # type: ignore[attr-defined]
        setattr(owner, name, call)

    def _note(self, how: str, path: Any, thing: Any) -> None:
        try:
            fact = {
                "how": how,
                "path": "" if path is None else os.path.abspath(os.fsdecode(_path(path) or str(path))),
                "keys": [str(key) for key in list(thing)[:_MOST_KEYS]] if isinstance(thing, dict) else [],
                "frame": frames.users(sys._getframe(1)),
            }
            self._record.add(self._record.saves, fact)
        except Exception as error:
            self._record.could_not(f"{how}: {frames.described(error)}")


def holds_state(thing: Any) -> bool:
    """Whether something saved is of a training run: a module, an optimizer, a parameter, or a state_dict of these."""
    import torch

    pending, count = [thing], 0
    while pending and count < _MOST_VALUES:
        one = pending.pop()
        count += 1
        if isinstance(one, (torch.nn.Module, torch.nn.Parameter, torch.optim.Optimizer)):
            return True
        if isinstance(one, dict):
            if (
                hasattr(one, "_metadata")
                or {"state", "param_groups"} <= one.keys()
                or (one is thing and _WORDS & one.keys())
            ):
                return True
            pending.extend(dict.values(one))
        elif isinstance(one, (list, tuple)):
            pending.extend(one)
    return False


def _path(target: Any) -> Any:
    """The path that is written to; None for memory."""
    if isinstance(target, (str, bytes, os.PathLike)):
        return target
    return name_of_file(target) if hasattr(target, "write") else None


def _first(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return args[0] if args else next((kwargs[k] for k in ("tensors", "tensor_dict", "state_dict") if k in kwargs), None)


def _state_of(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What a trainer would save, by which of its lists are not empty; Fabric is handed a dict."""
    handed = argument(args, kwargs, 2, "state")
    if isinstance(handed, dict):
        return handed
    names = ("_models", "_optimizers", "_schedulers", "_custom_objects", "scaler")
    return {name.strip("_"): None for name in names if getattr(args[0], name, None)}


def _path_given(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return argument(args, kwargs, 1, "output_dir")


def _done(name: str) -> Optional[Given]:
    """An asynchronous save gives a future; this one is through."""
    if name != "async_save":
        return None

    def future(_args: tuple[Any, ...], _kwargs: dict[str, Any]) -> Any:
        through: Future[None] = Future()
        through.set_result(None)
        return through

    return future
