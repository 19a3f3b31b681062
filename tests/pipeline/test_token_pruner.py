"""The pruner's life: overfit, predict, round trip, score; policies; what always stays; empties."""

from itertools import pairwise

import numpy as np
import pytest
import spacy
import srsly
from hypothesis import given, settings
from hypothesis import strategies as st
from spacy.tokens import Doc
from spacy.training import Example
from thinc.api import Adam

from spacy_spans.errors import DataError, SettingsError, SpansError, SpansWarning
from spacy_spans.pipeline.token_pruner import TokenPruner
from spacy_spans.policies import (
    RecallTarget,
    build_budget_policy_v1,
    build_recall_target_policy_v1,
    build_threshold_policy_v1,
    build_top_k_policy_v1,
)
from spacy_spans.torch_layer import layer_shim

from . import SMALL_TOK2VEC, make_example, make_examples, train, train_on, write_spans

# Tokens in spans: of the first text 1 and 2, of the second none.
SPARSE = [
    ("we need good cooks who work hard every day", [(2, 4, "WHO")]),
    ("and we pay well", []),
    ("", []),
    ("please call today", [(0, 1, "HOW"), (2, 3, "WHEN")]),
]
TEXTS = [text for text, _ in SPARSE]
LEXICAL = {"@architectures": "spacy-spans.LexicalTokenPruner.v1"}
RECALL = {"@misc": "spacy-spans.recall_target_policy.v1", "recall": 0.9}


def make_nlp(model=None, **config):
    spacy.util.fix_random_seed(0)
    nlp = spacy.blank("en")
    name = config.pop("name", "token_pruner")
    model = model or {"tok2vec": SMALL_TOK2VEC}
    nlp.add_pipe("token_pruner", name=name, config={"context": 0, "model": model, **config})
    return nlp, nlp.get_pipe(name)


def kept(doc, key="kept_tokens"):
    group = doc.spans[key]
    assert group.name == key
    assert len(group.attrs["scores"]) == len(group)
    assert {span.label_ for span in group} <= {""}
    return [(span.start, span.end) for span in group]


def give_scores(pipe, monkeypatch, scores):
    """Let a pruner score every document alike, repeated where it is longer."""
    monkeypatch.setattr(TokenPruner, "_has_weights", True)

    def score_tokens(docs):
        return [np.resize(np.asarray(scores, dtype="f"), len(doc)) for doc in docs]

    monkeypatch.setattr(pipe, "score_tokens", score_tokens)


@pytest.fixture(scope="module")
def trained():
    nlp, _ = make_nlp()
    losses = train(nlp, make_examples(nlp, SPARSE), steps=60)
    assert losses["token_pruner"] < 0.02
    return nlp


# Overfit, predict, round trip, score


def test_keeps_the_tokens_of_spans(trained):
    for doc, (_, spans) in zip(trained.pipe(TEXTS), SPARSE, strict=True):
        assert kept(doc) == [span[:2] for span in spans]
        assert all(0.8 < score <= 1 for score in doc.spans["kept_tokens"].attrs["scores"])


def test_round_trips(trained, tmp_path):
    trained.to_disk(tmp_path)
    blank = spacy.blank("en").from_config(trained.config)
    for loaded in (spacy.load(tmp_path), blank.from_bytes(trained.to_bytes())):
        assert loaded.to_bytes() == trained.to_bytes()
        for text in TEXTS:
            scores = [nlp(text).spans["kept_tokens"].attrs["scores"] for nlp in (loaded, trained)]
            assert scores[0] == scores[1]


def test_pipe_equals_one_by_one_and_in_two_processes(trained):
    alone = [kept(trained(text)) for text in TEXTS]
    assert [kept(doc) for doc in trained.pipe(TEXTS, batch_size=3)] == alone
    assert [kept(doc) for doc in trained.pipe(TEXTS, n_process=2)] == alone


def test_sourced_and_frozen(trained):
    nlp = spacy.blank("en")
    nlp.add_pipe("token_pruner", source=trained)
    before = nlp.get_pipe("token_pruner").to_bytes()
    nlp.update(make_examples(nlp, SPARSE), sgd=Adam(0.1), exclude=["token_pruner"])
    assert nlp.get_pipe("token_pruner").to_bytes() == before
    assert [kept(doc) for doc in nlp.pipe(TEXTS)] == [kept(doc) for doc in trained.pipe(TEXTS)]
    train_on(nlp, make_examples(nlp, SPARSE), steps=1)
    assert nlp.get_pipe("token_pruner").to_bytes() != before


