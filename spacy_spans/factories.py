"""Factory functions and default configs.

spaCy imports this module whenever a pipeline is made, ours or not, so it imports neither torch
nor transformers: components are imported when one is added.
"""

from collections.abc import Callable
from typing import Any, Literal

from spacy.language import Language
from thinc.api import Config, Model

# Gives the token vectors, unless a config names another layer.
CNN = """
[{component}.model.tok2vec]
@architectures = "spacy.Tok2Vec.v2"

[{component}.model.tok2vec.embed]
@architectures = "spacy.MultiHashEmbed.v2"
width = 96
rows = [5000, 1000, 2500, 1000]
attrs = ["NORM", "PREFIX", "SUFFIX", "SHAPE"]
include_static_vectors = false

[{component}.model.tok2vec.encode]
@architectures = "spacy.MaxoutWindowEncoder.v2"
width = 96
window_size = 1
maxout_pieces = 3
depth = {depth}
"""

DEFAULT_SPAN_ENUMERATOR = Config().from_str(
    """
[span_enumerator]
spans_key = "sc"
candidates_key = null
kept_key = "kept_tokens"
within_kept = false
loss = "sigmoid"
add_gold_candidates = true
negative_ratio = null
boundary_smoothing = 0.0
threshold = 0.5
label_thresholds = {}
overlap = "any"
top_k = null
scorer = {"@scorers":"spacy-spans.spans_scorer.v1"}

[span_enumerator.candidates]
@misc = "spacy-spans.length_candidates.v1"
max_length = 12
min_length = 1
within_sentences = false

[span_enumerator.model]
@architectures = "spacy-spans.SpanEnumerator.v1"
hidden_width = 64
context_window = 2
learn_rate_factor = 1.0
"""
    + CNN.format(component="span_enumerator", depth=4)
)


DEFAULT_MULTISPAN_TAGGER = Config().from_str(
    """
[multispan_tagger]
spans_key = "sc"
kept_key = "kept_tokens"
within_kept = false
layers = "auto"
discontinuous = "auto"
max_gap = 32
loss = "crf"
outside_weight = 1.0
alignment_mode = "expand"
threshold = 0.0
label_thresholds = {}
min_length = 1
max_length = null
scorer = {"@scorers":"spacy-spans.spans_scorer.v1"}

[multispan_tagger.scheme]
@misc = "spacy-spans.bio_scheme.v1"

[multispan_tagger.model]
@architectures = "spacy-spans.MultispanTagger.v1"
context_window = 2
learn_rate_factor = 1.0
"""
    + CNN.format(component="multispan_tagger", depth=4)
)


@Language.factory(
    "span_enumerator",
    assigns=["doc.spans"],
    default_config=DEFAULT_SPAN_ENUMERATOR["span_enumerator"],
    # Of the default key; at initialize they follow the key in use.
    default_score_weights={
        "spans_sc_f": 1.0,
        "spans_sc_p": 0.0,
        "spans_sc_r": 0.0,
        "spans_sc_candidate_recall": 0.0,
    },
)
def make_span_enumerator(
    nlp: Language,
    name: str,
    model: Model,
    candidates: Callable,
    spans_key: str,
    candidates_key: str | None,
    kept_key: str,
    within_kept: bool,
    loss: Literal["sigmoid", "softmax"],
    add_gold_candidates: bool,
    negative_ratio: float | None,
    boundary_smoothing: float,
    threshold: float,
    label_thresholds: dict[str, float],
    overlap: Literal["any", "nested", "flat"],
    top_k: int | None,
    scorer: Callable | None,
) -> Any:
    """Make a component that lists candidate spans and labels them; see `SpanEnumerator`."""
    from spacy_spans.pipeline.span_enumerator import SpanEnumerator

    return SpanEnumerator(
        nlp.vocab,
        model,
        candidates,
        name,
        spans_key=spans_key,
        candidates_key=candidates_key,
        kept_key=kept_key,
        within_kept=within_kept,
        loss=loss,
        add_gold_candidates=add_gold_candidates,
        negative_ratio=negative_ratio,
        boundary_smoothing=boundary_smoothing,
        threshold=threshold,
        label_thresholds=label_thresholds,
        overlap=overlap,
        top_k=top_k,
        scorer=scorer,
    )


