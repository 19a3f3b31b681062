"""Every registered name, read from the installed metadata: found, built, run.

A new entry point needs a row in one of the tables below; without one the first test fails.
"""

import importlib
import inspect
import re
from importlib.metadata import distribution

import numpy as np
import pytest
import spacy
from spacy.language import Language
from spacy.tokens import Doc
from thinc.api import Adam, Model, Ragged

from spacy_spans.candidates import write_boundary_scores
from spacy_spans.pipeline.multispan_tagger import MultispanTagger
from spacy_spans.pipeline.span_enumerator import SpanEnumerator
from spacy_spans.pipeline.token_pruner import TokenPruner

from .pipeline import DATA, SMALL_TOK2VEC, make_examples, write_spans

pytestmark = pytest.mark.installed

ENTRY_POINTS = [
    entry
    for entry in distribution("spacy-spans").entry_points
    if entry.group.startswith(("spacy", "thinc"))
]
NAMES = {(entry.group, entry.name) for entry in ENTRY_POINTS}

# Required settings of each name: nothing that has a default.
ARCHITECTURES = {
    "spacy-spans.SpanEnumerator.v1": {"tok2vec": SMALL_TOK2VEC},
    "spacy-spans.MultispanTagger.v1": {"tok2vec": SMALL_TOK2VEC},
    "spacy-spans.TokenPruner.v1": {"tok2vec": SMALL_TOK2VEC},
    "spacy-spans.WindowedTok2Vec.v1": {"tok2vec": SMALL_TOK2VEC},
}
# Architectures with nothing to learn.
FIXED: dict[str, dict] = {"spacy-spans.LexicalTokenPruner.v1": {}}
PIECE_WINDOWS = {"@span_getters": "spacy-spans.piece_windows.v1"}
# Architectures around an encoder, which is loaded at initialize.
ENCODERS = {
    "spacy-spans.PrunedTransformerModel.v1": {"name": "a", "get_spans": PIECE_WINDOWS},
    "spacy-spans.PrunedTok2VecTransformer.v1": {
        "name": "a",
        "get_spans": PIECE_WINDOWS,
        "pooling": {"@layers": "reduce_mean.v1"},
    },
}
SPAN_GETTERS: dict[str, dict] = {
    "spacy-spans.piece_windows.v1": {},
    "spacy-spans.kept_spans.v1": {},
}
CANDIDATES = {
    "spacy-spans.length_candidates.v1": {"max_length": 3},
    "spacy-spans.boundary_candidates.v1": {},
    "spacy-spans.preset_candidates.v1": {"spans_key": "given"},
}
SCHEMES: dict[str, dict] = {
    f"spacy-spans.{name}_scheme.v1": {} for name in ("io", "bio", "bioes", "boundary")
}
POLICIES: dict[str, dict] = {
    f"spacy-spans.{name}_policy.v1": {}
    for name in ("threshold", "top_k", "budget", "recall_target")
}
CRITERIA: dict[str, dict] = {
    f"spacy-spans.{name}_criterion.v1": {} for name in ("gate", "attention", "norm", "random")
}
SETTERS: dict[str, dict] = {"spacy-spans.kept_tokens.v1": {}}
# Settings of a component, not a function.
PLAIN = {"spacy-spans.recall_target_policy.v1", *CRITERIA}
SCORERS = {"spacy-spans.spans_scorer.v1": {}}
FACTORIES = {
    "span_enumerator": SpanEnumerator,
    "multispan_tagger": MultispanTagger,
    "token_pruner": TokenPruner,
}
# Made with an encoder that has to be there, so not by default.
ENCODER_FACTORIES = {"pruned_transformer"}
COMMANDS = {"spans"}
TABLES = {
    "spacy_architectures": ARCHITECTURES | FIXED | ENCODERS,
    "spacy_span_getters": SPAN_GETTERS,
    "spacy_misc": CANDIDATES | SCHEMES | POLICIES | CRITERIA,
    "spacy_annotation_setters": SETTERS,
    "spacy_scorers": SCORERS,
    "spacy_factories": {*FACTORIES, *ENCODER_FACTORIES},
    "spacy_cli": COMMANDS,
}
# Groups whose names are called from a config: `spacy_misc` is `@misc`.
CONFIG_GROUPS = (
    "spacy_architectures",
    "spacy_misc",
    "spacy_scorers",
    "spacy_span_getters",
    "spacy_annotation_setters",
)
REGISTERED = [
    (group.removeprefix("spacy_"), name, settings)
    for group in CONFIG_GROUPS
    for name, settings in TABLES[group].items()
]


def build(registry, name, /, **settings):
    return spacy.registry.resolve({"it": {f"@{registry}": name, **settings}})["it"]


# The tables and the metadata


def test_every_entry_point_has_a_row_and_every_row_an_entry_point():
    rows = {(group, name) for group, table in TABLES.items() for name in table}
    assert rows == NAMES, "Reinstall after editing setup.cfg, and add a row for a new name."


