"""What tests of trust share: odd documents of every kind, and a small pipeline of each component.

Generated with a seed and without hypothesis, so that thousands take seconds.
"""

import random

import spacy
import torch
from spacy.tokens import Doc
from spacy.training import Example
from transformers import BertConfig, BertModel, BertTokenizerFast

from ..encoder import TRANSFORMER_LISTENER
from ..pipeline import SMALL_TOK2VEC, write_spans

LABELS = ("A", "B", "C")
WORDS = ["we", "want", "cooks", "who", "know", "law", "and", "food", "well", ",", "!", "日"]
STRIDES = {"window": 16, "stride": 16}
# Word pieces of a window. A run of digits has more.
MAX_PIECES = 24
PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS, "x", "##x"]
PIECES += [prefix + digit for digit in "0123456789" for prefix in ("", "##")]
# More overlapping gold spans than any document of a corpus has.
N_DENSE_SPANS = 2500

COMBINING = [chr(code) for code in (*range(0x300, 0x370), 0x20D0, 0x20E3, 0xFE20)]
EMOJI = ["👩‍👩‍👧‍👦", "🏳️‍🌈", "👍🏽", "❤️", "🇩🇪", "1️⃣", "\u200d", "\ufe0f"]
RIGHT_TO_LEFT = ["שלום", "مرحبا", "עולם", "\u202eabc\u202c", "\u200f", "٣٤٥"]
WHITE_SPACE = [
    " ",
    "  ",
    "\n",
    "\t",
    "\u00a0",
    "\u2003",
    "\u3000",
    "\r\n",
    "\u2028",
    "\x0b",
    "\x85",
]


def _any_character(draw):
    """Of any of the 17 planes, unassigned and private ones too; halves of pairs are no text."""
    code = draw.randrange(0x11) * 0x10000 + draw.randrange(0x10000)
    return chr(code) if not 0xD800 <= code < 0xE000 else "\ufffd"


def _words(draw):
    return " ".join(draw.choices(WORDS, k=draw.choice([1, 2, 5, 12])))


def _all_planes(draw):
    return "".join(
        " " if draw.random() < 0.2 else _any_character(draw) for _ in range(draw.randrange(1, 25))
    )


def _combining(draw):
    return " ".join(
        draw.choice(WORDS) + "".join(draw.choices(COMBINING, k=draw.choice([1, 3, 30])))
        for _ in range(draw.randrange(1, 5))
    )


def _emoji(draw):
    return draw.choice(["", " "]).join(draw.choices(EMOJI + WORDS, k=draw.randrange(1, 8)))


def _long_token(draw):
    # The longest is rare: it has more windows than all the others together.
    length = 3000 if draw.random() < 0.02 else draw.choice([60, 100, 101, 200])
    return "x" * length + " " + _words(draw)


def _digits(draw):
    length = draw.choice([MAX_PIECES, MAX_PIECES + 1, 60, 100])
    return _words(draw) + " " + "".join(draw.choices("0123456789", k=length))


def _white_space(draw):
    return "".join(draw.choices(WHITE_SPACE, k=draw.randrange(1, 6)))


def _nothing(draw):
    return ""


def _right_to_left(draw):
    return " ".join(draw.choices(RIGHT_TO_LEFT + WORDS[:2], k=draw.randrange(1, 8)))


def _mixed(draw):
    return "".join(draw.choice(KINDS[:-1])(draw) for _ in range(3))


KINDS = [
    _words,
    _all_planes,
    _combining,
    _emoji,
    _long_token,
    _digits,
    _white_space,
    _nothing,
    _right_to_left,
    _mixed,
]


def make_texts(n, seed=0):
    """So many texts, of each kind in turn."""
    draw = random.Random(seed)
    return [KINDS[i % len(KINDS)](draw) for i in range(n)]


def _draw_spans(draw, n_tokens, n_spans):
    """Different spans of tokens, which nest, cross and share offsets."""
    spans = set()
    for _ in range(n_spans if n_tokens else 0):
        start = draw.randrange(n_tokens)
        end = min(n_tokens, start + draw.choice([1, 1, 2, 3, 6, 30]))
        spans.add((start, end, draw.choice(LABELS)))
    return sorted(spans)


def _by_characters(vocab, text):
    """A document with a token for each character, as some corpora are annotated."""
    return Doc(vocab, words=list(text), spaces=[False] * len(text))


def _ends_among_blanks(text, start, end):
    """Of neighbouring blanks spaCy's alignment may take one for the other: it sees no offsets."""
    return any("  " in text[max(0, at - 1) : at + 2] for at in (start, end - 1))


