"""From config to package: everything spaCy does to a pipeline, done to one with each component."""

import shutil
import sys
import warnings

import pytest
import spacy
import srsly
from spacy.cli.assemble import assemble_cli
from spacy.cli.debug_config import debug_config
from spacy.cli.evaluate import evaluate
from spacy.cli.find_threshold import find_threshold
from spacy.cli.init_pipeline import init_labels_cli
from spacy.cli.package import package
from spacy.cli.train import train as spacy_train
from spacy.language import DEFAULT_CONFIG_PATH
from spacy.tokens import DocBin
from spacy.training import Corpus
from spacy.training.initialize import init_nlp
from thinc.api import Adam, Config

from spacy_spans.errors import SpansError, SpansWarning

from . import (
    CANDIDATES,
    DATA,
    DATA_FOR,
    LABELS,
    LISTENER,
    SMALL_TOK2VEC,
    TAG_DATA,
    found,
    make_examples,
    make_nlp,
    mentions,
    predictions,
    scored,
    train,
    train_by_heart,
    train_on,
)

pytestmark = pytest.mark.installed

TEXTS = [text for text, _ in DATA]


@pytest.fixture(scope="module", params=DATA_FOR)
def factory(request):
    return request.param


def data_of(nlp):
    """What the components of this package in a pipeline are to learn: they are of one kind."""
    (factory,) = {*nlp.pipe_factories.values()} & {*DATA_FOR}
    return DATA_FOR[factory]


def examples_of(nlp, key="sc"):
    return make_examples(nlp, data_of(nlp), key)


def assert_perfect(nlp, key="sc"):
    data = data_of(nlp)
    docs = list(nlp.pipe(text for text, _ in data))
    assert [found(doc, key) for doc in docs] == [[span[:3] for span in spans] for _, spans in data]
    if data is TAG_DATA:
        assert mentions(docs[2], key) == [("DUTY", (0, 1), (2, 3))]


def with_listener(factory, **settings):
    """A trained pipeline whose component listens to a shared tok2vec."""
    return train_by_heart(factory, tok2vec=LISTENER, upstream=("tok2vec",), **settings)


@pytest.fixture(scope="module")
def listening(factory):
    return with_listener(factory)


@pytest.fixture
def corpus(factory, tmp_path):
    return write_corpus(tmp_path, factory)


def write_corpus(folder, factory, key="sc"):
    """The data as a file, without the empty document, which `DocBin` readers skip."""
    examples = make_examples(spacy.blank("en"), DATA_FOR[factory], key)
    docs = [example.reference for example in examples]
    path = folder / f"{key}.spacy"
    DocBin(docs=[doc for doc in docs if len(doc)]).to_disk(path)
    return path


def write_config(nlp, corpus, **training):
    """A config that trains the pipeline, as `spacy init config` would write it."""
    config = spacy.util.load_config(DEFAULT_CONFIG_PATH).merge(nlp.config)
    config["paths"].update({"train": str(corpus), "dev": str(corpus)})
    config["training"].update({"max_steps": 2, "eval_frequency": 1, "dropout": 0.0, **training})
    config["training"]["optimizer"]["learn_rate"] = 0.005
    config["training"].pop("score_weights", None)
    path = corpus.parent / "config.cfg"
    config.to_disk(path)
    return path


def run_training(nlp, corpus, **training):
    """Run `spacy train`. RETURNS (Language): The last pipeline."""
    path = write_config(nlp, corpus, **training)
    spacy_train(path, corpus.parent / "output")
    return spacy.load(corpus.parent / "output" / "model-last")


# Sourced, renamed, frozen


def test_sourced_with_its_token_encoder(factory, listening, tmp_path):
    nlp = spacy.blank("en")
    nlp.add_pipe("tok2vec", source=listening)
    nlp.add_pipe(factory, source=listening)
    assert predictions(nlp) == predictions(listening)
    nlp.to_disk(tmp_path)
    assert predictions(spacy.load(tmp_path)) == predictions(listening)


def test_sourced_without_its_token_encoder_after_replacing_the_listener(factory, tmp_path):
    source = with_listener(factory)
    expected = predictions(source)
    source.replace_listeners("tok2vec", factory, ["model.tok2vec"])
    assert predictions(source) == expected
    nlp = spacy.blank("en")
    nlp.add_pipe(factory, source=source)
    assert nlp.pipe_names == [factory]
    assert predictions(nlp) == expected
    nlp.to_disk(tmp_path)
    assert predictions(spacy.load(tmp_path)) == expected


