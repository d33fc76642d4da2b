"""Two small languages with known tags."""

import random
from pathlib import Path

from chainrule.text.conll import TaggedSentence

BOTH = ("saw", "watch", "duck", "fish")  # nouns and verbs
TINY = {"hidden": 24, "embedding": 12, "dropout": 0.1, "batch_size": 8, "learning_rate": 0.02, "warmup": 10}


def grammar(number: int, seed: int) -> list[TaggedSentence]:
    """`the old saw saw a duck`: what follows a noun is the verb, and half of either can be both."""
    rng = random.Random(seed)

    def phrase() -> list[tuple[str, str]]:
        adjectives = [(rng.choice(("old", "red", "new")), "ADJ") for _ in range(rng.randrange(3))]
        noun = rng.choice((*BOTH, "dog", "cat"))
        return [(rng.choice(("the", "a", "this")), "DET"), *adjectives, (noun, "NOUN")]

    sentences = []
    for _ in range(number):
        words = [*phrase(), (rng.choice((*BOTH, "like", "hear")), "VERB"), *phrase()]
        sentences.append(TaggedSentence(tuple(word for word, _ in words), tuple(tag for _, tag in words)))
    return sentences


def names(number: int, seed: int) -> list[TaggedSentence]:
    """`Anna Smith sees New York`, IOB1: names of one word and of two, the same words in either place."""
    rng = random.Random(seed)

    def name() -> list[tuple[str, str]]:
        if rng.random() < 0.5:
            place = rng.choice(("Paris", "Rome", "New York", "New Delhi", "York"))
            return [(word, "I-LOC") for word in place.split()]
        person = [rng.choice(("Anna", "Bert", "Carl", "Dora")), rng.choice(("Smith", "York", ""))]
        return [(word, "I-PER") for word in person if word]

    sentences = []
    for _ in range(number):
        words = [*name(), (rng.choice(("sees", "likes")), "O"), ("the", "O"), ("new", "O"), ("road", "O")]
        words += [(rng.choice(("from", "to")), "O"), *name()]
        sentences.append(TaggedSentence(tuple(word for word, _ in words), tuple(tag for _, tag in words)))
    return sentences


def write(path: Path, sentences: list[TaggedSentence]) -> Path:
    """A file of two columns."""
    blocks = ["".join(f"{w}\t{t}\n" for w, t in zip(s.words, s.tags, strict=True)) for s in sentences]
    path.write_text("\n".join(blocks))
    return path
