"""External-memory training through the public API: identical files and error messages."""

import shutil
import subprocess
import sys
from collections import namedtuple
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import chainrule
from chainrule import prepared_corpus, system
from chainrule.data.encoded import EncodedText
from chainrule.errors import ChainruleError, ConfigError
from chainrule.ngram import engine as engines
from chainrule.ngram import family
from chainrule.tokenizers import encode
from chainrule.tokenizers.encode import map_ids

pytestmark = pytest.mark.native

TEXT = "i love cats\ni love dogs\ncats chase mice\n\nmice love cats and dogs\n" * 20


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "text.txt"
    path.write_text(TEXT, encoding="utf-8")
    return path


@pytest.mark.filterwarnings("ignore:order")
@pytest.mark.parametrize("settings", [{}, {"prune": "0,0,1"}, {"layout": "small", "bits": 8}])
def test_memory_limit_does_not_change_the_model(
    text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any]
) -> None:
    chainrule.train("ngram", text, order=4, **settings).save(tmp_path / "free")
    monkeypatch.setattr(family, "BYTES_PER_TOKEN", 1 << 40)  # so that every text exceeds the limit
    within = chainrule.train("ngram", text, order=4, memory="16G", **settings)
    assert Path(within.lm.engine.path).parent.name.startswith("chainrule-")
    within.save(tmp_path / "within")
    files = [tmp_path / name / "model.ngram" for name in ("free", "within")]
    assert files[0].read_bytes() == files[1].read_bytes()
    assert within.score("i love mice").log_prob == chainrule.load(tmp_path / "free").score("i love mice").log_prob


@pytest.mark.parametrize("settings", [{"smoothing": "katz"}, {"entropy_prune": 1e-6}])
def test_in_memory_methods_report_their_memory_need(
    text: Path, monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any]
) -> None:
    monkeypatch.setattr(family, "BYTES_PER_TOKEN", 1 << 40)
    with pytest.raises(ConfigError, match=r"works in memory and may take [0-9]+ MiB; raise --memory"):
        chainrule.train("ngram", text, order=2, memory="16G", **settings)


def test_memory_limit_is_rejected_for_neural_models(text: Path) -> None:
    with pytest.raises(ConfigError, match="memory applies to n-gram models only"):
        chainrule.train("lstm", text, memory="1G")


def test_parse_size_accepts_units_and_percentages() -> None:
    assert system.parse_size("2G") == 2 * 1024**3 == system.parse_size("2GiB") == system.parse_size("2 gb")
    assert system.parse_size("50%") * 2 == pytest.approx(system.available(), rel=1e-9)
    for wrong in ("", "much", "-1G", "0", "0%", "101%", "1e9", "5 X"):
        with pytest.raises(ConfigError, match="memory is '"):
            system.parse_size(wrong)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_counting_in_a_file_of_ids_maps_no_pages(tmp_path: Path) -> None:
    def mapped() -> int:
        status = Path("/proc/self/status").read_text(encoding="ascii")
        return next(int(line.split()[1]) << 10 for line in status.splitlines() if line.startswith("RssFile"))

    ids = np.full(16 << 20, 3, dtype=np.int32)
    ids[5], ids[-1] = 0, 2
    ids.tofile(tmp_path / "ids")
    encoded = EncodedText(ids=map_ids(tmp_path / "ids"), eos=2, unk=0, words=1, characters=1, bytes=1)
    before = mapped()
    assert (encoded.lines, encoded.oov) == (1, 1)
    assert mapped() - before < 16 << 20  # of 64 MiB


def test_memory_in_use_leaves_less_for_training_in_memory(text: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engines, "memory_in_use", lambda: 16 << 30)
    with pytest.raises(ConfigError, match=r"katz works in memory and may take 1638\d MiB"):
        chainrule.train("ngram", text, order=2, memory="16G", smoothing="katz")


