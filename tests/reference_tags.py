"""Slow, plain versions of what taggers compute: tags by name, all paths, all sets."""

import math
from collections.abc import Callable, Iterator
from itertools import combinations, pairwise, product
from typing import Any

import numpy as np
import torch

from .reference import Labelled, Span, gelu, length_bucket, share_tokens

# Tags, by name, of which the second goes on with the span of the first.
GOES_ON = {
    "io": [("I", "I")],
    "bio": [("B", "I"), ("I", "I")],
    "bioes": [("B", "I"), ("B", "E"), ("I", "I"), ("I", "E")],
}


# Tags


def tag_names(tags: str, n_labels: int) -> list[str]:
    return ["O", *(f"{tag}{label}" for label in range(n_labels) for tag in tags)]


def tag_spans(scheme: str, spans: list[Labelled], n_tokens: int) -> list[str]:
    """Write each span's tags over what is there; spans that overlap spoil each other."""
    tags = ["O"] * n_tokens
    for start, end, label in spans:
        for i in range(start, end):
            tag = "B" if i == start and scheme != "io" else "I"
            if scheme == "bioes" and i == end - 1:
                tag = "S" if i == start else "E"
            tags[i] = f"{tag}{label}"
    return tags


def goes_on(scheme: str, before: str, after: str) -> bool:
    return (before[0], after[0]) in GOES_ON[scheme] and before[1:] == after[1:]


def spans_of_tags(scheme: str, tags: list[str], is_first: list[bool]) -> list[Labelled]:
    """Walk along: a tag goes on with the span before it, or starts one."""
    spans: list[Labelled] = []
    for i, tag in enumerate(tags):
        if i > 0 and not is_first[i] and goes_on(scheme, tags[i - 1], tag):
            start, _, label = spans.pop()
            spans.append((start, i + 1, label))
        elif tag != "O":
            spans.append((i, i + 1, int(tag[1:])))
    return spans


def spans_of_bits(bits: list[tuple[bool, bool]], is_first: list[bool]) -> list[Span]:
    """From each start walk right, to the first end of its document."""
    spans = []
    for start in range(len(bits)):
        i = start
        while bits[start][0] and i < len(bits) and (i == start or not is_first[i]):
            if bits[i][1]:
                spans.append((start, i + 1))
                break
            i += 1
    return spans


def survives(scheme: str, spans: list[Labelled], n_tokens: int) -> bool:
    """Whether the tags of these spans, of one layer and document, give back exactly these."""
    is_first = [i == 0 for i in range(n_tokens)]
    if scheme == "boundary":
        bits = [
            (any(i == a for a, _, _ in spans), any(i == b - 1 for _, b, _ in spans))
            for i in range(n_tokens)
        ]
        return spans_of_bits(bits, is_first) == sorted((a, b) for a, b, _ in spans)
    found = spans_of_tags(scheme, tag_spans(scheme, spans, n_tokens), is_first)
    return found == sorted(spans)


def largest_subset(items: list[Any], holds: Callable[[list[Any]], bool]) -> int:
    """The size of the largest subset for which something holds, by trying them all."""
    for size in range(len(items), 0, -1):
        if any(holds(list(chosen)) for chosen in combinations(items, size)):
            return size
    return 0


def any_overlap_across(spans: list[Labelled]) -> bool:
    return any(a[2] != b[2] and share_tokens(a[:2], b[:2]) for a in spans for b in spans)


# Chains


def path_score(chain: Any, layer: int, first: int, path: tuple[int, ...]) -> float:
    """The score of one document's tags, -inf where they are illegal."""
    score = chain.starts[layer, path[0]] + chain.ends[layer, path[-1]]
    for i, tag in enumerate(path):
        score += chain.emissions[first + i, layer, tag]
    for before, after in pairwise(path):
        score += chain.transitions[layer, before, after]
    return float(score)


def legal_paths(chain: Any, layer: int, first: int, length: int) -> dict[tuple[int, ...], float]:
    """All tags that one document can have, with their scores."""
    n_tags = chain.emissions.shape[-1]
    scored = {
        path: path_score(chain, layer, first, path)
        for path in product(range(n_tags), repeat=length)
    }
    return {path: score for path, score in scored.items() if score > -math.inf}


