"""Head pruning: measure what each attention head of an encoder is worth, remove the least.

Importance is that of Michel, Levy and Neubig (2019, "Are sixteen heads really better than one?"):
each head's output is multiplied by a gate of 1, and a head counts as much as the loss would change
with its gate: the absolute gradient, its mean over documents, divided by the norm of its layer. The
loss is the pipeline's own, of all components that learn from the encoder.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from statistics import median
from timeit import default_timer
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
from spacy.language import Language
from spacy.tokens import Doc
from spacy.training import Example
from spacy_transformers.layers.transformer_model import TransformerModel
from thinc.api import Model
from tqdm import tqdm
from wasabi.tables import table

from spacy_spans.errors import DataError, SettingsError, SpansError
from spacy_spans.groups import describe_keys
from spacy_spans.pipelines import predict, unannotated
from spacy_spans.types import FloatArray

Report: TypeAlias = dict[str, Any]

# By the `model_type` of a Hugging Face config.
LIKE_BERT = {"bert", "roberta", "xlm-roberta", "camembert", "electra"}
FAMILIES = sorted({*LIKE_BERT, "distilbert"})
# While importance is measured: what would make the loss one of chance, or coarse.
MEASURING = {"autocast": "none", "keep_ratio": 1.0, "train_keep_ratio": 1.0}
# Documents that are run before time is taken.
WARM_UP = 32


class Attention(NamedTuple):
    """The heads of one layer.

    output (Linear): What the outputs of all heads, side by side, go into.
    heads (list): Numbers of the heads that are there, from 0, as before any was removed.
    """

    output: torch.nn.Linear
    heads: list[int]


def find_attention(encoder: Any) -> list[Attention]:
    """The heads of each layer of a Hugging Face model.

    RAISES (SettingsError): For a family whose heads cannot be removed.
    """
    config = encoder.config
    if config.model_type in LIKE_BERT:
        found = [(own.attention, own.attention.output.dense) for own in encoder.encoder.layer]
    elif config.model_type == "distilbert":
        found = [(own.attention, own.attention.out_lin) for own in encoder.transformer.layer]
    else:
        raise SettingsError(
            f"Got an encoder of the family {config.model_type!r}, whose heads cannot be removed. "
            f"Expected one of {FAMILIES}: train the pipeline with one of those, or drop words "
            "instead of heads (the setting gates of spacy-spans.PrunedTransformerModel.v1)."
        )
    everyone = range(config.num_attention_heads)
    return [
        Attention(output, [head for head in everyone if head not in owner.pruned_heads])
        for owner, output in found
    ]


def find_encoder(nlp: Language, name: str | None = None) -> tuple[str, TransformerModel]:
    """The component with the encoder, and the encoder's model, also where listeners were replaced.

    name (str | None): Name of the component; None where there is only one.
    RAISES (SettingsError): There is none, or several and none is named.
    """
    encoders = {
        own: node
        for own, pipe in nlp.pipeline
        for node in _nodes(pipe)
        if isinstance(node, TransformerModel)
    }
    if not encoders:
        raise SettingsError(
            f"The pipeline has no transformer, only {list(nlp.pipe_names)}, and so no attention "
            "heads. Take one that was trained with an encoder, as by configs/enumerator_trf.cfg."
        )
    if name is None and len(encoders) == 1:
        return next(iter(encoders.items()))
    if name not in encoders:
        raise SettingsError(
            f"Got the component {name!r}, but those with an encoder are {sorted(encoders)}. Name "
            "one of them as --name."
        )
    return name, encoders[name]


def prune_heads(
    nlp: Language,
    gold: Sequence[Doc],
    *,
    ratio: float,
    steps: int = 1,
    name: str | None = None,
    progress: bool = False,
) -> Report:
    """Remove the least important heads of a pipeline's encoder; one stays in each layer.

    nlp (Language): A trained pipeline; changed in place.
    gold (Sequence[Doc]): Documents with the annotations that its components learn from.
    ratio (float): Share of the heads that are there now to remove, above 0 and below 1.
    steps (int): Remove them in so many parts of like size, and measure again before each.
    name (str | None): The component with the encoder; None where there is only one.
    progress (bool): Show a progress bar when standard error is a terminal.
    RETURNS (Report): Plain data, ready for JSON: "component", "documents", "ratio", "steps",
        "heads_before", "heads_after" and "layers", for each a list of heads, both counted from 1:
        "head" (as before any was removed), "importance", "normalised" (as last measured), and
        "removed_in", the step, None for heads that stay.
    RAISES (SettingsError): Settings out of range, no encoder, or a family that cannot be pruned.
    RAISES (DataError): The loss of the pipeline on the data does not depend on the encoder, most
        often for want of gold.
    """
    if steps < 1:
        raise SettingsError(f"Got steps = {steps}. Expected at least 1.")
    name, model = find_encoder(nlp, name)
    encoder: Any = model.transformer
    before = find_attention(encoder)
    n_heads = sum(len(own.heads) for own in before)
    n_removed = _count_to_remove(ratio, n_heads, len(before))
    rows: list[dict[int, Report]] = [{} for _ in before]
    done = 0
    for step in range(1, steps + 1):
        n_now = round(n_removed * step / steps) - done
        if not n_now:
            continue
        importance = measure_importance(nlp, gold, name=name, progress=progress)
        _remove_least(encoder, importance, n_now, step, rows)
        done += n_now
    return {
        "component": name,
        "documents": len(gold),
        "ratio": ratio,
        "steps": steps,
        "heads_before": n_heads,
        "heads_after": n_heads - n_removed,
        "layers": [[own[head] for head in sorted(own)] for own in rows],
    }


def _remove_least(
    encoder: Any,
    importance: list[FloatArray],
    n_heads: int,
    step: int,
    rows: list[dict[int, Report]],
) -> None:
    """Remove heads, and note in `rows`, one for each layer, what is known of each by its number."""
    attention = find_attention(encoder)
    normalised = normalise(importance)
    removed = choose_heads(normalised, n_heads)
    for layer, own in enumerate(attention):
        for place, head in enumerate(own.heads):
            rows[layer][head] = {
                "head": head + 1,
                "importance": float(importance[layer][place]),
                "normalised": float(normalised[layer][place]),
                "removed_in": step if place in removed[layer] else None,
            }
    chosen = {
        layer: [attention[layer].heads[place] for place in places]
        for layer, places in enumerate(removed)
        if places
    }
    encoder.prune_heads(chosen)


def _count_to_remove(ratio: float, n_heads: int, n_layers: int) -> int:
    """How many heads a ratio stands for. RAISES (SettingsError): For one that cannot be reached."""
    if not 0 < ratio < 1:
        raise SettingsError(
            f"Got ratio = {ratio}. Expected a share of the heads to remove, above 0 and below 1, "
            "such as 0.3."
        )
    n_removed, most = round(ratio * n_heads), n_heads - n_layers
    if n_removed < 1:
        raise SettingsError(
            f"Got ratio = {ratio} for {n_heads} heads, which removes none. Expected at least "
            f"{1 / n_heads:.3f}."
        )
    if n_removed > most:
        allowed = (
            f"Set it to at most {int(1000 * most / n_heads) / 1000}." if most else "None is left."
        )
        raise SettingsError(
            f"Got ratio = {ratio}, which is {n_removed} of {n_heads} heads, but one stays in each "
            f"of {n_layers} layers, so {most} can go. {allowed}"
        )
    return n_removed


def measure_importance(
    nlp: Language, gold: Sequence[Doc], *, name: str, progress: bool = False
) -> list[FloatArray]:
    """Mean absolute gradient of the loss with respect to the gate of each head.

    The loss of one document after the other, each divided by its size as its component does.
    Nothing is learned and nothing is dropped out; documents are left as they are.

    name (str): The component with the encoder.
    RETURNS (list): For each layer an array (n_heads,), of the heads that are there.
    RAISES (DataError): See `prune_heads`.
    """
    _, model = find_encoder(nlp, name)
    attention = find_attention(model.transformer)
    totals = [np.zeros(len(own.heads)) for own in attention]
    annotating = nlp.config["training"].get("annotating_components") or []
    silent = None if progress else True
    with _learning_nothing(nlp, model), _gated(attention) as gates:
        for doc in tqdm(gold, unit=" docs", leave=False, disable=silent):
            example = Example(unannotated(nlp, doc), doc)
            try:
                # False instead of None, for which spaCy would make an optimizer.
                nlp.update([example], sgd=False, annotates=annotating)  # type: ignore[arg-type]
            except SpansError:
                raise
            # The components are anyone's, and what they raise has no common type.
            except Exception as error:
                raise DataError(
                    "The loss of the pipeline cannot be computed on the data "
                    f"({type(error).__name__}: {error}). Expected the annotations that its "
                    "components were trained on: take a part of their training or dev data."
                ) from error
            for total, gate in zip(totals, gates, strict=True):
                if gate.grad is not None:
                    total += gate.grad.abs().double().cpu().numpy()
                    gate.grad = None
    _check_gradient(nlp, gold, sum(float(total.sum()) for total in totals))
    return [(total / len(gold)).astype("f") for total in totals]


def _check_gradient(nlp: Language, gold: Sequence[Doc], total: float) -> None:
    if 0 < total < float("inf"):
        return
    raise DataError(
        f"The loss of the pipeline's components {list(nlp.pipe_names)} does not depend on the "
        f"encoder on these {len(gold)} documents (the gradients of its heads sum to {total}): most "
        f"often they have no gold. Their keys of doc.spans: {describe_keys(gold)}. Expected "
        "the annotations that the components were trained on, on at least one document with text."
    )


def normalise(importance: Sequence[FloatArray]) -> list[FloatArray]:
    """Divide by the Euclidean norm of each layer; a layer of zeros stays one."""
    norms = [float(np.linalg.norm(own)) for own in importance]
    return [own / (norm or 1.0) for own, norm in zip(importance, norms, strict=True)]


def choose_heads(scores: Sequence[FloatArray], n_heads: int) -> list[list[int]]:
    """The heads with the lowest scores of all layers together; one is left in each.

    scores (Sequence): For each layer an array (n_heads_of_layer,).
    n_heads (int): How many to choose; at most all but one of each layer.
    RETURNS (list): For each layer the places of the chosen, ascending.
    """
    order = sorted(
        (float(score), layer, place)
        for layer, own in enumerate(scores)
        for place, score in enumerate(own)
    )
    chosen: list[list[int]] = [[] for _ in scores]
    for _, layer, place in order:
        if sum(map(len, chosen)) < n_heads and len(chosen[layer]) < len(scores[layer]) - 1:
            chosen[layer].append(place)
    return [sorted(places) for places in chosen]


@contextmanager
def _gated(attention: Sequence[Attention]) -> Iterator[list[torch.Tensor]]:
    """Multiply the output of each head by a gate of 1. YIELDS: For each layer its gates."""
    gates, hooks = [], []
    for own in attention:
        gate = torch.ones(len(own.heads), device=own.output.weight.device, requires_grad=True)
        gates.append(gate)
        hooks.append(own.output.register_forward_pre_hook(_Multiply(gate)))
    try:
        yield gates
    finally:
        for hook in hooks:
            hook.remove()


class _Multiply:
    def __init__(self, gate: torch.Tensor) -> None:
        self.gate = gate

    def __call__(self, module: Any, inputs: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor]:
        (context,) = inputs
        heads = context.unflatten(-1, (len(self.gate), -1))
        return ((heads * self.gate[:, None].to(context.dtype)).flatten(-2),)


@contextmanager
def _learning_nothing(nlp: Language, model: TransformerModel) -> Iterator[None]:
    """Without dropout, and with all that a training step leaves behind taken back."""
    nodes = [node for _, pipe in nlp.pipeline for node in _nodes(pipe)]
    modules: list[Any] = [shim._model for node in nodes for shim in node.shims]
    modules = [module for module in modules if isinstance(module, torch.nn.Module)]
    modes = [module.training for module in modules]
    own: list[Any] = list(model.transformer.parameters())
    wanted = [parameter.requires_grad for parameter in own]
    attrs = dict(model.attrs)
    model.attrs.update({key: value for key, value in MEASURING.items() if key in attrs})
    for module in modules:
        module.eval()
        # thinc sets the mode of training, in which torch drops out, before each step.
        module.train = lambda mode=True, module=module: module
    # The gates' gradient is all that is asked for.
    for parameter in own:
        parameter.requires_grad_(False)
    try:
        yield
    finally:
        for parameter, want in zip(own, wanted, strict=True):
            parameter.requires_grad_(want)
        for module, mode in zip(modules, modes, strict=True):
            del module.train
            module.train(mode)
            module.zero_grad(set_to_none=True)
        for node in nodes:
            for param in node.grad_names:
                node.get_grad(param).fill(0)
        model.attrs.update(attrs)


def _nodes(pipe: Any) -> Iterator[Model]:
    """All layers of a component; none of one without a model."""
    model = getattr(pipe, "model", None)
    if isinstance(model, Model):
        yield from model.walk()


def compare_speed(
    before: Language, after: Language, gold: Sequence[Doc], runs: int = 3, *, progress: bool = False
) -> Report:
    """Words per second of two pipelines in turns, whole, tokenizer included.

    gold (Sequence[Doc]): At least one document with text.
    progress (bool): Show a progress bar when standard error is a terminal.
    RETURNS (Report): "words", "runs", and of "before" and "after" the "median", "lowest" and
        "highest" of the runs; "gain", the ratio of the medians.
    """
    n_words = sum(len(unannotated(before, doc)) for doc in gold)
    speeds: list[list[float]] = [[], []]
    for nlp in (before, after):
        list(predict(nlp, gold[:WARM_UP]))
    turns = [*zip((before, after), speeds, strict=True)] * runs
    silent = None if progress else True
    for nlp, own in tqdm(turns, desc="speed", unit=" runs", leave=False, disable=silent):
        start = default_timer()
        for _doc in predict(nlp, gold):
            pass
        own.append(n_words / (default_timer() - start))
    found = [{"median": median(own), "lowest": min(own), "highest": max(own)} for own in speeds]
    gain = found[1]["median"] / found[0]["median"]
    return {"words": n_words, "runs": runs, "before": found[0], "after": found[1], "gain": gain}


def format_report(report: Report) -> str:
    """Write a report as a table for people, without a line break at the end."""
    rows = []
    for number, layer in enumerate(report["layers"], start=1):
        cells = [_format_head(head, report["steps"]) for head in layer]
        kept = sum(head["removed_in"] is None for head in layer)
        rows.append((str(number), f"{kept} of {len(layer)}", "  ".join(cells)))
    header = ("layer", "stay", "head:importance, in () where removed")
    text = str(table(rows, header=header, divider=True, aligns=("r", "r", "l"))).strip("\n")
    text += f"\n\nHeads: {report['heads_after']} of {report['heads_before']} stay."
    if "speed" in report:
        text += f"\n{_format_speed(report['speed'])}"
    return text


def _format_head(head: Report, steps: int) -> str:
    text = f"{head['head']}:{head['normalised']:.2f}"
    if head["removed_in"] is None:
        return text
    return f"({text})" if steps == 1 else f"({text} in {head['removed_in']})"


def _format_speed(speed: Report) -> str:
    sides = [
        f"{side} {own['median']:,.0f} words/s ({own['lowest']:,.0f} to {own['highest']:,.0f})"
        for side, own in ((side, speed[side]) for side in ("before", "after"))
    ]
    text = f"Speed of the whole pipeline: {', '.join(sides)}: x{speed['gain']:.2f}."
    before, after = speed["before"], speed["after"]
    if after["lowest"] <= before["highest"] and before["lowest"] <= after["highest"]:
        text += " The runs' ranges overlap: no difference was measured."
    return text
