"""A Hugging Face model folder: `config.json` beside the weights, whole or in shards."""

from typing import ClassVar

from ckpttool.layouts._assembly import Reading
from ckpttool.layouts._weight_files import model_files, model_shards, take_adapters, take_model
from ckpttool.model import Checkpoint
from ckpttool.protocols import Found

_CONFIG = "config.json"


class HfModelLayout:
    """What `save_pretrained` writes: weights without anything to resume from."""

    name: ClassVar[str] = "hf-model"

    def recognise(self, found: Found) -> Checkpoint | None:
        if _CONFIG not in found.names or not (model_files(found.names) or model_shards(found.names)):
            return None
        reading = Reading(found, self.name)
        take_model(reading, "from_pretrained")
        take_adapters(reading)
        config = reading.json(_CONFIG) or {}
        reading.arguments(_CONFIG, config)
        generation = reading.json("generation_config.json")
        if generation is not None:
            reading.arguments("generation_config.json", generation)
        reading.take_loose()
        version = config.get("transformers_version")
        said = f" (transformers {version})" if isinstance(version, str) else ""
        return reading.checkpoint(writer=f"Hugging Face model{said}")
