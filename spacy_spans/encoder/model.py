"""`spacy-spans.PrunedTransformerModel.v1`: wires the pruning encoder into the `transformer` pipe.

It takes the place of `spacy-transformers.TransformerModel.v3`: storage and listeners are that
one's, windows are cut by word pieces, so that none is cut off. They run in batches of like length,
in bfloat16 where the machine has it, and gates, once trained, drop words between layers.
"""

import contextlib
import random
from collections.abc import Callable
from copy import deepcopy
from functools import partial
from typing import Any, cast

import numpy as np
import torch
from spacy.tokens import Doc
from spacy_transformers.data_classes import FullTransformerBatch, WordpieceBatch
from spacy_transformers.layers import split_trf_batch, trfs2arrays
from spacy_transformers.layers.transformer_model import TransformerModel
from spacy_transformers.layers.transformer_model import init as init_transformer
from thinc.api import Model, chain
from thinc.types import Floats2d, Ragged
from transformers.modeling_outputs import BaseModelOutput

from spacy_spans.encoder.families import FAMILIES, family_of
from spacy_spans.encoder.run import Encoded, Gates, Pruning, encode, encode_whole
from spacy_spans.errors import SettingsError
from spacy_spans.kernels.batching import length_batches
from spacy_spans.torch_layer import layer_shim, torch_layer
from spacy_spans.transformer import split_by_doc, tokenize
from spacy_spans.types import FloatArray

AUTOCAST = ("auto", "bfloat16", "none")
DROPPED = ("pool", "drop")
OWN_TOK2VEC = "spacy-spans.PrunedTok2VecTransformer.v1"


class PrunedTransformerModel(TransformerModel):
    """The stock model with another forward pass, and gates as a second layer.

    attrs: "keep_ratio", "threshold", "dropped" and "autocast" may be changed at any time, e.g.
    `nlp.get_pipe("transformer").model.attrs["keep_ratio"] = 0.3`.
    relevance (list | None): While training, for each document of the batch the relevance of each
        token, 0 or 1; set by the component, never stored.
    """

    relevance: list[FloatArray] | None = None

    def __init__(
        self,
        name: str,
        get_spans: Callable,
        tokenizer_config: dict[str, Any],
        transformer_config: dict[str, Any],
        options: dict[str, Any],
    ) -> None:
        """options (dict): The other settings of `build_pruned_transformer_model_v1`."""
        super().__init__(name, get_spans, tokenizer_config, transformer_config)
        self._arguments = (name, get_spans, tokenizer_config, transformer_config, options)
        self._func = _forward
        self.init = _init
        self._layers.append(
            torch_layer("gates", Gates, _not_called, _not_called, init=_leave_to_encoder)
        )
        self.attrs.update(options, gates_trained=False)
        self.attrs["replace_listener_cfg"] = _replace_listener_cfg

    def copy(self) -> "PrunedTransformerModel":
        """A copy with weights of its own. The stock one's would be of the stock class."""
        copied = type(self)(*self._arguments)
        copied._dims = deepcopy(self._dims)
        copied._layers = [deepcopy(layer) for layer in self.layers]
        copied.attrs.update(self.attrs)
        return copied


def build_pruned_transformer_model_v1(
    name: str,
    get_spans: Callable,
    tokenizer_config: dict[str, Any] = {},  # noqa: B006 (read by confection, never changed)
    transformer_config: dict[str, Any] = {},  # noqa: B006
    gates: list[int] = [],  # noqa: B006
    keep_ratio: float | None = None,
    threshold: float = 0.5,
    train_keep_ratio: float = 0.3,
    dropped: str = "pool",
    autocast: str = "auto",
    max_batch_pieces: int = 4096,
) -> Model[list[Doc], FullTransformerBatch]:
    """Build an encoder that cuts no word piece off, runs windows of like length together, and can
    prune words.

    Each document is split into pieces once. A window with more of them than the encoder takes goes
    on in another one. Tokens without a window get zero vectors, wherever they are in the document;
    stock loses the rows of those at its ends. The output is the last hidden state and nothing else.

    name (str): A Hugging Face model: its name or folder. Any family without gates; with gates, one
        of those in `spacy_spans.encoder.families`.
    get_spans (Callable): `spacy-spans.piece_windows.v1`, `spacy-spans.kept_spans.v1`, or any other
        span getter.
    tokenizer_config, transformer_config (dict): As for the stock architecture. The tokenizer has
        to be a fast one.
    gates (List[int]): Layers, counted from 1, after which words are dropped; none by default. They
        learn from gold spans where the component is `pruned_transformer`; until then all is kept.
    keep_ratio (Optional[float]): Share of each window's words that every gate keeps. None: the
        words whose probability of being relevant is at least `threshold`.
    threshold (float): See keep_ratio.
    train_keep_ratio (float): Ratios are sampled in training, from this one to 1, so that one model
        serves any.
    dropped (str): "pool": the mean of each dropped run stands in for it. "drop": nothing does.
    autocast (str): "bfloat16", "none", or "auto": bfloat16 where the processor computes in it.
    max_batch_pieces (int): Most pieces of a batch of windows, padding included.
    RETURNS (Model): Documents to a `FullTransformerBatch`, with rows for dropped words as well.
    RAISES (SettingsError): On settings out of range; at initialize, on gates for a family without
        adapter or after the last layer.
    """
    _check(gates, keep_ratio, threshold, train_keep_ratio, dropped, autocast, max_batch_pieces)
    options = {
        "gates": list(gates),
        "keep_ratio": keep_ratio,
        "threshold": threshold,
        "train_keep_ratio": train_keep_ratio,
        "dropped": dropped,
        "autocast": autocast,
        "max_batch_pieces": max_batch_pieces,
    }
    return PrunedTransformerModel(
        name, get_spans, dict(tokenizer_config), dict(transformer_config), options
    )


