"""Model architectures: wiring only. The mathematics is in `modules`."""

from collections.abc import Callable
from functools import partial
from typing import Any, cast

from spacy.tokens import Doc
from thinc.api import ArgsKwargs, Dropout, Model, chain, list2ragged, torch2xp, xp2torch
from thinc.types import Floats2d, Ragged

from spacy_spans.errors import SettingsError
from spacy_spans.kernels.enumeration import batch_offsets
from spacy_spans.modules.span_classifier import SpanClassifier
from spacy_spans.modules.token_projector import TokenProjector
from spacy_spans.torch_layer import ModuleBuilder, layer_shim, torch_layer
from spacy_spans.windowed import windowed


def build_span_enumerator_v1(
    tok2vec: Model[list[Doc], list[Floats2d]],
    hidden_width: int = 64,
    context_window: int = 2,
    learn_rate_factor: float = 1.0,
) -> Model[tuple[list[Doc], Ragged], Floats2d]:
    """Score candidate spans for every label at a cost that does not grow with their length.

    Token vectors pass a context layer and are projected once as start, end and content of a
    span (`token_projector`); a span adds up what its first, its last and, by prefix sums, all its
    tokens prepared (`span_classifier`). The component runs the two parts in turn, because learned
    candidates need the first; called as a whole the model takes (docs, candidates) to logits.

    tok2vec (Model): Token vectors, e.g. a listener.
    hidden_width (int): Features per role.
    context_window (int): Tokens on each side that a token sees before projection; 0 for none.
    learn_rate_factor (float): Multiplies the optimizer's learning rate for the layers above
        `tok2vec`: above 1 where these are pretrained and the layers above start from nothing.
    RETURNS (Model): From documents and candidates, offsets (n_spans, 2), to logits (n_spans,
        n_classes); (0, n_classes) for none.
    RAISES (SettingsError): On settings out of range.
    """
    if hidden_width < 1 or context_window < 0 or learn_rate_factor <= 0:
        raise SettingsError(
            f"Got hidden_width = {hidden_width}, context_window = {context_window}, "
            f"learn_rate_factor = {learn_rate_factor}. Expected at least 1, at least 0, above 0."
        )
    return assemble_span_enumerator(
        tok2vec,
        partial(_build_projector, hidden=hidden_width, window=context_window),
        partial(_build_classifier, hidden=hidden_width),
        token_width=3 * hidden_width + 2,
        learn_rate_factor=learn_rate_factor,
    )


def build_windowed_tok2vec_v1(
    tok2vec: Model[list[Doc], list[Floats2d]], window: int = 4096
) -> Model[list[Doc], list[Floats2d]]:
    """Run a convolutional token encoder over windows in prediction: memory bounded, same vectors.

    Each window is read with as many tokens on either side as one token sees, so that the vectors
    are those of the encoder itself. Training passes whole documents through.

    tok2vec (Model): An encoder that reads features of tokens and sees its neighbours by windows,
        such as `spacy.Tok2Vec.v2` with `spacy.MaxoutWindowEncoder.v2`.
    window (int): Tokens encoded in one go; at least 1.
    RETURNS (Model): From documents to one array (n_tokens, width) each; (0, width) for empty ones.
    RAISES (SettingsError): For a window below 1, listeners, and encoders whose tokens see further
        than windows tell, such as an LSTM.
    """
    if window < 1:
        raise SettingsError(f"Got window = {window}. Expected at least 1 token.")
    return windowed(tok2vec, window)


def _build_projector(n_in: int, n_out: int, *, hidden: int, window: int) -> TokenProjector:
    return TokenProjector(n_in, hidden, window)


def _build_classifier(n_in: int, n_out: int, *, hidden: int) -> SpanClassifier:
    return SpanClassifier(hidden, n_out)