def make_examples(nlp, texts, seed=0):
    """Gold for texts; every seventh has gold on characters, which need not fit the tokens."""
    draw = random.Random(seed)
    examples = []
    for i, text in enumerate(texts):
        predicted = nlp.make_doc(text)
        # Of examples with gold on characters spaCy asks that the texts are the same.
        gold = _by_characters(nlp.vocab, text) if i % 7 == 2 else nlp.make_doc(text)
        spans = _draw_spans(draw, len(gold), draw.choice([0, 1, 3, 8]))
        if i % 7 == 2:
            spans = [span for span in spans if not _ends_among_blanks(text, *span[:2])]
        examples.append(Example(predicted, write_spans(gold, "sc", spans)))
    return examples


def make_dense_example(nlp, seed=0):
    """An example with thousands of gold spans over a few tokens."""
    draw = random.Random(seed)
    text = " ".join(draw.choices(WORDS, k=150))
    gold = nlp.make_doc(text)
    every = [
        (start, start + length, label)
        for start in range(len(gold) - 8)
        for length in range(1, 9)
        for label in LABELS
    ]
    write_spans(gold, "sc", sorted(draw.sample(every, N_DENSE_SPANS)))
    return Example(nlp.make_doc(text), gold)


def gold_of(example):
    """Offsets in characters and label of each gold span."""
    return [(s.start_char, s.end_char, s.label_) for s in example.reference.spans["sc"]]


def save_encoder(path):
    """Write a BERT of two layers that nothing was learned by to a folder."""
    (path / "vocab.txt").write_text("\n".join(PIECES), encoding="utf8")
    tokenizer = BertTokenizerFast(str(path / "vocab.txt"), model_max_length=64)
    tokenizer.save_pretrained(path)
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(PIECES),
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=24,
        max_position_embeddings=64,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    BertModel(config).save_pretrained(path)
    return path


def transformer_config(folder, factory="pruned_transformer", getter="piece_windows", **settings):
    """Settings of our transformer, under the stock factory or ours."""
    model = {
        "@architectures": "spacy-spans.PrunedTransformerModel.v1",
        "name": str(folder),
        "tokenizer_config": {"use_fast": True},
        "get_spans": {"@span_getters": f"spacy-spans.{getter}.v1", "max_pieces": MAX_PIECES},
        "autocast": "none",
        **settings,
    }
    if factory == "pruned_transformer":
        # Dense gold, on which pruning would be switched off.
        return {"model": model, "max_span_share": None}
    return {"model": model}


def add_enumerator(nlp, tok2vec, **settings):
    settings = {
        "candidates": {"@misc": "spacy-spans.length_candidates.v1", "max_length": 8},
        **settings,
    }
    model = {"tok2vec": tok2vec, "hidden_width": 16}
    nlp.add_pipe("span_enumerator", config={"model": model, **settings})


def make_pipeline(name, folder=None):
    """A blank pipeline, by name: one of our components, or several.

    folder (Path): An encoder, for those that need one.
    """
    spacy.util.fix_random_seed(0)
    nlp = spacy.blank("en")
    if name == "span_enumerator":
        add_enumerator(nlp, SMALL_TOK2VEC)
    elif name in ("multispan_tagger", "token_pruner"):
        # By default gold is moved to the ends of tokens; so that what is lost is the same for all:
        own = {"alignment_mode": "strict"} if name == "multispan_tagger" else {}
        nlp.add_pipe(name, config={"model": {"tok2vec": SMALL_TOK2VEC}, **own})
    elif name in ("pruned_transformer", "transformer"):
        gates = {"gates": [1], "keep_ratio": 0.6, "warmup_steps": 0}
        config = transformer_config(folder, name, **gates)
        if name == "transformer":
            config["set_extra_annotations"] = {"@annotation_setters": "spacy-spans.kept_tokens.v1"}
        nlp.add_pipe(name, name="transformer", config=config)
        add_enumerator(nlp, TRANSFORMER_LISTENER, within_kept=True)
    elif name == "stock":
        model = {
            "@architectures": "spacy-transformers.TransformerModel.v3",
            "name": str(folder),
            "tokenizer_config": {"use_fast": True},
            "get_spans": {"@span_getters": "spacy-transformers.strided_spans.v1", **STRIDES},
        }
        nlp.add_pipe("transformer", config={"model": model})
        add_enumerator(nlp, TRANSFORMER_LISTENER)
    else:
        assert name == "kept_spans"
        nlp.add_pipe("token_pruner", config={"model": {"tok2vec": SMALL_TOK2VEC}})
        config = transformer_config(folder, "transformer", "kept_spans")
        nlp.add_pipe("transformer", config=config)
        add_enumerator(nlp, TRANSFORMER_LISTENER, within_kept=True)
    return nlp
