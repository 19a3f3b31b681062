"""What is to be trained, or was: the components that learn spans, and where their data is."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from spacy import util
from spacy.language import Language
from spacy.training import Example
from tqdm import tqdm

from spacy_spans.errors import DataError, SettingsError
from spacy_spans.keys import ENTITIES
from spacy_spans.pipelines import load_pipeline, unannotated
from spacy_spans.readers import read_docbin

ENTITY_FACTORIES = ("ner", "beam_ner")
LABELLING = (
    "span_enumerator",
    "multispan_tagger",
    "spancat",
    "spancat_singlelabel",
    *ENTITY_FACTORIES,
)
# They learn where spans are, not what they are.
PRUNERS = ("token_pruner", "pruned_transformer")
UNLABELLED = ("span_finder", *PRUNERS)


@dataclass
class Component:
    """One that learns from `doc.spans`, or from entities.

    keys (list): Of doc.spans, or `ENTITIES`, that it learns from; one for those that label.
    settings (Mapping): Its block of the config.
    """

    name: str
    factory: str
    pipe: Any
    keys: list[str]
    settings: Mapping[str, Any]

    @property
    def labels_spans(self) -> bool:
        """Whether it learns labels."""
        return self.factory in LABELLING

    @property
    def learns(self) -> bool:
        """Whether it learns from spans as it is configured."""
        if self.factory == "pruned_transformer":
            attrs = self.pipe.model.attrs
            return bool(attrs["gates"]) and bool(attrs["criterion"].learns)
        return self.factory != "token_pruner" or bool(self.pipe.learns)


@dataclass
class Plan:
    """A pipeline, trained or to be trained, and its data."""

    nlp: Language
    config: Mapping[str, Any]
    components: list[Component]
    is_trained: bool
    train: Path | None
    dev: Path | None


def make_plan(
    source: Path,
    data: Sequence[Path] = (),
    *,
    train: Path | None = None,
    dev: Path | None = None,
    overrides: Mapping[str, Any] | None = None,
) -> Plan:
    """Build the pipeline of a training config, or load a trained one.

    source (Path): A .cfg file, the folder of a pipeline, or the name of an installed one.
    data (Sequence[Path]): Training data, then dev data, as .spacy files or folders.
    train, dev (Path | None): The same by name; else what the config names.
    overrides (Mapping | None): Settings of the config, such as {"paths.train": "train.spacy"}.
    RAISES (SettingsError): The config cannot be built, there is no such pipeline, no component
        learns spans, or data is given twice.
    RAISES (DataError): The pipeline cannot be loaded.
    """
    if len(data) > 2:
        raise SettingsError(f"Got {len(data)} data files, expected two at most: train and dev.")
    given = dict(zip(("train", "dev"), data, strict=False))
    for name, path in (("train", train), ("dev", dev)):
        if path is not None and name in given:
            raise SettingsError(f"Got {name} data twice: {given[name]} and {path}. Name one.")
        if path is not None:
            given[name] = path
    is_trained = source.suffix != ".cfg"
    if is_trained:
        nlp = load_pipeline(source, overrides=overrides)
        config: Any = nlp.config.interpolate()
    else:
        nlp, config = _build(source, overrides or {})
    frozen = (config.get("training") or {}).get("frozen_components") or ()
    components = find_components(nlp, without=() if is_trained else frozen)
    if not components:
        raise SettingsError(
            f"No component of {list(nlp.pipe_names)} learns spans (frozen: {list(frozen)}). "
            f"Expected one of these factories: {', '.join(LABELLING + UNLABELLED)}. For others, "
            "see `spacy debug data`."
        )
    paths = {name: given.get(name) or _path_of(config, name) for name in ("train", "dev")}
    return Plan(nlp, config, components, is_trained, paths["train"], paths["dev"])


def _build(path: Path, overrides: Mapping[str, Any]) -> tuple[Language, Any]:
    if not path.is_file():
        raise SettingsError(f"There is no config {path}. Expected a file for `spacy train`.")
    try:
        config = util.load_config(path, overrides=dict(overrides), interpolate=True)
        nlp = util.load_model_from_config(config, auto_fill=True)
    # Any registered function may raise, and each part of a config has its own errors.
    except Exception as error:
        raise SettingsError(
            f"The config {path} cannot be built ({type(error).__name__}: {error}). Correct it, or "
            "override settings as for `spacy train`, such as --paths.encoder FOLDER."
        ) from error
    return nlp, config


def find_components(nlp: Language, without: Collection[str] = ()) -> list[Component]:
    """Those that learn spans, in the order they run in.

    without (Collection[str]): Names of components to leave out, such as frozen ones.
    """
    names = [name for name in nlp.pipe_names if name not in without]
    return [found for name in names if (found := _component(nlp, name))]


def _component(nlp: Language, name: str) -> Component | None:
    factory = nlp.get_pipe_meta(name).factory
    pipe: Any = nlp.get_pipe(name)
    settings = nlp.get_pipe_config(name)
    if factory in ENTITY_FACTORIES:
        return Component(name, factory, pipe, [ENTITIES], settings)
    if factory in LABELLING or factory == "span_finder":
        key = pipe.key if hasattr(pipe, "key") else pipe.cfg["spans_key"]
        return Component(name, factory, pipe, [key], settings)
    if factory in UNLABELLED:
        return Component(name, factory, pipe, list(pipe.spans_keys), settings)
    return None


def corpus_settings(config: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """The block of the reader that training calls "train" or "dev"; empty if there is none."""
    corpus: Any = config
    reference = (config.get("training") or {}).get(f"{name}_corpus", f"corpora.{name}")
    for part in str(reference).split("."):
        corpus = corpus.get(part) if isinstance(corpus, Mapping) else None
    return corpus if isinstance(corpus, Mapping) else {}


def _path_of(config: Mapping[str, Any], name: str) -> Path | None:
    path = corpus_settings(config, name).get("path")
    return Path(path) if path else None


def read_examples(
    nlp: Language, path: Path, limit: int | None, *, progress: bool = False
) -> list[Example]:
    """Gold beside the text as this pipeline tokenizes it.

    limit (int | None): Most documents to read.
    progress (bool): Show a bar when standard error is a terminal.
    RAISES (DataError): There is no such file, or it is none of ours.
    """
    if not path.exists():
        raise DataError(
            f"{path} does not exist: expected a .spacy file, or a folder with some. Name the data "
            "behind the config, or with --train and --dev."
        )
    silent = None if progress else True
    docs = islice(read_docbin(path, nlp.vocab), limit)
    docs = tqdm(docs, desc=path.name, unit=" docs", leave=False, disable=silent)
    return [Example(unannotated(nlp, doc), doc) for doc in docs]