def test_scores_of_perfect_predictions(trained):
    scores = trained.evaluate(make_examples(trained, SPARSE))
    assert scores["kept_tokens_keep_ratio"] == 4 / 16
    for name in ("f", "token_recall", "span_recall"):
        assert scores[f"kept_tokens_{name}"] == 1.0


def test_scores_of_imperfect_predictions():
    nlp, pipe = make_nlp(spans_keys=["sc", "more"])
    example = make_example(nlp, "a b c d e f", [(0, 3, "A"), (1, 2, "A")])
    write_spans(example.reference, "more", [(4, 5, "B")])
    write_spans(example.predicted, "kept_tokens", [(1, 3), (5, 6)])
    unannotated = Example(nlp.make_doc("g h"), nlp.make_doc("g h"))
    write_spans(unannotated.predicted, "kept_tokens", [(0, 2)])
    assert pipe.score([example, unannotated]) == {
        "kept_tokens_token_recall": 2 / 4,
        "kept_tokens_keep_ratio": 5 / 8,
        "kept_tokens_span_recall": 1 / 3,
        "kept_tokens_f": pytest.approx(2 * 2 / (3 + 4)),
    }


@pytest.mark.parametrize("data", [[], [("", [])], [("a b", [])]])
def test_scores_without_gold(data):
    nlp, pipe = make_nlp()
    scores = pipe.score(make_examples(nlp, data))
    ratio = 0.0 if data and data[0][0] else None
    assert scores.pop("kept_tokens_keep_ratio") == ratio
    assert set(scores.values()) == {None}


def test_score_weights_follow_the_key():
    nlp, _ = make_nlp(kept_key="mine", spans_keys=["other"])
    nlp.initialize(lambda: make_examples(nlp, SPARSE, "other"))
    weights = nlp.config["training"]["score_weights"]
    assert weights["mine_f"] == 1.0
    assert {name for name, weight in weights.items() if weight is not None} == {
        f"mine_{name}" for name in ("f", "token_recall", "keep_ratio", "span_recall")
    }


# Before training


def test_untrained_it_keeps_everything_and_says_so_once():
    nlp, _ = make_nlp()
    assert kept(nlp("")) == []
    with pytest.warns(SpansWarning, match="keeps every token: it is not trained yet"):
        assert kept(nlp("a b c")) == [(0, 3)]
    assert kept(nlp("a b")) == [(0, 2)]
    with pytest.raises(SpansError, match="has no weights yet"):
        nlp.update(make_examples(nlp, SPARSE), sgd=Adam(0.1))


def test_nothing_is_dropped_before_the_first_step_of_training():
    nlp, pipe = make_nlp()
    examples = make_examples(nlp, SPARSE)
    nlp.initialize(lambda: examples)
    with pytest.warns(SpansWarning, match="keeps every token: it is not trained yet"):
        assert kept(nlp("a b c")) == [(0, 3)]
    with pytest.raises(SpansError, match="not trained yet"):
        pipe.trade_off(examples, [0.9])
    # Documents of other components teach it nothing.
    nlp.update(make_examples(nlp, SPARSE, "other"), sgd=Adam(0.01))
    assert kept(nlp("a b c")) == [(0, 3)]
    nlp.update(examples, sgd=Adam(0.01))
    assert kept(nlp("a b c")) == []
    nlp.initialize(lambda: examples)
    assert kept(nlp("a b c")) == [(0, 3)]


def test_scores_start_at_the_share_of_tokens_in_spans():
    nlp, pipe = make_nlp(positive_weight=3.0)
    nlp.initialize(lambda: make_examples(nlp, SPARSE))
    bias = layer_shim(pipe.model.get_ref("scorer")).module.project.bias.item()
    rate = (3 * 4 + 1) / (3 * 4 + 12 + 2)
    assert bias == pytest.approx(np.log(rate / (1 - rate)))


