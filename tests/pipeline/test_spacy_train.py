"""`spacy train`, done to a pipeline with each component."""

import warnings

import pytest
import spacy
import srsly
from spacy.cli.train import train as spacy_train
from spacy.training.initialize import init_nlp
from thinc.api import Adam, Config

from spacy_spans.errors import SpansError, SpansWarning

from . import (
    CANDIDATES,
    LABELS,
    SMALL_TOK2VEC,
    TEXTS,
    assert_perfect,
    examples_of,
    make_nlp,
    predictions,
    train_by_heart,
    write_config,
    write_corpus,
)


def run_training(nlp, corpus, **training):
    """Run `spacy train`. RETURNS (Language): The last pipeline."""
    path = write_config(nlp, corpus, **training)
    spacy_train(path, corpus.parent / "output")
    return spacy.load(corpus.parent / "output" / "model-last")


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
