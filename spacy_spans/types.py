"""Shared types of the data path. Offsets are document-local, half-open, in tokens."""

from collections.abc import Iterable
from typing import NamedTuple, Protocol, TypeAlias, runtime_checkable

import numpy as np
import numpy.typing as npt
from spacy.tokens import Doc
from thinc.api import Ops
from thinc.types import Ragged

IntArray: TypeAlias = npt.NDArray[np.int32]
LongArray: TypeAlias = npt.NDArray[np.int64]
# Where either will do.
Integers: TypeAlias = IntArray | LongArray
FloatArray: TypeAlias = npt.NDArray[np.float32]


@runtime_checkable
class CandidateFunction(Protocol):
    """List candidate spans, with the signature of spaCy's suggesters.

    RETURNS (Ragged): data (n_candidates, 2) of start and end, lengths (n_docs,).
    """

    def __call__(self, docs: Iterable[Doc], *, ops: Ops | None = None) -> Ragged: ...


class TokenPolicy(Protocol):
    """Choose the tokens of one document to keep.

    scores (ndarray): A probability for each token. Shape (n_tokens,).
    RETURNS (ndarray): A mask. The same shape.
    """

    def __call__(self, scores: FloatArray, /) -> npt.NDArray[np.bool_]: ...


class SpanArrays(NamedTuple):
    """Labelled spans of one document.

    offsets (ndarray): Start and end in tokens. Shape (n, 2), int32.
    labels (ndarray): Index of each span's label. Shape (n,), int32.
    scores (ndarray): Probability of each span. Shape (n,), float32.
    """

    offsets: IntArray
    labels: IntArray
    scores: FloatArray
