"""docs/server-architecture.md: every file, class and function that it names exists."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "chainrule"


def test_architecture_page_names_exist() -> None:
    text = (ROOT / "docs" / "server-architecture.md").read_text(encoding="utf-8")
    files = set(re.findall(r"`([a-z_/]+\.py)`", text))
    assert all((PACKAGE / "server" / name).is_file() or (PACKAGE / name).is_file() for name in files)
    sources = [PACKAGE / "errors.py", *(PACKAGE / "server").rglob("*.py"), *(PACKAGE / "decoding").glob("*.py")]
    code = "\n".join(path.read_text(encoding="utf-8") for path in sources)
    defined = set(re.findall(r"(?:class|def) (\w+)", code))
    names = {name for named in re.findall(r"`(\w+(?:\.\w+)?)`", text) for name in named.split(".") if name != "py"}
    modules = {Path(name).stem for name in files}
    assert names - defined - modules == {"n", "call_soon_threadsafe"}
