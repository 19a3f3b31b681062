"""Settings of the tagger: what they may be, and what is said otherwise."""

import pytest
import spacy

from spacy_spans.errors import SettingsError
from spacy_spans.kernels.schemes import BIO, BOUNDARY
from spacy_spans.pipeline.span_settings import check_tagger_settings

from . import SCHEMES, TAGGER, make_examples, make_nlp, make_pipe

CFG = {
    "spans_key": "sc",
    "threshold": 0.0,
    "label_thresholds": {},
    "min_length": 1,
    "max_length": None,
}
SETTINGS = {
    "scheme": BIO,
    "layers": "auto",
    "discontinuous": "auto",
    "max_gap": 32,
    "loss": "crf",
    "outside_weight": 1.0,
    "alignment_mode": "expand",
}


def check(**changes):
    cfg = {key: changes.pop(key, value) for key, value in CFG.items()}
    check_tagger_settings(cfg, **{**SETTINGS, **changes})


def test_the_defaults_are_in_range():
    check()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"loss": "hinge"}, r"Got loss = 'hinge'\. Expected one of \('crf', 'token'\)"),
        ({"layers": "one"}, r"Got layers = 'one'.*'auto', 'per_label', 'shared'"),
        ({"alignment_mode": "outside"}, r"Got alignment_mode = 'outside'.*'strict', 'contract'"),
        ({"discontinuous": "never"}, r"Got discontinuous = 'never'\. Expected true, false, 'auto'"),
        ({"threshold": -0.1}, r"threshold of -0.1 for 'threshold'.*0 to 1"),
        ({"threshold": 1.1}, r"threshold of 1.1 for 'threshold'.*0 to 1"),
        ({"threshold": float("nan")}, r"threshold of nan for 'threshold'"),
        ({"threshold": None}, r"threshold of None for 'threshold'"),
        ({"label_thresholds": {"A": 2.0}}, r"threshold of 2.0 for 'A'"),
        ({"spans_key": ""}, r"Got spans_key = ''"),
        ({"spans_key": "a=b"}, r"Got spans_key = 'a=b'"),
        ({"min_length": 0}, r"min_length = 0, max_length = None\. Expected at least 1 token"),
        ({"max_length": 0}, r"min_length = 1, max_length = 0.*no less than min_length"),
        ({"min_length": 4, "max_length": 3}, r"min_length = 4, max_length = 3"),
        ({"max_gap": 0}, r"Got max_gap = 0, .*Expected at least 1"),
        ({"outside_weight": 0.0, "loss": "token"}, r"outside_weight = 0.0.*above 0"),
        ({"outside_weight": -1.0, "loss": "token"}, r"outside_weight = -1.0.*above 0"),
        (
            {"outside_weight": float("nan"), "loss": "token"},
            r"outside_weight = nan.*a number",
        ),
        (
            {"outside_weight": float("inf"), "loss": "token"},
            r"outside_weight = inf.*a number",
        ),
        ({"scheme": BOUNDARY}, r"Got loss = 'crf' and layers = 'auto' with the boundary scheme"),
        (
            {"scheme": BOUNDARY, "loss": "token", "layers": "shared"},
            r"layers = 'shared' with the boundary scheme.*Expected loss = \"token\" and layers",
        ),
    ],
    ids=str,
)
def test_settings_out_of_range_are_an_error_that_names_the_range(changes, message):
    with pytest.raises(SettingsError, match=message):
        check(**changes)


@pytest.mark.parametrize(
    "changes",
    [
        {"threshold": 1.0, "label_thresholds": {"A": 0.0}},
        {"threshold": 1},
        {"min_length": 3, "max_length": 3},
        {"max_gap": 1},
        {"loss": "token", "outside_weight": 0.01},
        {"loss": "crf", "outside_weight": 0.5},
        {"loss": "token", "outside_weight": 5.0},
        {"scheme": BOUNDARY, "loss": "token", "outside_weight": 0.5},
        {"scheme": BOUNDARY, "loss": "token", "layers": "per_label"},
        {"discontinuous": True},
        {"discontinuous": False, "layers": "shared", "alignment_mode": "strict"},
    ],
    ids=str,
)
def test_settings_at_the_edge_of_their_range_are_taken(changes):
    check(**changes)


# Through the component


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"scheme": SCHEMES["boundary"]}, "with the boundary scheme"),
        ({"outside_weight": 0.0}, "outside_weight = 0.0"),
        ({"min_length": 0}, "min_length = 0"),
        ({"threshold": 3.0}, "a threshold of 3.0"),
        ({"spans_key": "a:b"}, "spans_key = 'a:b'"),
    ],
    ids=str,
)
def test_the_component_checks_when_it_is_made(changes, message):
    with pytest.raises(SettingsError, match=message):
        make_nlp(**TAGGER, **changes)


@pytest.mark.parametrize(
    "changes",
    [{"loss": "hinge"}, {"layers": "one"}, {"discontinuous": "no way"}, {"alignment_mode": 3}],
    ids=str,
)
def test_the_config_refuses_unknown_choices(changes):
    with pytest.raises(ValueError, match=next(iter(changes))):
        make_nlp(**TAGGER, **changes)


def test_thresholds_of_unknown_labels_are_an_error_at_initialize_and_at_prediction():
    nlp, pipe = make_pipe(**TAGGER, label_thresholds={"SKIL": 0.3})
    data = [("a b", [(0, 1, "SKILL")])]
    with pytest.raises(SettingsError, match=r"names \['SKIL'\], but the labels are \['SKILL'\]"):
        nlp.initialize(lambda: make_examples(nlp, data))
    nlp, pipe = make_pipe(**TAGGER)
    nlp.initialize(lambda: make_examples(nlp, data))
    pipe.cfg["label_thresholds"] = {"NOPE": 0.3}
    with pytest.raises(SettingsError, match=r"names \['NOPE'\]"):
        nlp("a b")


@pytest.mark.parametrize("setting", ["context_window", "learn_rate_factor"])
def test_the_architecture_checks_its_own(setting):
    model = {"@architectures": "spacy-spans.MultispanTagger.v1", setting: -1}
    with pytest.raises(SettingsError, match=f"{setting} = -1"):
        spacy.blank("en").add_pipe("multispan_tagger", config={"model": model})


def test_a_scheme_is_no_name():
    with pytest.raises(SettingsError, match=r"Got scheme = 'bio'.*spacy-spans\.bio_scheme\.v1"):
        spacy.blank("en").add_pipe("multispan_tagger", config={"scheme": "bio"})
