"""The forward pass of `PrunedTransformerModel`, and the way back."""

import contextlib
import math
import random
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import torch
from spacy.tokens import Doc
from spacy_transformers.data_classes import FullTransformerBatch
from transformers.modeling_outputs import BaseModelOutput

from spacy_spans.encoder.families import FAMILIES, family_of
from spacy_spans.encoder.kept import PrunedTransformerBatch
from spacy_spans.encoder.pruning import NO_WORD, word_scores
from spacy_spans.encoder.run import Encoded, Pruning, encode, encode_whole
from spacy_spans.encoder.settings import check_settings
from spacy_spans.errors import SettingsError, SpansWarning
from spacy_spans.kernels.batching import length_batches
from spacy_spans.torch_layer import layer_shim
from spacy_spans.transformer import Tokenized, split_by_doc, tokenize
from spacy_spans.types import FloatArray, LongArray

# The relevance of a token of which nothing is known.
UNKNOWN = -1.0
# Pieces of a batch by the type of device: what fits into a processor's cache, or fills a GPU.
BATCH_PIECES = {"cpu": 512, "cuda": 16384}
# How far from the threshold those lie that are drawn in training: around 0.1 from 0.015 to 0.45.
THRESHOLD_SPREAD = 2.0


@dataclass
class Supervision:
    """What passes between a component in training and its model, beside the documents.

    relevance (list): For each document the relevance of each token, 0, 1 or UNKNOWN.
    batch (PrunedTransformerBatch | None): Set by the model: what it made of the documents.
    loss (float | None): Set by the model: see `gate_loss`. None without gates that learn.
    """

    relevance: list[FloatArray]
    batch: PrunedTransformerBatch | None = None
    loss: float | None = None


def forward(model: Any, docs: list[Doc], is_train: bool) -> tuple[FullTransformerBatch, Callable]:
    """Encode documents; at least one has tokens.

    model (PrunedTransformerModel): With an encoder.
    RETURNS (tuple): A `PrunedTransformerBatch`, and what takes the gradient of its output back.
    RAISES (SettingsError): On settings out of range.
    """
    # They may have been changed since the model was built.
    check_settings(model.attrs, model.attrs["criterion"])
    batch = tokenize(model, docs)
    supervision: Supervision | None = model.supervision if is_train else None
    pruning = _pruning(model, is_train, supervision)
    words = None if pruning is None else number_words(batch)
    hidden, piece_scores, parts = _encode_rows(model, batch, pruning, words, is_train)
    output = BaseModelOutput(last_hidden_state=cast(torch.FloatTensor, hidden))
    full = PrunedTransformerBatch(
        batch.spans,
        batch.wordpieces,
        output,
        batch.align,
        cached_doc_data=split_by_doc(batch, output),
        tokenized=batch,
        piece_scores=piece_scores,
    )
    if supervision is not None:
        supervision.batch = full
    loss = None
    if supervision is not None and pruning is not None and pruning.criterion.learns:
        assert words is not None
        relevance = np.concatenate(supervision.relevance)
        loss = gate_loss(parts, words, _relevance_of_pieces(batch, relevance))
        supervision.loss = loss.item()

    def backprop(d_batch: FullTransformerBatch) -> list[Doc]:
        (d_output,) = d_batch.model_output.values()
        outputs, gradients = [], []
        for rows, encoded in parts:
            outputs.append(encoded.hidden)
            gradients.append(d_output[torch.as_tensor(rows), : encoded.hidden.shape[1]])
        if loss is not None:
            assert supervision is not None
            outputs.append(loss)
            gradients.append(torch.ones_like(loss))
            if any((own != UNKNOWN).any() for own in supervision.relevance):
                model.attrs.update(gates_trained=True, trained_gates=list(model.attrs["gates"]))
        model.attrs["n_updates"] += 1
        torch.autograd.backward(outputs, gradients)
        return docs

    return full, backprop