def assemble_span_enumerator(
    tok2vec: Model[list[Doc], list[Floats2d]],
    build_projector: ModuleBuilder,
    build_classifier: ModuleBuilder,
    *,
    token_width: int,
    learn_rate_factor: float,
) -> Model[tuple[list[Doc], Ragged], Floats2d]:
    """Wire a token module and a span module into the model that `span_enumerator` runs.

    build_projector (Callable): Makes the module from (n_tokens, width) and lengths to
        (n_tokens, token_width), the last two columns being the start and the end score.
    build_classifier (Callable): Makes the module from (n_tokens, token_width) and offsets
        (n_spans, 2) to logits (n_spans, n_classes).
    """
    projector = torch_layer(
        "token_projector",
        build_projector,
        _ragged_to_torch,
        _floats_from_torch,
        init=partial(_init_projector, token_width=token_width),
        learn_rate_factor=learn_rate_factor,
    )
    classifier = torch_layer(
        "span_classifier",
        build_classifier,
        _tokens_and_offsets_to_torch,
        _floats_from_torch,
        init=_init_classifier,
        learn_rate_factor=learn_rate_factor,
    )
    classifier.set_dim("nI", token_width)
    tokens: Model[list[Doc], Floats2d] = chain(tok2vec, list2ragged(), Dropout(), projector)
    return Model(
        "span_enumerator",
        _forward,
        init=_init,
        layers=[tokens, classifier],
        refs={"tok2vec": tok2vec, "tokens": tokens, "classifier": classifier},
        dims={"nO": None},
        attrs={"resize_output": _resize_output},
    )


def _forward(
    model: Model, docs_candidates: tuple[list[Doc], Ragged], is_train: bool
) -> tuple[Floats2d, Callable]:
    docs, candidates = docs_candidates
    tokens, backprop_tokens = model.get_ref("tokens")(docs, is_train)
    ops: Any = model.ops  # thinc's stubs know no numpy arrays.
    offsets = batch_offsets(
        ops.to_numpy(candidates.dataXd),
        ops.to_numpy(candidates.lengths),
        [len(doc) for doc in docs],
    )
    logits, backprop_logits = model.get_ref("classifier")((tokens, ops.asarray(offsets)), is_train)

    def backprop(d_logits: Floats2d) -> tuple[Any, None]:
        return backprop_tokens(backprop_logits(d_logits)), None

    return logits, backprop


def _init(model: Model, X: tuple[list[Doc], Ragged] | None = None, Y: Any = None) -> Model:
    docs = X[0] if X is not None else None
    model.get_ref("tokens").initialize(X=docs)
    classifier = model.get_ref("classifier")
    classifier.set_dim("nO", model.get_dim("nO"), force=True)
    classifier.initialize()
    return model


def _init_projector(
    model: Model, X: Ragged | None = None, Y: Any = None, *, token_width: int
) -> Model:
    if X is not None:
        model.set_dim("nI", cast(Floats2d, X.dataXd).shape[1], force=True)
    model.set_dim("nO", token_width, force=True)
    layer_shim(model).build_module(model.get_dim("nI"), token_width)
    return model


def _init_classifier(model: Model, X: Any = None, Y: Any = None) -> Model:
    layer_shim(model).build_module(model.get_dim("nI"), model.get_dim("nO"))
    return model


def _resize_output(model: Model, n_classes: int) -> Model:
    """Give the classifier more outputs, keeping what the existing ones learned."""
    classifier = model.get_ref("classifier")
    old = layer_shim(classifier)
    new = type(old)(old.build, old.learn_rate_factor)  # A new id: the optimizer starts afresh.
    new.set_module(old.module.resized(n_classes), classifier.get_dim("nI"), n_classes)
    classifier.shims[0] = new
    for node in (model, classifier):
        node.set_dim("nO", n_classes, force=True)
    return model


def _ragged_to_torch(model: Model, tokens: Ragged, is_train: bool) -> tuple[ArgsKwargs, Callable]:
    data = xp2torch(tokens.dataXd, requires_grad=is_train)
    lengths = xp2torch(tokens.lengths).long()

    def backprop(d_inputs: ArgsKwargs) -> Ragged:
        return Ragged(torch2xp(d_inputs.args[0]), tokens.lengths)

    return ArgsKwargs(args=(data, lengths), kwargs={}), backprop


def _tokens_and_offsets_to_torch(
    model: Model, tokens_offsets: tuple[Floats2d, Any], is_train: bool
) -> tuple[ArgsKwargs, Callable]:
    tokens, offsets = tokens_offsets
    args = (xp2torch(tokens, requires_grad=is_train), xp2torch(offsets))

    def backprop(d_inputs: ArgsKwargs) -> Any:
        return torch2xp(d_inputs.args[0])

    return ArgsKwargs(args=args, kwargs={}), backprop


def _floats_from_torch(
    model: Model, inputs_outputs: tuple[Any, Any], is_train: bool
) -> tuple[Any, Callable]:
    _, output = inputs_outputs

    def backprop(d_output: Floats2d) -> ArgsKwargs:
        gradient = xp2torch(d_output)
        return ArgsKwargs(args=((output,),), kwargs={"grad_tensors": gradient})

    return torch2xp(output.detach() if is_train else output), backprop
