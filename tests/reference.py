"""Slow, plain versions of what the package computes fast. Obvious first, quick never."""

import math
from fractions import Fraction

import torch

Span = tuple[int, int]


# Spans


def share_tokens(a: Span, b: Span) -> bool:
    return bool(set(range(*a)) & set(range(*b)))


def cross(a: Span, b: Span) -> bool:
    """Whether two spans share a token while neither holds the other."""
    tokens_a, tokens_b = set(range(*a)), set(range(*b))
    return bool(tokens_a & tokens_b) and not (tokens_a <= tokens_b or tokens_b <= tokens_a)


def spans_within(limits: list[int], max_length: int) -> list[Span]:
    """All spans up to `max_length` that do not pass the limit of their first token."""
    n = len(limits)
    return [
        (start, end)
        for start in range(n)
        for end in range(start + 1, n + 1)
        if end <= limits[start] and end - start <= max_length
    ]


def limits_of_segments(lengths: list[int]) -> list[int]:
    limits = []
    end = 0
    for length in lengths:
        end += length
        limits += [end] * length
    return limits


def limits_of_runs(runs: list[Span], n_tokens: int) -> list[int]:
    """Walk right from each covered token until the first one that no run covers."""
    covered = [any(start <= i < end for start, end in runs) for i in range(n_tokens)]
    limits = []
    for i in range(n_tokens):
        end = i
        while end < n_tokens and covered[end]:
            end += 1
        limits.append(end if covered[i] else 0)
    return limits


def offsets_in_batch(spans: list[list[Span]], doc_lengths: list[int]) -> list[Span]:
    moved = []
    first = 0
    for own, length in zip(spans, doc_lengths, strict=True):
        moved += [(start + first, end + first) for start, end in own]
        first += length
    return moved


def n_boundaries(ratio: Fraction, n_tokens: int) -> int:
    return max(1, math.ceil(ratio * n_tokens))


def all_pairs(starts: set[int], lasts: set[int], max_length: int | None) -> list[Span]:
    return [
        (start, last + 1)
        for start in sorted(starts)
        for last in sorted(lasts)
        if start <= last and (max_length is None or last + 1 - start <= max_length)
    ]


def best_pairs(
    start_scores: list[float],
    end_scores: list[float],
    *,
    ratio: Fraction,
    max_candidates: int,
    max_length: int | None,
    limits: list[int],
) -> list[Span]:
    """Defined only where no two scores, and no two sums of scores, are equal."""
    inside = [i for i, limit in enumerate(limits) if limit > 0]
    n_kept = n_boundaries(ratio, len(limits))
    starts = set(sorted(inside, key=lambda i: -start_scores[i])[:n_kept])
    lasts = set(sorted(inside, key=lambda i: -end_scores[i])[:n_kept])
    pairs = [pair for pair in all_pairs(starts, lasts, max_length) if pair[1] <= limits[pair[0]]]
    pairs.sort(key=lambda pair: -(start_scores[pair[0]] + end_scores[pair[1] - 1]))
    return sorted(pairs[:max_candidates])


# Decoding


def best_flat_sum(spans: list[Span], scores: list[float]) -> float:
    """The highest sum of scores over all sets of spans without overlap, by trying them all."""
    best = 0.0
    for chosen in range(2 ** len(spans)):
        rows = [i for i in range(len(spans)) if chosen >> i & 1]
        total = sum(scores[i] for i in rows)
        if total > best and not any(
            share_tokens(spans[i], spans[j]) for i in rows for j in rows if i < j
        ):
            best = total
    return best


def nested_rows(spans: list[Span], scores: list[float]) -> list[int]:
    """From the best score down (earlier rows first), leave out what crosses a chosen span."""
    chosen: list[int] = []
    for row in sorted(range(len(spans)), key=lambda i: (-scores[i], i)):
        if not any(cross(spans[row], spans[other]) for other in chosen):
            chosen.append(row)
    return sorted(chosen)


# Targets and losses


def targets_of(
    candidates: list[Span], gold: list[tuple[int, int, int]], n_labels: int, smoothing: float
) -> list[list[float]]:
    """Compare each candidate with each gold span."""
    targets = []
    for start, end in candidates:
        row = [0.0] * n_labels
        for gold_start, gold_end, label in gold:
            if abs(start - gold_start) + abs(end - gold_end) == 1:
                row[label] += smoothing / 4
        for gold_start, gold_end, label in gold:
            if (start, end) == (gold_start, gold_end):
                row[label] = 1 - smoothing
        targets.append(row)
    return targets


def null_class_first(row: list[float]) -> list[float]:
    total = sum(row)
    if total > 1:
        return [0.0, *(value / total for value in row)]
    return [1 - total, *row]


def sigmoid_loss_of(logit: float, target: float) -> float:
    probability = 1 / (1 + math.exp(-logit))
    return -target * math.log(probability) - (1 - target) * math.log(1 - probability)


