"""Linear chains over tags: the best path, exact marginals, and the log-likelihood.

All documents of a batch lie end to end on one chain; at the first token of a document the step
from the tag before is replaced by "end there, start here", which decouples them. Layers are
independent chains over the same tokens.

Nothing loops over tokens. A step from one token to the next is a matrix, a stretch of steps is
the product of theirs, and products are associative: `scan` finds the state after every token in
O(log n) rounds (parallel prefix sums: Blelloch 1990; for hidden Markov models: Särkkä and
García-Fernández, https://arxiv.org/abs/2102.05743). It costs n_tags ** 3 a token, which is little
for the few tags of one label. Sums of probabilities are scaled instead of taken to logarithms, in
double precision. The matrices are made in blocks; what is held for all tokens is some ten numbers
for each of their scores.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from spacy_spans.kernels.schemes import BoolArray, TagTable
from spacy_spans.types import IntArray, Integers, LongArray

DoubleArray: TypeAlias = npt.NDArray[np.float64]
Step: TypeAlias = Callable[[Any, Any], Any]
# Numbers in the step matrices that are held at once: 32 MB.
NUMBERS_PER_BLOCK = 1 << 22
# How far below the best tag of a token, in nats, another can be: further down no double can tell
# the sums of paths apart. Scores of sequences stay within as much of 0. With more, products of
# steps leave the range of doubles.
LOWEST = 50.0


class Chain(NamedTuple):
    """Scores of tags and of their sequences, as logarithms.

    emissions (ndarray): Score of each tag of each token. Shape (n_tokens, n_layers, n_tags).
    transitions (ndarray): Score of the second tag following the first, -inf for never. Shape
        (n_layers, n_tags, n_tags).
    starts, ends (ndarray): Score of a document's first and last tag. Shape (n_layers, n_tags).
    is_first (ndarray): Whether a document starts at a token. Shape (n_tokens,).
    """

    emissions: DoubleArray
    transitions: DoubleArray
    starts: DoubleArray
    ends: DoubleArray
    is_first: BoolArray


def make_chain(
    table: TagTable, emissions: npt.NDArray[Any], edges: npt.NDArray[Any], is_first: BoolArray
) -> Chain:
    """A chain on which only what the table allows has any score.

    emissions (ndarray): Shape (n_tokens, n_layers, n_tags).
    edges (ndarray): Learned scores: a row per tag before, then one for document starts and one
        for document ends. Shape (n_layers, n_tags + 2, n_tags).
    is_first (ndarray): Whether a document starts at a token. Shape (n_tokens,).
    """
    tag_scores = emissions.astype(np.float64)
    if tag_scores.size:
        tag_scores = np.maximum(tag_scores, tag_scores.max(axis=-1, keepdims=True) - LOWEST)
    scores = np.clip(edges.astype(np.float64), -LOWEST, LOWEST)
    return Chain(
        tag_scores,
        np.where(table.legal, scores[:, :-2], -np.inf),
        np.where(table.may_start, scores[:, -2], -np.inf),
        np.where(table.may_end, scores[:, -1], -np.inf),
        is_first,
    )


def scan(items: Any, first: Any, combine: Step, apply: Step) -> Any:
    """States after each item, in O(log n) rounds.

    items (ndarray): Maps from a state to the next. Shape (n, ...).
    first (ndarray): The state before the first item.
    combine (Callable): Two stacks of maps to the stack of maps that do one, then the other.
    apply (Callable): A stack of states and one of maps to the stack of states after them.
    RETURNS (ndarray): Shape (n, ...), as `first`.
    """
    n = len(items)
    if n == 0:
        return np.zeros((0, *first.shape), dtype=first.dtype)
    if n == 1:
        return apply(first[None], items)
    odd = scan(combine(items[0 : n - 1 : 2], items[1:n:2]), first, combine, apply)
    before = np.concatenate([first[None], odd])[: (n + 1) // 2]
    states = np.empty((n, *first.shape), dtype=first.dtype)
    states[0::2] = apply(before, items[0::2])
    states[1::2] = odd
    return states


def viterbi(chain: Chain) -> IntArray:
    """The tags of the best path; of equally good ones, any.

    RETURNS (ndarray): Shape (n_tokens, n_layers), int32.
    """
    n_tokens, n_layers, n_tags = chain.emissions.shape
    if n_tokens == 0:
        return np.zeros((0, n_layers), dtype="i")
    # The best tag before, for each tag of each token.
    back = np.zeros((n_tokens, n_layers, n_tags), dtype=np.uint8 if n_tags < 256 else np.uint32)
    state = _nothing_before(chain, -np.inf, 0.0)
    for rows in _blocks(chain):
        steps = _log_steps(chain, rows)
        states = scan(steps, state, _combine_best, _apply_best)
        before = np.concatenate([state[None], states[:-1]])
        back[rows] = (before[..., None] + steps).argmax(axis=-2)
        # Only differences count: subtracting the best keeps numbers small over long documents.
        state = states[-1] - states[-1].max(axis=-1, keepdims=True)
    last = (state + chain.ends).argmax(axis=-1)
    earlier = scan(back[:0:-1], last, _combine_choices, _apply_choice)
    return np.concatenate([earlier[::-1], last[None]]).astype("i")


class Posterior(NamedTuple):
    """What the forward and the backward pass find.

    forward, backward (ndarray): In proportion to the probability of all before, and all after,
        given a tag; each token scaled by itself. Shape (n_tokens, n_layers, n_tags).
    log_scale (ndarray): What one step adds to the logarithm of the total; the sum over tokens is
        the log-normaliser. Shape (n_tokens, n_layers).
    log_total (ndarray): Logarithm of the sum over all paths, all documents together. (n_layers,)
    """

    forward: DoubleArray
    backward: DoubleArray
    log_scale: DoubleArray
    log_total: DoubleArray

    @property
    def marginals(self) -> DoubleArray:
        """Probability of each tag of each token. Shape (n_tokens, n_layers, n_tags)."""
        return _normalise(self.forward * self.backward)


def infer(chain: Chain) -> Posterior:
    """Run forward and backward over all paths."""
    shape = chain.emissions.shape
    forward, backward = np.empty(shape), np.empty(shape)
    scale = np.empty(shape[:2])
    if shape[0] == 0:
        return Posterior(forward, backward, scale, np.zeros(shape[1]))
    state = _nothing_before(chain, 0.0, 1.0)
    for rows in _blocks(chain):
        steps = _steps(chain, rows)
        states = scan(steps, state, _combine_sum, _apply_sum)
        before = np.concatenate([state[None], states[:-1]])
        scale[rows] = _multiply_vector(before, steps).sum(axis=-1)
        forward[rows] = states
        state = states[-1]
    log_scale = np.log(scale) + chain.emissions.max(axis=-1)
    ends = np.exp(chain.ends)
    log_total = log_scale.sum(axis=0) + np.log((state * ends).sum(axis=-1))
    state = _normalise(ends)
    for rows in reversed(list(_blocks(chain))):
        # Before the last token of the block comes what the steps into the later ones give.
        steps = _steps(chain, rows).swapaxes(-1, -2)[::-1]
        states = scan(steps, state, _combine_sum, _apply_sum)
        backward[rows] = np.concatenate([states[:-1][::-1], state[None]])
        state = states[-1]
    return Posterior(forward, backward, log_scale, log_total)


def chain_loss(
    table: TagTable,
    emissions: npt.NDArray[Any],
    edges: npt.NDArray[Any],
    is_first: BoolArray,
    tags: IntArray,
) -> tuple[float, DoubleArray, DoubleArray]:
    """Negative log-likelihood of tags under a linear-chain conditional random field (Lafferty et
    al. 2001), exactly, summed over documents and layers.

    emissions, edges, is_first: As for `make_chain`.
    tags (ndarray): Gold, legal. Shape (n_tokens, n_layers).
    RETURNS (tuple): Loss, and its gradients of the shapes of emissions and edges.
    """
    chain = make_chain(table, emissions, edges, is_first)
    followed = np.clip(edges.astype(np.float64), -LOWEST, LOWEST)
    d_edges = np.zeros(edges.shape)
    if not len(tags):
        return 0.0, np.zeros(emissions.shape), d_edges
    posterior = infer(chain)
    layers = np.arange(tags.shape[1])
    d_emissions = posterior.marginals
    is_last = np.append(is_first[1:], True)
    d_edges[:, :-2] = _expected_steps(chain, posterior)
    d_edges[:, -2] = d_emissions[is_first].sum(axis=0)
    d_edges[:, -1] = d_emissions[is_last].sum(axis=0)
    gold = chain.emissions[np.arange(len(tags))[:, None], layers, tags].sum()
    np.subtract.at(d_emissions, (np.arange(len(tags))[:, None], layers, tags), 1.0)
    n_tags = emissions.shape[-1]
    sources = tags[:-1][~is_first[1:]], np.full(1, n_tags), np.full(1, n_tags + 1)
    targets = tags[1:][~is_first[1:]], tags[is_first], tags[is_last]
    for source, target in zip(sources, targets, strict=True):
        where = np.broadcast_arrays(layers, source, target)
        gold += followed[tuple(where)].sum()
        np.subtract.at(d_edges, tuple(where), 1.0)
    return float(posterior.log_total.sum() - gold), d_emissions, d_edges


def span_log_probabilities(
    table: TagTable,
    chain: Chain,
    posterior: Posterior,
    spans: LongArray,
    layers: Integers,
    labels: Integers,
) -> DoubleArray:
    """Log-probability of each span: the share of all paths, by weight, on which exactly this
    span stands, with its first tag continuing nothing and its last tag not continued.

    spans (ndarray): Half-open, in tokens of the chain, within one document. Shape (n, 2).
    layers, labels (ndarray): Layer of each span, and its label within the layer. Shape (n,).
    RETURNS (ndarray): Shape (n,), at most 0 but for rounding.
    """
    scheme = table.scheme
    first, last = spans[:, 0], spans[:, 1] - 1
    lengths = spans[:, 1] - spans[:, 0]
    single = lengths == 1
    first_tags = np.where(single, table.tag(scheme.single, labels), table.tag(scheme.begin, labels))
    last_tags = np.where(single, first_tags, table.tag(scheme.end, labels))
    inner_tags = table.tag(scheme.inside, labels)
    entry, leave = _entry_and_exit(table, chain, posterior)
    # Zero probabilities give -inf, which is what is meant.
    with np.errstate(divide="ignore"):
        result: DoubleArray = np.log(entry[first, layers, first_tags]) + np.log(
            leave[last, layers, last_tags]
        )

    def step(rows: Any, tokens: Any, before: Any, after: Any) -> Any:
        at = layers[rows]
        score = chain.transitions[at, before, after] + chain.emissions[tokens, at, after]
        return score - posterior.log_scale[tokens, at]

    two = np.flatnonzero(lengths == 2)
    result[two] += step(two, last[two], first_tags[two], last_tags[two])
    more = np.flatnonzero(lengths > 2)
    result[more] += step(more, first[more] + 1, first_tags[more], inner_tags[more])
    result[more] += step(more, last[more], inner_tags[more], last_tags[more])
    # The steps from inside to inside between the second and the last token, by prefix sums.
    all_inner = table.tag(scheme.inside, np.arange(table.n_labels, dtype="i"))
    staying = chain.emissions[:, :, all_inner] + chain.transitions[:, all_inner, all_inner]
    staying -= posterior.log_scale[:, :, None]
    sums = np.concatenate([np.zeros((1, *staying.shape[1:])), staying.cumsum(axis=0)])
    at, label = layers[more], labels[more]
    result[more] += sums[last[more], at, label] - sums[first[more] + 2, at, label]
    return result


def _entry_and_exit(
    table: TagTable, chain: Chain, posterior: Posterior
) -> tuple[DoubleArray, DoubleArray]:
    """For each tag of each token: the probability of all before it, entering with a new span,
    and the factor that all after it adds, the span ending there.

    The step into a document's first token never continues a span, nor does that out of its last.
    """
    entry = np.empty(chain.emissions.shape)
    leave = np.empty(chain.emissions.shape)
    after = np.empty(chain.emissions.shape)
    state = _nothing_before(chain, 0.0, 1.0)
    fresh = ~table.continues
    for rows in _blocks(chain):
        steps = _steps(chain, rows)
        before = np.concatenate([state[None], posterior.forward[rows][:-1]])
        scale = _multiply_vector(before, steps).sum(axis=-1, keepdims=True)
        state = posterior.forward[rows][-1]
        leaving = np.where(chain.is_first[rows, None, None, None], True, fresh) * steps
        entry[rows] = _multiply_vector(before, leaving) / scale
        # A step belongs to the token it leads to, a way out to the token before.
        into = posterior.backward[rows][..., None, :]
        outs = (leaving * into).sum(axis=-1), (steps * into).sum(axis=-1)
        inner = slice(max(rows.start - 1, 0), rows.stop - 1)
        skip = int(rows.start == 0)
        leave[inner], after[inner] = outs[0][skip:], outs[1][skip:]
    leave[-1:] = after[-1:] = np.exp(chain.ends)
    total = (posterior.forward * after).sum(axis=-1, keepdims=True)
    return entry, leave / total


def _expected_steps(chain: Chain, posterior: Posterior) -> DoubleArray:
    """How often each tag is expected to follow each. Shape (n_layers, n_tags, n_tags)."""
    counts = np.zeros(chain.transitions.shape)
    state = _nothing_before(chain, 0.0, 1.0)
    for rows in _blocks(chain):
        before = np.concatenate([state[None], posterior.forward[rows][:-1]])
        pairs = before[..., None] * _steps(chain, rows) * posterior.backward[rows][..., None, :]
        pairs /= pairs.sum(axis=(-1, -2), keepdims=True)
        counts += pairs[~chain.is_first[rows]].sum(axis=0)
        state = posterior.forward[rows][-1]
    return counts


def _blocks(chain: Chain) -> Iterator[slice]:
    n_tokens, n_layers, n_tags = chain.emissions.shape
    size = max(1, NUMBERS_PER_BLOCK // (n_layers * n_tags * n_tags))
    for start in range(0, n_tokens, size):
        yield slice(start, min(start + size, n_tokens))


def _nothing_before(chain: Chain, zero: float, one: float) -> DoubleArray:
    """The state before the first token: as if O came before, which any start may follow."""
    state = np.full(chain.starts.shape, zero)
    state[:, 0] = one
    return state


def _log_steps(chain: Chain, rows: slice) -> DoubleArray:
    """Score of coming from each tag to each tag of the tokens. (n, n_layers, n_tags, n_tags)"""
    steps = np.where(
        chain.is_first[rows, None, None, None],
        chain.ends[:, :, None] + chain.starts[:, None, :],
        chain.transitions,
    )
    if rows.start == 0:
        steps[0] = chain.starts[:, None, :]
    scores: DoubleArray = steps + chain.emissions[rows, :, None, :]
    return scores


def _steps(chain: Chain, rows: slice) -> DoubleArray:
    """The same as factors, each token divided by its best tag's."""
    steps = np.where(
        chain.is_first[rows, None, None, None],
        np.exp(chain.ends[:, :, None] + chain.starts[:, None, :]),
        np.exp(chain.transitions),
    )
    if rows.start == 0:
        steps[0] = np.exp(chain.starts[:, None, :])
    emissions = chain.emissions[rows]
    factors = np.exp(emissions - emissions.max(axis=-1, keepdims=True))
    scaled: DoubleArray = steps * factors[:, :, None, :]
    return scaled