def test_a_pipeline_with_a_replaced_listener_can_be_trained(factory):
    nlp = with_listener(factory)
    nlp.replace_listeners("tok2vec", factory, ["model.tok2vec"])
    pipe = nlp.get_pipe(factory)
    before = pipe.model.get_ref("tok2vec").to_bytes()
    losses = train_on(nlp, examples_of(nlp), steps=2)
    assert losses[factory] < 0.5
    assert pipe.model.get_ref("tok2vec").to_bytes() != before
    assert_perfect(nlp)


def test_sourced_into_a_pipeline_with_another_component(factory):
    other = make_nlp(factory=factory, name="other", spans_key="other")
    train(other, examples_of(other, "other"))
    source = train_by_heart(factory)
    other.add_pipe(factory, source=source)
    assert predictions(other) == predictions(source)
    assert_perfect(other, "other")


def test_sourcing_a_trained_component_leaves_the_source_alone(factory):
    source = train_by_heart(factory)
    expected = predictions(source)
    nlp = spacy.blank("en")
    nlp.add_pipe(factory, source=source)
    threshold = source.get_pipe(factory).cfg["threshold"]
    nlp.get_pipe(factory).cfg["threshold"] = 0.999999
    assert source.get_pipe(factory).cfg["threshold"] in (threshold, 0.999999)
    source.get_pipe(factory).cfg["threshold"] = threshold
    assert predictions(source) == expected


@pytest.mark.parametrize("upstream", [(), ("tok2vec",)])
def test_renamed(factory, upstream, tmp_path):
    nlp = train_by_heart(
        factory, upstream=upstream, tok2vec=LISTENER if upstream else SMALL_TOK2VEC
    )
    expected = predictions(nlp)
    nlp.rename_pipe(factory, "finder")
    assert nlp.pipe_names == [*upstream, "finder"]
    assert predictions(nlp) == expected
    nlp.to_disk(tmp_path)
    loaded = spacy.load(tmp_path)
    assert loaded.pipe_names == [*upstream, "finder"]
    assert predictions(loaded) == expected
    assert train_on(loaded, examples_of(loaded), steps=1)["finder"] < 0.5


def test_not_updated_while_disabled(factory):
    nlp = train_by_heart(factory, upstream=())
    nlp.add_pipe("textcat").add_label("A")
    nlp.get_pipe("textcat").add_label("B")
    examples = examples_of(nlp)
    for example in examples:
        example.reference.cats = {"A": 1.0, "B": 0.0}
    with nlp.select_pipes(enable="textcat"):
        nlp.initialize(lambda: examples)
        before = nlp.get_pipe(factory).to_bytes()
        train_on(nlp, examples, steps=2)
    assert nlp.get_pipe(factory).to_bytes() == before
    assert_perfect(nlp)


def test_excluded_from_an_update(factory):
    nlp = train_by_heart(factory)
    before = nlp.to_bytes()
    assert nlp.update(examples_of(nlp), sgd=Adam(0.1), exclude=[factory]) == {}
    assert nlp.to_bytes() == before


# spacy train


def test_train_learns_saves_and_scores(factory, corpus, capsys):
    nlp = run_training(make_nlp(factory=factory), corpus, max_steps=40, eval_frequency=20)
    assert_perfect(nlp)
    assert nlp.meta["performance"]["spans_sc_f"] == 1.0
    assert nlp.meta["labels"][factory] == list(LABELS)
    assert "SPANS_SC_F" in capsys.readouterr().out


def test_train_with_another_key_scores_and_picks_the_best_by_it(factory, tmp_path):
    corpus = write_corpus(tmp_path, factory, "skills")
    nlp = make_nlp(factory=factory, spans_key="skills")
    nlp = run_training(nlp, corpus, max_steps=40, eval_frequency=20)
    assert_perfect(nlp, "skills")
    best = spacy.load(tmp_path / "output" / "model-best")
    assert best.meta["performance"]["spans_skills_f"] == 1.0
    for loaded in (nlp, best):
        weights = loaded.config["training"]["score_weights"]
        assert weights["spans_skills_f"] == 1.0
        default = {weight for key, weight in weights.items() if key.startswith("spans_sc_")}
        assert default == {None}


def test_train_with_the_wrong_key_stops_and_lists_the_keys_there_are(factory, tmp_path):
    corpus = write_corpus(tmp_path, factory, "skills")
    with pytest.raises(SpansError, match=r"doc\.spans\['sc'\].*'skills' \(3 documents\)"):
        run_training(make_nlp(factory=factory), corpus)


