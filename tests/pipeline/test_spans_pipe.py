"""What components with labels share: labels, errors at initialize, keys."""

import pytest
import srsly
from spacy.training import Example

from spacy_spans.errors import SettingsError, SpansError, SpansWarning

from . import (
    DATA,
    LABELS,
    found,
    make_example,
    make_examples,
    make_initialized,
    make_nlp,
    make_pipe,
    train,
)

# Labels


def test_labels_start_empty_and_keep_their_order():
    _, pipe = make_pipe()
    assert (pipe.labels, pipe.label_data, pipe.label_ids) == ((), [], {})
    assert [pipe.add_label(label) for label in ("b", "a", "b", "c", "a")] == [1, 1, 0, 1, 0]
    assert pipe.labels == ("b", "a", "c")
    assert pipe.label_data == ["b", "a", "c"]
    assert pipe.label_ids == {"b": 0, "a": 1, "c": 2}
    assert "c" in pipe.vocab.strings


def test_label_data_is_a_copy():
    _, pipe = make_pipe()
    pipe.add_label("a")
    pipe.label_data.append("b")
    assert pipe.labels == ("a",)


@pytest.mark.parametrize("label", ["", 3, None])
def test_what_is_no_label_is_an_error(label):
    _, pipe = make_pipe()
    with pytest.raises(
        SettingsError, match=r"Got the label .* Expected a string that is not empty"
    ):
        pipe.add_label(label)
    assert pipe.labels == ()


def test_labels_are_read_from_the_data_sorted():
    _, pipe, _ = make_initialized()
    assert pipe.labels == LABELS


def test_given_labels_keep_their_order_and_may_go_beyond_the_data():
    nlp, pipe = make_pipe()
    examples = make_examples(nlp)
    with pytest.warns(SpansWarning, match="no training example for MORE in 'sc'"):
        pipe.initialize(lambda: examples, labels=["SKILL", "MORE", "DUTY", "KNOWLEDGE"])
    assert pipe.labels == ("SKILL", "MORE", "DUTY", "KNOWLEDGE")
    assert pipe.model.get_dim("nO") == 4


def test_initialize_twice_keeps_labels_once():
    nlp, pipe, examples = make_initialized()
    nlp.initialize(lambda: examples)
    assert pipe.labels == LABELS
    assert pipe.model.get_dim("nO") == 3


def test_data_with_a_label_that_was_not_given_is_an_error():
    nlp, pipe = make_pipe()
    examples = make_examples(nlp)
    message = r"'write clean Python' labelled 'SKILL' in 'sc'.*knows only \['DUTY', 'KNOWLEDGE'\]"
    with pytest.raises(SpansError, match=message):
        pipe.initialize(lambda: examples, labels=["DUTY", "KNOWLEDGE"])


@pytest.mark.parametrize("labels", [["A", ""], ["A", 3], [None]], ids=str)
def test_given_labels_that_are_none_are_an_error(labels):
    nlp, pipe = make_pipe()
    examples = make_examples(nlp)
    with pytest.raises(SettingsError, match=r"Got the label .* Expected a string that is not"):
        pipe.initialize(lambda: examples, labels=labels)


def test_one_string_is_no_list_of_labels():
    nlp, pipe = make_pipe()
    examples = make_examples(nlp)
    with pytest.raises(SettingsError, match=r"labels = 'SKILL'\. Expected a list of strings"):
        pipe.initialize(lambda: examples, labels="SKILL")
    assert pipe.labels == ()


def test_spans_without_a_label_are_an_error():
    nlp = make_nlp()
    examples = make_examples(nlp, [("a b", [(0, 1, "A"), (1, 2, "")])])
    with pytest.raises(SettingsError, match=r"Got the label ''.*spans in the training data"):
        nlp.initialize(lambda: examples)


def initialize_with_labels_file(path, *, require=True):
    nlp = make_nlp()
    nlp.config["initialize"]["components"]["span_enumerator"] = {
        "labels": {"@readers": "spacy.read_labels.v1", "path": str(path), "require": require}
    }
    examples = make_examples(nlp)
    nlp.initialize(lambda: examples)
    return nlp.get_pipe("span_enumerator")