def build_pruned_tok2vec_transformer_v1(
    pooling: Model[Ragged, Floats2d],
    name: str,
    get_spans: Callable,
    grad_factor: float = 1.0,
    tokenizer_config: dict[str, Any] = {},  # noqa: B006
    transformer_config: dict[str, Any] = {},  # noqa: B006
    gates: list[int] = [],  # noqa: B006
    keep_ratio: float | None = None,
    threshold: float = 0.5,
    train_keep_ratio: float = 0.3,
    dropped: str = "pool",
    autocast: str = "auto",
    max_batch_pieces: int = 4096,
) -> Model[list[Doc], list[Floats2d]]:
    """The encoder inside of one component, as `nlp.replace_listeners` makes it.

    pooling (Model): Reduces the pieces of a token, as for `TransformerListener.v1`.
    grad_factor (float): Scales the gradient that reaches the encoder.
    The others: As for `spacy-spans.PrunedTransformerModel.v1`.
    RETURNS (Model): Documents to token vectors, one array (n_tokens, width) each.
    """
    encoder = build_pruned_transformer_model_v1(
        name,
        get_spans,
        tokenizer_config,
        transformer_config,
        gates,
        keep_ratio,
        threshold,
        train_keep_ratio,
        dropped,
        autocast,
        max_batch_pieces,
    )
    # Nested as what `nlp.replace_listeners` leaves, or a saved pipeline would not load.
    return chain(chain(encoder, split_trf_batch()), trfs2arrays(pooling, grad_factor))


def _check(
    gates: list[int],
    keep_ratio: float | None,
    threshold: float,
    train_keep_ratio: float,
    dropped: str,
    autocast: str,
    max_batch_pieces: int,
) -> None:
    if sorted(set(gates)) != gates or any(gate < 1 for gate in gates):
        raise SettingsError(f"Got gates = {gates}. Expected layers from 1 on, ascending.")
    for setting, ratio in (("keep_ratio", keep_ratio), ("train_keep_ratio", train_keep_ratio)):
        if ratio is not None and not 0 < ratio <= 1:
            raise SettingsError(f"Got {setting} = {ratio}. Expected above 0, at most 1.")
    if not 0 <= threshold <= 1:
        raise SettingsError(f"Got threshold = {threshold}. Expected a probability, 0 to 1.")
    for setting, value, choices in (
        ("dropped", dropped, DROPPED),
        ("autocast", autocast, AUTOCAST),
    ):
        if value not in choices:
            raise SettingsError(f"Got {setting} = {value!r}. Expected one of {choices}.")
    if max_batch_pieces < 1:
        raise SettingsError(f"Got max_batch_pieces = {max_batch_pieces}. Expected at least 1.")


def _not_called(*args: Any) -> Any:
    raise NotImplementedError("Gates run inside of the encoder.")


def _leave_to_encoder(model: Model, X: Any = None, Y: Any = None) -> Model:
    """The encoder's width is known only once it is loaded: `_init` builds the gates."""
    return model


def _init(model: Any, X: Any = None, Y: Any = None) -> Model:
    # Without documents: the stock component gives one that nothing has run on.
    init_transformer(model)
    gates = model.attrs["gates"]
    if not gates:
        return model
    n_layers = len(family_of(model.transformer).layers(model.transformer))
    if gates[-1] >= n_layers:
        raise SettingsError(
            f"Got gates = {gates} for an encoder of {n_layers} layers. Expected layers before the "
            "last: there is nothing to save after it."
        )
    if layer_shim(model.layers[1]).module is None:
        layer_shim(model.layers[1]).build_module(model.get_dim("nO"), len(gates))
    return model


