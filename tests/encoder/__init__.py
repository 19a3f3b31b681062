"""Small encoders of every family, with random weights: nothing is downloaded."""

import warnings

import torch
from transformers import (
    BertConfig,
    BertModel,
    BertTokenizerFast,
    CamembertConfig,
    CamembertModel,
    DistilBertConfig,
    DistilBertModel,
    ElectraConfig,
    ElectraModel,
    ModernBertConfig,
    RobertaConfig,
    RobertaModel,
    XLMRobertaConfig,
    XLMRobertaModel,
)

TRANSFORMER_LISTENER = {
    "@architectures": "spacy-transformers.TransformerListener.v1",
    "grad_factor": 1.0,
    "pooling": {"@layers": "reduce_mean.v1"},
}
VOCABULARY = 50
WIDTH = 16
N_LAYERS = 3
SIZES = {
    "vocab_size": VOCABULARY,
    "hidden_size": WIDTH,
    "num_hidden_layers": N_LAYERS,
    "num_attention_heads": 2,
    "intermediate_size": 24,
    "max_position_embeddings": 64,
    "pad_token_id": 1,
}
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
MODERN = {
    "global_attn_every_n_layers": 2,
    "local_attention": 6,
    "bos_token_id": 0,
    "cls_token_id": 0,
    "eos_token_id": 2,
    "sep_token_id": 2,
    "reference_compile": False,
}


def make_encoder(family):
    """A model in evaluation mode; the weights are larger than at the start of a training, so that
    what a piece sees makes a difference.
    """
    torch.manual_seed(0)
    if family == "bert":
        model = BertModel(BertConfig(**SIZES))
    elif family == "roberta":
        model = RobertaModel(RobertaConfig(**SIZES))
    elif family == "xlm-roberta":
        model = XLMRobertaModel(XLMRobertaConfig(**SIZES))
    elif family == "camembert":
        model = CamembertModel(CamembertConfig(**SIZES))
    elif family == "electra":
        model = ElectraModel(ElectraConfig(**SIZES, embedding_size=8))
    elif family == "distilbert":
        model = DistilBertModel(
            DistilBertConfig(
                vocab_size=VOCABULARY,
                dim=WIDTH,
                n_layers=N_LAYERS,
                n_heads=2,
                hidden_dim=24,
                max_position_embeddings=64,
                pad_token_id=1,
            )
        )
    else:
        with warnings.catch_warnings():
            # It compiles a function when it is imported, with parts of torch that are deprecated.
            warnings.simplefilter("ignore", DeprecationWarning)
            from transformers import ModernBertModel
        model = ModernBertModel(ModernBertConfig(**SIZES, **MODERN))
    enlarge_weights(model)
    return model.eval()


def enlarge_weights(model):
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.ndim > 1 and "embeddings" not in name:
                parameter.mul_(10)


def save_bert(path, pieces, *, max_length=64, large_weights=False, **sizes):
    """Write a BERT that nothing was learned by, and its tokenizer, to a folder.

    pieces (list): Word pieces beside the special ones.
    large_weights (bool): As those of `make_encoder`.
    sizes: Settings of `BertConfig` that differ from the small ones here.
    """
    pieces = [*SPECIAL, *pieces]
    (path / "vocab.txt").write_text("\n".join(pieces), encoding="utf8")
    tokenizer = BertTokenizerFast(str(path / "vocab.txt"), model_max_length=max_length)
    tokenizer.save_pretrained(path)
    torch.manual_seed(0)
    small = {
        "vocab_size": len(pieces),
        "hidden_size": WIDTH,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 24,
        "max_position_embeddings": max_length,
        "hidden_dropout_prob": 0.0,
        "attention_probs_dropout_prob": 0.0,
    }
    model = BertModel(BertConfig(**{**small, **sizes}))
    if large_weights:
        enlarge_weights(model)
    model.save_pretrained(path)
    return path


def make_windows(lengths, n_before=1, pieces_per_word=2, seed=0):
    """Random pieces, padded: ids, mask, and the word of each piece, special ones at both ends."""
    generator = torch.Generator().manual_seed(seed)
    n_pieces = max(lengths)
    ids = torch.randint(3, VOCABULARY, (len(lengths), n_pieces), generator=generator)
    mask = torch.arange(n_pieces) < torch.tensor(lengths)[:, None]
    words = ((torch.arange(n_pieces) - n_before) // pieces_per_word).repeat(len(lengths), 1)
    words[:, :n_before] = -1
    for row, length in enumerate(lengths):
        words[row, max(0, length - 1) :] = -1
    return ids.masked_fill(~mask, 1), mask, words
