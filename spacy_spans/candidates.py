"""Registered candidate functions. Each has the signature of a spaCy suggester, so that stock
`spancat` can use it too: `(docs, *, ops=None) -> Ragged` of half-open token offsets.

Results are sorted by start, then end, without duplicates; a document without candidates
contributes no row, and the data is always of shape (n, 2).
"""

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

import numpy as np
from spacy.tokens import Doc
from thinc.api import NumpyOps, Ops, get_current_ops
from thinc.types import Ragged
from thinc.util import to_numpy

from spacy_spans.errors import SettingsError, SpansError
from spacy_spans.groups import read_offsets
from spacy_spans.kernels.enumeration import (
    enumerate_spans,
    pair_boundaries,
    run_limits,
    segment_limits,
)
from spacy_spans.kernels.targets import find_spans, sample_negatives, span_keys
from spacy_spans.types import CandidateFunction, FloatArray, IntArray

BOUNDARY_SCORES = "boundary_scores"
# Listing happens on the host: candidates are numpy arrays until they are scored.
HOST = NumpyOps()


def build_length_candidates_v1(
    max_length: int, min_length: int = 1, within_sentences: bool = False
) -> CandidateFunction:
    """List all spans of `min_length` to `max_length` tokens.

    max_length (int): Longest span, in tokens.
    min_length (int): Shortest span, in tokens; at least 1.
    within_sentences (bool): Leave out spans that cross a sentence boundary. Needs a component
        that sets them earlier in the pipeline.
    RETURNS (CandidateFunction): Raises SpansError on documents without sentence boundaries when
        these are asked for.
    """
    if not 1 <= min_length <= max_length:
        raise SettingsError(
            f"Candidates of {min_length} to {max_length} tokens cannot be listed. "
            "Expected 1 <= min_length <= max_length."
        )
    return partial(
        list_by_length,
        max_length=max_length,
        min_length=min_length,
        within_sentences=within_sentences,
    )


def build_boundary_candidates_v1(
    ratio: float = 0.3,
    max_candidates: int = 10_000,
    max_length: int | None = None,
    scores_key: str | None = None,
) -> CandidateFunction:
    """Pair the likeliest starts with the likeliest ends; spans of any length.

    A `span_enumerator` with this function learns the scores they are chosen by, and writes them
    to `doc._.boundary_scores` under its spans key. Another component can use these by coming
    later in the pipeline, with `span_enumerator` among `[training] annotating_components`.

    ratio (float): Starts kept, and ends kept, per token, above 0 and at most 1.
    max_candidates (int): Most candidates per document.
    max_length (Optional[int]): Longest span in tokens; no limit by default.
    scores_key (Optional[str]): Whose scores another component is to use, where several
        `span_enumerator` wrote some: the spans key of that one.
    RETURNS (CandidateFunction): Raises SpansError on documents without boundary scores.
    """
    if not 0 < ratio <= 1:
        raise SettingsError(f"Got ratio = {ratio}. Expected a share of tokens above 0, at most 1.")
    if max_candidates < 1 or (max_length is not None and max_length < 1):
        raise SettingsError(
            f"Got max_candidates = {max_candidates} and max_length = {max_length}. "
            "Expected at least 1 of each (or no max_length)."
        )
    _register_extension()
    return partial(
        list_by_boundaries,
        ratio=ratio,
        max_candidates=max_candidates,
        max_length=max_length,
        scores_key=scores_key,
    )


def build_preset_candidates_v1(spans_key: str) -> CandidateFunction:
    """Take the candidates from `doc.spans[spans_key]`: another component's output.

    spans_key (str): The key to read.
    RETURNS (CandidateFunction): Raises SpansError on documents without the key.
    """
    return partial(list_preset, spans_key=spans_key)


def needs_boundary_scores(candidates: CandidateFunction) -> bool:
    """Whether a candidate function reads `doc._.boundary_scores`."""
    return getattr(candidates, "func", candidates) is list_by_boundaries


def is_own(candidates: CandidateFunction) -> bool:
    """Whether a candidate function is one of this module, which need no checking."""
    own = (list_by_length, list_by_boundaries, list_preset)
    return getattr(candidates, "func", candidates) in own


def list_by_length(
    docs: Iterable[Doc],
    *,
    max_length: int,
    min_length: int = 1,
    within_sentences: bool = False,
    ops: Ops | None = None,
) -> Ragged:
    """See `build_length_candidates_v1`."""
    listed = []
    for doc in docs:
        limits = _sentence_limits(doc) if within_sentences else segment_limits([len(doc)])
        offsets = enumerate_spans(limits, max_length)
        if min_length > 1:
            offsets = offsets[offsets[:, 1] - offsets[:, 0] >= min_length]
        listed.append(offsets)
    return to_ragged(listed, ops)