def _forward(
    model: PrunedTransformerModel, docs: list[Doc], is_train: bool
) -> tuple[FullTransformerBatch, Callable]:
    batch = tokenize(model, docs)
    pieces, align = batch.wordpieces, batch.align
    first_tokens, words = _number_words(align, pieces.input_ids.shape)
    encoder = model.transformer
    encoder.train(is_train)
    width = encoder.config.hidden_size
    hidden = torch.zeros((*pieces.input_ids.shape, width), device=encoder.device)
    parts: list[tuple[np.ndarray, Encoded]] = []
    run = partial(_run, model, pieces, words, is_train)
    for rows in length_batches(pieces.lengths, model.attrs["max_batch_pieces"]):
        encoded = run(rows)
        hidden[torch.as_tensor(rows), : encoded.hidden.shape[1]] = encoded.hidden.detach()
        if is_train:
            parts.append((rows, encoded))
    output = BaseModelOutput(last_hidden_state=cast(torch.FloatTensor, hidden))
    relevance = np.concatenate(model.relevance) if is_train and model.relevance else None

    def backprop(d_batch: FullTransformerBatch) -> list[Doc]:
        (d_output,) = d_batch.model_output.values()
        outputs, gradients = [], []
        for rows, encoded in parts:
            outputs.append(encoded.hidden)
            gradients.append(d_output[torch.as_tensor(rows), : encoded.hidden.shape[1]])
        if relevance is not None and model.attrs["gates"]:
            loss = _gate_loss(parts, first_tokens, relevance)
            outputs.append(loss)
            gradients.append(torch.ones_like(loss))
            model.attrs["gates_trained"] = True
        torch.autograd.backward(outputs, gradients)
        return docs

    full = FullTransformerBatch(
        batch.spans, pieces, output, align, cached_doc_data=split_by_doc(batch, output)
    )
    return full, backprop


def _run(
    model: PrunedTransformerModel,
    pieces: WordpieceBatch,
    words: np.ndarray,
    is_train: bool,
    rows: np.ndarray,
) -> Encoded:
    """Encode windows of like length."""
    longest = max(pieces.lengths[row] for row in rows.tolist())
    device = model.transformer.device

    def take(values: Any) -> torch.Tensor:
        return torch.as_tensor(values[rows, :longest], device=device).long()

    types = pieces.token_type_ids
    inputs: dict[str, Any] = {
        "input_ids": take(pieces.input_ids),
        "mask": take(pieces.attention_mask) > 0,
        "token_types": None if types is None else take(types),
    }
    encoder = model.transformer
    with _autocast(model.attrs["autocast"], device.type), torch.set_grad_enabled(is_train):
        if encoder.config.model_type not in FAMILIES:
            encoded = encode_whole(encoder, **inputs)
        else:
            gates = layer_shim(model.layers[1]).module
            # Gates that nothing was learned from would drop words by chance.
            can_prune = model.attrs["gates_trained"] or (is_train and model.relevance is not None)
            encoded = encode(
                encoder,
                family_of(encoder),
                gates if can_prune else None,
                _pruning(model, is_train),
                **inputs,
                words=take(words),
            )
    return encoded._replace(hidden=encoded.hidden.float())


def _pruning(model: PrunedTransformerModel, is_train: bool) -> Pruning:
    attrs = model.attrs
    ratio = attrs["keep_ratio"]
    if is_train:
        ratio = random.uniform(attrs["train_keep_ratio"], 1.0)
    pool = attrs["dropped"] == "pool"
    return Pruning(tuple(attrs["gates"]), ratio, attrs["threshold"], pool)


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


def _number_words(align: Any, shape: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
    """First token of each window, counting the batch's tokens, and the number of each piece's
    token in its window, -1 for pieces of none.
    """
    lengths = np.asarray(align.lengths)
    flat = np.full(shape[0] * shape[1], -1, dtype=np.int64)
    flat[np.asarray(align.dataXd).reshape(-1)] = np.repeat(np.arange(len(lengths)), lengths)
    token_of = flat.reshape(shape)
    far = len(lengths)
    first_tokens = np.where(token_of < 0, far, token_of).min(axis=1, initial=far)
    return first_tokens, np.where(token_of < 0, -1, token_of - first_tokens[:, None])


def _gate_loss(
    parts: list[tuple[np.ndarray, Encoded]], first_tokens: np.ndarray, relevance: FloatArray
) -> torch.Tensor:
    """Binary cross-entropy of the gates with the tokens' relevance, per word and gate."""
    wanted = torch.as_tensor(np.append(relevance, np.float32(0)))
    losses = []
    n_words = 0
    for rows, encoded in parts:
        first = torch.as_tensor(first_tokens[rows])[:, None]
        for scores in encoded.gate_logits:
            exists = scores > -torch.inf
            tokens = (first + torch.arange(scores.shape[1])).clamp(max=len(wanted) - 1)
            target = wanted[tokens].to(scores.device)[exists]
            losses.append(
                torch.nn.functional.binary_cross_entropy_with_logits(
                    scores[exists].float(), target, reduction="sum"
                )
            )
            n_words += int(exists.sum())
    return torch.stack(losses).sum() / max(1, n_words)


def _replace_listener_cfg(tok2vec_config: dict, listener_config: dict) -> dict:
    """What `nlp.replace_listeners` writes into the config: the encoder inside of one component."""
    config = {**tok2vec_config, "@architectures": OWN_TOK2VEC}
    for key in ("pooling", "grad_factor"):
        if key in listener_config:
            config.setdefault(key, listener_config[key])
    return config