def source_config(source, corpus, **training):
    """A config with the component of a trained pipeline on disk."""
    trained = corpus.parent / "source"
    source.to_disk(trained)
    nlp = spacy.blank("en")
    path = write_config(nlp, corpus, **training)
    config = Config().from_disk(path)
    names = source.pipe_names
    config["nlp"]["pipeline"] = names
    config["components"] = {name: {"source": str(trained)} for name in names}
    config.to_disk(path)
    return path


def test_frozen_components_come_out_bitwise_the_same(factory, corpus, listening):
    path = source_config(listening, corpus, frozen_components=["tok2vec", factory])
    config = Config().from_disk(path)
    config["nlp"]["pipeline"] = ["other", *listening.pipe_names]
    config["components"]["other"] = {"factory": factory, "model": {"tok2vec": SMALL_TOK2VEC}}
    config["training"]["annotating_components"] = []
    config.to_disk(path)
    spacy_train(path, corpus.parent / "output")
    loaded = spacy.load(corpus.parent / "output" / "model-last")
    for name in listening.pipe_names:
        assert loaded.get_pipe(name).model.to_bytes() == listening.get_pipe(name).model.to_bytes()
    assert predictions(loaded) == predictions(listening)


def test_resumed_training_starts_where_it_stopped_and_is_scored(corpus, listening, capsys):
    path = source_config(listening, corpus, max_steps=2, eval_frequency=1)
    config = Config().from_disk(path)
    config["training"]["optimizer"]["learn_rate"] = 1e-5
    config.to_disk(path)
    spacy_train(path, corpus.parent / "output")
    resumed = spacy.load(corpus.parent / "output" / "model-best")
    assert_perfect(resumed)
    assert resumed.to_bytes() != listening.to_bytes()
    # The score that picks the best model, in the last column: never a silent 0.
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    scores = [row[-1] for row in rows if len(row) > 3 and row[0].isdigit()]
    assert scores
    assert set(scores) == {"1.00"}


def test_resume_training_in_code(factory):
    nlp = train_by_heart(factory)
    optimizer = nlp.resume_training()
    for _ in range(2):
        losses = nlp.update(examples_of(nlp), sgd=optimizer)
    assert losses[factory] < 0.01
    assert_perfect(nlp)


def test_averaged_weights_are_used_and_put_back(factory):
    nlp = make_nlp(factory=factory)
    examples = examples_of(nlp)
    nlp.initialize(lambda: examples)
    optimizer = Adam(0.02, use_averages=True)
    for _ in range(15):
        nlp.update(examples, sgd=optimizer)
    pipe = nlp.get_pipe(factory)
    last = pipe.model.to_bytes()
    with nlp.use_params(optimizer.averages):
        averaged = pipe.model.to_bytes()
        assert averaged != last
        nlp(TEXTS[0])
        with nlp.use_params({}):
            assert pipe.model.to_bytes() == averaged
    assert pipe.model.to_bytes() == last


def test_train_stores_averaged_weights(factory, corpus):
    nlp = make_nlp(factory=factory)
    path = write_config(nlp, corpus, max_steps=40, eval_frequency=20)
    config = Config().from_disk(path)
    config["training"]["optimizer"]["use_averages"] = True
    config.to_disk(path)
    spacy_train(path, corpus.parent / "output")
    loaded = spacy.load(corpus.parent / "output" / "model-best")
    assert loaded.meta["performance"]["spans_sc_f"] == 1.0
    assert_perfect(loaded)


def test_train_with_an_annotating_component_for_preset_candidates(tmp_path):
    corpus = write_corpus(tmp_path, "span_enumerator")
    nlp = make_nlp(candidates=CANDIDATES["preset"], upstream=("test_write_given",))
    options = {"annotating_components": ["test_write_given"], "max_steps": 40}
    with pytest.warns(SpansWarning, match="not known before training"):
        assert_perfect(run_training(nlp, corpus, **options, eval_frequency=20))


def test_train_with_learned_boundaries(tmp_path):
    corpus = write_corpus(tmp_path, "span_enumerator")
    nlp = make_nlp(candidates=CANDIDATES["boundary"])
    assert_perfect(run_training(nlp, corpus, max_steps=40, eval_frequency=20))


def test_train_with_streamed_data(factory, corpus):
    nlp = make_nlp(factory=factory)
    assert_perfect(run_training(nlp, corpus, max_epochs=-1, max_steps=40, eval_frequency=20))


