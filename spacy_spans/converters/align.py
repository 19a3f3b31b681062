"""Character offsets to token offsets, with a reason where there are none.

Boundaries follow `Doc.char_span`. White space is an exception: annotations of nothing else are
lost in every mode, as spaCy's components cannot learn them.
"""

from bisect import bisect_right
from collections.abc import Sequence
from typing import Final

from spacy.tokens import Doc

from spacy_spans.converters.records import Annotation, Offsets

ALIGNMENT_MODES: Final = ("strict", "contract", "expand")

MISALIGNED_START: Final = "misaligned start"
MISALIGNED_END: Final = "misaligned end"
MISALIGNED_BOTH: Final = "misaligned start and end"
EMPTY: Final = "empty after contract"
WHITE_SPACE: Final = "white space only"


class TokenEdges:
    """Where the tokens of a document start and end, in characters.

    Built once a document, in time linear in its length; each look-up is a binary search.
    """

    def __init__(self, doc: Doc) -> None:
        self.text = doc.text
        self.starts = [token.idx for token in doc]
        self.ends = [token.idx + len(token) for token in doc]

    def align(self, start: int, end: int, mode: str) -> Offsets | str:
        """Find the tokens of a stretch of text.

        start, end (int): Characters, end exclusive: 0 <= start < end <= len(text).
        mode (str): strict: both must be token boundaries. contract: the tokens that lie inside as
            a whole. expand: every token touched.
        RETURNS (tuple | str): Tokens, end exclusive; or the reason why there are none.
        """
        if self.text[start:end].isspace():
            return WHITE_SPACE
        # The space after a token counts as a part of it here.
        first = bisect_right(self.starts, start) - 1
        last = bisect_right(self.starts, end - 1) - 1
        if mode == "contract":
            first += self.starts[first] < start
            last -= end < self.ends[last]
            if first > last or self.text[self.starts[first] : self.ends[last]].isspace():
                return EMPTY
        elif mode == "expand":
            first += start == self.ends[first]
        else:
            bad_start = self.starts[first] != start
            bad_end = self.ends[last] != end
            if bad_start or bad_end:
                reasons = (MISALIGNED_BOTH, MISALIGNED_START, MISALIGNED_END)
                return reasons[0 if bad_start and bad_end else 1 if bad_start else 2]
        return first, last + 1

    def is_exact(self, tokens: Offsets, characters: Offsets) -> bool:
        """Whether tokens cover these characters and no others."""
        return (self.starts[tokens[0]], self.ends[tokens[1] - 1]) == characters


def align_annotation(
    edges: TokenEdges, annotation: Annotation, mode: str
) -> tuple[tuple[Offsets, ...], bool] | str:
    """Align all fragments of an annotation.

    edges (TokenEdges): The document's token boundaries.
    annotation (Annotation): One or more fragments, in order.
    mode (str): As in `TokenEdges.align`.
    RETURNS (tuple | str): The fragments in tokens, in order, those that touch or overlap joined;
        and whether any boundary moved. Or a reason, when one fragment has no tokens: a part would
        be another mention than the one annotated.
    """
    found: list[Offsets] = []
    moved = False
    for characters in join_over_white_space(annotation.fragments, edges.text):
        tokens = edges.align(*characters, mode)
        if isinstance(tokens, str):
            return tokens
        moved |= not edges.is_exact(tokens, characters)
        if found and tokens[0] <= found[-1][1]:
            tokens = found.pop()[0], tokens[1]
        found.append(tokens)
    return tuple(found), moved


def join_over_white_space(fragments: Sequence[Offsets], text: str) -> list[Offsets]:
    """brat parts a mention at every line break: such parts are one stretch of text."""
    joined = [fragments[0]]
    for start, end in fragments[1:]:
        if text[joined[-1][1] : start].strip():
            joined.append((start, end))
        else:
            joined[-1] = joined[-1][0], end
    return joined
