"""Checkpoints made by hand, as the layouts describe real ones."""

import struct

from ckpttool.blocks import Finding, Severity
from ckpttool.dtypes import BY_NAME
from ckpttool.model import (
    At,
    Checkpoint,
    Contents,
    Counter,
    CustomObject,
    DataPosition,
    GlobalUse,
    LossScale,
    OptimizerState,
    ParamGroup,
    PartFile,
    RngState,
    Role,
    Run,
    SchedulerState,
    Weights,
)
from ckpttool.sources import BytesSource
from ckpttool.values import ORDERED_DICT, Attribute, GlobalRef, Opaque, Record, StorageRef, TensorRef, Trust


def tensor(*shape, dtype="float32", values=None, storage=None, location="cpu", **fields):
    """A contiguous tensor over bytes of its own: the values given, else zeros."""
    kind = BY_NAME[dtype]
    stride, step = [], 1
    for extent in reversed(shape):
        stride.insert(0, step)
        step *= max(extent, 1)
    if storage is None:
        count = 1
        for extent in shape:
            count *= extent
        data = struct.pack(f"<{count}{kind.struct}", *values) if values is not None else bytes(kind.nbytes(count))
        storage = StorageRef(BytesSource(data, "m.pt"), 0, len(data), key="0", location=location)
    given = {"dtype": kind, "shape": shape, "stride": tuple(stride), "storage": storage}
    return TensorRef(**{**given, **fields})


def state_dict(tensors):
    """An OrderedDict as torch saves one."""
    record = Record(ORDERED_DICT)
    record.update(tensors)
    return record


def contents(root, name="m.pt", container="torch-zip", **fields):
    """A file that holds a value tree."""
    storages = fields.pop("storages", None)
    if storages is None:
        storages = tuple({id(s): s for s in _storages(root)}.values())
    return Contents(
        name=name, container=container, source=BytesSource(bytes(1234), name), root=root, storages=storages, **fields
    )


def _storages(root):
    """The storages of all tensors in dicts, lists and tuples."""
    met, pending = set(), [root]
    while pending:
        value = pending.pop(0)
        if id(value) in met:
            continue
        met.add(id(value))
        if isinstance(value, TensorRef):
            if value.storage:
                yield value.storage
        elif isinstance(value, dict):
            pending += value.values()
        elif isinstance(value, list | tuple):
            pending += value


def plain(root, **fields):
    """A checkpoint of one file in which no part was recognised."""
    return Checkpoint(path="m.pt", layout="plain", contents={"": contents(root)}, **fields)


LAYERS = 3


def _training_tree():
    model = {"emb.weight": tensor(8, 4, values=range(32))}
    for n in range(LAYERS):
        model[f"layers.{n}.mlp.weight"] = tensor(4, 4, values=[n] * 16)
        model[f"layers.{n}.mlp.bias"] = tensor(4, values=[0.5, -0.5, float("nan"), float("inf")])
    model["steps"] = tensor(dtype="int64", values=[1200])
    names = [name for name in model if name != "steps"]
    state = {
        n: {
            "step": tensor(values=[1200.0]),
            "exp_avg": tensor(*model[name].shape),
            "exp_avg_sq": tensor(*model[name].shape),
        }
        for n, name in enumerate(names[:-1])
    }
    groups = [
        {"lr": 3e-4, "betas": (0.9, 0.95), "eps": 1e-8, "weight_decay": 0.1, "params": [0, 1, 3, 5]},
        {"lr": 1e-4, "betas": (0.9, 0.95), "eps": 1e-8, "weight_decay": 0.0, "params": [2, 4, 6]},
    ]
    tree = {
        "model": state_dict(model),
        "optimizer": {"state": state, "param_groups": groups},
        "scheduler": {"last_epoch": 1200, "_last_lr": [3e-4, 1e-4], "lr_lambdas": [None, None]},
        "scaler": {"scale": 65536.0, "growth_factor": 2.0, "backoff_factor": 0.5, "growth_interval": 2000, "_growth_tracker": 1417},
        "iter_num": 1200,
        "args": {"n_layer": 3, "n_head": 4, "dataset": "openwebtext", "compile": True, "seed": 1337, "dropout": 0.0},
        "rng": tensor(16, dtype="uint8"),
    }  # fmt: skip
    return tree, names


def training(*, path="ckpt.pt", file="", problems=(), globals_=None):
    """A training checkpoint in one file, as nanoGPT with a GradScaler would save it."""
    tree, names = _training_tree()
    uses = globals_ if globals_ is not None else (
        GlobalUse(ref=ORDERED_DICT, trust=Trust.ACCEPTED, file="ckpt.pt:ckpt/data.pkl", offset=57, paths=(("model",),), called=True, places=1),
        GlobalUse(ref=GlobalRef("torch._utils", "_rebuild_tensor_v2"), trust=Trust.ACCEPTED, file="ckpt.pt:ckpt/data.pkl", offset=120, called=True),
    )  # fmt: skip

    def at(*keys):
        return At(file, keys)

    groups = tree["optimizer"]["param_groups"]
    return Checkpoint(
        path=path,
        layout="nanogpt",
        writer="nanoGPT",
        weights=(Weights(at=at("model"), tensors=dict(tree["model"])),),
        optimizers=(
            OptimizerState(
                at=at("optimizer"),
                candidates=("AdamW", "Adam"),
                groups=tuple(
                    ParamGroup(
                        hyperparameters={k: v for k, v in group.items() if k != "params"},
                        params=tuple(group["params"]),
                        names=tuple(names[n] for n in group["params"]),
                    )
                    for group in groups
                ),
                state=tree["optimizer"]["state"],
                state_keys=("step", "exp_avg", "exp_avg_sq"),
                steps=(1200.0,),
                names_from="shapes",
            ),
        ),
        schedulers=(SchedulerState(at=at("scheduler"), candidates=("LambdaLR",), fields=tree["scheduler"]),),
        scalers=(
            LossScale(
                at=at("scaler"), scale=65536.0, growth_factor=2.0, backoff_factor=0.5, growth_interval=2000,
                growth_tracker=1417, fields=tree["scaler"],
            ),
        ),
        rng=(RngState(at=at("rng"), generator="torch", detail="16 bytes"),),
        counters=(
            Counter(at=at("iter_num"), name="global_step", key="iter_num", value=1200),
            Counter(at=at("best"), name="best", key="best_val_loss", value=1.25),
        ),
        config=tree["args"],
        config_at={"args": at("args")},
        contents={file: contents(tree, name=file or path, globals=uses)},
        problems=problems,
    )  # fmt: skip