def test_a_key_that_is_nowhere_is_an_error_and_one_that_is_missing_somewhere_a_warning():
    nlp, _ = make_nlp(spans_keys=["a", "b"])
    examples = make_examples(nlp, SPARSE)
    with pytest.raises(SpansError, match=r"'a'\] or doc.spans\['b'\].*'sc' \(4 documents\)"):
        nlp.initialize(lambda: examples)
    write_spans(examples[0].reference, "b", [(0, 1)])
    with pytest.warns(SpansWarning, match="3 of 4 training documents have none of"):
        nlp.initialize(lambda: examples)


def test_documents_without_any_of_the_keys_teach_nothing():
    nlp, pipe = make_nlp(positive_weight=2.0)
    examples = make_examples(nlp, SPARSE)
    other = make_examples(nlp, SPARSE[:1], "other")
    logits = np.linspace(-1, 1, 16, dtype="f").reshape(-1, 1)
    alone, gradient = pipe.get_loss(examples, logits)
    more, padded = pipe.get_loss(other + examples, np.append(logits[:9], logits, axis=0))
    # Both are per token of the batch.
    assert more == pytest.approx(alone * 16 / 25)
    assert padded[:9].tolist() == [[0.0]] * 9
    np.testing.assert_allclose(padded[9:], gradient * 16 / 25, rtol=1e-6)
    with pytest.warns(SpansWarning, match="1 of 5 training documents"):
        nlp.initialize(lambda: other + examples)
    bias = layer_shim(pipe.model.get_ref("scorer")).module.project.bias.item()
    assert bias == pytest.approx(np.log((2 * 4 + 1) / (12 + 1)))


def test_the_gradient_is_that_of_the_weighted_loss():
    nlp, pipe = make_nlp(positive_weight=2.0)
    examples = make_examples(nlp, SPARSE)
    logits = np.linspace(-1, 1, 16, dtype="f").reshape(-1, 1)
    loss, gradient = pipe.get_loss(examples, logits)
    for row in (2, 5):
        moved = logits.copy()
        moved[row] += 1e-2
        change = (pipe.get_loss(examples, moved)[0] - loss) / 1e-2
        assert gradient[row, 0] == pytest.approx(change, abs=1e-3)
    assert gradient[2, 0] < 0 < gradient[5, 0]


@pytest.mark.parametrize("data", [[], [("", [])]])
def test_updates_of_nothing(trained, data):
    assert trained.update(make_examples(trained, data), sgd=Adam(0.1)).get("token_pruner", 0) == 0


# Choosing


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        (build_threshold_policy_v1(0.5), [(1, 2), (4, 6)]),
        (build_threshold_policy_v1(0.95), []),
        (build_top_k_policy_v1(0.3), [(1, 2), (4, 5)]),
        (build_budget_policy_v1(0.5, 2), [(1, 2), (4, 6)]),
    ],
)
def test_policies_choose_runs_with_their_best_score(monkeypatch, policy, expected):
    nlp, pipe = make_nlp()
    pipe.policy = policy
    scores = [0.1, 0.7, 0.2, 0.3, 0.9, 0.5]
    give_scores(pipe, monkeypatch, scores)
    doc = nlp("a b c d e f")
    assert kept(doc) == expected
    best = [max(scores[start:end]) for start, end in expected]
    np.testing.assert_allclose(doc.spans["kept_tokens"].attrs["scores"], best, rtol=1e-6)


def test_context_is_added_after_short_runs_were_dropped(monkeypatch):
    nlp, pipe = make_nlp(context=1, min_run=2)
    give_scores(pipe, monkeypatch, [0, 1, 0, 0, 0, 1, 1, 0, 0])
    assert kept(nlp("a b c d e f g h i")) == [(4, 8)]


def test_what_always_stays(monkeypatch):
    nlp, pipe = make_nlp(always_keep=["hits", "nowhere"], min_run=2)
    give_scores(pipe, monkeypatch, [0])
    doc = write_spans(nlp.make_doc("a b c d"), "hits", [(2, 3)])
    message = r"doc.spans \['nowhere'\], of always_keep \(keys that are there: hits\)"
    with pytest.warns(SpansWarning, match=message):
        assert kept(nlp(doc)) == [(2, 3)]
    # Said once.
    assert kept(nlp("a b")) == []