def _encode_rows(
    model: Any,
    batch: Tokenized,
    pruning: Pruning | None,
    words: LongArray | None,
    is_train: bool,
) -> tuple[torch.Tensor, FloatArray | None, list[tuple[LongArray, Encoded]]]:
    """Encode all rows, those of like length together.

    RETURNS (tuple): Hidden states (n_rows, n_pieces, width); see `PrunedTransformerBatch` for the
        scores of pieces; and in training what each batch of rows gave, for the way back.
    """
    pieces = batch.wordpieces
    encoder = model.transformer
    encoder.train(is_train)
    shape = (*pieces.input_ids.shape, encoder.config.hidden_size)
    hidden = torch.zeros(shape, device=encoder.device)
    scores = np.full(shape[:2], -np.inf, dtype="f")
    has_dropped = False
    parts: list[tuple[LongArray, Encoded]] = []
    # One context for all batches: weights are cast once.
    autocast = _autocast(model.attrs["autocast"], encoder.device.type)
    with autocast, torch.set_grad_enabled(is_train):
        for rows in length_batches(pieces.lengths, _max_batch_pieces(model)):
            encoded = _run(encoder, batch, pruning, words, rows)
            width = encoded.hidden.shape[1]
            hidden[torch.as_tensor(rows), :width] = encoded.hidden.detach()
            if encoded.piece_scores is not None:
                has_dropped = True
                scores[rows, :width] = encoded.piece_scores.float().cpu().numpy()
            if is_train:
                parts.append((rows, encoded))
    if not has_dropped:
        return hidden, None, parts
    if pruning is not None and pruning.criterion.learns:
        probabilities = torch.as_tensor(scores).sigmoid().numpy()
        scores = np.where(np.isfinite(scores), probabilities, scores)
    return hidden, scores, parts


def _max_batch_pieces(model: Any) -> int:
    """What is asked for, or what suits the device."""
    asked: int | None = model.attrs["max_batch_pieces"]
    return asked or BATCH_PIECES.get(model.transformer.device.type, BATCH_PIECES["cuda"])


def _run(
    encoder: Any,
    batch: Tokenized,
    pruning: Pruning | None,
    words: LongArray | None,
    rows: LongArray,
) -> Encoded:
    """Encode windows of like length."""
    pieces = batch.wordpieces
    longest = max(pieces.lengths[row] for row in rows.tolist())

    def take(values: Any) -> torch.Tensor:
        return torch.as_tensor(values[rows, :longest], device=encoder.device).long()

    types = pieces.token_type_ids
    inputs: dict[str, Any] = {
        "input_ids": take(pieces.input_ids),
        "mask": take(pieces.attention_mask) > 0,
        "token_types": None if types is None else take(types),
    }
    if encoder.config.model_type not in FAMILIES:
        encoded = encode_whole(encoder, **inputs)
    else:
        if words is not None:
            inputs["words"] = take(words)
        encoded = encode(encoder, family_of(encoder), pruning, **inputs)
    return encoded._replace(hidden=encoded.hidden.float())


def _pruning(model: Any, is_train: bool, supervision: Supervision | None) -> Pruning | None:
    """How to prune now, if at all."""
    attrs = model.attrs
    if not attrs["gates"] or (attrs["keep_ratio"] == 1.0 and not is_train):
        return None
    criterion = attrs["criterion"]
    ratio = attrs["keep_ratio"]
    gates = layer_shim(model.layers[1]).module if criterion.learns else None
    check_layers(attrs["gates"], model.transformer)
    if gates is not None:
        gates.train(is_train)
    if criterion.learns:
        # In training gates may be put elsewhere: they learn where they are.
        trained = attrs["trained_gates"] if supervision is None else []
        _check_gates(attrs["gates"], gates, trained)
        # Gates that nothing was learned from would drop words by chance.
        if not attrs["gates_trained"] and supervision is None:
            if not is_train:
                _say_untrained(model)
            return None
    threshold = attrs["threshold"]
    if is_train:
        # Dev data is pruned before: the best model of a training is best at what is asked for.
        if attrs["n_updates"] < attrs["warmup_steps"]:
            ratio = 1.0
        elif ratio is None:
            threshold = draw_threshold(threshold)
        else:
            ratio = random.uniform(attrs["train_keep_ratio"], 1.0)
    pool = attrs["dropped"] == "pool"
    return Pruning(tuple(attrs["gates"]), criterion, gates, ratio, threshold, pool)


def draw_threshold(threshold: float) -> float:
    """Another threshold, uniform in log-odds, at most `THRESHOLD_SPREAD` away."""
    if threshold in (0.0, 1.0):
        return threshold
    log_odds = math.log(threshold / (1 - threshold))
    log_odds += random.uniform(-THRESHOLD_SPREAD, THRESHOLD_SPREAD)
    return 1 / (1 + math.exp(-log_odds))


