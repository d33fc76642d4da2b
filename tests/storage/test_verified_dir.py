"""Model folders: round trip, locking, and errors that name the damaged file."""

import errno
import fcntl
import hashlib
import json
import os
import random
import shutil
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from chainrule.errors import ModelFileError, NotFoundError, UsageError
from chainrule.storage import verified_dir

FILES = {
    "config.json": b'{"order": 5}\n',
    "model.ngram": bytes(range(256)) * 4,
    "components/0/config.json": b"{}",
    "empty": b"",
}


def fill_with(files: dict[str, bytes]) -> Callable[[Path], None]:
    def fill(root: Path) -> None:
        for name, content in files.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_bytes(content)

    return fill


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "model"
    verified_dir.write(path, fill_with(FILES), {"seed": 7})
    return path


def verify(path: Path) -> None:
    """Open the folder and verify every file."""
    verified_dir.open_dir(path).verify_rest()


def contents(path: Path) -> dict[str, bytes]:
    return {str(p.relative_to(path)): p.read_bytes() for p in sorted(path.rglob("*")) if p.is_file()}


def sibling_names(path: Path) -> set[str]:
    return {p.name for p in path.parent.iterdir()} - {path.name}


def test_written_folder_is_read_back(model: Path) -> None:
    sealed = verified_dir.open_dir(model)
    assert sealed.facts == {"seed": 7}
    assert {name: sealed.bytes(name) for name in sealed.files} == FILES
    assert sealed.verified_path("model.ngram") == model / "model.ngram"
    assert sibling_names(model) == set()


def test_manifest_content_matches_the_format(model: Path) -> None:
    content = json.loads((model / "manifest.json").read_bytes())
    size, sha256 = len(FILES["model.ngram"]), hashlib.sha256(FILES["model.ngram"]).hexdigest()
    assert content["format_version"] == verified_dir.FORMAT_VERSION == 1
    assert content["seed"] == 7
    assert content["files"].keys() == FILES.keys()
    assert content["files"]["model.ngram"] == {"sha256": sha256, "size": size}


def test_subfolder_contains_only_its_own_files(model: Path) -> None:
    component = verified_dir.open_dir(model).subfolder("components/0")
    assert set(component.files) == {"config.json"}
    assert component.bytes("config.json") == b"{}"
    with pytest.raises(ModelFileError, match="components/1"):
        verified_dir.open_dir(model).subfolder("components/1")


def test_open_rejects_files_missing_from_the_manifest(model: Path) -> None:
    (model / "notes.txt").write_text("mine")
    sealed = verified_dir.open_dir(model)
    with pytest.raises(ModelFileError, match=r"notes\.txt is not in the manifest"):
        sealed.verified_path("notes.txt")


@pytest.mark.parametrize("content", [b'{"order": 6}\n', b"", b'{"order": 5}\n' * 2])
def test_bytes_rejects_files_changed_after_verification(model: Path, content: bytes) -> None:
    sealed = verified_dir.open_dir(model)
    (model / "config.json").write_bytes(content)
    with pytest.raises(ModelFileError, match=r"config\.json"):
        sealed.bytes("config.json")


def test_read_detects_any_flipped_bit(model: Path) -> None:
    rng = random.Random(1)
    originals = contents(model)
    for name in 50 * sorted(originals.keys() - {"empty"}):  # four files, 200 flips
        changed = bytearray(originals[name])
        changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
        (model / name).write_bytes(changed)
        with pytest.raises(ModelFileError, match=f"model/{name} "):
            verify(model)
        (model / name).write_bytes(originals[name])
    verify(model)


