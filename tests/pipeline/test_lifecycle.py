"""From config to package: everything spaCy does to a pipeline, done to one with this component."""

import pickle
import shutil
import sys
import warnings
from contextlib import contextmanager

import pytest
import spacy
import srsly
import torch
from spacy.cli.assemble import assemble_cli
from spacy.cli.debug_config import debug_config
from spacy.cli.evaluate import evaluate
from spacy.cli.find_threshold import find_threshold
from spacy.cli.package import package
from spacy.cli.train import train as spacy_train
from spacy.language import DEFAULT_CONFIG_PATH
from spacy.tokens import DocBin
from spacy.training import Corpus
from spacy.training.initialize import init_nlp
from thinc.api import Adam, Config

from spacy_spans.errors import DataError, SpansError, SpansWarning

from . import (
    CANDIDATES,
    DATA,
    LABELS,
    LISTENER,
    SMALL_TOK2VEC,
    found,
    make_examples,
    make_nlp,
    make_trained,
    scored,
    train,
    train_on,
)

pytestmark = pytest.mark.installed

TEXTS = [text for text, _ in DATA]


def predictions(nlp, key="sc"):
    return [scored(doc, key) for doc in nlp.pipe(TEXTS)]


def assert_perfect(nlp, key="sc"):
    assert [found(doc, key) for doc in nlp.pipe(TEXTS)] == [spans for _, spans in DATA]


def with_listener(**settings):
    """A trained pipeline whose component listens to a shared tok2vec."""
    return make_trained(tok2vec=LISTENER, upstream=("tok2vec",), **settings)


@pytest.fixture(scope="module")
def listening():
    return with_listener()


@pytest.fixture
def corpus(tmp_path):
    return write_corpus(tmp_path)


def write_corpus(folder, key="sc"):
    """The data as a file, without the empty document, which `DocBin` readers skip."""
    docs = [example.reference for example in make_examples(spacy.blank("en"), key=key)]
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


def test_sourced_with_its_token_encoder(listening, tmp_path):
    nlp = spacy.blank("en")
    nlp.add_pipe("tok2vec", source=listening)
    nlp.add_pipe("span_enumerator", source=listening)
    assert predictions(nlp) == predictions(listening)
    nlp.to_disk(tmp_path)
    assert predictions(spacy.load(tmp_path)) == predictions(listening)


def test_sourced_without_its_token_encoder_after_replacing_the_listener(tmp_path):
    source = with_listener()
    expected = predictions(source)
    source.replace_listeners("tok2vec", "span_enumerator", ["model.tok2vec"])
    assert predictions(source) == expected
    nlp = spacy.blank("en")
    nlp.add_pipe("span_enumerator", source=source)
    assert nlp.pipe_names == ["span_enumerator"]
    assert predictions(nlp) == expected
    nlp.to_disk(tmp_path)
    assert predictions(spacy.load(tmp_path)) == expected


def test_a_pipeline_with_a_replaced_listener_can_be_trained():
    nlp = with_listener()
    nlp.replace_listeners("tok2vec", "span_enumerator", ["model.tok2vec"])
    pipe = nlp.get_pipe("span_enumerator")
    before = pipe.model.get_ref("tok2vec").to_bytes()
    losses = train_on(nlp, make_examples(nlp), steps=2)
    assert losses["span_enumerator"] < 0.5
    assert pipe.model.get_ref("tok2vec").to_bytes() != before
    assert_perfect(nlp)


def test_sourced_into_a_pipeline_with_another_component():
    other = make_nlp(name="other", spans_key="other")
    train(other, make_examples(other, key="other"))
    source = make_trained()
    other.add_pipe("span_enumerator", source=source)
    assert predictions(other) == predictions(source)
    assert_perfect(other, "other")


def test_sourcing_a_trained_component_leaves_the_source_alone():
    source = make_trained()
    expected = predictions(source)
    nlp = spacy.blank("en")
    nlp.add_pipe("span_enumerator", source=source)
    nlp.get_pipe("span_enumerator").cfg["threshold"] = 0.999999
    assert source.get_pipe("span_enumerator").cfg["threshold"] in (0.5, 0.999999)
    source.get_pipe("span_enumerator").cfg["threshold"] = 0.5
    assert predictions(source) == expected