def softmax_loss_of(logits: list[float], targets: list[float]) -> float:
    total = sum(math.exp(logit) for logit in logits)
    return -sum(
        target * math.log(math.exp(logit) / total)
        for logit, target in zip(logits, targets, strict=True)
    )


# Modules


def gelu(values: torch.Tensor) -> torch.Tensor:
    return values * 0.5 * (1 + torch.erf(values / math.sqrt(2)))


def context_of(
    documents: list[torch.Tensor],
    taps: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor,
) -> torch.Tensor:
    """The residual depthwise convolution, token by token and document by document."""
    window = len(taps) // 2
    rows = []
    for tokens in documents:
        for i in range(len(tokens)):
            seen = torch.zeros_like(tokens[i])
            for shift in range(-window, window + 1):
                if 0 <= i + shift < len(tokens):
                    seen = seen + taps[shift + window] * tokens[i + shift]
            rows.append(tokens[i] + weight @ gelu(seen) + bias)
    return torch.stack(rows) if rows else taps.new_zeros(0, taps.shape[1])


def length_bucket(length: int, n_buckets: int) -> int:
    """One bucket each up to 8, then four to each doubling: edges at 8 * 2 ** (k / 4)."""
    if length <= 8:
        return length - 1
    # length >= 8 * 2 ** (k / 4), in integers.
    k = 0
    while length**4 >= 8**4 * 2 ** (k + 1):
        k += 1
    return min(8 + k, n_buckets - 1)


def span_logits_of(
    tokens: torch.Tensor,
    spans: list[Span],
    length_table: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor,
) -> torch.Tensor:
    """Gather and average the tokens of each span."""
    hidden = length_table.shape[1]
    rows = []
    for first, end in spans:
        start_features = tokens[first, :hidden]
        end_features = tokens[end - 1, hidden : 2 * hidden]
        content = torch.stack([tokens[i, 2 * hidden : 3 * hidden] for i in range(first, end)])
        length = length_table[length_bucket(end - first, len(length_table))]
        features = start_features + end_features + content.mean(dim=0) + length
        rows.append(weight @ gelu(features) + bias)
    return torch.stack(rows) if rows else tokens.new_zeros(0, len(bias))


# Alignment


def character_offsets(tokens: list[str]) -> list[Span]:
    """Where each token lies in the text without white space."""
    offsets = []
    end = 0
    for token in tokens:
        start, end = end, end + len("".join(token.split()))
        offsets.append((start, end))
    return offsets


def align_by_characters(predicted: list[str], reference: list[str], span: Span) -> Span | None:
    """The predicted tokens that begin and end exactly where the reference span does.

    No token may be white space alone.
    """
    reference_offsets = character_offsets(reference)
    predicted_offsets = character_offsets(predicted)
    start, end = reference_offsets[span[0]][0], reference_offsets[span[1] - 1][1]
    firsts = [i for i, offsets in enumerate(predicted_offsets) if offsets[0] == start]
    lasts = [i for i, offsets in enumerate(predicted_offsets) if offsets[1] == end]
    return (firsts[0], lasts[0] + 1) if firsts and lasts else None


# Metrics

Labelled = tuple[int, int, int]


def dice(a: Span, b: Span) -> Fraction:
    shared = len(set(range(*a)) & set(range(*b)))
    return Fraction(2 * shared, a[1] - a[0] + b[1] - b[0])


def partner_of(span: Labelled, others: list[Labelled]) -> tuple[int, Fraction]:
    """Row of the best partner and its coefficient, (-1, 0) where none of the label overlaps."""
    found, best = -1, Fraction(0)
    for row in sorted(range(len(others)), key=lambda i: others[i]):
        value = dice(span[:2], others[row][:2])
        if span[2] == others[row][2] and value > best:
            found, best = row, value
    return found, best


def shared_credit(spans: list[Labelled], others: list[Labelled]) -> list[Fraction]:
    """What each of the others hands out: all to an equal span, else what it is the best for."""
    credit = [Fraction(other in spans) for other in others]
    left = [row for row, other in enumerate(others) if other not in spans]
    for span in spans:
        if span not in others:
            row, value = partner_of(span, [others[i] for i in left])
            if row >= 0:
                credit[left[row]] += value
    return [min(value, Fraction(1)) for value in credit]


def character_f_of(predicted: list[Span], gold: list[Span]) -> Fraction:
    """As the evaluation of SemEval-2021 Task 5, with sets of characters."""
    found = {i for span in predicted for i in range(*span)}
    wanted = {i for span in gold for i in range(*span)}
    if not wanted:
        return Fraction(not found)
    if not found & wanted:
        return Fraction(0)
    p = Fraction(len(found & wanted), len(found))
    r = Fraction(len(found & wanted), len(wanted))
    return 2 * p * r / (p + r)