def _normalise(values: DoubleArray) -> DoubleArray:
    scaled: DoubleArray = values / values.sum(axis=-1, keepdims=True)
    return scaled


def _multiply_vector(vectors: Any, matrices: Any) -> Any:
    return (vectors[..., None, :] @ matrices)[..., 0, :]


def _apply_sum(vectors: Any, matrices: Any) -> Any:
    return _normalise(_multiply_vector(vectors, matrices))


def _combine_sum(first: Any, second: Any) -> Any:
    total = first @ second
    return total / total.max(axis=(-1, -2), keepdims=True)


def _apply_best(vectors: Any, matrices: Any) -> Any:
    best = vectors[..., 0, None] + matrices[..., 0, :]
    for tag in range(1, matrices.shape[-2]):
        np.maximum(best, vectors[..., tag, None] + matrices[..., tag, :], out=best)
    return best


def _combine_best(first: Any, second: Any) -> Any:
    best = first[..., :, 0, None] + second[..., None, 0, :]
    for tag in range(1, first.shape[-1]):
        np.maximum(best, first[..., :, tag, None] + second[..., None, tag, :], out=best)
    return best


def _combine_choices(first: Any, second: Any) -> Any:
    return np.take_along_axis(second, first, axis=-1)


def _apply_choice(states: Any, choices: Any) -> Any:
    return np.take_along_axis(choices, states[..., None], axis=-1)[..., 0]