@pytest.mark.parametrize("upstream", [(), ("tok2vec",)])
def test_renamed(upstream, tmp_path):
    nlp = make_trained(upstream=upstream, tok2vec=LISTENER if upstream else SMALL_TOK2VEC)
    expected = predictions(nlp)
    nlp.rename_pipe("span_enumerator", "finder")
    assert nlp.pipe_names == [*upstream, "finder"]
    assert predictions(nlp) == expected
    nlp.to_disk(tmp_path)
    loaded = spacy.load(tmp_path)
    assert loaded.pipe_names == [*upstream, "finder"]
    assert predictions(loaded) == expected
    assert train_on(loaded, make_examples(loaded), steps=1)["finder"] < 0.5


def test_not_updated_while_disabled():
    nlp = make_trained(upstream=())
    nlp.add_pipe("textcat").add_label("A")
    nlp.get_pipe("textcat").add_label("B")
    examples = make_examples(nlp)
    for example in examples:
        example.reference.cats = {"A": 1.0, "B": 0.0}
    with nlp.select_pipes(enable="textcat"):
        nlp.initialize(lambda: examples)
        before = nlp.get_pipe("span_enumerator").to_bytes()
        train_on(nlp, examples, steps=2)
    assert nlp.get_pipe("span_enumerator").to_bytes() == before
    assert_perfect(nlp)


def test_excluded_from_an_update():
    nlp = make_trained()
    before = nlp.to_bytes()
    assert nlp.update(make_examples(nlp), sgd=Adam(0.1), exclude=["span_enumerator"]) == {}
    assert nlp.to_bytes() == before


# spacy train


def test_train_learns_saves_and_scores(corpus, capsys):
    nlp = run_training(make_nlp(), corpus, max_steps=40, eval_frequency=20)
    assert_perfect(nlp)
    assert nlp.meta["performance"]["spans_sc_f"] == 1.0
    assert nlp.meta["labels"]["span_enumerator"] == list(LABELS)
    assert "SPANS_SC_F" in capsys.readouterr().out


def test_train_with_another_key_scores_and_picks_the_best_by_it(tmp_path):
    corpus = write_corpus(tmp_path, "skills")
    nlp = run_training(make_nlp(spans_key="skills"), corpus, max_steps=40, eval_frequency=20)
    assert_perfect(nlp, "skills")
    best = spacy.load(tmp_path / "output" / "model-best")
    assert best.meta["performance"]["spans_skills_f"] == 1.0
    for loaded in (nlp, best):
        weights = loaded.config["training"]["score_weights"]
        assert weights["spans_skills_f"] == 1.0
        default = {weight for key, weight in weights.items() if key.startswith("spans_sc_")}
        assert default == {None}


def test_train_with_the_wrong_key_stops_and_lists_the_keys_there_are(tmp_path):
    corpus = write_corpus(tmp_path, "skills")
    with pytest.raises(SpansError, match=r"doc\.spans\['sc'\].*'skills' \(3 documents\)"):
        run_training(make_nlp(), corpus)


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


def test_frozen_components_come_out_bitwise_the_same(corpus, listening):
    path = source_config(listening, corpus, frozen_components=["tok2vec", "span_enumerator"])
    config = Config().from_disk(path)
    config["nlp"]["pipeline"] = ["other", *listening.pipe_names]
    model = {"hidden_width": 8, "tok2vec": SMALL_TOK2VEC}
    config["components"]["other"] = {"factory": "span_enumerator", "model": model}
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


def test_resume_training_in_code():
    nlp = make_trained()
    optimizer = nlp.resume_training()
    for _ in range(2):
        losses = nlp.update(make_examples(nlp), sgd=optimizer)
    assert losses["span_enumerator"] < 0.01
    assert_perfect(nlp)


