"""Discontinuous mentions: pairs of fragments that may be linked, and mentions from links.

A mention is a set of fragments that are all linked with each other, and no larger such set holds
it (a maximal clique). So two mentions may share a fragment: "X and Y chromosomes".
"""

import numpy as np

from spacy_spans.types import Integers, LongArray

# Sets that are looked for in a component, for each of its nodes. There could be exponentially many,
# of which no text has any use: links that say so are mistaken.
SETS_PER_NODE = 8


def pair_fragments(fragments: Integers, docs: Integers, max_gap: int) -> LongArray:
    """List all pairs of one document with 1 to `max_gap` tokens between them.

    fragments (ndarray): Offsets, ordered by document, then start. Shape (n, 2).
    docs (ndarray): Document of each. Shape (n,).
    RETURNS (ndarray): Rows of the earlier and the later fragment. Shape (n_pairs, 2).
    """
    if not len(fragments):
        return np.zeros((0, 2), dtype=np.int64)
    # No gap is longer than the text, and sums with more might not fit into an integer.
    max_gap = min(max_gap, int(fragments.max()))
    # One axis on which documents are further apart than any gap.
    shift = docs.astype(np.int64) * (int(fragments.max()) + max_gap + 1)
    starts, ends = fragments[:, 0] + shift, fragments[:, 1] + shift
    low = np.searchsorted(starts, ends + 1)
    counts = np.searchsorted(starts, ends + max_gap, side="right") - low
    first = np.repeat(np.arange(len(fragments)), counts)
    blocks = np.cumsum(counts) - counts
    second = np.arange(len(first)) - np.repeat(blocks - low, counts)
    return np.stack([first, second], axis=1)


def linked_sets(links: LongArray) -> list[list[int]]:
    """All maximal sets of two and more nodes that are all linked with each other.

    Bron and Kerbosch 1973, with pivots. It loops over linked fragments, of which a document has
    few.

    A component gives at most `SETS_PER_NODE` sets for each node; what is over is left out.

    links (ndarray): Pairs of nodes. Shape (n, 2).
    RETURNS (list): Sets as ascending lists, in order.

    >>> linked_sets(np.asarray([[0, 2], [1, 2], [3, 4], [4, 5], [3, 5]]))
    [[0, 2], [1, 2], [3, 4, 5]]
    """
    neighbours: dict[int, set[int]] = {}
    for one, other in links.tolist():
        neighbours.setdefault(one, set()).add(other)
        neighbours.setdefault(other, set()).add(one)
    return sorted(
        found
        for component in _components(neighbours)
        for found in _maximal_cliques(neighbours, component)
    )


def _components(neighbours: dict[int, set[int]]) -> list[set[int]]:
    """Nodes that links lead to from each other. Most are few, however many links there are."""
    components = []
    left = set(neighbours)
    while left:
        component: set[int] = set()
        reached = {left.pop()}
        while reached:
            component |= reached
            reached = set().union(*(neighbours[node] for node in reached)) - component
        left -= component
        components.append(component)
    return components


def _maximal_cliques(neighbours: dict[int, set[int]], nodes: set[int]) -> list[list[int]]:
    found: list[list[int]] = []
    # Chosen nodes, nodes that may still join them, and nodes tried already.
    stack: list[tuple[list[int], set[int], set[int]]] = [([], nodes, set())]
    while stack and len(found) < SETS_PER_NODE * len(nodes):
        chosen, candidates, tried = stack.pop()
        if not candidates and not tried:
            found.append(sorted(chosen))
            continue
        pivot = max(candidates | tried, key=lambda node: len(neighbours[node] & candidates))
        for node in sorted(candidates - neighbours[pivot]):
            linked = neighbours[node]
            stack.append(([*chosen, node], candidates & linked, tried & linked))
            candidates = candidates - {node}
            tried = tried | {node}
    return found
