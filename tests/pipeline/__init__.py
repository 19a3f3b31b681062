"""What the tests of components share: small annotated texts, and small pipelines to learn them."""

from copy import deepcopy

import numpy as np
import spacy
from spacy.language import DEFAULT_CONFIG_PATH, Language
from spacy.tokens import Doc, DocBin, Span, SpanGroup
from spacy.training import Example
from thinc.api import Adam

from spacy_spans import fragments

# Half-open token offsets. The first text has nested spans, spans that cross, and two labels for
# the same offsets.
DATA = [
    (
        "write clean Python code every day",
        [
            (0, 3, "SKILL"),
            (0, 6, "DUTY"),
            (1, 4, "SKILL"),
            (2, 3, "KNOWLEDGE"),
            (2, 3, "SKILL"),
        ],
    ),
    ("Knowledge of German food safety law", [(0, 6, "SKILL"), (2, 6, "KNOWLEDGE")]),
    ("We pay well", []),
    ("", []),
]
# The same with one label for any offsets: what softmax can express.
ONE_LABEL_DATA = [
    (text, [span for span in spans if span != (2, 3, "SKILL")]) for text, spans in DATA
]
# The same with what tags can express: no spans of one label overlap. The two spans with an id are
# fragments of one mention.
TAG_DATA = [
    (DATA[0][0], [(0, 3, "SKILL"), (0, 6, "DUTY"), (2, 3, "KNOWLEDGE")]),
    DATA[1],
    ("We pay well", [(0, 1, "DUTY", "m1"), (2, 3, "DUTY", "m1")]),
    ("", []),
]
# Without any overlap: what one layer for all labels can express.
FLAT_DATA = [
    (DATA[0][0], [(0, 2, "DUTY"), (2, 4, "KNOWLEDGE"), (4, 6, "SKILL")]),
    (DATA[1][0], [(0, 1, "SKILL"), (2, 6, "KNOWLEDGE")]),
    ("We pay well", []),
    ("", []),
]
LABELS = ("DUTY", "KNOWLEDGE", "SKILL")
# What each component can learn by heart.
DATA_FOR = {"span_enumerator": DATA, "multispan_tagger": TAG_DATA}

# The texts of all of them.
TEXTS = [text for text, _ in DATA]

SMALL_TOK2VEC = {
    "@architectures": "spacy.HashEmbedCNN.v2",
    "width": 32,
    "depth": 1,
    "embed_size": 300,
    "window_size": 1,
    "maxout_pieces": 2,
    "subword_features": False,
    "pretrained_vectors": None,
}
LISTENER = {"@architectures": "spacy.Tok2VecListener.v1", "width": 32, "upstream": "*"}

CANDIDATES = {
    "length": {"@misc": "spacy-spans.length_candidates.v1", "max_length": 8},
    "boundary": {"@misc": "spacy-spans.boundary_candidates.v1", "ratio": 0.5},
    "preset": {"@misc": "spacy-spans.preset_candidates.v1", "spans_key": "given"},
}

# Settings of `make_nlp` and what calls it.
TAGGER = {"factory": "multispan_tagger"}
SCHEMES = {
    name: {"@misc": f"spacy-spans.{name}_scheme.v1"} for name in ("io", "bio", "bioes", "boundary")
}


@Language.component("test_write_given")
def write_given(doc):
    """Write every span of the document to the key that preset candidates are read from."""
    n = len(doc)
    spans = [Span(doc, start, end) for start in range(n) for end in range(start + 1, n + 1)]
    doc.spans["given"] = SpanGroup(doc, name="given", spans=spans)
    return doc


def write_spans(doc, key, spans):
    """Set a group to tuples of start, end, label and id; the last two may be left out."""
    group = [Span(doc, *span[:3], span_id=span[3] if len(span) > 3 else 0) for span in spans]
    doc.spans[key] = SpanGroup(doc, name=key, spans=group)
    return doc


def make_example(nlp, text, spans, key="sc"):
    """An example whose two documents are tokenised alike."""
    return Example(nlp.make_doc(text), write_spans(nlp.make_doc(text), key, spans))


def make_examples(nlp, data=DATA, key="sc"):
    return [make_example(nlp, text, spans, key) for text, spans in data]


def make_nlp(
    *, factory="span_enumerator", tok2vec=SMALL_TOK2VEC, name=None, upstream=(), **settings
):
    """A blank pipeline with a small component; `upstream` are factories that come before."""
    spacy.util.fix_random_seed(0)
    nlp = spacy.blank("en")
    for before in upstream:
        config = {"model": deepcopy(SMALL_TOK2VEC)} if before == "tok2vec" else {}
        nlp.add_pipe(before, config=config)
    model = {"tok2vec": deepcopy(tok2vec)}
    if factory == "span_enumerator":
        model["hidden_width"] = 16
    nlp.add_pipe(factory, name=name or factory, config={"model": model, **settings})
    return nlp


def make_pipe(**settings):
    """A pipeline and its component, without weights."""
    nlp = make_nlp(**settings)
    return nlp, nlp.get_pipe(nlp.pipe_names[-1])


def make_initialized(data=DATA, **settings):
    """A pipeline, its component and examples, after initialize."""
    nlp, pipe = make_pipe(**settings)
    examples = make_examples(nlp, data)
    nlp.initialize(lambda: examples)
    return nlp, pipe, examples


def train(nlp, examples, steps=50, learn_rate=0.005, **kwargs):
    """Initialize, and update on all examples at once. RETURNS the last step's losses."""
    nlp.initialize(lambda: examples)
    return train_on(nlp, examples, steps, learn_rate, **kwargs)


