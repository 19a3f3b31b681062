"""Registered policies: which tokens a `token_pruner` keeps, given a score for each.

A policy is a function from the scores of one document, probabilities of shape (n_tokens,), to a
mask of the tokens to keep. What else is kept (context, tokens that always stay) the component adds.
"""

from dataclasses import dataclass
from functools import partial

from spacy_spans.errors import SettingsError
from spacy_spans.kernels.pruning import keep_above, keep_best, keep_best_of_regions
from spacy_spans.types import TokenPolicy


# A dataclass, since validation of a config would turn a named tuple into a plain one.
@dataclass(frozen=True)
class RecallTarget:
    """Keep what reaches the threshold that was fitted for this recall of whole spans.

    Not a function of scores alone: the threshold comes from data, see `TokenPruner.calibrate`.
    """

    recall: float


def build_threshold_policy_v1(threshold: float = 0.5) -> TokenPolicy:
    """Keep tokens whose score reaches a threshold. Keeps nothing where nothing does.

    threshold (float): A probability, 0 to 1.
    """
    if not 0 <= threshold <= 1:
        raise SettingsError(f"Got threshold = {threshold}. Expected a probability, 0 to 1.")
    return partial(keep_above, threshold=threshold)


def build_top_k_policy_v1(keep_ratio: float = 0.5) -> TokenPolicy:
    """Keep the best tokens of each document.

    keep_ratio (float): Share of tokens, rounded up; above 0, at most 1.
    """
    _check_share("keep_ratio", keep_ratio)
    return partial(keep_best, ratio=keep_ratio)


def build_budget_policy_v1(keep_ratio: float = 0.5, region: int = 128) -> TokenPolicy:
    """Keep the best tokens of each document, and of each region at least half of its share, so that
    no part of a document is starved.

    keep_ratio (float): Share of tokens, rounded up; above 0, at most 1.
    region (int): Tokens of a region; at least 1.
    """
    _check_share("keep_ratio", keep_ratio)
    if region < 1:
        raise SettingsError(f"Got region = {region}. Expected at least 1 token.")
    return partial(keep_best_of_regions, ratio=keep_ratio, region=region)


def build_recall_target_policy_v1(recall: float = 0.995) -> RecallTarget:
    """Keep tokens whose score reaches the threshold that keeps this share of whole gold spans.

    The threshold is fitted after training, by `spacy spans calibrate-pruner`, on data that the
    component was not trained on. Until then everything is kept.

    recall (float): Share of spans; above 0, at most 1.
    """
    _check_share("recall", recall)
    return RecallTarget(recall)


def _check_share(name: str, value: float) -> None:
    if not 0 < value <= 1:
        raise SettingsError(f"Got {name} = {value}. Expected a share above 0, at most 1.")