def test_read_rejects_truncated_and_extended_files(model: Path) -> None:
    for name, content in contents(model).items():
        lengths = {len(content) * k // 20 for k in range(20)} | {len(content) - 1} if content else set()
        for changed in [content[:length] for length in lengths] + [content + b"\n"]:
            (model / name).write_bytes(changed)
            with pytest.raises(ModelFileError, match=f"model/{name} "):
                verify(model)
        (model / name).write_bytes(content)
    verify(model)


@pytest.mark.parametrize("name", ["manifest.json", "model.ngram"])
def test_read_rejects_a_file_of_another_model(model: Path, tmp_path: Path, name: str) -> None:
    verified_dir.write(tmp_path / "other", fill_with(FILES | {"model.ngram": bytes(1024)}), {"seed": 7})
    shutil.copy(tmp_path / "other" / name, model / name)
    with pytest.raises(ModelFileError, match=r"model\.ngram is damaged"):
        verify(model)


def test_wrong_file_size_is_reported_with_both_sizes(model: Path) -> None:
    os.truncate(model / "model.ngram", 1000)
    with pytest.raises(ModelFileError, match=r"model\.ngram has 1000 bytes, the manifest says 1024"):
        verified_dir.open_dir(model)


def test_read_rejects_a_missing_file(model: Path) -> None:
    (model / "empty").unlink()
    with pytest.raises(ModelFileError, match="empty is missing"):
        verified_dir.open_dir(model)


def create_fifo(path: Path) -> None:
    os.mkfifo(path)


def create_symlink(path: Path) -> None:
    path.with_name("elsewhere").write_bytes(FILES["model.ngram"])
    path.symlink_to("elsewhere")


@pytest.mark.parametrize("name", ["model.ngram", "manifest.json"])
@pytest.mark.parametrize(
    ("put", "reason"),
    [(create_fifo, "not a regular file"), (Path.mkdir, "not a regular file"), (create_symlink, "symbolic link")],
)
def test_read_rejects_irregular_files_without_opening_them(
    model: Path, name: str, put: Callable[[Path], None], reason: str
) -> None:
    (model / name).unlink()
    put(model / name)
    with time_limit(5), pytest.raises(ModelFileError, match=f"{name} .*{reason}"):
        verified_dir.open_dir(model)


@contextmanager
def time_limit(seconds: int) -> Iterator[None]:
    def on_alarm(*_: object) -> None:
        pytest.fail("the call hangs")

    before = signal.signal(signal.SIGALRM, on_alarm)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def test_read_rejects_a_symlinked_subfolder(model: Path, tmp_path: Path) -> None:
    shutil.move(model / "components", tmp_path / "moved")
    (model / "components").symlink_to(tmp_path / "moved")
    with pytest.raises(ModelFileError, match="symbolic link"):
        verified_dir.open_dir(model)


@pytest.mark.parametrize("name", ["model.ngram", "manifest.json"])
def test_read_reports_an_unreadable_file(model: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    really = Path.open

    def denied(path: Path, *args: Any, **kwargs: Any) -> Any:  # mode 000 would not stop root
        if path.name == name:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        return really(path, *args, **kwargs)

    monkeypatch.setattr(Path, "open", denied)
    with pytest.raises(ModelFileError, match=f"{name} cannot be read .Permission denied"):
        verify(model)


def test_oversized_manifest_is_rejected_unread(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.truncate(model / "manifest.json", verified_dir.LARGEST_MANIFEST + 1)
    monkeypatch.setattr(Path, "read_bytes", lambda _: pytest.fail("was read"))
    with pytest.raises(ModelFileError, match="larger than 16777216 bytes"):
        verified_dir.open_dir(model)


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("m.pkl", "never unpickles"),
        ("m.PT", "never unpickles"),
        ("m.joblib", "never unpickles"),
        ("m.arpa", r"chainrule convert \S*m.arpa --out DIR"),
        ("m.arpa.gz", r"chainrule convert \S*m.arpa.gz --out DIR"),
        ("m.bin", "a model is a folder"),
    ],
)
def test_reading_a_file_as_a_folder_gives_advice(tmp_path: Path, name: str, advice: str) -> None:
    (tmp_path / name).write_bytes(b"cos\nsystem\n(S'exit 1'\ntR.")
    with pytest.raises(ModelFileError, match=advice):
        verified_dir.open_dir(tmp_path / name)


def test_read_of_a_missing_path_raises_not_found(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="nowhere does not exist"):
        verified_dir.open_dir(tmp_path / "nowhere")


def test_read_rejects_a_folder_without_manifest(model: Path) -> None:
    (model / "manifest.json").unlink()
    with pytest.raises(ModelFileError, match=r"has no manifest\.json"):
        verified_dir.open_dir(model)


def test_write_fills_empty_folders_and_new_paths(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for path in (tmp_path / "empty", tmp_path / "new" / "deep"):
        verified_dir.write(path, fill_with(FILES), {})
        assert set(verified_dir.open_dir(path).files) == set(FILES)


def test_write_follows_a_symlink_to_a_folder(model: Path) -> None:
    link = model.with_name("latest")
    link.symlink_to(model)
    verified_dir.write(link, fill_with({"other": b"2"}), {}, force=True)
    assert link.is_symlink()
    assert set(verified_dir.open_dir(model).files) == {"other"}


@pytest.mark.parametrize("files", [{"thesis.txt": b"years"}, {"manifest.json": b'{"name": "a browser extension"}'}])
def test_write_refuses_a_folder_it_did_not_create(tmp_path: Path, files: dict[str, bytes]) -> None:
    target = tmp_path / "work"
    target.mkdir()
    fill_with(files)(target)
    with pytest.raises(UsageError, match="exists and is not a model folder; choose another --out"):
        verified_dir.write(target, lambda _: pytest.fail("was filled"), {})
    assert contents(target) == files
    assert sibling_names(target) == set()


def test_write_refuses_an_existing_file(tmp_path: Path) -> None:
    (tmp_path / "work").write_text("years")
    with pytest.raises(UsageError, match="choose another --out"):
        verified_dir.write(tmp_path / "work", fill_with(FILES), {})
    assert (tmp_path / "work").read_text() == "years"


def test_write_refuses_a_folder_that_gained_other_files_meanwhile(tmp_path: Path) -> None:
    target = tmp_path / "work"

    def fill(root: Path) -> None:
        fill_with(FILES)(root)
        fill_with({"thesis.txt": b"years"})(tmp_path / "work")

    with pytest.raises(UsageError, match="choose another --out"):
        verified_dir.write(target, fill, {})
    assert contents(target) == {"thesis.txt": b"years"}
    assert sibling_names(target) == set()


LEFTOVERS = (
    ".checkpoint.4194304.0a1b2c3d.partial",
    ".checkpoint.17.ff.aside",
    ".train_log.part.jsonl.17.ff.partial",
)


def create_training_run(path: Path, *, log: bool = True) -> None:
    """Create the files of an unfinished training run."""
    verified_dir.write(
        path / verified_dir.CHECKPOINT, fill_with({"model.safetensors": b"weights"}), {"step": 3}, force=True
    )
    if log:
        (path / verified_dir.LOG).write_bytes(b"{}\n")


def create_leftovers(path: Path) -> None:
    for name in LEFTOVERS:
        fill_with({f"{name}/model.safetensors": b"half"} if "jsonl" not in name else {name: b"half"})(path)


@pytest.mark.parametrize("log", [True, False])
def test_write_replaces_the_training_run_with_its_model(tmp_path: Path, log: bool) -> None:
    target = tmp_path / "work"
    create_training_run(target, log=log)
    create_leftovers(target)
    verified_dir.write(target, fill_with(FILES | {verified_dir.LOG: b"{}\n"}), {}, run=target)
    assert contents(target).keys() - {"manifest.json"} == FILES.keys() | {verified_dir.LOG}
    assert set(verified_dir.open_dir(target).files) == FILES.keys() | {verified_dir.LOG}


def test_leftovers_and_logs_alone_count_as_a_run(tmp_path: Path) -> None:
    target = tmp_path / "work"
    create_leftovers(target)
    verified_dir.check_writable_target(target)
    (target / verified_dir.LOG).write_bytes(b"")
    verified_dir.check_writable_target(target)
    (target / verified_dir.CHECKPOINT).mkdir()
    verified_dir.check_writable_target(target)


def test_write_replaces_a_model_with_a_run_beside_it(model: Path) -> None:
    create_training_run(model)
    create_leftovers(model)
    verified_dir.check_writable_target(model)
    assert set(verified_dir.open_dir(model).files) == set(FILES)  # unchanged by the run
    verified_dir.write(model, fill_with({"other": b"2"}), {}, run=model)
    assert set(contents(model)) == {"other", "manifest.json"}


@pytest.mark.parametrize(
    "name",
    [
        "thesis.txt",
        "checkpoint/thesis.txt",
        "train_log.part.jsonl/thesis.txt",
        "notes/train_log.part.jsonl",
        ".checkpoint.partial",
        ".checkpoint.mine.partial",
        "checkpoint.bak/thesis.txt",
    ],
)
@pytest.mark.parametrize("is_sealed", [True, False])
def test_write_refuses_folders_with_files_outside_the_run(tmp_path: Path, name: str, is_sealed: bool) -> None:
    target = tmp_path / "work"
    if is_sealed:
        verified_dir.write(target, fill_with(FILES), {})
    create_training_run(target, log=not name.startswith("train_log"))
    fill_with({name: b"years"})(target)
    before = contents(target)
    with pytest.raises(UsageError, match="choose another --out"):
        verified_dir.write(target, lambda _: pytest.fail("was filled"), {})
    assert contents(target) == before


@pytest.mark.parametrize("files", [{"checkpoint": b"years"}, {"checkpoint/epoch1.bin": b"years"}])
def test_check_writable_target_refuses_a_foreign_checkpoint(tmp_path: Path, files: dict[str, bytes]) -> None:
    fill_with(files)(tmp_path / "work")
    with pytest.raises(UsageError, match="work/checkpoint exists and is not a model folder; choose another --out"):
        verified_dir.check_writable_target(tmp_path / "work")


def test_check_writable_target_reports_a_damaged_checkpoint(tmp_path: Path) -> None:
    create_training_run(tmp_path / "work")
    with (tmp_path / "work" / "checkpoint" / "manifest.json").open("ab") as file:
        file.write(b" ")
    with pytest.raises(ModelFileError, match=r"work/checkpoint/manifest\.json is damaged"):
        verified_dir.check_writable_target(tmp_path / "work")


def test_read_of_an_unfinished_run_advises_resume(tmp_path: Path) -> None:
    create_training_run(tmp_path / "work")
    with pytest.raises(
        ModelFileError, match="unfinished run; continue it by running the same command with --resume"
    ):
        verified_dir.open_dir(tmp_path / "work")
    assert verified_dir.open_dir(tmp_path / "work" / "checkpoint").facts == {"step": 3}


def test_unfinished_run_is_replaced_only_with_force(model: Path) -> None:
    link = model.with_name("link")
    link.symlink_to(model)
    verified_dir.check_replace(model.with_name("new"), {})
    create_training_run(model)
    before = contents(model)
    for run in (None, model.with_name("other")):
        with pytest.raises(
            UsageError, match=r"contains an unfinished run; continue it .* --resume, or discard it with --force"
        ):
            verified_dir.check_replace(model, {}, run=run)
        with pytest.raises(UsageError, match="contains an unfinished run"):
            verified_dir.write(model, lambda _: pytest.fail("was filled"), {}, run=run)
    assert contents(model) == before
    verified_dir.check_replace(model, {}, force=True)
    verified_dir.check_replace(link, {}, run=model)


COMMAND = "chainrule train ngram 'a text.txt' --out model"


def facts_of(command: str, sha256: str | None = "1") -> dict[str, verified_dir.JSON]:
    return {"command": command, "training_text": {"names": "a text.txt", "sha256": sha256}}


@pytest.mark.parametrize(
    ("old", "new", "is_allowed"),
    [
        (facts_of(COMMAND), facts_of(COMMAND), True),
        (facts_of(COMMAND), {"command": COMMAND}, True),  # the text digest is not known yet
        (facts_of(COMMAND), facts_of(f"{COMMAND} --force --json"), True),
        (facts_of(f"{COMMAND} --resume"), facts_of(COMMAND), True),
        (facts_of(COMMAND), facts_of(f"{COMMAND} --order 3"), False),
        (facts_of(COMMAND), facts_of(COMMAND.replace("'a text.txt'", "a text.txt")), False),
        (facts_of(COMMAND), facts_of(COMMAND, "2"), False),
        (facts_of(COMMAND), facts_of(COMMAND, None), False),
        (facts_of(""), facts_of(""), False),
        (facts_of("chainrule.train('ngram', …)"), facts_of("chainrule.train('ngram', …)"), False),
        ({}, {}, False),
    ],
)
def test_model_is_replaced_only_by_same_command_and_text(
    tmp_path: Path, old: dict[str, verified_dir.JSON], new: dict[str, verified_dir.JSON], is_allowed: bool
) -> None:
    path = tmp_path / "model"
    verified_dir.write(path, fill_with({"weights": b"1"}), old)
    before = contents(path)
    if is_allowed:
        verified_dir.check_replace(path, new)
        verified_dir.write(path, fill_with({"weights": b"2"}), new)
        return
    with pytest.raises(UsageError, match=r"contains a finished model.*to replace it give --force"):
        verified_dir.check_replace(path, new)
    with pytest.raises(UsageError, match="contains a finished model"):
        verified_dir.write(path, fill_with({"weights": b"2"}), new)
    assert contents(path) == before
    assert sibling_names(path) == set()
    verified_dir.write(path, fill_with({"weights": b"2"}), new, force=True)
    assert verified_dir.open_dir(path).bytes("weights") == b"2"


def test_saving_the_same_model_again_is_allowed(tmp_path: Path) -> None:
    path = tmp_path / "model"
    verified_dir.write(path, fill_with({"weights": b"1", "metrics.json": b'{"seconds": 1}'}), {"created": 1})
    verified_dir.write(path, fill_with({"weights": b"1", "metrics.json": b'{"seconds": 2}'}), {"created": 2})
    assert verified_dir.open_dir(path).facts == {"created": 2}
    with pytest.raises(UsageError, match="finished model"):
        verified_dir.write(path, fill_with({"weights": b"1", "more": b""}), {})


def test_lock_for_writing_checks_the_target_first(model: Path) -> None:
    with pytest.raises(UsageError, match="finished model"), verified_dir.lock_for_writing(model, COMMAND):
        pytest.fail("was run")
    with verified_dir.lock_for_writing(model, COMMAND, force=True):
        pass
    create_training_run(model.with_name("run"))
    with verified_dir.lock_for_writing(model.with_name("run"), COMMAND, resume=True):
        pass
    with (
        pytest.raises(UsageError, match="unfinished run"),
        verified_dir.lock_for_writing(model.with_name("run"), COMMAND),
    ):
        pytest.fail("was run")
    assert sibling_names(model) == {"run"}


def error_in_another_thread(call: Callable[[], None]) -> BaseException | None:
    with ThreadPoolExecutor(max_workers=1) as executor:
        return executor.submit(call).exception()


def lock_once(path: Path) -> None:
    with verified_dir.lock(path):
        pass


def test_all_paths_to_a_folder_share_one_lock(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    link = model.with_name("link")
    link.symlink_to(model)
    monkeypatch.chdir(model)
    names = [model, link, Path("."), Path("../model"), model / "components" / "..", Path("../link/.")]
    for held in names:
        with verified_dir.lock(held):
            for alias in names:
                error = error_in_another_thread(lambda: lock_once(alias))  # noqa: B023
                assert isinstance(error, UsageError), (held, alias)
            lock_once(model)  # reentrant: this thread already holds the lock
            assert isinstance(error_in_another_thread(lambda: lock_once(model)), UsageError)
        assert error_in_another_thread(lambda: lock_once(model)) is None
    assert sibling_names(model) == {"link"}


def test_lock_fails_if_another_process_recreated_the_lock_file(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between open and flock, the holder removes the lock file and a third process creates and locks a new one."""
    lock = model.with_name(".model.lock")
    really = fcntl.flock
    third: list[int] = []

    def flock_after_recreation(descriptor: int, how: int) -> None:
        if not third:
            lock.unlink()
            third.append(os.open(lock, os.O_RDWR | os.O_CREAT))
            really(third[0], how)
        really(descriptor, how)

    monkeypatch.setattr(fcntl, "flock", flock_after_recreation)
    with pytest.raises(UsageError, match="being written by another run"):
        lock_once(model)
    os.close(third[0])
    lock_once(model)
    assert sibling_names(model) == set()


def test_lock_file_removed_before_locking_is_created_again(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lock = model.with_name(".model.lock")
    really = fcntl.flock
    removed: list[Path] = []

    def flock_after_removal(descriptor: int, how: int) -> None:
        if not removed:
            lock.unlink()
            removed.append(lock)
        really(descriptor, how)

    monkeypatch.setattr(fcntl, "flock", flock_after_removal)
    with verified_dir.lock(model):
        assert isinstance(error_in_another_thread(lambda: lock_once(model)), UsageError)
    assert sibling_names(model) == set()


def test_require_not_finished_rejects_a_finished_model(model: Path) -> None:
    with pytest.raises(UsageError, match=r"model contains a finished model; remove --resume to retrain it"):
        verified_dir.require_not_finished(model)
    create_training_run(model)  # an unfinished run beside the model
    verified_dir.require_not_finished(model)
    create_training_run(model.with_name("run"))
    verified_dir.require_not_finished(model.with_name("run"))
    verified_dir.require_not_finished(model.with_name("new"))


def inodes(path: Path) -> dict[str, int]:
    return {name: (path / name).stat().st_ino for name in verified_dir.open_dir(path).files}


def test_share_files_hard_links_identical_files(model: Path, tmp_path: Path) -> None:
    other_model = tmp_path / "other"
    verified_dir.write(other_model, fill_with({**FILES, "config.json": b"{}"}), {"seed": 8})
    verified_dir.share_files(other_model, [model])
    first, second = inodes(model), inodes(other_model)
    assert {name for name in FILES if first[name] == second[name]} == {
        "model.ngram",
        "components/0/config.json",
        "empty",
    }
    assert second["config.json"] == first["components/0/config.json"]  # same bytes under another name
    assert verified_dir.open_dir(other_model, verify=True).facts == {"seed": 8}
    assert sibling_names(model) == {"other"}
    verified_dir.share_files(other_model, [model])  # already linked
    assert inodes(other_model) == second


def test_replacing_a_folder_leaves_its_hard_linked_copies_unchanged(model: Path, tmp_path: Path) -> None:
    other_model = tmp_path / "other"
    verified_dir.write(other_model, fill_with(FILES), {"seed": 8})
    verified_dir.share_files(other_model, [model])
    model.joinpath("model.ngram").chmod(0o600)
    verified_dir.write(model, fill_with({**FILES, "model.ngram": b"new"}), {"seed": 9}, force=True)
    assert contents(other_model)["model.ngram"] == FILES["model.ngram"]
    verified_dir.open_dir(other_model, verify=True).verify_rest()
    shutil.rmtree(model)
    assert {name: verified_dir.open_dir(other_model).bytes(name) for name in FILES} == FILES


def test_share_files_skips_private_damaged_and_linked_files(model: Path, tmp_path: Path) -> None:
    """A private file, a damaged file, a symbolic link, and a folder without a manifest."""
    other_model = tmp_path / "other"
    verified_dir.write(other_model, fill_with(FILES), {"seed": 8})
    (model / "config.json").chmod(0o600)
    (model / "model.ngram").write_bytes(b"damaged")
    (model / "empty").unlink()
    (model / "empty").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "elsewhere").write_bytes(b"")
    verified_dir.share_files(other_model, [tmp_path, model])
    linked = [name for name in FILES if (other_model / name).stat().st_nlink > 1]
    assert linked == ["components/0/config.json"]
    assert not (other_model / "empty").is_symlink()
    assert {name: verified_dir.open_dir(other_model, verify=True).bytes(name) for name in FILES} == FILES


def test_share_files_keeps_copies_without_hard_link_support(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    other_model = tmp_path / "other"
    verified_dir.write(other_model, fill_with(FILES), {"seed": 8})
    monkeypatch.setattr(os, "link", refuse)
    verified_dir.share_files(other_model, [model])
    assert all((other_model / name).stat().st_nlink == 1 for name in FILES)
    assert {name: verified_dir.open_dir(other_model, verify=True).bytes(name) for name in FILES} == FILES
    assert sibling_names(model) == {"other"}