LOSSES = {
    "span_enumerator": (
        {"candidates": {**CANDIDATES["length"], "max_length": 5}},
        "2 of 7 gold spans in 'sc' are no candidates",
    ),
    # What overlaps: five of six, and one of two.
    "multispan_tagger": ({"layers": "shared"}, "3 of 6 gold spans in 'sc' cannot be expressed"),
}


def test_train_warns_once_of_gold_that_is_lost(factory, corpus):
    config, expected = LOSSES[factory]
    nlp = make_nlp(factory=factory, **config)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        run_training(nlp, corpus, max_steps=4)
    messages = [str(w.message) for w in caught if issubclass(w.category, SpansWarning)]
    assert len(messages) == 1
    assert expected in messages[0]


def test_labels_file_in_a_training_config(factory, corpus):
    path = write_config(make_nlp(factory=factory), corpus)
    labels = corpus.parent / "labels.json"
    config = Config().from_disk(path)
    config["initialize"]["components"] = {
        factory: {
            "labels": {
                "@readers": "spacy.read_labels.v1",
                "path": str(labels),
                "require": True,
            }
        }
    }
    with pytest.raises(ValueError, match="labels"):
        init_nlp(config)
    srsly.write_json(labels, ["SKILL", "KNOWLEDGE", "DUTY"])
    nlp = init_nlp(config)
    assert nlp.get_pipe(factory).labels == ("SKILL", "KNOWLEDGE", "DUTY")


def test_init_labels_writes_a_file_that_training_reads(factory, corpus, capsys):
    path = write_config(make_nlp(factory=factory), corpus)
    init_labels_cli(Context(), path, corpus.parent / "labels", None, False, -1)
    assert "Saving label data" in capsys.readouterr().out
    labels = corpus.parent / "labels" / f"{factory}.json"
    assert srsly.read_json(labels) == list(LABELS)
    config = Config().from_disk(path)
    reader = {"@readers": "spacy.read_labels.v1", "path": str(labels), "require": True}
    config["initialize"]["components"] = {factory: {"labels": reader}}
    assert init_nlp(config).get_pipe(factory).labels == LABELS


# Other commands


class Context:
    """What commands get of the command line: no overrides."""

    args = ()


@pytest.fixture(scope="module")
def unsure(factory, tmp_path_factory):
    """A pipeline on disk whose threshold is above most of its scores, and its corpus."""
    folder = tmp_path_factory.mktemp("unsure")
    nlp = train_by_heart(factory)
    scores = sorted(span[3] for text in TEXTS for span in scored(nlp(text)))
    # Between two scores: in other batches they differ in the last digits.
    nlp.get_pipe(factory).cfg["threshold"] = (scores[-3] + scores[-2]) / 2
    nlp.to_disk(folder / "pipeline")
    return folder / "pipeline", write_corpus(folder, factory)


def test_find_threshold_picks_one_that_separates(factory, unsure, capsys):
    pipeline, corpus = unsure
    nlp = spacy.load(pipeline)
    examples = list(Corpus(corpus)(nlp))
    assert nlp.evaluate(examples)["spans_sc_f"] < 1.0
    best, score, trials = find_threshold(
        pipeline, corpus, factory, "threshold", "spans_sc_f", n_trials=5
    )
    assert capsys.readouterr().out.count("\n") >= 6
    assert score == 1.0
    assert list(trials) == [0.0, 0.25, 0.5, 0.75, 1.0]
    # Each trial has its own outcome: at 1 next to nothing is written, and at 0 every candidate,
    # but no more than the best tags.
    assert trials[1.0] < 0.5
    if factory == "span_enumerator":
        assert trials[0.0] < 0.2
        assert 0.0 < best < 1.0
    else:
        assert (best, trials[0.0]) == (0.0, 1.0)
    nlp.get_pipe(factory).cfg["threshold"] = best
    assert nlp.evaluate(examples)["spans_sc_f"] == 1.0


def test_evaluate_reports_the_scores(unsure, tmp_path):
    pipeline, corpus = unsure
    scores = evaluate(str(pipeline), corpus, tmp_path / "scores.json", spans_key="sc")
    for key in ("spans_sc_p", "spans_sc_r", "spans_sc_f", "spans_sc_per_type"):
        assert key in scores
    # What is found is right, but not all is found.
    assert scores["spans_sc_p"] == 1.0
    assert 0.0 < scores["spans_sc_r"] < 1.0
    stored = srsly.read_json(tmp_path / "scores.json")
    assert stored["spans_sc_f"] == pytest.approx(scores["spans_sc_f"])


