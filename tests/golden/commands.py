"""The commands whose output is recorded, in sessions that each begin in a fresh folder of toy texts and models."""

from dataclasses import dataclass
from typing import Final

from golden.recorded import NGRAM, SPELLED, STORED_NETWORK, TRAINED_NETWORK, Tolerance

TINY: Final = "--hidden 4 --embedding 4 --epochs 1 --batch-size 8 --threads 1 --device cpu"
TINY_HEADS: Final = "--hidden 8 --layers 1 --set heads=2 --epochs 1 --batch-size 8 --threads 1 --device cpu"
VECTORS: Final = "--dimensions 4 --min-count 1 --threads 1 --set simd=none"


@dataclass(frozen=True)
class Session:
    """Lines run one after another, and how far their numbers may differ from the record."""

    lines: tuple[str, ...]
    tolerance: Tolerance = NGRAM


SESSIONS: Final = {
    "train-ngram": Session(
        (
            "train ngram train.txt --order 3 --valid valid.txt --out a",
            "train ngram train.txt --order 3 --out b --json",
            "train ngram train.txt --config settings.toml --set order=3 --out c --json",
            "train ngram train.txt --tokenizer char --order 6 --context stream --out d",
            "train ngram - --smoothing mle --order 2 --closed --out e < train.txt",
            "train ngram train.txt --order 2 --prune 0,1 --out f --json",
            "find a",
            "cat a/config.json",
            "cat a/metrics.json",
            "cat a/README.md",
        )
    ),
    "evaluate": Session(
        (
            "evaluate models/ngram test.txt",
            "evaluate models/ngram test.txt --json",
            "evaluate models/ngram train.txt --json",
            "evaluate models/ngram - --json < test.txt",
            "evaluate models/ngram-closed test.txt --json",
            "evaluate models/ngram-stream test.txt",
            "evaluate models/ngram-quantized test.txt --json",
            "evaluate models/ngram-bpe test.txt --json",
            "evaluate models/ngram-unk test.txt --json",
        )
    ),
    "score": Session(
        (
            "score models/ngram test.txt",
            "score models/ngram test.txt --per-token --unit bits",
            "score models/ngram test.txt --unit log10 --json",
            "score models/ngram --per-token --json < test.txt",
            "score models/ngram-closed test.txt --json",
            "score models/ngram mixed.txt --json",
            "score models/ngram-stream test.txt",
            "score models/ngram-bpe test.txt --per-token",
        )
    ),
    "generate": Session(
        (
            "generate models/ngram --seed 1",
            "generate models/ngram --prompt 'the cat' --strategy greedy",
            "generate models/ngram --prompt 'the cat' --strategy beam --beam-size 3 --num 3 --json",
            "generate models/ngram --strategy beam --length-penalty 1 --max-tokens 5",
            "generate models/ngram --top-k 3 --seed 2 --num 3 --max-tokens 8 --json",
            "generate models/ngram --top-p 0.8 --temperature 1.5 --seed 3 --num 2",
            "generate models/ngram --min-p 0.1 --seed 4 --stop garden --json",
            "generate models/ngram --repetition-penalty 1.5 --no-repeat-ngram 2 --seed 5",
            "generate models/ngram-unk --unk keep --seed 1 --num 2",
            "generate models/ngram-unk --unk spell --seed 1 --num 2",
            "generate models/ngram --seed 6 --stream",
            "generate models/ngram-stream --seed 7 --max-tokens 30 --json",
            "generate models/ngram-bpe --seed 8 --json",
        )
    ),
    "next": Session(
        (
            "next models/ngram 'the cat'",
            "next models/ngram 'the cat' --top 3 --json",
            "next models/ngram '' --top 3",
            "next models/ngram 'the c' --complete",
            "next models/ngram 'the c' --complete --top 2 --json",
            "next models/ngram 'the ' --complete --top 2",
            "next models/ngram-bpe 'the ca' --complete --top 3",
            "next models/ngram-stream 'the ca' --top 3",
        )
    ),
    "mix": Session(
        (
            "train ngram train.txt --order 2 --smoothing witten-bell --tokenizer models/ngram --out bigram",
            "mix models/ngram bigram --held-out valid.txt --out mixed",
            "mix models/ngram bigram --held-out valid.txt --out mixed2 --json",
            "evaluate mixed test.txt",
            "score mixed test.txt --json",
            "next mixed 'the cat' --top 3",
            "generate mixed --strategy greedy",
            "find mixed",
            "mix models/ngram models/ngram-bpe --held-out valid.txt --out refused",
        )
    ),
    "convert": Session(
        (
            "convert models/ngram --to arpa --out model.arpa",
            "convert models/ngram-quantized --to arpa --out small.arpa --json",
            "convert model.arpa --out read",
            "convert small.arpa --out read-small --json",
            "evaluate read test.txt",
            "convert models/vectors-skipgram --to word2vec --out vectors.txt",
            "convert models/ngram-stream --to arpa --out refused.arpa",
            "convert models/ngram --to word2vec --out refused.txt",
        )
    ),
    "info": Session(
        (
            "info models/ngram",
            "info models/ngram --json",
            "info models/ngram --verify",
            "info models/ngram-quantized",
            "info models/lstm",
            "info models/transformer --json",
            "info models/mixture",
            "info models/classify-bayes",
            "info models/tag-lstm",
            "info models/translate-gru",
            "info models/pretrain-transformer",
            "info models/vectors-subwords",
            "info models/tokenizer-bpe",
        )
    ),
    "rerank": Session(
        (
            "rerank models/ngram nbest.tsv --weights acoustic=1,ngram=2,words=8",
            "rerank models/ngram nbest.tsv --weights acoustic=1,ngram=2 --reference references.tsv --out best.tsv",
            "cat best.tsv",
            "rerank models/ngram nbest.tsv --reference references.tsv --cross-validate 2 --json",
            "rerank models/ngram nbest.tsv --tune nbest.tsv --tune-reference references.tsv --tuning exact",
        )
    ),
    "correct": Session(
        (
            "correct models/ngram misspelt.txt",
            "correct models/ngram misspelt.txt --candidates 3",
            "correct models/ngram misspelt.txt --lines",
            "correct models/ngram --json < misspelt.txt",
            "correct models/ngram misspelt.txt --pairs misspellings.tsv --channel channel.json --no-real-words",
            "correct models/ngram misspelt.txt --channel channel.json --error-rate 0.05 --json",
        )
    ),
    "filter": Session(
        (
            "filter models/ngram mixed.txt --keep 50%",
            "filter models/ngram mixed.txt --keep 2 --scores",
            "filter models/ngram --keep 0.5 --by perplexity --json < mixed.txt",
            "train ngram other.txt --order 2 --smoothing witten-bell --out other",
            "filter models/ngram mixed.txt --against other --keep 2 --scores",
            "filter models/ngram mixed.txt --buckets head,tail --out parts",
            "cat parts/head.txt",
            "filter models/ngram-bpe mixed.txt --keep 2 --json",
        )
    ),
    "dedup": Session(
        (
            "dedup train.txt mixed.txt --out unique.txt",
            "dedup train.txt mixed.txt --workers 1 --out again.txt --json",
            "dedup train.txt mixed.txt --by document --near 0.8 --out documents.jsonl",
            "dedup train.txt --near 0.1 --out refused.txt",
        )
    ),
    "encode": Session(
        (
            "encode train.txt --tokenizer word --min-count 2 --out a",
            "encode train.txt --tokenizer models/ngram-bpe --tokens-per-shard 500 --workers 1 --out b --json",
            "find a",
            "cat a/ids.shards",
            "train ngram a --order 2 --out model",
            "evaluate model a",
        )
    ),
    "identify": Session(
        (
            "train ngram train.txt --tokenizer char --order 3 --smoothing witten-bell --out en",
            "train ngram other.txt --tokenizer char --order 3 --smoothing witten-bell --out de",
            "identify en de mixed.txt",
            "identify english=en german=de mixed.txt --prior 1,3 --json",
            "identify en de mixed.tsv --labels",
            "identify en de mixed.tsv --labels --json",
        ),
        SPELLED,
    ),
    "compare": Session(
        (
            "compare train.txt --families ngram --tokenizer char --threads 1 --out a",
            "find a",
            "compare train.txt --valid valid.txt --test test.txt --families ngram --tokenizer char --json "
            "--threads 1 --keep none --out b",
            "find b",
        ),
        SPELLED,
    ),
    "train-networks": Session(
        (
            f"train lstm train.txt --valid valid.txt {TINY} --out lstm",
            f"train lstm train.txt --valid valid.txt {TINY} --out lstm2 --json",
            f"train gru train.txt --attention additive --set reset=before {TINY} --out gru --json",
            f"train rnn train.txt --optimizer sgd --learning-rate 0.5 --context stream {TINY} --out rnn --json",
            f"train feedforward train.txt --order 3 {TINY} --out feedforward --json",
            f"train transformer train.txt --set window=16 {TINY_HEADS} --out transformer --json",
            "find lstm",
            "cat lstm/config.json",
            "cat lstm/train_log.jsonl",
            "evaluate lstm test.txt --device cpu",
            "train lstm train.txt --hidden 0 --out refused",
        ),
        TRAINED_NETWORK,
    ),
    "networks": Session(
        (
            "evaluate models/lstm test.txt --device cpu",
            "evaluate models/lstm short.txt --valid short.txt --train short.txt --temperature --cache --dynamic "
            "--device cpu --json",
            "evaluate models/transformer-learned test.txt --stride 2 --device cpu",
            "score models/transformer test.txt --device cpu --per-token",
            "score models/mixture test.txt --device cpu --json",
            "generate models/gru --seed 1 --device cpu --json",
            "generate models/transformer --strategy beam --max-tokens 5 --device cpu",
            "next models/lstm-attention 'the cat' --top 3 --device cpu",
            "mix models/ngram models/gru --held-out valid.txt --out mixed --device cpu --json",
            "rerank models/gru nbest.tsv --weights acoustic=1,gru=2 --device cpu",
            "filter models/gru mixed.txt --keep 2 --scores --device cpu",
        ),
        STORED_NETWORK,
    ),
    "inspect": Session(
        (
            "inspect models/ngram test.txt",
            "inspect models/ngram models/ngram-unk test.txt --json",
        )
    ),
    "inspect-networks": Session(
        (
            "inspect models/lstm test.txt --tokens 40 --lags 4 --positions 4 --threads 1 --device cpu --json",
            "inspect models/rnn models/transformer test.txt --tokens 40 --lags 4 --positions 4 --threads 1 "
            "--device cpu --only gradient_flow,attention,training",
            "inspect models/translate-gru pairs.test.tsv --threads 1 --device cpu --json",
        ),
        TRAINED_NETWORK,
    ),
    "vectors": Session(
        (
            f"vectors train train.txt {VECTORS} --out skipgram",
            f"vectors train train.txt --method glove {VECTORS} --out glove --json",
            "vectors train train.txt --method ppmi --dimensions 4 --min-count 1 --out ppmi --json",
            "vectors neighbors models/vectors-skipgram cat dog --top 3",
            "vectors neighbors models/vectors-subwords gardens --top 3 --json",
            "vectors analogy models/vectors-ppmi cat sees dog --method mul --top 3",
            "vectors evaluate models/vectors-skipgram models/vectors-ppmi models/vectors-one-hot "
            "--pairs judged.tsv --analogies questions.txt --rare --sections",
            "vectors export models/vectors-skipgram --out vectors.txt",
            "cat vectors.txt",
            "vectors export models/vectors-glove --format word2vec-binary --out vectors.bin --json",
            "vectors import vectors.bin --out imported",
            "vectors neighbors imported cat --top 3",
            "vectors contextual models/pretrain-lstm --layer 1 --device cpu < mixed.txt",
            "vectors senses models/pretrain-lstm bird senses.tsv --device cpu",
            "vectors senses models/pretrain-lstm bird senses.tsv --device cpu --json",
            "vectors neighbors models/vectors-skipgram nonesuch",
        ),
        TRAINED_NETWORK,
    ),
    "classify": Session(
        (
            "classify train ngram labels.tsv --smoothing laplace --valid labels.test.tsv --out bayes",
            "classify train ngram labels.tsv --order 2 --smoothing witten-bell --out ngram --json",
            "classify predict bayes < texts.txt",
            "classify predict bayes --explain < texts.txt",
            "classify predict ngram --json < texts.txt",
            "classify evaluate bayes labels.test.tsv",
            "classify evaluate bayes labels.test.tsv --json",
            "classify predict bayes labels.test.tsv",
        )
    ),
    "classify-networks": Session(
        (
            f"classify train lstm labels.tsv --valid labels.test.tsv {TINY} --out lstm",
            f"classify train transformer labels.tsv {TINY_HEADS} --out transformer --json",
            "classify predict models/classify-lstm --explain --device cpu < texts.txt",
            "classify predict models/classify-transformer --explain --json --device cpu < texts.txt",
            "classify evaluate models/classify-lstm labels.test.tsv --device cpu",
        ),
        TRAINED_NETWORK,
    ),
    "tag": Session(
        (
            f"tag train lstm tagged.conll --valid tagged.test.conll --characters 4 {TINY} --out lstm",
            f"tag train gru tagged.conll --no-crf --characters 0 {TINY} --out gru --json",
            "tag train lstm tagged.conll --pretrained models/pretrain-lstm --epochs 1 --threads 1 --device cpu "
            "--out pretrained",
            "tag predict models/tag-lstm --device cpu < words.txt",
            "tag predict models/tag-lstm tagged.test.conll --columns --probabilities --device cpu",
            "tag predict models/tag-lstm --json --device cpu < words.txt",
            "tag evaluate models/tag-lstm tagged.test.conll --device cpu",
            "tag evaluate models/tag-transformer tagged.test.conll --device cpu --json",
        ),
        TRAINED_NETWORK,
    ),
    "translate": Session(
        (
            f"translate train gru pairs.tsv --valid pairs.test.tsv --tokenizer word {TINY} --out gru",
            f"translate train transformer pairs.tsv --tokenizer word {TINY_HEADS} --out transformer --json",
            "translate predict models/translate-gru --device cpu < sources.txt",
            "translate predict models/translate-gru --num 2 --device cpu < sources.txt",
            "translate predict models/translate-transformer --json --device cpu < sources.txt",
            "translate score models/translate-gru pairs.test.tsv --device cpu",
            "translate align models/translate-gru 'ein mann geht' --target 'a man walks' --device cpu",
            "translate align models/translate-gru 'ein mann geht' --device cpu --json",
            "translate evaluate models/translate-gru pairs.test.tsv --against models/translate-transformer "
            "--device cpu",
        ),
        TRAINED_NETWORK,
    ),
    "pretrain": Session(
        (
            f"pretrain lstm train.txt --valid valid.txt {TINY} --out lstm",
            f"pretrain transformer train.txt {TINY_HEADS} --out transformer --json",
            "find transformer",
        ),
        TRAINED_NETWORK,
    ),
    "tokenizer": Session(
        (
            "tokenizer train train.txt --vocab-size 280 --trace --out bpe",
            "tokenizer train train.txt --tokenizer word --min-count 3 --out word --json",
            "tokenizer encode bpe < mixed.txt",
            "tokenizer encode bpe --tokens < mixed.txt",
            "tokenizer encode models/ngram --json < test.txt",
            "tokenizer encode models/ngram-stream --tokens < mixed.txt",
            "tokenizer decode models/ngram < ids.txt",
            "tokenizer decode models/ngram --json < ids.txt",
            "find bpe",
        )
    ),
    "recipes": Session(("recipes", "recipes small-lstm", "recipes small-lstm --json", "recipes nonesuch")),
    "errors": Session(
        (
            "",
            "--version",
            "nonesuch",
            "train",
            "train nonesuch train.txt --out out",
            "train ngram nonesuch.txt --out out",
            "train ngram train.txt --order 0 --out out",
            "train ngram train.txt --smoothing nonesuch --out out",
            "train ngram train.txt --set nonesuch=1 --out out",
            "train ngram train.txt --hidden 4 --out out",
            "train ngram train.txt --order 3 --out models/ngram",
            "train ngram tagged.conll --column text --out out",
            "evaluate nonesuch test.txt",
            "evaluate texts.txt test.txt",
            "evaluate models/vectors-skipgram test.txt",
            "evaluate models/ngram",
            "score models/ngram nonesuch.txt",
            "score models/ngram test.txt --unit yards",
            "generate models/ngram --top-p 2",
            "generate models/ngram --strategy nonesuch",
            "generate models/ngram --nonesuch",
            "mix models/ngram --held-out valid.txt --out out",
            "convert texts.txt --out out",
            "filter models/ngram mixed.txt",
            "identify models/ngram mixed.txt",
            "inspect models/ngram --only nonesuch",
            "classify predict models/ngram texts.txt",
            "tag train ngram tagged.conll --out out",
            "serve nonesuch",
            "serve models/ngram --host 0.0.0.0",
        )
    ),
}
