"""A training config that goes on from a pipeline that is trained already."""

from pathlib import Path

from spacy.language import Language
from thinc.api import Config


def make_finetune_config(nlp: Language, folder: Path) -> Config:
    """Write a config for `spacy train` that sources every component of a pipeline.

    nlp (Language): The pipeline; its own training settings are kept.
    folder (Path): Where it is stored, or will be before the config is used.
    RETURNS (Config): Wants --paths.train and --paths.dev, unless the pipeline's config has paths of
        data.
    """
    config = nlp.config.copy()
    source = str(folder.resolve())
    config["components"] = {name: {"source": source} for name in config["components"]}
    # Sourced components are not initialized, so what they were initialized from is not needed. The
    # tokenizer and the vocabulary are no components.
    config["initialize"] = {
        **config["initialize"],
        "before_init": {
            "@callbacks": "spacy.copy_from_base_model.v1",
            "tokenizer": source,
            "vocab": source,
        },
        "after_init": None,
        "init_tok2vec": None,
        "vectors": None,
        "vocab_data": None,
        "lookups": None,
        "components": {},
        "tokenizer": {},
    }
    return config