def test_averaged_weights_are_used_and_put_back():
    nlp = make_nlp()
    examples = make_examples(nlp)
    nlp.initialize(lambda: examples)
    optimizer = Adam(0.02, use_averages=True)
    for _ in range(15):
        nlp.update(examples, sgd=optimizer)
    pipe = nlp.get_pipe("span_enumerator")
    last = pipe.model.to_bytes()
    with nlp.use_params(optimizer.averages):
        averaged = pipe.model.to_bytes()
        assert averaged != last
        nlp(TEXTS[0])
        with nlp.use_params({}):
            assert pipe.model.to_bytes() == averaged
    assert pipe.model.to_bytes() == last


def test_train_stores_averaged_weights(corpus):
    nlp = make_nlp()
    path = write_config(nlp, corpus, max_steps=40, eval_frequency=20)
    config = Config().from_disk(path)
    config["training"]["optimizer"]["use_averages"] = True
    config.to_disk(path)
    spacy_train(path, corpus.parent / "output")
    loaded = spacy.load(corpus.parent / "output" / "model-best")
    assert loaded.meta["performance"]["spans_sc_f"] == 1.0
    assert_perfect(loaded)


def test_train_with_an_annotating_component_for_preset_candidates(corpus):
    nlp = make_nlp(candidates=CANDIDATES["preset"], upstream=("test_write_given",))
    options = {"annotating_components": ["test_write_given"], "max_steps": 40}
    with pytest.warns(SpansWarning, match="not known before training"):
        assert_perfect(run_training(nlp, corpus, **options, eval_frequency=20))


def test_train_with_learned_boundaries(corpus):
    nlp = make_nlp(candidates=CANDIDATES["boundary"])
    assert_perfect(run_training(nlp, corpus, max_steps=40, eval_frequency=20))


def test_train_with_streamed_data(corpus):
    nlp = make_nlp()
    assert_perfect(run_training(nlp, corpus, max_epochs=-1, max_steps=40, eval_frequency=20))


def test_train_warns_once_of_gold_that_is_lost(corpus):
    nlp = make_nlp(candidates={**CANDIDATES["length"], "max_length": 5})
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        run_training(nlp, corpus, max_steps=4)
    messages = [str(w.message) for w in caught if issubclass(w.category, SpansWarning)]
    assert len(messages) == 1
    assert "2 of 7 gold spans in 'sc' are no candidates" in messages[0]


