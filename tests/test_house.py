"""The house is as the design draws it: floors, owners, doors, and a README that is true."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FLOORS = ("scripts", "graph", "tools", "state")
TABLES = ("approvals", "effects", "trace", "steps", "artifacts", "outbox", "pauses")


def sources(*floors: str) -> Iterator[Path]:
    for floor in floors or FLOORS:
        for path in sorted((ROOT / floor).rglob("*.py")):
            if not {"sample", "programs"} & set(path.parts):  # what is repaired, and what runs on other systems
                yield path


def names_in(path: Path) -> set[str]:
    return {node.id for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Name)}


def imports_of(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module.split(".")[0])
    return found


def test_the_graph_is_assembled_in_one_place() -> None:
    """StateGraph stands only in graph/agent.py, interrupt only in the node that waits."""
    assert [str(path.relative_to(ROOT)) for path in sources("graph") if "StateGraph" in names_in(path)] == [
        "graph/agent.py"
    ]
    assert [str(path.relative_to(ROOT)) for path in sources() if "interrupt" in names_in(path)] == [
        "graph/nodes/approval.py"
    ]


def test_people_and_pages_are_met_in_scripts_alone() -> None:
    """typer, rich and FastAPI belong to the top floor."""
    for path in sources("graph", "tools", "state"):
        assert not imports_of(path) & {"typer", "rich", "fastapi"}, path


@pytest.mark.parametrize("table", TABLES)
def test_the_sql_of_a_table_lives_in_its_module(table: str) -> None:
    """So that a change of the table is a change of one file. Letting go of old rows is a matter of all tables."""
    pattern = re.compile(rf"\b(?:FROM|INTO|UPDATE|JOIN)\s+{table}\b")
    owners = {str(path.relative_to(ROOT)) for path in sources() if pattern.search(path.read_text())}
    own = {"effects": "ledger"}.get(table, table)
    assert owners <= {f"state/{own}.py", "state/retention.py", f"scripts/bench/{own}.py", "scripts/bench/storage.py"}


def test_importing_a_module_does_nothing() -> None:
    """No environment is read, nothing is opened or printed, and nothing is imported that costs before it is used."""
    modules = [".".join(path.relative_to(ROOT).with_suffix("").parts) for path in sources("state", "tools", "graph")]
    plain = [module.removesuffix(".__init__") for module in modules if not module.startswith("tools.runner.")]
    program = f"""
import importlib, os, sys
class Watched(dict):
    def seen(self):
        caller = sys._getframe(2).f_globals.get("__name__", "")
        if caller.split(".")[0] in {FLOORS!r}: raise SystemExit(f"{{caller}} reads the environment")
    def __getitem__(self, key):
        self.seen()
        return super().__getitem__(key)
    def get(self, key, default=None):
        self.seen()
        return super().get(key, default)
os.environ = Watched(os.environ)
for module in {plain!r}: importlib.import_module(module)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT, timeout=100)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_b11_b12_no_wrapper_swallows_the_control_flow_of_a_question() -> None:
    """B11, B12: whoever catches everything around a tool or a node lets LangGraph's interrupts pass first."""
    for path in sources("graph", "tools"):
        if "tools/runner" in str(path):
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Try):
                assert _interrupts_pass(node), f"{path}:{node.lineno}"


def _interrupts_pass(node: ast.Try) -> bool:
    caught: list[str] = []
    for handler in node.handlers:
        kinds = ast.unparse(handler.type) if handler.type else "BaseException"
        broad = kinds in {"Exception", "BaseException"}
        raises = any(isinstance(each, ast.Raise) for each in ast.walk(handler))
        if broad and not raises and not any("GraphBubbleUp" in each for each in caught):
            return False
        caught.append(kinds)
    return True


def test_nothing_names_a_registry_or_a_machine() -> None:
    """The project speaks of itself alone."""
    hosts = ("py" + "pi.org", "python" + "hosted", "npm" + "js.org", "npm" + "js.com", "deb." + "debian.org")
    tracked = subprocess.run(["git", "ls-files"], capture_output=True, text=True, cwd=ROOT, timeout=30).stdout.split(
        "\n"
    )
    for name in filter(None, tracked):
        path = ROOT / name
        if path.is_file() and path.suffix in {".py", ".md", ".toml", ".txt", ".json", ".sql", ".sh", ""}:
            text = path.read_text(errors="replace")
            assert not [host for host in hosts if host in text], name


README = (ROOT / "README.md").read_text()
NONE = "\N{EN DASH}"


def test_the_readmes_picture_is_the_graph() -> None:
    """Drawn by LangGraph itself."""
    from graph.agent import build_agent
    from scripts.bootstrap import build
    from state.settings import Settings

    drawn = build_agent(build(Settings(), label="test").services).get_graph().draw_mermaid(with_styles=False)
    assert drawn.strip() in README


def test_the_readmes_failure_table_is_the_policy() -> None:
    """Row by row, in order."""
    from graph.policy import POLICY

    rows = [
        f"| {kind} | {', then '.join(filter(None, [row.first, row.decision]))} | {row.limit} "
        f"| {row.standing or row.then} |"
        for kind, row in POLICY.items()
    ]
    assert "\n".join(rows) in README


def test_the_readmes_statuses_are_the_closed_list() -> None:
    """Each with its reasons."""
    from state.status import REASONS

    rows = [f"| {status} | {', '.join(filter(None, reasons)) or NONE} |" for status, reasons in REASONS.items()]
    assert "\n".join(rows) in README


def test_the_readme_names_files_that_exist() -> None:
    """The symptom table leads somewhere."""
    for name in re.findall(r"`((?:scripts|graph|tools|state|tests)/[\w/.]*)`", README):
        assert (ROOT / name).exists(), name


def test_the_readmes_settings_of_the_models_fit() -> None:
    """Its example is a chain, and its table has all that can be set."""
    from state.model_settings import EndpointSettings, ModelSettings

    example, _ = re.findall(r"```toml\n(.*?)```", README, re.DOTALL)
    settings = ModelSettings(**tomllib.loads(example))
    assert [settings.model, *settings.fallback_models] == ["openai:gpt-5", "openai:azure", "openai:local"]
    assert settings.endpoint("openai:azure").api_version
    rows = re.findall(r"^\| (`model_\w+`.*?|\N{EN DASH}) \| (`.*?`|\N{EN DASH}) \|", README, re.MULTILINE)
    common, own = (set(re.findall(r"`(\w+)`", " ".join(each))) for each in zip(*rows, strict=True))
    assert common == {name for name in ModelSettings.model_fields if name.startswith("model_")}
    assert own == set(EndpointSettings.model_fields)


def test_the_readmes_settings_of_the_world_outside_fit() -> None:
    """Its example sets each outward tool up, with the promise of the better column."""
    from state.settings import Settings
    from tools.outward import outward_tools

    _, example = re.findall(r"```toml\n(.*?)```", README, re.DOTALL)
    tools = outward_tools(Settings(**tomllib.loads(example)))
    assert {tool.name for tool in tools if tool.idempotent or tool.verify} == set(
        re.findall(r"^\| `(git_push|create_ticket|send_email|call_webhook)` \|", README, re.MULTILINE)
    )
    assert len(tools) == 4