def test_sentence_starts_stay(monkeypatch):
    nlp, pipe = make_nlp(keep_sentence_starts=True)
    give_scores(pipe, monkeypatch, [0])
    with pytest.raises(SpansError, match=r"Add .* `sentencizer`"):
        nlp("a b")
    assert kept(nlp("")) == []
    nlp.add_pipe("sentencizer", first=True)
    assert kept(nlp("We pay. They go.")) == [(0, 1), (3, 4)]
    # As `senter` may see it.
    doc = Doc(nlp.vocab, words=["we", "pay", "well"], sent_starts=[False, False, True])
    assert kept(nlp(doc)) == [(0, 1), (2, 3)]


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(0, 8), max_size=20), st.integers(0, 3), st.integers(0, 8))
def test_runs_are_in_order_and_do_not_touch(eighths, context, threshold):
    with pytest.MonkeyPatch.context() as patch:
        nlp, pipe = PRUNER
        pipe.cfg["context"] = context
        pipe.policy = build_threshold_policy_v1(threshold / 8)
        give_scores(pipe, patch, [n / 8 for n in eighths] or [0])
        runs = kept(nlp(Doc(nlp.vocab, words=["w"] * len(eighths))))
    inside = {i for start, end in runs for i in range(start, end)}
    near = {i for i, n in enumerate(eighths) if n >= threshold}
    assert inside == {
        i for i in range(len(eighths)) if any(abs(i - other) <= context for other in near)
    }
    assert all(a[1] < b[0] for a, b in pairwise(runs))


PRUNER = make_nlp()


# Recall targets


def test_a_recall_target_keeps_everything_until_it_is_fitted(tmp_path):
    nlp, pipe = make_nlp(policy=RECALL)
    examples = make_examples(nlp, SPARSE)
    train(nlp, examples, steps=60)
    with pytest.warns(SpansWarning, match=r"fitted for recall = 0.9.*calibrate-pruner"):
        assert kept(nlp(TEXTS[0])) == [(0, 9)]
    fitted = pipe.calibrate(examples)
    assert (fitted.span_recall, fitted.keep_ratio) == (1.0, 4 / 16)
    assert kept(nlp(TEXTS[0])) == [(2, 4)]
    nlp.to_disk(tmp_path)
    assert kept(spacy.load(tmp_path)(TEXTS[0])) == [(2, 4)]
    # Of another recall it knows nothing.
    override = {"components.token_pruner.policy.recall": 0.5}
    with pytest.warns(SpansWarning, match="recall = 0.5"):
        assert kept(spacy.load(tmp_path, config=override)(TEXTS[0])) == [(0, 9)]


@pytest.mark.parametrize("key", ["fitted_threshold", "fitted_recall"])
@pytest.mark.parametrize("value", ["x", -0.1, 1.1, [0.5]])
def test_a_damaged_fit_is_an_error_that_names_the_file(trained, tmp_path, key, value):
    trained.to_disk(tmp_path)
    path = tmp_path / "token_pruner" / "cfg"
    srsly.write_json(path, {**srsly.read_json(path), key: value})
    with pytest.raises(DataError, match=rf"{path}' cannot be read: its {key} is .*expected 0 to 1"):
        trained.get_pipe("token_pruner").from_disk(path.parent, exclude=["vocab"])


@pytest.mark.parametrize("context", [0, 1])
def test_calibration_says_what_is_kept(monkeypatch, context):
    nlp, pipe = make_nlp(context=context, always_keep=["hits"])
    random = np.random.default_rng(0)
    words = ["w"] * 40
    examples = []
    for _ in range(5):
        doc, reference = Doc(nlp.vocab, words=words), Doc(nlp.vocab, words=words)
        starts = random.choice(36, 4, replace=False).tolist()
        write_spans(reference, "sc", [(start, start + 3, "A") for start in starts])
        examples.append(Example(write_spans(doc, "hits", [(0, 2)]), reference))
    give_scores(pipe, monkeypatch, random.random(40))
    for recall in (0.3, 0.8, 1.0):
        pipe.policy = RecallTarget(recall)
        fitted = pipe.calibrate(examples)
        for example in examples:
            pipe(example.predicted)
        scores = pipe.score(examples)
        assert scores["kept_tokens_span_recall"] == pytest.approx(fitted.span_recall)
        assert scores["kept_tokens_keep_ratio"] == pytest.approx(fitted.keep_ratio)
        assert fitted.span_recall >= recall
        # The next higher threshold would keep too few.
        assert pipe.trade_off(examples, [recall])[0] == fitted


