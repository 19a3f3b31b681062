"""Run a token encoder over pieces of documents, so that its memory does not grow with them.

thinc layers keep every intermediate array of a batch until the outermost layer returns: a
100,000-token document takes stock's small CNN through 1.9 GB.
"""

from collections.abc import Callable, Sequence
from typing import Any, cast

from spacy.tokens import Doc
from thinc.api import Model
from thinc.types import Floats2d

from spacy_spans.errors import SettingsError

TokensModel = Model[list[Doc], list[Floats2d]]


class DocPiece:
    """Some tokens of a document, for layers that read features of tokens.

    A `Span` would be the natural thing, but its `to_array` knows no attribute names, and
    `Span.as_doc` loses norms.
    """

    def __init__(self, doc: Doc, start: int, end: int) -> None:
        self.doc, self.start, self.end = doc, start, end
        self.vocab = doc.vocab

    def __len__(self) -> int:
        return self.end - self.start

    def to_array(self, attrs: Any) -> Any:
        """As `Doc.to_array`, for these tokens."""
        return self.doc.to_array(attrs)[self.start : self.end]

    def to_utf8_array(self, nr_char: int = -1) -> Any:
        """As `Doc.to_utf8_array`, for these tokens."""
        return self.doc.to_utf8_array(nr_char=nr_char)[self.start : self.end]


def windowed(tok2vec: TokensModel, window: int) -> TokensModel:
    """Wrap a token encoder. See `spacy_spans.architectures.build_windowed_tok2vec_v1`."""
    return Model(
        "windowed_tok2vec",
        _forward,
        init=_init,
        layers=[tok2vec],
        dims={"nO": tok2vec.maybe_get_dim("nO")},
        attrs={"window": window, "context": tokens_seen(tok2vec)},
    )


def tokens_seen(tok2vec: TokensModel) -> int:
    """How many tokens on each side the vector of a token depends on.

    RAISES (SettingsError): When the layers do not tell.
    """
    seen = 0
    for node in tok2vec.walk():
        if node.name == "expand_window":
            seen += node.attrs["window_size"]
        elif node.shims or "listener" in node.name or "lstm" in node.name:
            raise SettingsError(
                f"The encoder has a layer {node.name!r}, whose tokens may see the whole document. "
                "Expected layers that see windows only, such as spacy.MaxoutWindowEncoder.v2: use "
                "the encoder without spacy-spans.WindowedTok2Vec.v1."
            )
    return seen


def _forward(
    model: TokensModel, docs: Sequence[Doc], is_train: bool
) -> tuple[list[Floats2d], Callable]:
    tok2vec = model.layers[0]
    window, context = model.attrs["window"], model.attrs["context"]
    if is_train or sum(len(doc) for doc in docs) <= window:
        return tok2vec(docs, is_train)
    pieces = [
        (i, start, min(start + window, len(doc)))
        for i, doc in enumerate(docs)
        for start in range(0, len(doc), window)
    ]
    rows: list[list[Floats2d]] = [[] for _ in docs]
    for batch in _batches(pieces, window):
        seen = [
            DocPiece(docs[i], max(0, start - context), min(end + context, len(docs[i])))
            for i, start, end in batch
        ]
        vectors = tok2vec.predict(cast(Any, seen))
        for own, piece, (i, start, end) in zip(vectors, seen, batch, strict=True):
            rows[i].append(own[start - piece.start : end - piece.start])
    xp: Any = model.ops.xp
    nothing = xp.zeros((0, rows[pieces[0][0]][0].shape[1]), dtype="f")
    joined = [own[0] if len(own) == 1 else xp.concatenate([nothing, *own]) for own in rows]

    def backprop(d_output: list[Floats2d]) -> None:
        raise AssertionError("prediction has no gradient")

    return joined, backprop


def _batches(pieces: list[tuple[int, int, int]], window: int) -> list[list[tuple[int, int, int]]]:
    """Group pieces in order, each group of at most `window` tokens or a single piece."""
    groups: list[list[tuple[int, int, int]]] = []
    room = 0
    for piece in pieces:
        length = piece[2] - piece[1]
        if not groups or length > room:
            groups.append([])
            room = window
        groups[-1].append(piece)
        room -= length
    return groups


def _init(model: TokensModel, X: Any = None, Y: Any = None) -> TokensModel:
    tok2vec = model.layers[0].initialize(X=X, Y=Y)
    if tok2vec.has_dim("nO"):
        model.set_dim("nO", tok2vec.get_dim("nO"), force=True)
    return model