PROGRAM = """
import sys
import chainrule, chainrule.api
from chainrule.ngram import engine

def peak():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) << 10 for line in status if line.startswith("VmHWM"))

text, out, spare = sys.argv[1], sys.argv[2], int(sys.argv[3])
chainrule.train("ngram", text + ".small", order=5, memory="16G").save(out + ".small")  # imports all modules
limit = engine.memory_in_use() + spare
assert peak() < limit, "the interpreter alone takes more"
chainrule.train("ngram", text, order=5, memory=limit, min_count=int(sys.argv[4])).save(out)
print(limit, peak())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="asks Linux for the peak")
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("min_count", [1, 3])
def test_training_with_a_large_vocabulary_respects_the_memory_limit(tmp_path: Path, min_count: int) -> None:
    rng = np.random.default_rng(1)
    syllables = np.array([a + b for a in "bcdfghklmnprst" for b in ("a", "en", "i", "os", "u")])
    names = np.char.add(
        np.char.add(*syllables[rng.integers(70, size=(2, 300_000))]), np.arange(300_000).astype(str)
    )
    frequent = rng.zipf(1.3, 300_000) % 1000
    words = np.stack([names, names[frequent]], axis=1).reshape(-1, 10)
    (tmp_path / "text").write_text("".join(" ".join(line) + "\n" for line in words.tolist()), encoding="utf-8")
    (tmp_path / "text.small").write_text("a b c\n" * 50, encoding="utf-8")
    spare = 80 << 20
    arguments = [str(tmp_path / "text"), str(tmp_path / "within"), str(spare), str(min_count)]
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PROGRAM, *arguments], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    limit, peak = map(int, done.stdout.split())
    assert peak <= limit
    chainrule.train("ngram", tmp_path / "text", order=5, min_count=min_count).save(tmp_path / "free")
    for name in ("model.ngram", "tokenizer.json", "speller.safetensors"):
        assert (tmp_path / "within" / name).read_bytes() == (tmp_path / "free" / name).read_bytes()


def large_text(folder: Path) -> Path:
    """A text of 8 MiB in which every word is new."""
    lines = [" ".join(f"word{i}x" for i in range(n, n + 100)) for n in range(0, 700_000, 100)]
    (folder / "large.txt").write_text("\n".join(lines), encoding="utf-8")
    return folder / "large.txt"


def fail(*arguments: object, **options: object) -> Any:
    raise AssertionError("the text was read after the sample")


def test_limit_too_low_for_the_vocabulary_is_rejected_from_a_sample(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = large_text(tmp_path)
    monkeypatch.setattr(encode, "SAMPLED_SHARE", 1)
    monkeypatch.setattr(system.load_extension(), "count_plain_words", fail)
    limit = engines.memory_in_use() + (40 << 20)
    message = (
        r"about 70[0-9],[0-9]{3} tokens, about 6[89][0-9],[0-9]{3} different words\) needs about [0-9]+M; give"
    )
    with pytest.raises(ConfigError, match=message):
        chainrule.train("ngram", text, order=2, memory=limit)
    with pytest.raises(AssertionError, match="after the sample"):  # few words are kept
        chainrule.train("ngram", text, order=2, memory=limit, vocab_size=1000)


def test_limit_too_low_for_the_counted_words_is_rejected(tmp_path: Path) -> None:
    """The text is too short for a sample."""
    with pytest.raises(ConfigError, match=r"\(700,000 different words\) needs [0-9]+M"):
        chainrule.train("ngram", large_text(tmp_path), order=2, memory=engines.memory_in_use() + (40 << 20))


@pytest.mark.filterwarnings("ignore:order")
def test_disk_without_room_for_temporary_files_is_rejected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text, announced = large_text(tmp_path), list[str]()
    usage = namedtuple("usage", "total used free")
    engines.return_large_blocks()
    limit = engines.memory_in_use() + (105 << 20)  # in memory, training needs about 132 MiB more
    monkeypatch.setattr(encode, "SAMPLED_SHARE", 1)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(1 << 40, 0, 1 << 40))
    chainrule.train("ngram", text, order=5, memory=limit, announce=announced.append)
    assert [line for line in announced if line.startswith("temporary files: up to 0.1 GB in /")] == announced
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(1 << 40, 1 << 40, 10_000_000))
    monkeypatch.setattr(system.load_extension(), "count_plain_words", fail)
    message = r"0\.0 GB free, but training within [0-9]+M needs 0\.1 GB for temporary files; .*TMPDIR"
    with pytest.raises(ChainruleError, match=message) as error:
        chainrule.train("ngram", text, order=5, memory=limit, out=tmp_path / "out")
    assert error.value.exit_code == 1
    assert not (tmp_path / "out").exists()


def test_vocabulary_growth_is_extrapolated() -> None:
    heaps = [(n, round(30 * n**0.6)) for n in (250_000, 500_000, 1_000_000)]
    assert prepared_corpus.estimate_types(heaps, 64_000_000) == pytest.approx(30 * 64_000_000**0.6, rel=0.01)
    closed = [(250_000, 900), (500_000, 990), (1_000_000, 1000)]  # the vocabulary ends
    assert prepared_corpus.estimate_types(closed, 64_000_000) < 1020


@pytest.mark.skipif(sys.platform != "linux", reason="asks Linux for the mapped memory")
@pytest.mark.filterwarnings("ignore")
def test_saving_a_mapped_model_does_not_map_its_pages(tmp_path: Path) -> None:
    def mapped() -> int:
        status = Path("/proc/self/status").read_text(encoding="ascii")
        return next(int(line.split()[1]) << 10 for line in status.splitlines() if line.startswith("RssFile"))

    chainrule.train("ngram", large_text(tmp_path), order=3).save(tmp_path / "model")
    path = tmp_path / "model" / "model.ngram"
    assert path.stat().st_size > 24 << 20
    model = system.load_extension().NgramModel.open(str(path), verify=False, verified_at_open=0, largest_copy=1)
    before = mapped()
    model.save(str(tmp_path / "copy"))
    assert mapped() - before < 8 << 20
    assert (tmp_path / "copy").read_bytes() == path.read_bytes()
