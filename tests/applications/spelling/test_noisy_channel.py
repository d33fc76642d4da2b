"""The channel by hand, and its arrays against the definition."""

import json
import math
import random
from functools import cache
from pathlib import Path

import pytest

from chainrule.applications.spelling.candidates import ErrorPatterns
from chainrule.applications.spelling.noisy_channel import (
    BEGIN,
    END,
    MAX_SUBSTITUTION,
    Channel,
    ChannelTables,
    Misspelling,
    align,
    read_misspellings,
)
from chainrule.errors import InputError, NotFoundError

PAIRS = [
    Misspelling("recieve", "receive"),
    Misspelling("beleive", "believe"),
    Misspelling("acount", "account"),
    Misspelling("aount", "account"),
    Misspelling("adress", "address"),
    Misspelling("fone", "phone"),
    Misspelling("foto", "photo"),
    Misspelling("alot", "a lot"),
    Misspelling("lettter", "letter"),
] * 3


def test_an_alignment_by_hand() -> None:
    assert align("account", "acount") == [(c, c) for c in "a"] + [("c", ""), ("c", "c")] + [(c, c) for c in "ount"]
    assert align("the", "teh") == [("t", "t"), ("he", "eh")]
    assert align("", "ab") == [("", "a"), ("", "b")]
    assert sum(a != b for a, b in align("kitten", "sitting")) == 3


def test_without_pairs_every_letter_is_equal() -> None:
    # Slips at a letter: 0.03 lost + 0.04 replaced + 0.03 added + 0.02 exchanged leave 0.88 for it to be kept.
    log_p = ChannelTables.of(Channel()).log_probs(["cat", "cat", "cat", "the"], ["cut", "caxt", "ca", "teh"])
    kept = math.log(0.88)
    expected = [2 * kept + math.log(0.04 / 26), 3 * kept + math.log(0.03 / 26), 2 * kept + math.log(0.03)]
    assert log_p.tolist() == pytest.approx([*expected, kept + math.log(0.02)])


def test_channel_of_one_pair() -> None:
    # "^ab$" -> "^a$": the letter b stands there once and is lost once; κ = 1 gives (1 + 1 · 0.03) / (1 + 1).
    channel = Channel.learn([Misspelling("a", "ab")], longest=1, strength=1.0)
    assert channel.substitutions == {("b", ""): 1.0}
    assert channel.log_table["b", ""] == pytest.approx(math.log(1.03 / 2))
    # a is never touched: (0 + 1 · 0.12) / (1 + 1) of it slips.
    assert channel.log_match("a") == pytest.approx(math.log(0.94))
    assert ChannelTables.of(channel).log_probs(["ab"], ["a"])[0] == pytest.approx(
        math.log(0.94) + math.log(1.03 / 2)
    )


def test_a_pair_of_letters_is_shrunk_towards_its_parts() -> None:
    # "ph" -> "f" twice in two words; its best parts: h lost, counted as 0 of 2, and p for f, 0 of 2.
    channel = Channel.learn([Misspelling("fa", "pha"), Misspelling("fo", "pho")], strength=2.0)
    assert channel.substitutions["ph", "f"] == 2
    singles = {key: n for key, n in channel.substitutions.items() if max(map(len, key)) == 1}
    below = max(
        math.log((singles.get((a, ""), 0) + 2 * 0.03) / 4)
        + math.log((singles.get((b, "f"), 0) + 2 * 0.04 / 26) / 4)
        for a, b in (("p", "h"), ("h", "p"))
    )
    assert channel.log_table["ph", "f"] == pytest.approx(math.log((2 + 2 * math.exp(below)) / 4))


