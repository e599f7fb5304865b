"""Tiny runs that save, and what each framework does when it is to go on from a folder or a file.

Nothing of the package under test is imported here.
"""

import contextlib
import io
import logging
import shutil
from pathlib import Path

import torch
from torch.utils.data import Dataset


class RandomSentences(Dataset):
    """Eight random sentences with two labels."""

    def __len__(self):
        return 8

    def __getitem__(self, index):
        generator = torch.Generator().manual_seed(index)
        return {"input_ids": torch.randint(0, 40, (6,), generator=generator), "labels": index % 2}


def bert(seed=0):
    """A BERT of one layer."""
    from transformers import BertConfig, BertForSequenceClassification  # noqa: PLC0415  # it takes seconds

    torch.manual_seed(seed)
    config = BertConfig(
        vocab_size=40, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16,
        max_position_embeddings=8,
    )  # fmt: skip
    return BertForSequenceClassification(config)


def trainer(output, steps, seed=0, **arguments):
    """The Trainer of that BERT: a checkpoint every two steps, and a loss scale, which on a CPU it does not make."""
    from transformers import Trainer, TrainingArguments  # noqa: PLC0415

    arguments.setdefault("fp16", True)
    settings = TrainingArguments(
        output_dir=str(output), max_steps=steps, save_steps=2, logging_steps=1, per_device_train_batch_size=4,
        learning_rate=1e-3, use_cpu=True, report_to=[], disable_tqdm=True, dataloader_pin_memory=False, **arguments,
    )  # fmt: skip
    made = Trainer(model=bert(seed), args=settings, train_dataset=RandomSentences(), eval_dataset=RandomSentences())
    made.accelerator.scaler = torch.amp.GradScaler("cpu", init_scale=256.0, growth_interval=3)
    return made


def train_with_trainer(output, steps=6, **arguments):
    """A run folder with a checkpoint after every second step."""
    with quiet():
        trainer(output, steps, **arguments).train()
    return output


def resume_with_trainer(checkpoint, output, steps=7):
    """Go on from a folder with a model of another start; returns the Trainer when it is done."""
    with quiet():
        made = trainer(output, steps, seed=9, save_strategy="no")
        made.train(resume_from_checkpoint=str(checkpoint))
    return made


def train_with_accelerate(folder, steps=2):
    """Three folders that `save_state` wrote, by a run with tied weights, a loss scale and a registered object."""
    from tests.conversion.accelerate_runs import Run  # noqa: PLC0415

    run = Run(0)
    for number in range(3):
        run.train(steps)
        run.accelerator.save_state(f"{folder}/checkpoints/checkpoint_{number}")
    return Path(folder)


def resume_with_accelerate(folder):
    """A run of another seed that loads a folder."""
    from tests.conversion.accelerate_runs import Run  # noqa: PLC0415

    run = Run(77)
    run.accelerator.load_state(str(folder))
    return run


def train_with_lightning(folder, epochs=3):
    """A file after each epoch."""
    from tests.conversion.lightning_runs import Lit, trained  # noqa: PLC0415

    with quiet():
        trained(Lit(0), epochs, folder)
    return Path(folder)


def resume_with_lightning(file, folder, epochs=4):
    """A module of another seed that goes on from a file."""
    from tests.conversion.lightning_runs import Lit, trained  # noqa: PLC0415

    with quiet():
        return trained(Lit(9), epochs, folder, ckpt_path=str(file))


@contextlib.contextmanager
def quiet():
    """Without what the frameworks print and log."""
    logging.disable(logging.WARNING)
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            yield
    finally:
        logging.disable(logging.NOTSET)


def raised(call, *arguments):
    """The name of the class of what a call raises, and its text; empty strings where it raises nothing."""
    try:
        call(*arguments)
    except BaseException as error:  # noqa: BLE001  # torch.distributed raises what is no Exception
        return type(error).__name__, str(error)
    return "", ""


def copied(folder, target):
    """A copy of a folder to be damaged."""
    shutil.copytree(folder, target)
    return Path(target)
