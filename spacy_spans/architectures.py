"""Model architectures: wiring only. The mathematics is in `modules`."""

from collections.abc import Callable
from functools import partial
from typing import Any, cast

import numpy as np
import torch
from spacy.attrs import IDS as SPACY_FLAGS
from spacy.tokens import Doc
from thinc.api import ArgsKwargs, Dropout, Model, chain, list2ragged, torch2xp, xp2torch
from thinc.types import Floats1d, Floats2d, Ragged

from spacy_spans.errors import SettingsError
from spacy_spans.kernels.enumeration import batch_offsets
from spacy_spans.modules.fragment_linker import FragmentLinker
from spacy_spans.modules.span_classifier import SpanClassifier
from spacy_spans.modules.tag_projector import TagProjector
from spacy_spans.modules.token_projector import TokenProjector
from spacy_spans.modules.token_scorer import TokenScorer
from spacy_spans.torch_layer import ModuleBuilder, layer_shim, replace_module, torch_layer
from spacy_spans.windowed import windowed

# The logit of what needs no learning.
SURE = 10.0


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


def build_multispan_tagger_v1(
    tok2vec: Model[list[Doc], list[Floats2d]],
    context_window: int = 2,
    learn_rate_factor: float = 1.0,
) -> Model[list[Doc], tuple[Floats2d, Floats1d]]:
    """Score the tags of every token, and tags that follow each other.

    Token vectors pass a context layer and one linear layer (`tag_projector`). A second part
    (`links`, used where mentions are discontinuous) scores pairs of fragments. How many tags
    there are is known once the component has seen the data: it sets `sizes` in the model's attrs.

    tok2vec (Model): Token vectors, e.g. a listener.
    context_window (int): Tokens on each side that a token sees before projection; 0 for none.
    learn_rate_factor (float): Multiplies the optimizer's learning rate for the layers above
        `tok2vec`: above 1 where these are pretrained and the layers above start from nothing.
    RETURNS (Model): From documents to one row per token, shape (n_tokens, n_scores + n_links),
        and the scores of tag sequences, shape (n_edges,); no rows for documents without tokens.
    RAISES (SettingsError): On settings out of range.
    """
    if context_window < 0 or learn_rate_factor <= 0:
        raise SettingsError(
            f"Got context_window = {context_window}, learn_rate_factor = {learn_rate_factor}. "
            "Expected at least 0, above 0."
        )
    projector = torch_layer(
        "tag_projector",
        partial(TagProjector, window=context_window),
        _ragged_to_torch,
        _pair_from_torch,
        init=_init_tag_projector,
        learn_rate_factor=learn_rate_factor,
    )
    links = torch_layer(
        "fragment_linker",
        FragmentLinker,
        _tokens_and_offsets_to_torch,
        _floats_from_torch,
        init=_init_links,
        learn_rate_factor=learn_rate_factor,
    )
    tokens: Model = chain(tok2vec, list2ragged(), Dropout(), projector)
    return Model(
        "multispan_tagger",
        _forward_tokens,
        init=_init_tagger,
        layers=[tokens, links],
        refs={"tok2vec": tok2vec, "tokens": tokens, "projector": projector, "links": links},
        dims={"nO": None},
        attrs={"sizes": {}, "resize_output": _resize_tagger},
    )


def build_token_pruner_v1(
    tok2vec: Model[list[Doc], list[Floats2d]],
    context_window: int = 2,
    learn_rate_factor: float = 1.0,
) -> Model[list[Doc], Floats2d]:
    """Score how likely each token is to be needed.

    To save the work of an encoder, `tok2vec` should be cheap and not listen to it.

    tok2vec (Model): Token vectors.
    context_window (int): Tokens on each side that a token sees before it is scored; 0 for none.
    learn_rate_factor (float): Multiplies the optimizer's learning rate for the layers above
        `tok2vec`.
    RETURNS (Model): From documents to one logit per token, (n_tokens, 1).
    RAISES (SettingsError): On settings out of range.
    """
    if context_window < 0 or learn_rate_factor <= 0:
        raise SettingsError(
            f"Got context_window = {context_window}, learn_rate_factor = {learn_rate_factor}. "
            "Expected at least 0, above 0."
        )
    scorer = torch_layer(
        "token_scorer",
        partial(_build_scorer, window=context_window),
        _ragged_to_torch,
        _floats_from_torch,
        init=partial(_init_projector, token_width=1),
        learn_rate_factor=learn_rate_factor,
    )
    model: Model = chain(tok2vec, list2ragged(), Dropout(), scorer)
    model.set_ref("tok2vec", tok2vec)
    model.set_ref("scorer", scorer)
    return model


