"""`spacy-spans.PrunedTransformerModel.v1`: wires the pruning encoder into the `transformer` pipe.

It takes the place of `spacy-transformers.TransformerModel.v3`: storage and listeners are that
one's, windows are cut by word pieces, so that none is cut off. They run in batches of like length,
in bfloat16 where the machine has it, and gates, once trained, drop words between layers.
"""

from collections.abc import Callable
from copy import deepcopy
from typing import Any

from spacy.tokens import Doc
from spacy_transformers.data_classes import FullTransformerBatch
from spacy_transformers.layers import split_trf_batch, trfs2arrays
from spacy_transformers.layers.transformer_model import TransformerModel
from spacy_transformers.layers.transformer_model import init as init_transformer
from thinc.api import Model, chain
from thinc.types import Floats2d, Ragged

from spacy_spans.encoder.criteria import Criterion, build_gate_criterion_v1
from spacy_spans.encoder.forward import Supervision, check_layers, forward
from spacy_spans.encoder.run import Gates
from spacy_spans.encoder.settings import Configured, check_settings
from spacy_spans.torch_layer import layer_shim, torch_layer

OWN_TOK2VEC = "spacy-spans.PrunedTok2VecTransformer.v1"
# Gates start from nothing, beside an encoder that is pretrained.
LEARN_RATE_FACTOR = 20.0


class PrunedTransformerModel(TransformerModel):
    """The stock model with another forward pass, and gates as a second layer.

    attrs: What `build_pruned_transformer_model_v1` calls settings may be changed at any time, e.g.
        `nlp.get_pipe("transformer").model.attrs["keep_ratio"] = 0.3`. Beside them, stored too:
        "gates_trained", the "trained_gates", and "n_updates" so far.
    supervision (Supervision | None): While training; set by the component, never stored.
    """

    supervision: Supervision | None = None

    def __init__(
        self,
        name: str,
        get_spans: Callable,
        tokenizer_config: dict[str, Any],
        transformer_config: dict[str, Any],
        criterion: Criterion,
        settings: dict[str, Any],
    ) -> None:
        """settings (dict): The other ones of `build_pruned_transformer_model_v1`."""
        arguments = (name, get_spans, tokenizer_config, transformer_config)
        super().__init__(*arguments)
        self._arguments = (*arguments, criterion, settings)
        self._func = forward
        self.init = _init
        self._layers.append(
            torch_layer(
                "gates",
                Gates,
                _not_called,
                _not_called,
                init=_leave_to_encoder,
                learn_rate_factor=LEARN_RATE_FACTOR,
            )
        )
        learned = {"gates_trained": False, "trained_gates": [], "n_updates": 0}
        self.attrs.update(**learned, criterion=criterion)
        self.attrs["replace_listener_cfg"] = _replace_listener_cfg
        Configured(settings).attach(self)

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
    criterion: Criterion | None = None,
    keep_ratio: float | None = None,
    threshold: float = 0.1,
    train_keep_ratio: float = 0.3,
    warmup_steps: int = 200,
    dropped: str = "pool",
    autocast: str = "auto",
    max_batch_pieces: int | None = None,
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
    gates (List[int]): Layers, counted from 1, after which words are dropped; 0: before the first
        one, on embeddings alone. None by default.
    criterion (Optional[Criterion]): By what words are chosen, see `spacy_spans.encoder.criteria`.
        None: by gates that learn from gold spans where the component is `pruned_transformer`; until
        they have, all is kept.
    keep_ratio (Optional[float]): Share of each window's words that every gate keeps, 1.0: all, at
        no cost. None: the words whose probability of being relevant is at least `threshold`.
    threshold (float): See keep_ratio. In training others around it are drawn, so that one model
        serves many.
    train_keep_ratio (float): With a keep_ratio, ratios are drawn in training, from this one to 1,
        so that one model serves any.
    warmup_steps (int): Batches to learn from before any word is dropped. Gates learn meanwhile.
        They are counted in the model, so that a training that is resumed goes on.
    dropped (str): "pool": the mean of each dropped run stands in for it. "drop": nothing does.
    autocast (str): "bfloat16", "none", or "auto": bfloat16 where the processor computes in it.
    max_batch_pieces (Optional[int]): Most pieces of a batch of windows, padding included. None:
        512 on a processor, whose cache they fit into, and 16,384 on a GPU.
    RETURNS (Model): Documents to a `FullTransformerBatch`, with rows for dropped words as well.
    RAISES (SettingsError): On settings out of range; at initialize, on gates for a family without
        adapter or after the last layer.
    """
    criterion = criterion or build_gate_criterion_v1()
    settings = {
        "gates": list(gates),
        "keep_ratio": keep_ratio,
        "threshold": threshold,
        "train_keep_ratio": train_keep_ratio,
        "warmup_steps": warmup_steps,
        "dropped": dropped,
        "autocast": autocast,
        "max_batch_pieces": max_batch_pieces,
    }
    check_settings(settings, criterion)
    return PrunedTransformerModel(
        name, get_spans, dict(tokenizer_config), dict(transformer_config), criterion, settings
    )


def build_pruned_tok2vec_transformer_v1(
    pooling: Model[Ragged, Floats2d],
    name: str,
    get_spans: Callable,
    grad_factor: float = 1.0,
    tokenizer_config: dict[str, Any] = {},  # noqa: B006
    transformer_config: dict[str, Any] = {},  # noqa: B006
    gates: list[int] = [],  # noqa: B006
    criterion: Criterion | None = None,
    keep_ratio: float | None = None,
    threshold: float = 0.1,
    train_keep_ratio: float = 0.3,
    warmup_steps: int = 200,
    dropped: str = "pool",
    autocast: str = "auto",
    max_batch_pieces: int | None = None,
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
        criterion,
        keep_ratio,
        threshold,
        train_keep_ratio,
        warmup_steps,
        dropped,
        autocast,
        max_batch_pieces,
    )
    # Nested as what `nlp.replace_listeners` leaves, or a saved pipeline would not load.
    return chain(chain(encoder, split_trf_batch()), trfs2arrays(pooling, grad_factor))


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
    check_layers(gates, model.transformer)
    if model.attrs["criterion"].learns and layer_shim(model.layers[1]).module is None:
        layer_shim(model.layers[1]).build_module(model.get_dim("nO"), len(gates))
    return model


def _replace_listener_cfg(tok2vec_config: dict, listener_config: dict) -> dict:
    """What `nlp.replace_listeners` writes into the config: the encoder inside of one component."""
    config = {**tok2vec_config, "@architectures": OWN_TOK2VEC}
    for key in ("pooling", "grad_factor"):
        if key in listener_config:
            config.setdefault(key, listener_config[key])
    return config
