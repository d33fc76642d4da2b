"""N-gram training on Spark: the model of training in one process; with failing tasks, and on a real cluster."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

import chainrule
from chainrule.distributed import ngram_training
from chainrule.distributed.records import Record
from chainrule.errors import ChainruleError
from chainrule.text.corpus import Corpus
from distributed.trained_models import describe_model, write_zipf_text

GUIDE: Final = Path(__file__).parents[2] / "docs" / "spark.md"
JAVA: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


class FailOnce(ngram_training.EncodeWindows):
    """Encode windows, and fail in the first attempt of each partition after half of its records."""

    __slots__ = ()

    def __call__(self, partition: int, records: Iterator[Record]) -> Iterator[Record]:
        marker = self.plan.with_name(f"failed-{partition}")
        is_first = not marker.exists()
        marker.touch()
        for number, record in enumerate(super().__call__(partition, records)):
            yield record
            if is_first and number:
                raise RuntimeError("made to fail")


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_zipf_text(tmp_path_factory.mktemp("texts") / "text.txt", 2000)


def test_parquet_with_failing_tasks_and_resume(
    session: Any, text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Failed tasks are repeated; after the driver died, the job goes on; the model is that of one process."""
    import pyarrow
    import pyarrow.parquet

    lines = text.read_text().splitlines()
    (tmp_path / "texts").mkdir()
    for part in range(3):
        table = pyarrow.table({"body": lines[part::3]})
        pyarrow.parquet.write_table(table, tmp_path / "texts" / f"{part}.parquet")
    corpus = Corpus.of(tmp_path / "texts", column="body")
    chosen: dict[str, Any] = {"order": 3, "context": "stream", "min_count": 2}
    work = tmp_path / "work"

    class Stopped(Exception):
        pass

    def stop(stage: str, done: int, total: int | None) -> None:
        if stage == "estimating what partitions share":
            raise Stopped

    monkeypatch.setattr(ngram_training, "EncodeWindows", FailOnce)
    with pytest.raises(Stopped):
        chainrule.train("ngram", corpus, **chosen, on=session, work=work, partition="10k", progress=stop)
    assert list(work.glob("shared/failed-*"))
    written = {path: path.stat().st_mtime_ns for path in work.glob("*/*.records")}
    chainrule.train("ngram", corpus, **chosen, on=session, work=work, resume=True).save(tmp_path / "spark")
    assert written.items() <= {path: path.stat().st_mtime_ns for path in work.glob("*/*.records")}.items()
    chainrule.train("ngram", corpus, **chosen).save(tmp_path / "local")
    assert describe_model(tmp_path / "spark") == describe_model(tmp_path / "local")


def test_errors_of_the_cluster(text: Path, tmp_path: Path) -> None:
    """An unreachable master and missing Java are one line each."""
    words = [sys.executable, "-m", "chainrule", "train", "ngram", str(text), "--out", str(tmp_path / "model")]
    words += ["--on", "spark", "--work", str(tmp_path / "work")]
    unreachable = subprocess.run(
        [*words, "--master", "spark://127.0.0.1:1"], check=False, capture_output=True, text=True
    )
    assert unreachable.returncode == 1
    assert "no Spark master answers at spark://127.0.0.1:1" in unreachable.stderr.splitlines()[-1]
    environment = {**os.environ, "JAVA_HOME": str(tmp_path)}
    no_java = subprocess.run(
        [*words, "--master", "local"], check=False, capture_output=True, text=True, env=environment
    )
    assert no_java.returncode == 1
    assert "Spark needs Java 17 and there is none in JAVA_HOME" in no_java.stderr.splitlines()[-1]
    assert not (tmp_path / "model").exists()


def read_commands(heading: str) -> list[str]:
    """Return the commands of the first code block below a heading of the guide, as they are typed."""
    section = GUIDE.read_text().split(f"## {heading}\n", 1)[1]
    block = re.search(r"\n\n((?:    .*\n)+)", section)
    assert block is not None
    return block[1].replace("\\\n", " ").strip().split("\n    ")


@contextmanager
def start_daemon(command: str, pattern: str, environment: dict[str, str]) -> Iterator[str]:
    """Start a daemon, wait until its log matches `pattern`, and yield the match; stop it afterwards."""
    with subprocess.Popen(
        command,
        shell=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=environment,
        start_new_session=True,
    ) as process:
        assert process.stdout is not None
        try:
            log = []
            for line in process.stdout:
                log.append(line)
                if match := re.search(pattern, line):
                    break
            else:
                raise AssertionError("".join(log))
            with subprocess.Popen(["cat"], stdin=process.stdout, stdout=subprocess.DEVNULL) as drain:
                try:
                    yield match[0]
                finally:
                    drain.kill()
        finally:
            os.killpg(process.pid, signal.SIGKILL)


@pytest.mark.filterwarnings("ignore::chainrule.errors.ChainruleWarning")
def test_stand_alone_cluster(tmp_path: Path) -> None:
    """The commands of docs/spark.md: a master, two workers, and the training."""
    text = write_zipf_text(tmp_path / "text.txt", 300)
    master, *workers, train = read_commands("A stand-alone cluster")
    assert len(workers) == 2
    conf = tmp_path / "conf"
    conf.mkdir()
    settings = [f"spark.{name}.extraJavaOptions {JAVA}" for name in ("driver", "executor")]
    (conf / "spark-defaults.conf").write_text("\n".join(settings))
    environment = {
        **os.environ,
        "SPARK_DAEMON_JAVA_OPTS": JAVA,
        "SPARK_CONF_DIR": str(conf),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    environment["SPARK_WORKER_DIR"] = str(tmp_path)
    with ExitStack() as stack:
        port_0 = master.replace("7077", "0 --webui-port 0")
        address = stack.enter_context(start_daemon(port_0, r"spark://127\.0\.0\.1:\d+", environment))
        for worker in workers:
            command = worker.replace("spark://127.0.0.1:7077", address) + " --webui-port 0"
            stack.enter_context(start_daemon(command, "Successfully registered with master", environment))
        train = (
            train.replace("spark://127.0.0.1:7077", address)
            .replace("corpus/", str(text))
            .replace("/shared/work", str(tmp_path / "work"))
        )
        train = train.replace("runs/web", str(tmp_path / "spark")).replace(
            "chainrule", f"{sys.executable} -m chainrule", 1
        )
        result = subprocess.run(train, shell=True, check=False, capture_output=True, text=True, env=environment)
        assert result.returncode == 0, result.stderr
    chainrule.train("ngram", text).save(tmp_path / "local")
    assert describe_model(tmp_path / "spark") == describe_model(tmp_path / "local")


def test_workers_without_chainrule(session: Any, text: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The workers run the Python of the session; another version of chainrule there is named."""
    monkeypatch.setattr("chainrule.distributed.spark.__version__", "0.0.1")
    with pytest.raises(
        ChainruleError, match=r"install chainrule 0\.0\.1 there, or send an environment with --archives"
    ):
        chainrule.train("ngram", text, on=session)