def test_labels_come_from_a_file_that_init_labels_wrote(tmp_path):
    _, pipe, _ = make_initialized()
    path = tmp_path / "labels.json"
    srsly.write_json(path, list(reversed(pipe.label_data)))
    assert initialize_with_labels_file(path).labels == tuple(reversed(LABELS))


def test_a_labels_file_that_is_not_there_is_an_error_if_required(tmp_path):
    with pytest.raises(ValueError, match=r"E170|labels|not\.json"):
        initialize_with_labels_file(tmp_path / "not.json")


def test_a_labels_file_that_is_not_there_is_ignored_if_not_required(tmp_path):
    pipe = initialize_with_labels_file(tmp_path / "not.json", require=False)
    assert pipe.labels == LABELS


# Errors at initialize


@pytest.mark.parametrize("labels", [None, list(LABELS)], ids=["from data", "given"])
def test_a_missing_key_is_an_error_that_lists_the_keys_there_are(labels):
    nlp, pipe = make_pipe()
    examples = [*make_examples(nlp, key="skills"), make_example(nlp, "x", [(0, 1, "A")], "other")]
    message = (
        r"No training document has doc\.spans\['sc'\].*"
        r"'other' \(1 documents\), 'skills' \(4 documents\).*spans_key"
    )
    with pytest.raises(SpansError, match=message):
        pipe.initialize(lambda: examples, labels=labels)


def test_data_without_any_key_is_an_error_that_says_so():
    nlp = make_nlp()
    examples = [Example(nlp.make_doc("a"), nlp.make_doc("a"))]
    with pytest.raises(SpansError, match="Keys that are there: none"):
        nlp.initialize(lambda: examples)


def test_data_with_empty_groups_only_is_an_error_that_says_so():
    nlp = make_nlp()
    examples = make_examples(nlp, [("a", []), ("", [])])
    with pytest.raises(SpansError, match=r"that have doc\.spans\['sc'\] have no span in it"):
        nlp.initialize(lambda: examples)


def test_given_labels_and_empty_groups_only_are_no_error():
    nlp, pipe = make_pipe()
    examples = make_examples(nlp, [("a", []), ("", [])])
    with pytest.warns(SpansWarning, match="no training example for A in 'sc'"):
        pipe.initialize(lambda: examples, labels=["A"])
    assert pipe.labels == ("A",)


def test_no_examples_are_an_error():
    nlp, pipe = make_pipe()
    for get_examples in (list, None):
        with pytest.raises(TypeError, match=r"E930.*SpanEnumerator\.initialize"):
            pipe.initialize(get_examples)
    with pytest.raises(TypeError, match="E930"):
        nlp.initialize(list)


def test_empty_documents_first_do_not_hinder_initialize():
    nlp = make_nlp()
    train(nlp, make_examples(nlp, [("", [])] * 12 + DATA))
    assert found(nlp(DATA[0][0])) == DATA[0][1]


def test_spans_may_be_in_the_last_document_only():
    nlp = make_nlp()
    examples = [Example(nlp.make_doc("a"), nlp.make_doc("a")) for _ in range(15)]
    examples.append(make_example(nlp, "b c", [(0, 2, "LAST")]))
    with pytest.warns(SpansWarning, match=r"15 of 16 training documents have no doc\.spans"):
        nlp.initialize(lambda: examples)
    assert nlp.get_pipe("span_enumerator").labels == ("LAST",)


def test_examples_may_come_from_a_generator():
    nlp = make_nlp()
    nlp.initialize(lambda: iter(make_examples(nlp)))
    assert nlp.get_pipe("span_enumerator").labels == LABELS


# Settings


@pytest.mark.parametrize("key", ["", "a=b", "a:b", "a\nb", "a\n", "\u2028"])
def test_keys_that_a_config_cannot_name_are_an_error(key):
    _, pipe = make_pipe()
    with pytest.raises(SettingsError, match=r"Got spans_key = .* expected a name"):
        type(pipe)(pipe.vocab, pipe.model, pipe.listing.function, spans_key=key)


def test_settings_of_scorers_are_for_others_where_they_name_a_key():
    nlp, _, examples = make_initialized()
    scores = nlp.evaluate(examples, scorer_cfg={"spans_key": "other"})
    assert scores["spans_sc_r"] is not None
    assert "spans_other_r" not in scores