def train_on(nlp, examples, steps=50, learn_rate=0.005, **kwargs):
    optimizer = Adam(learn_rate)
    losses = {}
    for _ in range(steps):
        losses = nlp.update(examples, sgd=optimizer, **kwargs)
    return losses


def make_trained(data=DATA, steps=50, **settings):
    nlp = make_nlp(**settings)
    train(nlp, make_examples(nlp, data), steps)
    return nlp


def data_for(loss):
    """What `span_enumerator` can learn with this loss."""
    return ONE_LABEL_DATA if loss == "softmax" else DATA


def make_annotated_examples(nlp, data):
    """Examples whose predicted documents have the spans that preset candidates are read from."""
    examples = make_examples(nlp, data)
    for example in examples:
        write_given(example.predicted)
    return examples


def train_by_heart(factory, **settings):
    """A trained pipeline with one of the components, on what that can learn by heart."""
    return make_trained(DATA_FOR[factory], factory=factory, **settings)


def with_listener(factory, **settings):
    """A trained pipeline whose component listens to a shared tok2vec."""
    return train_by_heart(factory, tok2vec=LISTENER, upstream=("tok2vec",), **settings)


def data_of(nlp):
    """What the components of this package in a pipeline are to learn: they are of one kind."""
    (factory,) = {*nlp.pipe_factories.values()} & {*DATA_FOR}
    return DATA_FOR[factory]


def examples_of(nlp, key="sc"):
    return make_examples(nlp, data_of(nlp), key)


def assert_perfect(nlp, key="sc"):
    data = data_of(nlp)
    docs = list(nlp.pipe(text for text, _ in data))
    assert [found(doc, key) for doc in docs] == [[span[:3] for span in spans] for _, spans in data]
    if data is TAG_DATA:
        assert mentions(docs[2], key) == [("DUTY", (0, 1), (2, 3))]


def write_corpus(folder, factory, key="sc"):
    """The data as a file, without the empty document, which `DocBin` readers skip."""
    examples = make_examples(spacy.blank("en"), DATA_FOR[factory], key)
    docs = [example.reference for example in examples]
    path = folder / f"{key}.spacy"
    DocBin(docs=[doc for doc in docs if len(doc)]).to_disk(path)
    return path


def write_config(nlp, corpus, **training):
    """A config that trains the pipeline, as `spacy init config` would write it."""
    config = spacy.util.load_config(DEFAULT_CONFIG_PATH).merge(nlp.config)
    config["paths"].update({"train": str(corpus), "dev": str(corpus)})
    config["training"].update({"max_steps": 2, "eval_frequency": 1, "dropout": 0.0, **training})
    config["training"]["optimizer"]["learn_rate"] = 0.005
    config["training"].pop("score_weights", None)
    path = corpus.parent / "config.cfg"
    config.to_disk(path)
    return path


def found(doc: Doc, key="sc"):
    """Offsets and labels of a group, sorted."""
    return sorted((span.start, span.end, span.label_) for span in doc.spans[key])


def found_in(nlp, data):
    """What `found` returns for each text that a pipeline reads."""
    return [found(doc) for doc in nlp.pipe(text for text, _ in data)]


def spans_of(data):
    """What `found` returns for these annotations."""
    return [sorted(span[:3] for span in spans) for _, spans in data]


def scored(doc: Doc, key="sc"):
    """Offsets, labels and scores of a group, in its order."""
    group = doc.spans[key]
    scores = group.attrs["scores"]
    assert len(scores) == len(group)
    return [
        (span.start, span.end, span.label_, score)
        for span, score in zip(group, scores, strict=True)
    ]


def mentions(doc: Doc, key="sc"):
    """Label and offsets of each mention of several fragments, sorted."""
    return sorted(
        (own[0].label_, *((span.start, span.end) for span in own))
        for own in fragments(doc, key)
        if len(own) > 1
    )


def predictions(nlp, key="sc"):
    """Offsets, labels, scores and ids that a pipeline finds in the texts of the data."""
    docs = nlp.pipe(text for text, _ in DATA)
    return [[*scored(doc, key), *(span.id_ for span in doc.spans[key])] for doc in docs]


def logit(probability):
    return float(np.log(probability / (1 - probability)))


def gradients_of(pipe):
    """Gradients of all weights of an enumerator that are to be trained, by layer and name."""
    gradients = {}
    for i, node in enumerate(pipe.model.walk()):
        for name in node.grad_names:
            gradients[i, name] = node.get_grad(name).copy()
        for shim in node.shims:
            for name, value in shim.module.named_parameters():
                assert value.grad is not None, name
                gradients[i, name] = value.grad.numpy().copy()
    return gradients


def make_update(data=DATA, repeat=1, **config):
    """Loss and gradients of an enumerator's update without an optimizer, from fixed weights."""
    nlp, pipe, _ = make_initialized(data_for(config.get("loss")), **config)
    examples = [example for _ in range(repeat) for example in make_examples(nlp, data)]
    losses = pipe.update(examples)
    return losses["span_enumerator"], gradients_of(pipe)


def assert_same_gradients(gradients, others, factor=1.0, **tolerance):
    tolerance = {"rtol": 1e-3, "atol": 1e-6, **tolerance}
    assert sorted(gradients) == sorted(others)
    for key, value in gradients.items():
        np.testing.assert_allclose(value * factor, others[key], err_msg=str(key), **tolerance)