def log_sum(scores: Any) -> float:
    values = list(scores)
    top = max(values)
    return top + math.log(sum(math.exp(value - top) for value in values))


def forward_totals(chain: Any, reduce: Callable[..., Any]) -> list[float]:
    """Per layer, the scores of all paths summed (`np.logaddexp.reduce`), or the best
    (`np.max`): token by token, in logarithms.
    """
    totals = []
    for layer in range(chain.emissions.shape[1]):
        state = chain.starts[layer] + chain.emissions[0, layer]
        for i in range(1, len(chain.emissions)):
            if chain.is_first[i]:
                state = reduce(state + chain.ends[layer]) + chain.starts[layer]
            else:
                state = reduce(state[:, None] + chain.transitions[layer], axis=0)
            state = state + chain.emissions[i, layer]
        totals.append(float(reduce(state + chain.ends[layer])))
    return totals


def span_shares(scheme: str, n_labels: int, chain: Any, layer: int) -> dict[Labelled, float]:
    """The share of paths, by weight, that decode to each span."""
    tags = {"io": "I", "bio": "BI", "bioes": "BIES"}[scheme]
    names = tag_names(tags, n_labels)
    shares: dict[Labelled, float] = {}
    for first, length in documents_of(chain.is_first):
        paths = legal_paths(chain, layer, first, length)
        total = log_sum(paths.values())
        firsts = [i == 0 for i in range(length)]
        for path, score in paths.items():
            for start, end, label in spans_of_tags(scheme, [names[tag] for tag in path], firsts):
                key = (first + start, first + end, label)
                shares[key] = shares.get(key, 0.0) + math.exp(score - total)
    return shares


# Fragments


def pairs_within(fragments: list[Span], docs: list[int], max_gap: int) -> list[Span]:
    n = len(fragments)
    return [
        (i, j)
        for i in range(n)
        for j in range(n)
        if docs[i] == docs[j] and 1 <= fragments[j][0] - fragments[i][1] <= max_gap
    ]


def maximal_cliques(links: list[Span]) -> list[list[int]]:
    """Of all sets of linked nodes, those that no other holds."""
    linked = {frozenset(link) for link in links}
    nodes = sorted({node for link in links for node in link})
    cliques = [
        set(chosen)
        for size in range(2, len(nodes) + 1)
        for chosen in combinations(nodes, size)
        if all(frozenset(pair) in linked for pair in combinations(chosen, 2))
    ]
    return sorted(sorted(one) for one in cliques if not any(one < other for other in cliques))


def link_logits_of(
    features: torch.Tensor,
    pairs: list[tuple[int, int, int, int]],
    gap_table: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor,
) -> torch.Tensor:
    """One pair after the other."""
    hidden = gap_table.shape[1]
    rows = []
    for start, end, next_start, next_end in pairs:
        total = gap_table[length_bucket(next_start - end, len(gap_table))]
        for role, token in enumerate((start, end - 1, next_start, next_end - 1)):
            total = total + features[token, role * hidden : (role + 1) * hidden]
        gap = [features[token, 4 * hidden : 5 * hidden] for token in range(end, next_start)]
        total = total + sum(gap) / len(gap)
        rows.append(weight @ gelu(total) + bias)
    return torch.stack(rows) if rows else features.new_zeros(0, len(bias))


# Slopes


def slopes(total: Callable[[Any], float], values: Any, step: float = 1e-5) -> Any:
    """The slope of a total along each value, by finite differences."""
    result = np.zeros_like(values)
    for index in np.ndindex(values.shape):
        above, below = values.copy(), values.copy()
        above[index] += step
        below[index] -= step
        result[index] = (total(above) - total(below)) / (2 * step)
    return result


def documents_of(is_first: Any) -> Iterator[tuple[int, int]]:
    """First token and length of each document that has any."""
    firsts = [*np.flatnonzero(is_first).tolist(), len(is_first)]
    for first, stop in pairwise(firsts):
        yield first, stop - first
