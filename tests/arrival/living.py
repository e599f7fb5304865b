"""A script's objects as facts, as a probe would write them down, and what is said of a checkpoint beside them."""

import random
from contextlib import closing
from dataclasses import replace

import torch

from ckpttool.facts import (
    ConfigFact,
    CounterFact,
    GroupFact,
    ModuleFact,
    ObjectFact,
    OpenedFact,
    OptimizerFact,
    RngFact,
    ScalerFact,
    SchedulerFact,
    ScriptFacts,
    TensorFact,
)
from ckpttool.opening import open_path
from ckpttool.probe.child.plain import plain, plain_tensor
from ckpttool.protocols import Case, NotChecked
from ckpttool.rules import RULES
from ckpttool.validation.judging import judge
from ckpttool.validation.scanning import scan


def module_fact(model, name="model", identity="m0", *, trained=True, loaded=True):
    """A module; names as in its state_dict."""
    parameters = dict(model.named_parameters(remove_duplicate=False))
    tensors = {}
    for key, tensor in model.state_dict(keep_vars=True).items():
        said = plain_tensor(tensor.detach())["$tensor"]
        floating = tensor.is_floating_point()
        tensors[key] = TensorFact(
            shape=tuple(tensor.shape),
            dtype=str(tensor.dtype).removeprefix("torch."),
            trainable=key in parameters and tensor.requires_grad,
            buffer=key not in parameters,
            digest=said["digest"],
            nan=int(tensor.isnan().sum()) if floating else 0,
            inf=int(tensor.isinf().sum()) if floating else 0,
            place=str(tensor.data_ptr()),
        )
    return ModuleFact(id=identity, cls=type(model).__name__, name=name, tensors=tensors, trained=trained, loaded=loaded)


def optimizer_fact(optimizer, modules, made=None, *, loaded=True, next_step=""):
    """An optimizer. `made`: hyperparameters of each group when it was made; those it has now where none are given."""
    names = {
        id(p): f"m{n}:{key}"
        for n, m in reversed(list(enumerate(modules)))
        for key, p in reversed(list(m.named_parameters()))
    }
    groups = []
    for number, group in enumerate(optimizer.param_groups):
        now = {k: plain(v) for k, v in group.items() if k != "params"}
        groups.append(
            GroupFact(
                names=tuple(names.get(id(p), f"?{n}") for n, p in enumerate(group["params"])),
                shapes=tuple(tuple(p.shape) for p in group["params"]),
                hyperparameters=now,
                made_with=(made or {}).get(number, now) if isinstance(made, dict) else now,
            )
        )
    ordered = [p for group in optimizer.param_groups for p in group["params"]]
    state = {
        str(n): {k: plain(v) for k, v in optimizer.state[p].items()}
        for n, p in enumerate(ordered)
        if optimizer.state.get(p)
    }
    cls = f"torch.optim.{type(optimizer).__name__.lower()}.{type(optimizer).__name__}"
    return OptimizerFact(
        id="o0", cls=cls, name="optimizer", groups=tuple(groups), state=state, loaded=loaded, next_step=next_step
    )


def scheduler_fact(scheduler, rates=(), made=None, *, loaded=True):
    """A schedule of the first optimizer; `rates` as the live schedule gives them."""
    fields = plain(scheduler.state_dict())
    cls = f"torch.optim.lr_scheduler.{type(scheduler).__name__}"
    rates = tuple(rates or scheduler.get_last_lr())
    made_with = made if made is not None else fields
    return SchedulerFact(
        id="s0", cls=cls, name="scheduler", optimizer="o0", fields=fields, made_with=made_with, rates=rates,
        loaded=loaded,
    )  # fmt: skip


def scaler_fact(scaler, *, loaded=True):
    return ScalerFact(id="g0", name="scaler", fields=plain(scaler.state_dict()), loaded=loaded)


def rng_facts(*, restored):
    """torch's and python's generators, set to where they stand, or not set."""
    if not restored:
        return (RngFact(generator="torch"), RngFact(generator="python"))
    digest = plain_tensor(torch.get_rng_state())["$tensor"]["digest"]
    return (
        RngFact(generator="torch", set_since=True, set_to=digest),
        RngFact(generator="python", set_since=True, value=plain(random.getstate())),
    )


def counters(**values):
    return tuple(CounterFact(name=n, value=v, where="train.py:9 main", own=True) for n, v in values.items())


def arguments(where="args of main", **values):
    return (ConfigFact(where=where, values=values),)


def objects(**states):
    return tuple(ObjectFact(cls=f"__main__.{n}", name=n, state=plain(s)) for n, s in states.items())


def standing(path, **facts):
    """A script that stands at its first backward, with the checkpoint opened."""
    opened = facts.pop("opened", (OpenedFact(path=str(path), how="torch.load", all_keys=True),))
    return ScriptFacts(stopped="backward", opened=opened, **facts)


def judged(path, facts, *, values=True, rules=RULES):
    """The judgement of a checkpoint beside a script."""
    with closing(open_path(path)) as checkpoint:
        return judge(Case(checkpoint=checkpoint, facts=facts, values=scan(checkpoint) if values else None), rules)


def bad(judgement):
    """Codes of errors and of what is silent."""
    return sorted({f.code for f in judgement.findings if f.severity in ("error", "silent")})


def codes(judgement, severity):
    return sorted({f.code for f in judgement.findings if f.severity == severity})


def message_of(judgement, code):
    return next(f.message for f in judgement.findings if f.code == code)


def unchecked(judgement):
    return [n for n in judgement.not_checked if isinstance(n, NotChecked)]


__all__ = ["replace"]