def test_labels_file_in_a_training_config(corpus):
    path = write_config(make_nlp(), corpus)
    labels = corpus.parent / "labels.json"
    config = Config().from_disk(path)
    config["initialize"]["components"] = {
        "span_enumerator": {
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
    assert nlp.get_pipe("span_enumerator").labels == ("SKILL", "KNOWLEDGE", "DUTY")


# Other commands


@pytest.fixture(scope="module")
def unsure(tmp_path_factory):
    """A pipeline on disk whose threshold is above most of its scores, and its corpus."""
    folder = tmp_path_factory.mktemp("unsure")
    nlp = make_trained(threshold=0.9995)
    nlp.to_disk(folder / "pipeline")
    return folder / "pipeline", write_corpus(folder)


def test_find_threshold_picks_one_that_separates(unsure, capsys):
    pipeline, corpus = unsure
    nlp = spacy.load(pipeline)
    examples = list(Corpus(corpus)(nlp))
    assert nlp.evaluate(examples)["spans_sc_f"] < 1.0
    best, score, trials = find_threshold(
        pipeline, corpus, "span_enumerator", "threshold", "spans_sc_f", n_trials=5
    )
    assert capsys.readouterr().out.count("\n") >= 6
    assert 0.0 < best < 1.0
    assert score == 1.0
    assert list(trials) == [0.0, 0.25, 0.5, 0.75, 1.0]
    # Each trial has its own outcome: at 0 every candidate is written, at 1 next to none.
    assert trials[0.0] < 0.2
    nlp.get_pipe("span_enumerator").cfg["threshold"] = best
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


@pytest.mark.parametrize("frozen", [[], ["span_enumerator"]])
def test_assemble_puts_a_trained_component_into_another_pipeline(tmp_path, frozen):
    source = make_trained()
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
        component = "span_enumerator"

        [training]
        frozen_components = {srsly.json_dumps(frozen)}
        """
    )
    config.to_disk(tmp_path / "assemble.cfg")

    class Context:
        args = ()

    assemble_cli(Context(), tmp_path / "assemble.cfg", tmp_path / "out", None, False)
    nlp = spacy.load(tmp_path / "out")
    assert nlp.pipe_names == ["sentencizer", "finder"]
    assert predictions(nlp) == predictions(source)


# spaCy leaves files that it wrote to be closed by the garbage collector.
@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_package_needs_this_package_and_predicts_the_same(tmp_path, monkeypatch):
    nlp = make_trained()
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


def test_debug_config_accepts_what_training_writes(corpus, capsys):
    path = write_config(make_nlp(), corpus)
    debug_config(path)
    assert capsys.readouterr().out.count("Config is valid") == 1


def test_a_config_with_a_setting_that_does_not_exist_is_refused(corpus):
    path = write_config(make_nlp(), corpus)
    config = Config().from_disk(path)
    config["components"]["span_enumerator"]["treshold"] = 0.4
    config.to_disk(path)
    with pytest.raises(SystemExit):
        debug_config(path)


# What is on disk


@contextmanager
def no_unpickling():
    """Fail when anything is unpickled."""

    def refuse(*args, **kwargs):
        raise AssertionError("something was unpickled")

    with pytest.MonkeyPatch.context() as patch:
        for module, names in ((pickle, ("load", "loads", "Unpickler")), (torch, ("load",))):
            for name in names:
                patch.setattr(module, name, refuse)
        yield


@pytest.mark.parametrize("candidates", ["length", "boundary"])
def test_loading_unpickles_nothing(tmp_path, candidates):
    nlp = make_trained(candidates=CANDIDATES[candidates])
    expected = predictions(nlp)
    nlp.to_disk(tmp_path)
    data = nlp.to_bytes()
    with no_unpickling():
        assert predictions(spacy.load(tmp_path)) == expected
        blank = spacy.blank("en").from_config(nlp.config)
        assert predictions(blank.from_bytes(data)) == expected


def test_the_folder_holds_no_pickle_and_no_torch_archive(tmp_path):
    nlp = make_trained()
    nlp.to_disk(tmp_path)
    files = [path for path in (tmp_path / "span_enumerator").rglob("*") if path.is_file()]
    assert sorted(path.name for path in files) == ["cfg", "model"]
    for path in files:
        content = path.read_bytes()
        # Protocol 2 to 5 with the first opcodes that pickles begin with, and zip files.
        for version in (2, 3, 4, 5):
            for opcode in (b"\x95", b"}", b"]", b"(", b"c"):
                assert bytes([0x80, version]) + opcode not in content
        assert b"PK\x03\x04" not in content
        assert b"torch" not in content


def damage_model(folder, change):
    path = folder / "span_enumerator" / "model"
    path.write_bytes(change(path.read_bytes()))


@pytest.mark.parametrize("keep", [0.0, 0.3, 0.6, 0.95])
def test_a_truncated_model_file_is_an_error_that_says_what_to_do(tmp_path, keep):
    make_trained(steps=1).to_disk(tmp_path)
    damage_model(tmp_path, lambda data: data[: int(keep * len(data))])
    with pytest.raises(SpansError, match=r"cannot be read.*damaged"):
        spacy.load(tmp_path)


def test_weights_of_other_settings_are_an_error_that_says_what_to_do(tmp_path):
    make_trained(steps=1).to_disk(tmp_path)
    with pytest.raises(SpansError, match=r"cannot be read.*\[model\] settings"):
        spacy.load(tmp_path, config={"components.span_enumerator.model.hidden_width": 9})


def test_weights_of_another_loss_are_an_error_that_says_what_to_do(tmp_path):
    make_trained(steps=1).to_disk(tmp_path)
    with pytest.raises(DataError, match=r"have 3 outputs.*loss make 4.*`loss`"):
        spacy.load(tmp_path, config={"components.span_enumerator.loss": "softmax"})
