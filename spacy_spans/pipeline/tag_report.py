"""Count what a tag scheme cannot express in the training data, and what the data lost before."""

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
from spacy.tokens import Span
from spacy.training import Example

from spacy_spans.alignment import GoldMentions, annotation_of
from spacy_spans.converters.align import join_over_white_space
from spacy_spans.kernels.schemes import BoolArray
from spacy_spans.keys import CHARACTERS_KEY
from spacy_spans.pipeline.gold_report import GoldReport, Losses, amount, format_counts, shorten
from spacy_spans.pipeline.tag_layout import MAX_SHARED_TAGS, TagLayout
from spacy_spans.pipeline.tagging import MAX_FRAGMENT_LENGTH, Targets

# Why gold is lost.
NOT_EXPRESSED = "not expressed by the scheme"
NOT_JOINED = "of fragments that are not joined"
NOT_KEPT = "outside of kept runs"
NOT_WITHIN = "outside of min_length to max_length"
# As `spacy_spans.groups.mention_name` gives them: these are ids of mentions.
OWN_NAME = re.compile(r"m\d+")


class TagReport(GoldReport):
    """Running counts over examples.

    moved (Losses): Gold that is learned, but not as it was annotated.
    """

    def __init__(
        self,
        labels: Sequence[str],
        layout: TagLayout,
        *,
        max_gap: int,
        min_length: int,
        max_length: int | None,
    ) -> None:
        super().__init__(labels)
        self.layout = layout
        self.max_gap = max_gap
        self.min_length = min_length
        self.max_length = max_length
        self.longest = 0
        self.moved = Losses()
        self.n_inside_tokens = 0
        self.n_merged = 0
        self.n_linked = 0
        self.n_odd_links = 0
        self.odd_link_example = ""

    advice = 'Set alignment_mode = "expand" or "contract"'

    def add(
        self,
        examples: Sequence[Example],
        key: str,
        gold: Sequence[GoldMentions],
        targets: Targets,
    ) -> None:
        """Count documents.

        gold (Sequence): Of those that have the key.
        targets (Targets): Of the same.
        """
        ends = np.cumsum([int(own.mentions.max(initial=-1)) + 1 for own in gold])[:-1]
        masks = np.split(targets.expressed, ends), np.split(targets.outside, ends)
        found = zip(gold, *masks, strict=False)
        for example in examples:
            if key in example.reference.spans:
                self._add(example, key, *next(found))
            else:
                self.add_without_key()

    def _add(
        self,
        example: Example,
        key: str,
        gold: GoldMentions,
        expressed: BoolArray,
        is_outside: BoolArray,
    ) -> None:
        doc = example.predicted
        first = np.unique(gold.mentions, return_index=True)[1]
        self.add_gold(len(doc), gold.labels[first].tolist(), gold.misaligned)
        lengths = np.bincount(gold.mentions, weights=gold.offsets[:, 1] - gold.offsets[:, 0])
        self.longest = max(self.longest, int(lengths.max(initial=0)))
        limit = self.max_length if self.max_length is not None else np.inf
        within = (lengths >= self.min_length) & (lengths <= limit)
        self.n_merged += gold.n_merged
        for mention in np.flatnonzero(~expressed | ~within).tolist():
            rows = np.flatnonzero(gold.mentions == mention)
            if is_outside[mention]:
                reason = NOT_KEPT
            elif not expressed[mention]:
                reason = NOT_EXPRESSED if len(rows) == 1 else NOT_JOINED
            else:
                reason = NOT_WITHIN
            label = self.labels[gold.labels[rows[0]]]
            self.lose(reason, annotation_of(doc, gold.offsets[rows].tolist(), label))
        for annotation in gold.moved:
            self.moved.add(self.n_docs - 1, annotation)
        self.n_inside_tokens += _count_inside_tokens(example, key)
        self._count_links(example, key)

    def _count_links(self, example: Example, key: str) -> None:
        """Count ids that link spans, and those that do not look like ids of mentions."""
        spans_of: dict[int, list[Span]] = {}
        for span in example.reference.spans.get(key, ()):
            if span.id:
                spans_of.setdefault(span.id, []).append(span)
        for spans in spans_of.values():
            self.n_linked += len(spans) > 1
            texts = {(span.label, span.text.lower()) for span in spans}
            is_odd = len({span.label for span in spans}) > 1 or len(texts) < len(spans)
            # Other components may set ids that the vocabulary does not know.
            strings: Any = example.reference.vocab.strings
            name = strings[spans[0].id] if spans[0].id in strings else ""
            if is_odd and not OWN_NAME.fullmatch(name):
                self.n_odd_links += 1
                self.odd_link_example = self.odd_link_example or " … ".join(
                    f"{span.text} ({span.label_})" for span in spans
                )

    def lost_messages(self, name: str, key: str) -> list[str]:
        """See `GoldReport.lost_messages`."""
        return [
            *self._scheme_messages(name, key),
            *self._mention_messages(name, key),
            *self._limit_messages(name, key),
            *self._token_messages(name, key),
            *super().lost_messages(name, key),
        ]

    def _scheme_messages(self, name: str, key: str) -> list[str]:
        """Of the tag scheme and its layers."""
        scheme = self.layout.scheme
        messages = []
        if self.layout.shared and self.layout.n_tags > MAX_SHARED_TAGS:
            messages.append(
                f"{name}: one layer for all labels has {self.layout.n_tags} tags, and takes time "
                'in proportion to the cube of that. Use layers = "per_label" unless labels have '
                "to exclude each other."
            )
        if NOT_EXPRESSED in self.losses:
            lost = self.losses[NOT_EXPRESSED]
            if self.layout.shared:
                loses = f"spans that overlap, whatever their labels, and {scheme.loses}"
                instead = 'layers = "per_label" or another scheme'
            else:
                loses, instead = scheme.loses, "another scheme, or span_enumerator for such spans"
            messages.append(
                f"{name}: {lost.total()} of {self.n_gold} gold spans in {key!r} cannot be "
                f"expressed and are not learned ({lost}). The scheme {scheme.name!r} with "
                f"{amount(self.layout.n_layers, 'layer')} of tags loses {loses}. Use {instead}."
            )
        return messages

    def _mention_messages(self, name: str, key: str) -> list[str]:
        """Of discontinuous mentions, and what looks like some."""
        messages = []
        if self.n_odd_links:
            messages.append(
                f"{name}: {self.n_odd_links} of {self.n_linked} times that spans of a document "
                f"share a Span.id in {key!r}, they have several labels or the same text twice "
                f"(e.g. {shorten(self.odd_link_example)!r}), as with the ids of patterns that "
                "`span_ruler` writes. Spans of one label with one id are read as fragments of one "
                "mention, in training and in scores: write the group again without ids unless "
                "they are."
            )
        if NOT_JOINED not in self.losses:
            return messages
        lost = self.losses[NOT_JOINED]
        of_all = f"{name}: {lost.total()} of {self.n_gold} gold spans in {key!r}"
        if not self.layout.links:
            messages.append(
                f"{of_all} are discontinuous and learned as a span for each fragment, so they will "
                f"not be found as mentions ({lost}). Set discontinuous = true."
            )
        else:
            messages.append(
                f"{of_all} are discontinuous, cannot be put together again from links and are not "
                f"learned ({lost}): their fragments overlap those of others, have more than "
                f"{MAX_FRAGMENT_LENGTH} tokens or are more than max_gap = {self.max_gap} tokens "
                "apart, or they share fragments with others in a way that gives other mentions."
            )
        return messages

    def _limit_messages(self, name: str, key: str) -> list[str]:
        """Of kept runs and of lengths."""
        messages = []
        if NOT_KEPT in self.losses:
            lost = self.losses[NOT_KEPT]
            messages.append(
                f"{name}: {lost.total()} of {self.n_gold} gold spans in {key!r} do not lie inside "
                f"one kept run; they are not learned and cannot be predicted ({lost}). Keep more "
                "tokens, or set within_kept = false."
            )
        if NOT_WITHIN in self.losses:
            lost = self.losses[NOT_WITHIN]
            messages.append(
                f"{name}: {lost.total()} of {self.n_gold} gold spans in {key!r} are shorter than "
                f"min_length = {self.min_length} or longer than max_length = {self.max_length} and "
                f"will not be written ({format_counts(lost.of_label)}; the longest has "
                f"{self.longest} tokens). No cost depends on the length: max_length = null writes "
                "all."
            )
        return messages

    def _token_messages(self, name: str, key: str) -> list[str]:
        """Of gold that does not begin and end with a token."""
        messages = []
        # Several may have become one, so these are no parts of all gold spans.
        if n_moved := self.moved.total():
            messages.append(
                f"{name}: {amount(n_moved, 'gold span')} in {key!r} with an end inside of a token, "
                f"or with fragments that touch, learned as whole tokens ({self.moved}); see "
                "alignment_mode."
            )
        if self.n_merged:
            messages.append(
                f"{name}: {amount(self.n_merged, 'gold span')} in {key!r} on the same tokens as "
                "another with that label, learned once: the tokens of this pipeline are longer "
                "than those of the data."
            )
        if self.n_inside_tokens:
            messages.append(
                f"{name}: {amount(self.n_inside_tokens, 'annotation')} for {key!r} moved to token "
                "boundaries, or left out, when the data was converted. "
                f"spans_{key}_char_f is measured against their original characters."
            )
        return messages


def _count_inside_tokens(example: Example, key: str) -> int:
    """Annotations whose characters no span of the reference has; see `converters`."""
    reference = example.reference
    annotations = reference.user_data.get(CHARACTERS_KEY, {}).get(key)
    if not annotations:
        return 0
    edges = {(s.start_char, s.end_char, s.label_) for s in reference.spans.get(key, ())}
    # spaCy joins tokens each time it is asked for the text.
    text = reference.text
    return sum(
        any(
            (start, end, label) not in edges
            for start, end in join_over_white_space(fragments, text)
        )
        for label, fragments in annotations
    )