def test_names_are_declared_once():
    assert len(NAMES) == len(ENTRY_POINTS)


@pytest.mark.parametrize("entry", ENTRY_POINTS, ids=lambda entry: entry.name)
def test_functions_end_in_the_version_of_their_name(entry):
    if entry.group not in CONFIG_GROUPS:
        return
    match = re.fullmatch(r"spacy-spans\.(\w+)\.(v\d+)", entry.name)
    assert match, f"{entry.name} is not of the form spacy-spans.Thing.v1"
    thing, version = match.groups()
    function = entry.value.split(":")[1]
    assert re.fullmatch(rf"(build|make)_[a-z0-9_]+_{version}", function)
    # SpanEnumerator is span_enumerator, Tok2Vec tok2vec.
    assert function.replace("_", "")[5 if function.startswith("build") else 4 :] == (
        f"{thing}_{version}".replace("_", "").lower()
    )


@pytest.mark.parametrize("entry", ENTRY_POINTS, ids=lambda entry: entry.name)
def test_entry_points_point_to_documented_functions_with_plain_annotations(entry):
    target = entry.load()
    module = importlib.import_module(target.__module__ if callable(target) else "spacy_spans.cli")
    assert "annotations" not in vars(module), "confection reads raw signatures"
    if entry.group in CONFIG_GROUPS:
        assert target.__doc__
        for parameter in inspect.signature(target).parameters.values():
            assert not isinstance(parameter.annotation, str)
            assert parameter.annotation is not inspect.Parameter.empty


# Through spaCy


@pytest.mark.parametrize(("registry", "name", "settings"), REGISTERED)
def test_names_resolve_with_nothing_but_their_required_settings(registry, name, settings):
    assert spacy.registry.has(registry, name)
    function = spacy.registry.get(registry, name)
    required = {
        parameter.name
        for parameter in inspect.signature(function).parameters.values()
        if parameter.default is inspect.Parameter.empty
    }
    assert required == set(settings)
    built = build(registry, name, **settings)
    assert built.tags if name in SCHEMES else callable(built) or name in PLAIN


@pytest.mark.parametrize(("registry", "name", "settings"), REGISTERED)
def test_filled_configs_name_every_default(registry, name, settings):
    filled = spacy.registry.fill({"it": {f"@{registry}": name, **settings}})["it"]
    parameters = inspect.signature(spacy.registry.get(registry, name)).parameters
    assert set(filled) == {f"@{registry}", *parameters}
    for key, parameter in parameters.items():
        if parameter.default is not inspect.Parameter.empty:
            assert filled[key] == parameter.default


@pytest.mark.parametrize(("registry", "name", "settings"), REGISTERED)
def test_unknown_settings_are_refused(registry, name, settings):
    with pytest.raises(ValueError, match="unexpected argument: 'not_a_setting'"):
        build(registry, name, **settings, not_a_setting=1)


@pytest.mark.parametrize("name", COMMANDS)
def test_commands_are_found(name):
    from spacy.cli._util import app
    from typer.main import get_command

    assert name in spacy.registry.cli.get_all()
    (entry,) = [entry for entry in ENTRY_POINTS if entry.name == name]
    entry.load()
    assert name in get_command(app).commands


# Architectures


def make_docs():
    vocab = spacy.blank("en").vocab
    return [Doc(vocab, words=[f"w{i}" for i in range(n)]) for n in (3, 0, 5, 1)]


def inputs_of(model, docs):
    """(docs, candidates) for models that classify candidates, otherwise docs."""
    if not model.has_ref("classifier"):
        return docs
    spans = np.asarray([[0, 1], [0, 3], [1, 5], [0, 1]], dtype="i")
    return docs, Ragged(spans, np.asarray([2, 0, 1, 1], dtype="i"))


def as_rows(output):
    """One array, for lists of arrays as well, and for arrays that come with sequence scores."""
    if isinstance(output, tuple):
        return output[0]
    return np.concatenate(output) if isinstance(output, list) else output


def set_sizes(model):
    """What the component tells a model before it is initialised: two outputs."""
    if model.has_ref("classifier"):
        model.set_dim("nO", 2)
    if "sizes" in model.attrs:
        model.attrs["sizes"] = {"n_scores": 2, "n_edges": 3, "n_links": 8, "n_labels": 1}