def list_by_boundaries(
    docs: Iterable[Doc],
    *,
    ratio: float,
    max_candidates: int,
    max_length: int | None = None,
    scores_key: str | None = None,
    boundary_scores: Sequence[FloatArray] | None = None,
    limits: Sequence[IntArray | None] | None = None,
    ops: Ops | None = None,
) -> Ragged:
    """See `build_boundary_candidates_v1`.

    boundary_scores (Optional[Sequence[ndarray]]): Scores (n_tokens, 2) of each document, in place
        of those on the documents.
    limits (Optional[Sequence]): Of each document as of `pair_boundaries`, None for any span.
    """
    if boundary_scores is None:
        docs = list(docs)
        boundary_scores = [read_boundary_scores(doc, scores_key) for doc in docs]
    if limits is None:
        limits = [None] * len(boundary_scores)
    listed = []
    for scores, own_limits in zip(boundary_scores, limits, strict=True):
        listed.append(
            pair_boundaries(
                scores[:, 0],
                scores[:, 1],
                ratio=ratio,
                max_candidates=max_candidates,
                max_length=max_length,
                limits=own_limits,
            )
        )
    return to_ragged(listed, ops)


def list_preset(docs: Iterable[Doc], *, spans_key: str, ops: Ops | None = None) -> Ragged:
    """See `build_preset_candidates_v1`."""
    listed = []
    for doc in docs:
        if spans_key not in doc.spans:
            raise SpansError(
                f"Candidates are to be read from doc.spans[{spans_key!r}], but the document has "
                f"only {sorted(doc.spans)}. Put the component that writes them earlier in the "
                "pipeline, and for training list it in [training] annotating_components."
            )
        offsets = read_offsets(doc, spans_key)
        # spaCy allows spans without tokens; there is nothing to score in them.
        listed.append(_sorted_unique(offsets[offsets[:, 1] > offsets[:, 0]]))
    return to_ragged(listed, ops)


def check_candidates(candidates: Ragged, docs: Sequence[Doc]) -> Ragged:
    """Sort candidates of another package's function, once each.

    RAISES (SpansError): When one does not lie within its document.
    """
    listed = []
    for doc, own in zip(docs, split_offsets(candidates), strict=True):
        wrong = (own[:, 0] < 0) | (own[:, 0] >= own[:, 1]) | (own[:, 1] > len(doc))
        if wrong.any():
            raise SpansError(
                f"The candidate function returned the span {own[wrong][0].tolist()} for a document "
                f"of {len(doc)} tokens. Expected 0 <= start < end <= {len(doc)}."
            )
        listed.append(_sorted_unique(own))
    return to_ragged(listed, HOST)


def keep_within_runs(
    candidates: Ragged, runs_of_docs: Sequence[IntArray | None], docs: Sequence[Doc]
) -> Ragged:
    """Leave out candidates that do not lie inside one run of their document.

    candidates (Ragged): Half-open offsets, one length per document.
    runs_of_docs (Sequence): Runs of each document, (n_runs, 2); None leaves all its candidates.
    RETURNS (Ragged): In numpy.
    """
    if all(runs is None for runs in runs_of_docs):
        return candidates
    listed = []
    for doc, runs, own in zip(docs, runs_of_docs, split_offsets(candidates), strict=True):
        if len(own) and runs is not None:
            limits = run_limits(runs, len(doc))
            own = own[own[:, 1] <= limits[own[:, 0]]]
        listed.append(own)
    return to_ragged(listed, HOST)


def add_candidates(candidates: Ragged, extra: Sequence[IntArray]) -> Ragged:
    """Add spans that are not among the candidates yet, e.g. gold spans in training.

    extra (Sequence[ndarray]): For each document, half-open offsets of shape (n, 2).
    RETURNS (Ragged): Sorted by start, then end, where anything was added.
    """
    joined = []
    for own, spans in zip(split_offsets(candidates), extra, strict=True):
        missing = spans[find_spans(spans, own) < 0]
        joined.append(_sorted_unique(np.concatenate([own, missing])) if len(missing) else own)
    return to_ragged(joined, HOST)


