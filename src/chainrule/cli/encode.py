"""`chainrule encode`: encode a text as shards of token ids."""

from pathlib import Path
from typing import Annotated, Any

import typer

from chainrule.cli import options
from chainrule.cli.console import emit, progress, say
from chainrule.tokenizers.config import TokenizerConfig

SETTINGS = options.options_from_fields(
    TokenizerConfig, "vocab_size", "min_count", "top_percent", "vocab", "closed", "unk", "lowercase", "locale"
)


@options.expand_option_groups(SETTINGS | options.ENGINE | options.RESUME_JOB)
def encode(
    text: options.Texts,
    *,
    tokenizer: Annotated[
        str,
        typer.Option(
            help="Tokenizer: word, whitespace, char, byte, bpe, wordpiece or unigram, trained on the text, or the "
            "folder of a tokenizer or model."
        ),
    ],
    out: Annotated[Path, typer.Option(help="Output folder.")],
    tokens_per_shard: Annotated[
        int | None, typer.Option(min=1, help="Number of tokens of a file of ids.  [default: 67,108,864]")
    ] = None,
    settings: dict[str, Any],
    text_format: options.LineFormat,
    force: options.Force = False,
    json: options.Json = False,
) -> None:
    """Encode a text as shards of token ids for training.

    `train` reads the output folder in place of the text.
    The ids have 2 bytes if the vocabulary has at most 65,536 tokens, otherwise 4; </s> follows each line. With
    --workers or --on, several processes encode; the shards are the same.

    Example: chainrule encode corpus.txt --tokenizer bpe --vocab-size 8000 --workers 8 --out runs/shards
    """
    engine = options.engine_options(settings)

    from chainrule import api
    from chainrule.applications.encode import encode_corpus
    from chainrule.data.id_shards import TOKENS_PER_SHARD
    from chainrule.tokenizers.tokenizer import load_tokenizer

    chosen = api.resolve_tokenizer(tokenizer, settings)
    inputs = [chosen] if isinstance(chosen, Path) else [chosen.vocab]
    with options.lock_output(out, inputs, force=force), progress() as draw:
        shards = encode_corpus(
            text_format.corpus(text),
            out,
            tokenizer=chosen,
            tokens_per_shard=tokens_per_shard or TOKENS_PER_SHARD,
            options=engine,
            progress=draw,
            command=options.command_line(),
            force=force,
        )
    numbers = shards.numbers
    if json:
        emit({"shards": str(out), "tokens": numbers.tokens, "lines": numbers.lines, "files": len(shards.shards)})
    say(f"saved {out}: {numbers.tokens:,} tokens of {numbers.lines:,} lines in {len(shards.shards):,} files")
    if not isinstance(chosen, Path):
        options.report_word_splitting(chosen.kind, load_tokenizer(out).config.kind)