def check_layers(gates: list[int], encoder: Any) -> None:
    """RAISES (SettingsError): For gates after the last layer, or a family without adapter."""
    n_layers = len(family_of(encoder).layers(encoder))
    if gates[-1] >= n_layers:
        raise SettingsError(
            f"Got gates = {gates} for an encoder of {n_layers} layers. Expected layers before the "
            "last: there is nothing to save after it."
        )


def _check_gates(gates: list[int], module: Any, trained: list[int]) -> None:
    """trained (list): Layers that they were trained behind, [] where that is not known."""
    n_networks = len(module.gates) if module is not None else 0
    if len(gates) != n_networks or (trained and gates != trained):
        were = f"those behind layers {trained}" if trained else f"{n_networks} gates"
        raise SettingsError(
            f"Got gates = {gates}, but {were} were trained. Set the same, or train again: a gate "
            "belongs to the layer that it was trained behind."
        )


def _say_untrained(model: Any) -> None:
    if getattr(model, "has_said_untrained", False):
        return
    model.has_said_untrained = True
    message = (
        f"All words are kept: the gates of {model.attrs['name']!r} have not learned from gold "
        "spans yet. They do under the factory pruned_transformer. This is said once."
    )
    warnings.warn(SpansWarning(message), stacklevel=2)


def _autocast(setting: str, device: str) -> Any:
    if setting == "none" or (setting == "auto" and not _computes_bfloat16(device)):
        return contextlib.nullcontext()
    return torch.autocast(device, dtype=torch.bfloat16)


def _computes_bfloat16(device: str) -> bool:
    if device == "cuda":
        return torch.cuda.is_bf16_supported()
    # torch has no public question for this.
    supported = getattr(torch.cpu, "_is_avx512_bf16_supported", None)
    return device == "cpu" and supported is not None and bool(supported())


def number_words(batch: Tokenized) -> LongArray:
    """Number of each piece's token in its row, counting from 0 without gaps, NO_WORD for pieces of
    none. A piece of several tokens is of the last. Shape (n_rows, n_pieces).
    """
    align = batch.align
    lengths = np.asarray(align.lengths)
    tokens = np.full(batch.wordpieces.input_ids.shape, -1, dtype=np.int64)
    tokens.reshape(-1)[np.asarray(align.dataXd).reshape(-1)] = np.repeat(
        np.arange(len(lengths)), lengths
    )
    before = np.pad(tokens, ((0, 0), (1, 0)), constant_values=-1)[:, :-1]
    numbers = np.cumsum((tokens >= 0) & (tokens != before), axis=1) - 1
    return np.where(tokens >= 0, numbers, NO_WORD)


def _relevance_of_pieces(batch: Tokenized, relevance: FloatArray) -> FloatArray:
    """The highest among the tokens of each piece. Shape (n_rows, n_pieces)."""
    found = np.full(batch.wordpieces.input_ids.shape, UNKNOWN, dtype="f")
    align = batch.align
    values = np.repeat(relevance, np.asarray(align.lengths))
    np.maximum.at(found.reshape(-1), np.asarray(align.dataXd).reshape(-1), values)
    return found


def gate_loss(
    parts: list[tuple[LongArray, Encoded]], words: LongArray, relevance: FloatArray
) -> torch.Tensor:
    """Binary cross-entropy of the gates with the relevance of words, per word and gate.

    relevance (ndarray): Of each piece; words of which it is UNKNOWN count nothing.
    """
    losses = [torch.zeros(())]
    n_words = 0
    for rows, encoded in parts:
        width = encoded.hidden.shape[1]
        own, wanted = (torch.as_tensor(values[rows, :width]) for values in (words, relevance))
        target = word_scores(wanted, own).to(encoded.hidden.device)
        losses[0] = losses[0].to(target.device)
        for scores in encoded.word_scores:
            of_gate = target[:, : scores.shape[1]]
            counts = (scores > -torch.inf) & (of_gate != UNKNOWN)
            losses.append(
                torch.nn.functional.binary_cross_entropy_with_logits(
                    scores[counts].float(), of_gate[counts], reduction="sum"
                )
            )
            n_words += int(counts.sum())
    return torch.stack(losses).sum() / max(1, n_words)