@Language.factory(
    "multispan_tagger",
    assigns=["doc.spans"],
    default_config=DEFAULT_MULTISPAN_TAGGER["multispan_tagger"],
    # Of the default key; at initialize they follow the key in use.
    default_score_weights={
        "spans_sc_f": 1.0,
        "spans_sc_p": 0.0,
        "spans_sc_r": 0.0,
        "spans_sc_partial_f": 0.0,
    },
)
def make_multispan_tagger(
    nlp: Language,
    name: str,
    model: Model,
    scheme: Any,
    spans_key: str,
    kept_key: str,
    within_kept: bool,
    layers: Literal["auto", "per_label", "shared"],
    discontinuous: bool | Literal["auto"],
    max_gap: int,
    loss: Literal["crf", "token"],
    outside_weight: float,
    alignment_mode: Literal["strict", "contract", "expand"],
    threshold: float,
    label_thresholds: dict[str, float],
    min_length: int,
    max_length: int | None,
    scorer: Callable | None,
) -> Any:
    """Make a component that finds spans by tagging tokens; see `MultispanTagger`."""
    from spacy_spans.pipeline.multispan_tagger import MultispanTagger

    return MultispanTagger(
        nlp.vocab,
        model,
        scheme,
        name,
        spans_key=spans_key,
        kept_key=kept_key,
        within_kept=within_kept,
        layers=layers,
        discontinuous=discontinuous,
        max_gap=max_gap,
        loss=loss,
        outside_weight=outside_weight,
        alignment_mode=alignment_mode,
        threshold=threshold,
        label_thresholds=label_thresholds,
        min_length=min_length,
        max_length=max_length,
        scorer=scorer,
    )


DEFAULT_PRUNED_TRANSFORMER = Config().from_str(
    """
[pruned_transformer]
max_batch_items = 4096
spans_keys = ["sc"]
max_span_share = 0.4

[pruned_transformer.set_extra_annotations]
@annotation_setters = "spacy-spans.kept_tokens.v1"
kept_key = "kept_tokens"

[pruned_transformer.model]
@architectures = "spacy-spans.PrunedTransformerModel.v1"
name = "sentence-transformers/all-MiniLM-L6-v2"
tokenizer_config = {"use_fast": true}
transformer_config = {}
gates = [1]
keep_ratio = null
threshold = 0.1
train_keep_ratio = 0.3
warmup_steps = 200
dropped = "pool"
autocast = "auto"
max_batch_pieces = null

[pruned_transformer.model.criterion]
@misc = "spacy-spans.gate_criterion.v1"

[pruned_transformer.model.get_spans]
@span_getters = "spacy-spans.piece_windows.v1"
max_pieces = 128
overlap = 0
"""
)


@Language.factory(
    "pruned_transformer",
    assigns=["doc._.trf_data", "doc.spans"],
    default_config=DEFAULT_PRUNED_TRANSFORMER["pruned_transformer"],
    # Of the default key; at initialize they follow the key in use.
    default_score_weights={
        "kept_tokens_token_recall": 0.0,
        "kept_tokens_keep_ratio": 0.0,
        "kept_tokens_span_recall": 0.0,
    },
)
def make_pruned_transformer(
    nlp: Language,
    name: str,
    model: Model,
    set_extra_annotations: Callable,
    max_batch_items: int,
    spans_keys: list[str],
    max_span_share: float | None,
) -> Any:
    """Make a `transformer` whose gates learn from gold spans; see `PrunedTransformer`."""
    from spacy_spans.pipeline.pruned_transformer import PrunedTransformer

    return PrunedTransformer(
        nlp.vocab,
        model,
        set_extra_annotations,
        name=name,
        max_batch_items=max_batch_items,
        spans_keys=spans_keys,
        max_span_share=max_span_share,
    )


DEFAULT_TOKEN_PRUNER = Config().from_str(
    """
[token_pruner]
kept_key = "kept_tokens"
spans_keys = ["sc"]
context = 0
min_run = 1
always_keep = []
keep_sentence_starts = false
positive_weight = 1.0

[token_pruner.policy]
@misc = "spacy-spans.threshold_policy.v1"
threshold = 0.5

[token_pruner.model]
@architectures = "spacy-spans.TokenPruner.v1"
context_window = 2
learn_rate_factor = 1.0
"""
    # Half the depth of the other components': what it costs is taken off what it saves.
    + CNN.format(component="token_pruner", depth=2)
)


@Language.factory(
    "token_pruner",
    assigns=["doc.spans"],
    default_config=DEFAULT_TOKEN_PRUNER["token_pruner"],
    # Of the default key; at initialize they follow the key in use.
    default_score_weights={
        "kept_tokens_f": 1.0,
        "kept_tokens_token_recall": 0.0,
        "kept_tokens_keep_ratio": 0.0,
        "kept_tokens_span_recall": 0.0,
    },
)
def make_token_pruner(
    nlp: Language,
    name: str,
    model: Model,
    policy: Any,
    kept_key: str,
    spans_keys: list[str],
    context: int,
    min_run: int,
    always_keep: list[str],
    keep_sentence_starts: bool,
    positive_weight: float,
) -> Any:
    """Make a component that chooses the tokens worth encoding; see `TokenPruner`."""
    from spacy_spans.pipeline.token_pruner import TokenPruner

    return TokenPruner(
        nlp.vocab,
        model,
        policy,
        name,
        kept_key=kept_key,
        spans_keys=spans_keys,
        context=context,
        min_run=min_run,
        always_keep=always_keep,
        keep_sentence_starts=keep_sentence_starts,
        positive_weight=positive_weight,
    )
