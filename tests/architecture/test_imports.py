"""Layering: a package imports only packages of lower rank, and optional libraries stay in their packages."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "chainrule"

LAYERS = [
    {"__init__", "errors", "progress", "config", "system", "lm", "recipes"},
    {"storage", "text", "tokenizers", "data"},
    {"ngram", "gradients", "training", "decoding", "evaluation", "embeddings", "plots", "distributed"},
    {"neural"},
    {"families", "model", "prepared_corpus", "sizing", "api", "mixture", "kenlm"},
    {"tasks", "applications", "inspection", "comparison", "spark"},
    {"server"},
    {"cli", "__main__"},
]
"""From the bottom up: a module imports from its own layer and from the layers before it."""

MODULES = sorted(SOURCE.rglob("*.py"))


def part_of(module: Path) -> str:
    return module.relative_to(SOURCE).parts[0].removesuffix(".py")


def imports(module: Path) -> list[tuple[str, bool]]:
    """Return every imported module, and whether it is imported at import time rather than in a function."""
    tree = ast.parse(module.read_text(encoding="utf-8"))
    modules: list[tuple[str, bool]] = []
    inside = {
        id(node)
        for function in ast.walk(tree)
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        for node in ast.walk(function)
    }
    guarded = {
        id(node)
        for block in ast.walk(tree)
        if isinstance(block, ast.If) and "TYPE_CHECKING" in ast.dump(block.test)
        for node in ast.walk(block)
    }
    for node in ast.walk(tree):
        if id(node) in guarded:
            continue
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module or ""]
            if node.module == "chainrule":
                names = [f"chainrule.{alias.name}" for alias in node.names]
        modules += [(name, id(node) not in inside) for name in names]
    return modules


def imported_parts(names: list[tuple[str, bool]]) -> set[str]:
    parts = {name.split(".")[1] for name, _ in names if name.startswith("chainrule.")}
    return {part for part in parts if part != "__version__"}


def test_every_package_has_a_layer() -> None:
    assert {part_of(module) for module in MODULES} == set().union(*LAYERS)


@pytest.mark.parametrize("module", MODULES, ids=lambda m: str(m.relative_to(SOURCE)))
def test_imports_respect_the_layers(module: Path) -> None:
    layer = next(i for i, parts in enumerate(LAYERS) if part_of(module) in parts)
    assert imported_parts(imports(module)) <= set().union(*LAYERS[: layer + 1])


def module_name(path: Path) -> str:
    parts = ("chainrule", *path.relative_to(SOURCE).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def test_no_import_cycles() -> None:
    """Imports at module level form no cycle; imports inside functions are not counted."""
    names = {module_name(path) for path in MODULES}
    graph: dict[str, set[str]] = {}
    for path in MODULES:
        tree = ast.parse(path.read_text(encoding="utf-8"))
        targets = set()
        for node in tree.body:
            if isinstance(node, ast.ImportFrom) and node.module:
                targets |= {
                    f"{node.module}.{a.name}" if f"{node.module}.{a.name}" in names else node.module
                    for a in node.names
                }
        graph[module_name(path)] = (targets & names) - {module_name(path)}
    done: set[str] = set()
    while ready := {name for name, targets in graph.items() if name not in done and targets <= done}:
        done |= ready
    assert set(graph) - done == set()


ALLOWED_PACKAGES = {
    "torch": {"neural", "training"},
    "matplotlib": {"plots", "inspection"},
    "fastapi": {"server"},
    "uvicorn": {"server"},
    "pydantic": {"server"},
    "starlette": {"server"},
    "tokenizers": {"tokenizers"},
    "typer": {"cli"},
    "rich": {"cli"},
    "pyarrow": {"text", "distributed", "spark"},
    "pyspark": {"distributed", "spark"},
    "zstandard": {"text"},
    "sacrebleu": {"evaluation"},
}


@pytest.mark.parametrize("module", MODULES, ids=lambda m: str(m.relative_to(SOURCE)))
def test_third_party_libraries_stay_in_their_packages(module: Path) -> None:
    for name, _ in imports(module):
        library = name.split(".")[0]
        assert part_of(module) in ALLOWED_PACKAGES.get(library, {part_of(module)}), (
            f"{library} does not belong here"
        )
        assert name != "chainrule._core"


def test_torch_distributed_is_imported_by_one_module() -> None:
    importers = {m.name for m in MODULES if any(name.startswith("torch.distributed") for name, _ in imports(m))}
    assert importers == {"ranks.py"}


def test_optional_libraries_are_imported_lazily() -> None:
    lazy = ("matplotlib", "pyarrow", "pyspark", "zstandard", "torch", "fastapi", "rich", "sacrebleu")
    for module in MODULES:
        at_once = {name.split(".")[0] for name, is_now in imports(module) if is_now}
        home = part_of(module)
        at_home = {library for library in ("torch", "fastapi") if home in ALLOWED_PACKAGES[library]}
        assert at_once & set(lazy) <= at_home, module


def test_importing_chainrule_loads_nothing_heavy() -> None:
    heavy = ["numpy", "torch", "tokenizers", "typer", "matplotlib", "chainrule._core"]
    for statement in ("import chainrule", "import chainrule.cli.main"):
        loaded = heavy if statement == "import chainrule" else [m for m in heavy if m != "typer"]
        script = f"import sys; {statement}; print([m for m in {loaded!r} if m in sys.modules])"
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
        assert done.stdout.strip() == "[]", statement


def test_public_names_are_pinned() -> None:
    import chainrule

    names = ["ChainruleError", "ChainruleWarning", "Model", "compare", "inspect", "load", "mix", "train"]
    assert chainrule.__all__ == names
    assert all(getattr(chainrule, name) is not None for name in names)
    with pytest.raises(AttributeError, match="no attribute 'tarin'"):
        chainrule.tarin  # noqa: B018


def test_functions_stay_short() -> None:
    for module in MODULES:
        text = module.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef) and part_of(module) != "cli":
                length = (node.end_lineno or 0) - node.lineno + 1
                assert length <= 60, f"{module.name}: {node.name} has {length} lines"