@pytest.mark.parametrize(("name", "settings"), ARCHITECTURES.items())
def test_architectures_run_forward_and_backward_on_ragged_documents(name, settings):
    spacy.util.fix_random_seed(0)
    model = build("architectures", name, **settings)
    assert isinstance(model, Model)
    set_sizes(model)
    docs = make_docs()
    inputs = inputs_of(model, docs)
    model.initialize(X=inputs)
    before = as_rows(model.predict(inputs))
    output, backprop = model.begin_update(inputs)
    np.testing.assert_allclose(as_rows(output), before, atol=1e-5)
    if isinstance(output, list):
        assert [len(rows) for rows in output] == [3, 0, 5, 1]
        gradient = [np.ones_like(rows) for rows in output]
    elif isinstance(output, tuple):
        assert [part.shape for part in output] == [(9, 2 + 8), (3,)]
        gradient = tuple(np.ones_like(part) for part in output)
    else:
        assert output.shape == ((4, 2) if model.has_ref("classifier") else (9, 1))
        gradient = np.ones_like(output)
    backprop(gradient)
    # A small enough step against the gradient of the sum lowers the sum.
    model.finish_update(Adam(1e-4, grad_clip=0.0))
    assert as_rows(model.predict(inputs)).sum() < before.sum()


@pytest.mark.parametrize(("name", "settings"), ARCHITECTURES.items())
def test_architectures_round_trip(name, settings):
    model = build("architectures", name, **settings)
    set_sizes(model)
    inputs = inputs_of(model, make_docs())
    model.initialize(X=inputs)
    loaded = build("architectures", name, **settings).from_bytes(model.to_bytes())
    np.testing.assert_array_equal(as_rows(loaded.predict(inputs)), as_rows(model.predict(inputs)))


# Candidates and scorers


@pytest.mark.parametrize(("name", "settings"), CANDIDATES.items())
def test_candidates_run_on_ragged_documents(name, settings):
    docs = make_docs()
    for doc in docs:
        write_spans(doc, "given", [(0, len(doc))] if len(doc) else [])
        write_boundary_scores(doc, "sc", np.zeros((len(doc), 2), dtype="f"))
    candidates = build("misc", name, **settings)(docs)
    assert candidates.dataXd.shape == (int(candidates.lengths.sum()), 2)
    counts = candidates.lengths.tolist()
    assert counts[1] == 0
    assert all(count > 0 for count in (counts[0], *counts[2:]))
    ends = np.repeat([len(doc) for doc in docs], counts)
    assert (candidates.dataXd[:, 0] < candidates.dataXd[:, 1]).all()
    assert (candidates.dataXd[:, 1] <= ends).all()


@pytest.mark.parametrize(("name", "settings"), SCORERS.items())
def test_scorers_score_perfect_and_no_predictions(name, settings):
    nlp = spacy.blank("en")
    perfect = make_examples(nlp)
    for example in perfect:
        example.predicted.spans["sc"] = example.reference.spans["sc"].copy(example.predicted)
    score = build("scorers", name, **settings)
    assert score(perfect, spans_key="sc")["spans_sc_f"] == 1.0
    assert score(make_examples(nlp), spans_key="sc")["spans_sc_f"] == 0.0
    assert score([], spans_key="sc")["spans_sc_f"] is None


# Factories


@pytest.mark.parametrize(("name", "component"), FACTORIES.items())
def test_factories_make_their_component_with_the_default_config(name, component):
    nlp = spacy.blank("en")
    pipe = nlp.add_pipe(name)
    assert type(pipe) is component
    assert pipe.name == name
    assert nlp.get_pipe_meta(name).assigns == ["doc.spans"]
    # Without spans of one label that overlap, which not every component can express.
    examples = make_examples(nlp, DATA[1:])
    optimizer = nlp.initialize(lambda: examples)
    losses = nlp.update(examples, sgd=optimizer)
    assert losses[name] > 0
    assert pipe.key in nlp("a few words").spans


@pytest.mark.parametrize(("name", "component"), FACTORIES.items())
def test_defaults_of_factory_and_class_agree(name, component):
    config = Language.get_factory_meta(name).default_config
    parameters = inspect.signature(component.__init__).parameters
    defaults = {
        key: parameter.default
        for key, parameter in parameters.items()
        if parameter.default is not inspect.Parameter.empty and key not in ("name", "scorer")
    }
    # What an argument cannot default to: a mutable value.
    plain = {key: value if value != {} else None for key, value in config.items()}
    plain |= {key: tuple(value) for key, value in config.items() if isinstance(value, list)}
    assert {key: plain[key] for key in defaults} == defaults
    assert set(config) - set(defaults) <= {"model", "candidates", "scheme", "policy", "scorer"}
    factory = spacy.registry.factories.get(name)
    assert set(inspect.signature(factory).parameters) == {"nlp", "name", *config}


@pytest.mark.parametrize("name", FACTORIES)
def test_defaults_in_a_factorys_config_agree_with_the_functions_it_calls(name):
    config = Language.get_factory_meta(name).default_config
    checked = 0
    sections = [config[key] for key in ("model", "candidates", "scheme", "policy") if key in config]
    for section in sections:
        (registry,) = [key for key in section if key.startswith("@")]
        parameters = inspect.signature(
            spacy.registry.get(registry[1:], section[registry])
        ).parameters
        for key, parameter in parameters.items():
            if parameter.default is not inspect.Parameter.empty:
                assert section[key] == parameter.default, key
                checked += 1
    assert checked >= 2
