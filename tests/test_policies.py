"""Settings of policies. What they keep is tested with `token_pruner`."""

import pytest

from spacy_spans.errors import SettingsError
from spacy_spans.policies import (
    build_budget_policy_v1,
    build_recall_target_policy_v1,
    build_threshold_policy_v1,
    build_top_k_policy_v1,
)


@pytest.mark.parametrize(
    ("build", "settings"),
    [
        (build_threshold_policy_v1, {"threshold": 1.1}),
        (build_top_k_policy_v1, {"keep_ratio": 0.0}),
        (build_budget_policy_v1, {"keep_ratio": 2.0}),
        (build_budget_policy_v1, {"region": 0}),
        (build_recall_target_policy_v1, {"recall": 0.0}),
    ],
)
def test_settings_of_policies_out_of_range(build, settings):
    with pytest.raises(SettingsError, match=f"Got {next(iter(settings))}"):
        build(**settings)