def sample_candidates(
    candidates: Ragged, positive: Sequence[IntArray], *, ratio: float
) -> tuple[Ragged, FloatArray]:
    """Keep the positive candidates and `ratio` times as many others, at random.

    Draws from numpy's global state, which spaCy seeds (`[training] seed`).

    positive (Sequence[ndarray]): For each document, half-open offsets of shape (n, 2).
    RETURNS (tuple): The kept candidates, and a weight for each that makes them stand for all.
    """
    listed = split_offsets(candidates)
    if not listed:
        return candidates, np.zeros(0, dtype="f")
    masks = []
    for own, spans in zip(listed, positive, strict=True):
        mask = np.zeros(len(own), dtype=bool)
        rows = find_spans(spans, own)
        mask[rows[rows >= 0]] = True
        masks.append(mask)
    rows, weights = sample_negatives(
        np.concatenate(masks),
        ratio=ratio,
        # Follows numpy's global state, which spaCy seeds.
        random=np.random.RandomState(np.random.randint(2**31 - 1)),
    )
    ends = np.cumsum([len(own) for own in listed])
    kept = np.split(np.concatenate(listed)[rows], np.searchsorted(rows, ends)[:-1])
    return to_ragged(kept, HOST), weights


def split_offsets(candidates: Ragged) -> list[IntArray]:
    """The candidates of each document, as numpy arrays of shape (n, 2).

    Also reads suggesters that return data of shape (0, 0) for none at all.
    """
    offsets = to_numpy(candidates.dataXd).reshape(-1, 2)
    return np.split(offsets, np.cumsum(to_numpy(candidates.lengths)))[:-1]


def to_ragged(listed: Sequence[IntArray], ops: Ops | None = None) -> Ragged:
    """Join the offsets of documents. An empty sequence gives data of shape (0, 2)."""
    # thinc's stubs know no numpy arrays.
    on_device: Any = ops if ops is not None else get_current_ops()
    offsets = [np.asarray(own, dtype="i").reshape(-1, 2) for own in listed]
    data = offsets[0] if len(offsets) == 1 else np.concatenate([*offsets, np.zeros((0, 2), "i")])
    lengths = np.asarray([len(own) for own in offsets], dtype="i")
    return Ragged(on_device.asarray(data), on_device.asarray(lengths))


def read_boundary_scores(doc: Doc, key: str | None = None) -> FloatArray:
    """The start and end score of each token, as written by `span_enumerator`.

    key (Optional[str]): The spans key of the component that wrote them; None for the only one.
    RETURNS (ndarray): Shape (n_tokens, 2), float32.
    """
    by_key = (doc._.get(BOUNDARY_SCORES) or {}) if Doc.has_extension(BOUNDARY_SCORES) else {}
    if key is None and len(by_key) > 1:
        raise SpansError(
            f"doc._.boundary_scores has scores of several components, under {sorted(by_key)}. Say "
            "which to use: set scores_key of `spacy-spans.boundary_candidates.v1` to one of these."
        )
    scores = by_key.get(key) if key is not None else next(iter(by_key.values()), None)
    if scores is None:
        raise SpansError(
            "Boundary candidates need doc._.boundary_scores, but the document has none"
            f"{'' if key is None else f' under {key!r}, only under {sorted(by_key)}'}. They are "
            "learned and written by a `span_enumerator` whose candidates are "
            "`spacy-spans.boundary_candidates.v1`: put it earlier in the pipeline, and for "
            "training list it in [training] annotating_components."
        )
    if len(scores) != len(doc):
        raise SpansError(
            f"doc._.boundary_scores has {len(scores)} rows for {len(doc)} tokens. Was the "
            "document retokenised after `span_enumerator`? Put the retokeniser before it."
        )
    return np.asarray(scores, dtype="f")


def write_boundary_scores(doc: Doc, key: str, scores: FloatArray) -> None:
    """Keep the start and end score of each token under a spans key. Shape (n_tokens, 2)."""
    _register_extension()
    doc._.set(BOUNDARY_SCORES, {**(doc._.get(BOUNDARY_SCORES) or {}), key: scores})


def _register_extension() -> None:
    if not Doc.has_extension(BOUNDARY_SCORES):
        Doc.set_extension(BOUNDARY_SCORES, default=None)


def _sentence_limits(doc: Doc) -> IntArray:
    if len(doc) and not doc.has_annotation("SENT_START"):
        raise SpansError(
            "Candidates are to stay within sentences, but the document has no sentence "
            "boundaries. Add e.g. `sentencizer` earlier in the pipeline (for training also to "
            "[training] annotating_components), or set within_sentences = false."
        )
    return segment_limits([len(sentence) for sentence in doc.sents] if len(doc) else [])


def _sorted_unique(offsets: IntArray) -> IntArray:
    _, rows = np.unique(span_keys(offsets), return_index=True)
    return offsets[rows]