def test_what_cannot_be_calibrated(trained, monkeypatch):
    pipe = trained.get_pipe("token_pruner")
    with pytest.raises(SettingsError, match="recall_target_policy"):
        pipe.calibrate(make_examples(trained, SPARSE))
    monkeypatch.setattr(pipe, "policy", RecallTarget(0.9))
    with pytest.raises(SpansError, match=r"No .*document has doc.spans"):
        pipe.calibrate(make_examples(trained, SPARSE, "other"))
    monkeypatch.setitem(pipe.cfg, "min_run", 2)
    with pytest.raises(SpansError, match="min_run above 1"):
        pipe.calibrate(make_examples(trained, SPARSE))


# Without training


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({}, [(0, 1), (3, 4), (5, 6)]),
        ({"drop_stop_words": False}, [(0, 4), (5, 6)]),
        ({"drop_punctuation": False}, [(0, 1), (3, 6)]),
    ],
)
def test_stop_words_and_punctuation_are_dropped_without_training(config, expected, tmp_path):
    nlp, _ = make_nlp(model={**LEXICAL, **config})
    doc = Doc(nlp.vocab, words=["cooks", "of", "the", "world", ",", "unite", " "])
    assert kept(nlp(doc)) == expected
    assert kept(nlp("")) == []
    nlp.to_disk(tmp_path)
    assert kept(spacy.load(tmp_path)(doc)) == expected


def test_without_anything_to_learn_it_is_scored_and_not_trained():
    nlp, _ = make_nlp(model=LEXICAL)
    examples = make_examples(nlp, SPARSE)
    nlp.initialize(lambda: examples)
    assert nlp.update(examples, sgd=Adam(0.1)) == {"token_pruner": 0.0}
    assert 0 < nlp.evaluate(examples)["kept_tokens_keep_ratio"] < 1
    nlp.initialize(lambda: make_examples(nlp, SPARSE, "other"))


# Settings


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"context": -1}, "context = -1"),
        ({"min_run": 0}, "min_run = 0"),
        ({"positive_weight": 0.0}, "positive_weight"),
        ({"spans_keys": []}, "at least one key"),
        ({"spans_keys": ["kept_tokens"]}, "among spans_keys"),
        ({"kept_key": "a:b"}, "a:b"),
    ],
)
def test_settings_out_of_range(config, message):
    with pytest.raises(SettingsError, match=message):
        make_nlp(**config)


@pytest.mark.parametrize(
    ("build", "settings"),
    [
        (build_threshold_policy_v1, {"threshold": 1.1}),
        (build_top_k_policy_v1, {"keep_ratio": 0.0}),
        (build_budget_policy_v1, {"keep_ratio": 2.0}),
        (build_budget_policy_v1, {"region": 0}),
        (build_recall_target_policy_v1, {"recall": 0.0}),
    ],
)
def test_settings_of_policies_out_of_range(build, settings):
    with pytest.raises(SettingsError, match=f"Got {next(iter(settings))}"):
        build(**settings)


def test_settings_changed_after_training_are_checked(trained, monkeypatch):
    monkeypatch.setitem(trained.get_pipe("token_pruner").cfg, "context", -1)
    with pytest.raises(SettingsError, match="context = -1"):
        trained("a b c")


def test_settings_changed_after_training_are_stored(trained, tmp_path):
    nlp = spacy.blank("en").from_config(trained.config).from_bytes(trained.to_bytes())
    nlp.get_pipe("token_pruner").cfg["context"] = 2
    nlp.to_disk(tmp_path)
    assert kept(spacy.load(tmp_path)(TEXTS[0])) == [(0, 6)]


def test_weights_that_are_no_numbers_are_an_error():
    nlp, pipe = make_nlp()
    train(nlp, make_examples(nlp, SPARSE), steps=1)
    module = layer_shim(pipe.model.get_ref("scorer")).module
    for parameter in module.parameters():
        parameter.data.fill_(float("nan"))
    with pytest.raises(SpansError, match="'token_pruner' gives scores that are not finite"):
        nlp("we need good cooks")