def definition(channel: Channel, meant: str, written: str) -> float:
    """The maximum over partitions, letter by letter."""
    x, y = (BEGIN + side + END for side in (meant, written))

    @cache
    def best(i: int, j: int) -> float:
        if (i, j) == (0, 0):
            return 0.0
        scores = [-math.inf]
        for a in range(min(i, MAX_SUBSTITUTION) + 1):
            for b in range(min(j, MAX_SUBSTITUTION) + 1):
                if a + b:
                    scores.append(best(i - a, j - b) + step(x[i - a : i], y[j - b : j]))
        return max(scores)

    def step(alpha: str, beta: str) -> float:
        if alpha == beta:
            return (0.0 if alpha in (BEGIN, END) else channel.log_match(alpha)) if len(alpha) == 1 else -math.inf
        if alpha + beta in (BEGIN, END):
            return -math.inf
        return max(channel.log_table.get((alpha, beta), -math.inf), channel.log_prior_edit(alpha, beta))

    return best(len(x), len(y))


@pytest.mark.parametrize("channel", [Channel(), Channel.learn(PAIRS)], ids=["default", "learnt"])
def test_batched_log_probs_equal_the_definition(channel: Channel) -> None:
    rng = random.Random(0)
    words = ["".join(rng.choices("aceiltphofé", k=rng.randint(1, 9))) for _ in range(60)]
    near = ["".join(c for c in word if rng.random() > 0.15) + rng.choice(["", "e", "ph"]) for word in words]
    meant = [*words, *words, *(pair.right for pair in PAIRS)]
    written = [*near, *words[::-1], *(pair.wrong for pair in PAIRS)]
    log_p = ChannelTables.of(channel).log_probs(meant, written)
    assert log_p.tolist() == pytest.approx([definition(channel, a, b) for a, b in zip(meant, written, strict=True)])


def test_channel_learns_from_pairs() -> None:
    learned, default = ChannelTables.of(Channel.learn(PAIRS, strength=1.0)), ChannelTables.of(Channel())
    for meant, written in (("deceive", "decieve"), ("physics", "fysics"), ("a bit", "abit")):
        assert learned.log_probs([meant], [written])[0] > default.log_probs([meant], [written])[0]


def test_learnt_substitutions_are_undone() -> None:
    assert "photophone" in ErrorPatterns.of(Channel.learn(PAIRS)).undo("fotofone")
    assert ErrorPatterns.of(Channel()).undo("fotofone") == set()


def test_channel_file_round_trip(tmp_path: Path) -> None:
    channel = Channel.learn(PAIRS)
    path = tmp_path / "channel.json"
    path.write_text(channel.to_json())
    assert Channel.read(path) == channel


@pytest.mark.parametrize(
    "change",
    [
        {"format": "another"},
        {"schema_version": 2},
        {"strength": 0},
        {"substitutions": [["a", "b"]]},
        {"substitutions": [["a", "b", -1]]},
        {"substitutions": [["abcd", "b", 1]]},
        {"occurrences": []},
    ],
)
def test_invalid_channel_file(change: dict[str, object]) -> None:
    document = json.loads(Channel.learn(PAIRS).to_json()) | change
    with pytest.raises(InputError, match=r"some\.json is not a channel file"):
        Channel.from_json(json.dumps(document), "some.json")


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="does not exist"):
        Channel.read(tmp_path / "nowhere.json")


def test_the_three_forms_of_pairs(tmp_path: Path) -> None:
    table, lists, blocks = (tmp_path / name for name in ("a.tsv", "b.txt", "c.dat"))
    table.write_text("teh\tthe\nalot\ta lot\nsame\tsame\n")
    lists.write_text("access: acess\naddress: adress adres\n")
    blocks.write_text("$a_lot\nalot\n$the\nteh\n\nhte\n")
    pairs = read_misspellings([table, lists, blocks])
    assert pairs[:2] == [("teh", "the"), ("alot", "a lot")]
    assert pairs[2:5] == [("acess", "access"), ("adress", "address"), ("adres", "address")]
    assert pairs[5:] == [("alot", "a lot"), ("teh", "the"), ("hte", "the")]


@pytest.mark.parametrize(("text", "says"), [("word\n", "line 1"), ("a\tb\nx\ty\tz\n", "line 2 has 2 tabs")])
def test_invalid_pairs(tmp_path: Path, text: str, says: str) -> None:
    file = tmp_path / "pairs.tsv"
    file.write_text(text)
    with pytest.raises(InputError, match=says):
        read_misspellings([file])