def folder():
    """An Accelerate folder: two ranks, a custom object, an EMA copy, a file that nobody reads, and two findings."""
    model = state_dict({"fc.weight": tensor(4, 4, location="cuda:0"), "fc.bias": tensor(4, location="cuda:0")})
    ema = state_dict({"module.fc.weight": tensor(4, 4), "module.fc.bias": tensor(4)})
    spare = StorageRef(BytesSource(bytes(4096), "pytorch_model.bin"), 0, 4096, key="9")
    files = {
        "pytorch_model.bin": contents(model, "pytorch_model.bin", storages=(*_storages(model), spare)),
        "custom_checkpoint_0.pkl": contents({"decay": 0.99, "shadow": ema}, "custom_checkpoint_0.pkl"),
        "scaler.pt": contents({}, "scaler.pt"),
        "random_states_0.pkl": contents({"torch_manual_seed": tensor(16, dtype="uint8")}, "random_states_0.pkl"),
        "random_states_1.pkl": contents({"torch_manual_seed": tensor(16, dtype="uint8")}, "random_states_1.pkl"),
        "dl_state_dict.bin": contents({"_num_yielded": 12}, "dl_state_dict.bin"),
    }
    return Checkpoint(
        path="runs/checkpoint_3",
        layout="accelerate",
        writer="Accelerate save_state",
        is_folder=True,
        weights=(
            Weights(at=At("pytorch_model.bin"), tensors=dict(model)),
            Weights(
                at=At("custom_checkpoint_0.pkl", ("shadow",)), role=Role.EMA, name="shadow", tensors=dict(ema), prefix="module."
            ),
        ),
        scalers=(LossScale(at=At("scaler.pt"), enabled=False),),
        rng=tuple(
            RngState(at=At(f"random_states_{rank}.pkl", ("torch_manual_seed",)), generator="torch", rank=rank, detail="16 bytes")
            for rank in (0, 1)
        ),
        data=(DataPosition(at=At("dl_state_dict.bin"), name="dl_state_dict", fields={"_num_yielded": 12}),),
        custom=(CustomObject(at=At("custom_checkpoint_0.pkl"), name="custom_checkpoint_0", value=files["custom_checkpoint_0.pkl"].root),),
        files=(
            *(PartFile(name=name, size=4096, container=c.container) for name, c in files.items()),
            PartFile(name="README.md", size=100),
        ),
        contents=files,
        problems=(
            Finding(code="accelerate.dl", severity=Severity.NOTE, message="the data loader keeps 12 batches"),
            Finding(
                code="accelerate.optimizer", severity=Severity.ERROR, message="optimizer.bin is not there",
                where="optimizer.bin", hint="resuming raises FileNotFoundError; use another checkpoint",
            ),
        ),
    )  # fmt: skip


def run(scales=(65536.0, 131072.0, 65536.0), *, complete=(True, True, False)):
    """A run of checkpoints of one file each, with a scale that moves and an incomplete last one."""
    checkpoints = []
    for n, scale in enumerate(scales):
        checkpoint = training(path=f"run/step-{(n + 1) * 100}.pt")
        checkpoint.scalers = (LossScale(at=At("", ("scaler",)), scale=scale),)
        checkpoints.append(checkpoint)
    return Run(
        path="run",
        layout="nanogpt",
        checkpoints=tuple(checkpoints),
        steps=tuple((n + 1) * 100 for n in range(len(scales))),
        complete=complete,
    )


def module(**attributes):
    """A pickled torch.nn.Module with these parameters."""
    return Opaque(cls=GlobalRef("__main__", "Net"), how="newobj", state={"training": True, "_parameters": attributes})


def module_checkpoint():
    """A file that holds a whole module under a key, and an attribute of it that no name leads to."""
    weight, aside = tensor(2, 2, parameter=True), tensor(3)
    net = Opaque(
        cls=GlobalRef("__main__", "Net"), how="newobj",
        state={"_parameters": {"weight": weight}, "scratch": aside, "hooks": [weight]},
    )  # fmt: skip
    tree = {"net": net, "params": [weight]}
    weights = Weights(
        at=At("", ("net",)), name="net", tensors={"fc.weight": weight}, paths={"fc.weight": ("net", "fc.weight")}
    )
    return Checkpoint(path="m.pt", layout="plain", weights=(weights,), contents={"": contents(tree)})


__all__ = [
    "Attribute",
    "contents",
    "folder",
    "module",
    "module_checkpoint",
    "plain",
    "run",
    "state_dict",
    "tensor",
    "training",
]