@pytest.mark.parametrize("frozen", [False, True])
def test_assemble_puts_a_trained_component_into_another_pipeline(factory, tmp_path, frozen):
    source = train_by_heart(factory)
    source.to_disk(tmp_path / "source")
    config = Config().from_str(
        f"""
        [nlp]
        lang = "en"
        pipeline = ["sentencizer", "finder"]

        [components]

        [components.sentencizer]
        factory = "sentencizer"

        [components.finder]
        source = {srsly.json_dumps(str(tmp_path / "source"))}
        component = "{factory}"

        [training]
        frozen_components = {srsly.json_dumps(["finder"] * frozen)}
        """
    )
    config.to_disk(tmp_path / "assemble.cfg")

    assemble_cli(Context(), tmp_path / "assemble.cfg", tmp_path / "out", None, False)
    nlp = spacy.load(tmp_path / "out")
    assert nlp.pipe_names == ["sentencizer", "finder"]
    assert predictions(nlp) == predictions(source)


# spaCy leaves files that it wrote to be closed by the garbage collector.
@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_package_needs_this_package_and_predicts_the_same(factory, tmp_path, monkeypatch):
    nlp = train_by_heart(factory)
    nlp.meta["name"] = "spans_test"
    nlp.to_disk(tmp_path / "pipeline")
    (tmp_path / "packages").mkdir()
    package(tmp_path / "pipeline", tmp_path / "packages", create_sdist=False, silent=True)
    folder = tmp_path / "packages" / "en_spans_test-0.0.0"
    requirements = srsly.read_json(folder / "meta.json")["requirements"]
    assert [name for name in requirements if name.startswith("spacy-spans")]
    # As its setup.py does when the package is built.
    shutil.copy(folder / "meta.json", folder / "en_spans_test")
    monkeypatch.syspath_prepend(str(folder))
    try:
        import en_spans_test

        assert predictions(en_spans_test.load()) == predictions(nlp)
    finally:
        sys.modules.pop("en_spans_test", None)


def test_debug_config_accepts_what_training_writes(factory, corpus, capsys):
    path = write_config(make_nlp(factory=factory), corpus)
    debug_config(path)
    assert capsys.readouterr().out.count("Config is valid") == 1


def test_a_config_with_a_setting_that_does_not_exist_is_refused(factory, corpus):
    path = write_config(make_nlp(factory=factory), corpus)
    config = Config().from_disk(path)
    config["components"][factory]["treshold"] = 0.4
    config.to_disk(path)
    with pytest.raises(SystemExit):
        debug_config(path)


# Processes and memory


def test_two_processes_find_what_one_finds(factory):
    nlp = train_by_heart(factory)
    expected = predictions(nlp)
    docs = list(nlp.pipe([*TEXTS, *TEXTS], batch_size=2, n_process=2))
    for doc, own in zip(docs, [*expected, *expected], strict=True):
        spans, ids = own[: len(own) // 2], own[len(own) // 2 :]
        assert [span.id_ for span in doc.spans["sc"]] == ids
        for span, (*other, score) in zip(scored(doc), spans, strict=True):
            assert span == (*other, pytest.approx(score, abs=1e-6))


def test_memory_zones_leave_the_component_as_it_was(factory):
    nlp = train_by_heart(factory)
    assert_perfect(nlp)
    n_strings = len(nlp.vocab.strings)
    for _ in range(2):
        with nlp.memory_zone():
            texts = [f"write zork{i} Python quux{i} every day" for i in range(9)]
            assert len(list(nlp.pipe([*texts, *TEXTS]))) == len(texts) + len(TEXTS)
        assert len(nlp.vocab.strings) == n_strings
        assert_perfect(nlp)


def test_errors_in_pipe_go_to_the_error_handler(factory, monkeypatch):
    nlp = train_by_heart(factory)
    pipe = nlp.get_pipe(factory)
    predict = pipe.predict

    def failing(docs):
        if any("bad" in doc.text for doc in docs):
            raise ValueError("bad document")
        return predict(docs)

    monkeypatch.setattr(pipe, "predict", failing)
    seen = []
    pipe.set_error_handler(lambda name, proc, docs, error: seen.append((name, str(error))))
    docs = list(nlp.pipe([TEXTS[0], "bad", TEXTS[1]], batch_size=1))
    assert [doc.text for doc in docs] == [TEXTS[0], TEXTS[1]]
    assert seen == [(factory, "bad document")]
