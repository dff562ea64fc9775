"""The shipped checkpoint's tokenizer: a small byte-level BPE in which every word of the layout is one token."""

from collections.abc import Iterable

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

from dice_lsp.diffusion.layout_psm import SPECIALS, spell, vocabulary


def train_tokenizer(lines: Iterable[str], vocab_size: int) -> Tokenizer:
    """A tokenizer with `SPECIALS` as ids 0 to 5.

    `lines` are texts of blank-separated words; the rare words among them decide which pieces fill the places that the
    layout's own words leave. Raises `ValueError` where the layout's own words do not all fit.
    """
    tokenizer = Tokenizer(models.BPE())
    # A word begins with its blank; digits of a literal that is spelled out stay single.
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(" ", "merged_with_next"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=list(SPECIALS),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    # The layout's words outweigh everything else, so that each of them is merged to its end first.
    own = spell(vocabulary())
    tokenizer.train_from_iterator([*[own] * 2000, *lines], trainer)
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in SPECIALS])
    missing = [word for word in vocabulary() if len(tokenizer.encode(spell([word])).ids) != 1]
    if missing:
        raise ValueError(f"a vocabulary of {vocab_size} has no room for {len(missing)} words, e.g. {missing[0]!r}")
    return tokenizer