def build_lexical_token_pruner_v1(
    drop_stop_words: bool = True, drop_punctuation: bool = True
) -> Model[list[Doc], Floats2d]:
    """Score tokens without any training: stop words, punctuation and white space are not needed.

    A weak criterion, for where there are no labels: on token-level tasks it costs many times what a
    learned one does at the same share of tokens.

    drop_stop_words (bool): Score the language's stop words low.
    drop_punctuation (bool): Score punctuation low.
    RETURNS (Model): From documents to one logit per token, (n_tokens, 1), which says yes or no.
    """
    return Model(
        "lexical_token_pruner",
        _forward_lexical,
        attrs={"drop_stop_words": drop_stop_words, "drop_punctuation": drop_punctuation},
        dims={"nO": 1},
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


def _build_scorer(n_in: int, n_out: int, *, window: int) -> TokenScorer:
    return TokenScorer(n_in, window)


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


def _forward_lexical(model: Model, docs: list[Doc], is_train: bool) -> tuple[Floats2d, Callable]:
    flags = [SPACY_FLAGS["IS_SPACE"]]
    flags += [SPACY_FLAGS["IS_STOP"]] * model.attrs["drop_stop_words"]
    flags += [SPACY_FLAGS["IS_PUNCT"]] * model.attrs["drop_punctuation"]
    rows = [doc.to_array(flags).reshape(len(doc), len(flags)) for doc in docs]
    dropped = np.concatenate([np.zeros((0, len(flags)), dtype=np.uint64), *rows]).any(axis=1)
    logits = np.where(dropped, -SURE, SURE).astype("f").reshape(-1, 1)
    return model.ops.asarray2f(cast(Floats2d, logits)), lambda d_logits: docs


def _forward_tokens(
    model: Model, docs: list[Doc], is_train: bool
) -> tuple[tuple[Floats2d, Floats1d], Callable]:
    output: tuple[tuple[Floats2d, Floats1d], Callable] = model.get_ref("tokens")(docs, is_train)
    return output


def _init_tagger(model: Model, X: list[Doc] | None = None, Y: Any = None) -> Model:
    for layer in ("projector", "links"):
        model.get_ref(layer).attrs["sizes"] = model.attrs["sizes"]
    model.get_ref("tokens").initialize(X=X)
    model.get_ref("links").initialize()
    return model


def _resize_tagger(model: Model, old: Any, new: Any) -> Model:
    """Give the model outputs for more labels, keeping what the existing ones learned.

    old, new (TagLayout): Of the labels so far, and of all.
    """
    projector, links = model.get_ref("projector"), model.get_ref("links")
    scores, edges = (torch.from_numpy(places) for places in old.places_in(new))
    module = layer_shim(projector).module.resized(new.n_scores, new.n_edges, scores, edges)
    sizes = (projector.get_dim("nI"), new.n_scores, new.n_edges, new.n_links)
    replace_module(projector, module, *sizes)
    if new.links:
        linker = layer_shim(links).module.resized(new.n_labels)
        replace_module(links, linker, new.n_links, new.n_labels)
    model.set_dim("nO", new.n_scores, force=True)
    return model


def _init_tag_projector(model: Model, X: Ragged | None = None, Y: Any = None) -> Model:
    if X is not None:
        model.set_dim("nI", cast(Floats2d, X.dataXd).shape[1], force=True)
    sizes = model.attrs["sizes"]
    if sizes:
        layer_shim(model).build_module(
            model.get_dim("nI"), sizes["n_scores"], sizes["n_edges"], sizes["n_links"]
        )
    return model


def _init_links(model: Model, X: Any = None, Y: Any = None) -> Model:
    sizes = model.attrs["sizes"]
    if sizes and sizes["n_links"]:
        layer_shim(model).build_module(sizes["n_links"], sizes["n_labels"])
    return model


def _resize_output(model: Model, n_classes: int) -> Model:
    """Give the classifier more outputs, keeping what the existing ones learned."""
    classifier = model.get_ref("classifier")
    resized = layer_shim(classifier).module.resized(n_classes)
    replace_module(classifier, resized, classifier.get_dim("nI"), n_classes)
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


def _pair_from_torch(
    model: Model, inputs_outputs: tuple[Any, Any], is_train: bool
) -> tuple[Any, Callable]:
    _, outputs = inputs_outputs

    def backprop(d_outputs: Any) -> ArgsKwargs:
        gradients = tuple(xp2torch(gradient) for gradient in d_outputs)
        return ArgsKwargs(args=(outputs,), kwargs={"grad_tensors": gradients})

    return tuple(torch2xp(output.detach()) for output in outputs), backprop


def _floats_from_torch(
    model: Model, inputs_outputs: tuple[Any, Any], is_train: bool
) -> tuple[Any, Callable]:
    _, output = inputs_outputs

    def backprop(d_output: Floats2d) -> ArgsKwargs:
        gradient = xp2torch(d_output)
        return ArgsKwargs(args=((output,),), kwargs={"grad_tensors": gradient})

    return torch2xp(output.detach() if is_train else output), backprop
