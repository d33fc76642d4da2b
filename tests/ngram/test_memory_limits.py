"""External-memory training through the public API: identical files and error messages."""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import chainrule
from chainrule import system
from chainrule.data.encoded import EncodedText
from chainrule.errors import ConfigError
from chainrule.ngram import engine as engines
from chainrule.ngram import family
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
