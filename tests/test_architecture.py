"""The shape of the package: what may import what, what stays pure, how large a class may be, what an import loads."""

import ast
import importlib
import importlib.util
import json
import subprocess
import sys
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from tests.source_tree import ROOT, Module, attributes, classes, imports, knots, read_modules

# From the bottom to the top. A module imports from lower rows, and within its row only from its own package.
ROWS = [
    ["errors"],
    ["clock", "ids", "jsonable"],
    ["content", "state", "audio", "sandbox"],
    ["artifacts"],
    ["turn"],
    ["events", "interrupts"],
    ["results"],
    ["snapshot.*", "conversation.*"],
    ["iothread", "bounded", "filesystem"],
    ["hooks.registry", "tools.base", "tools.schema", "tools.registry", "transports.*", "storage.*", "store.*"],
    ["models.*"],
    ["local_agent"],
    ["hooks.events", "tools.context"],
    ["tools.decorator", "tools.run", "tools.direct", "tools.*"],
    ["session.*"],
    ["agent.*"],
    ["multiagent.*", "runner.*"],
    ["io.*", "telemetry"],
    ["testing.*", "server.*"],
    ["cli.*", "demo.*"],
]

# Rules without a clock, chance, I/O or a loop: they get such things as arguments.
PURE = [
    *[
        "errors",
        "jsonable",
        "content",
        "state",
        "artifacts",
        "turn",
        "events",
        "audio",
        "interrupts",
        "results",
        "sandbox",
    ],
    *["snapshot.*", "conversation.*"],
    *["store.lines", "store.matching", "store.messages", "store.record", "store.redaction", "store.retention"],
    *["store.leases", "store.tenants", "store.base"],
]
IMPURE = {
    *["asyncio", "socket", "time", "random", "os", "pathlib"],
    *["io", "secrets", "selectors", "shutil", "signal", "ssl", "subprocess", "tempfile"],
}

# Only these know time and chance; everybody else below the edges is given a clock or an id.
TIME_AND_CHANCE = {"time", "random", "secrets"}
KNOWS_TIME_AND_CHANCE = ["clock", "ids", "io.*", "telemetry", "testing.*", "server.*", "cli.*", "demo.*"]

# Alternatives behind one contract do not see one another.
PLUGINS = {
    "storage": {"memory", "files", "local", "local_files", "s3"},
    "store": {"memory", "files", "file", "sqlite", "postgres", "postgresql", "s3", "firestore"},
    "models": {"embedded", "openai", "google", "bedrock", "anthropic", "llamacpp"},
}

# Who may import which package that is not in the standard library.
THIRD_PARTY = {
    "typing_extensions": ["*"],
    "msgspec": ["*"],
    "pydantic": ["tools.*", "models.*", "agent.*", "runner.*", "results", "testing.*"],
    "pydantic_core": ["tools.*"],
    "pocketsphinx": ["models.*", "io.*"],
    "espeakng_loader": ["models.*", "io.*"],
    "psycopg": ["store.postgres.*"],
    "zstandard": ["store.postgres.packing"],
    "websockets": ["transports.*", "testing.servers.*"],
    "h2": ["transports.*", "testing.servers.*"],
    "h11": ["testing.servers.*"],
    "trustme": ["testing.servers.*"],
    "openai": ["models.openai.*"],
    "anthropic": ["models.anthropic.*"],
    "google": ["models.google.*"],
    "boto3": ["models.bedrock.*"],
    "botocore": ["models.bedrock.*", "transports.*", "testing.servers.*"],
    "xllamacpp": ["models.llamacpp.*"],
    "rich": ["cli.*"],
    "typer": ["cli.*"],
    "pytest": ["testing.*"],
    "hypothesis": ["testing.*"],
}
OPTIONAL = {name for name in THIRD_PARTY if name not in {"typing_extensions", "msgspec", "pydantic", "pydantic_core"}}
NEVER_BY_ROOT = OPTIONAL | {"sounddevice", "sqlite3", "apsw", "psycopg", "obstore", "boto3", "botocore", "websockets"}

STATE_LIMIT = 26
STATE_WANTED = 15
# Classes between the two, each with its reason.
MUCH_STATE: dict[str, str] = {
    "agent.base.BaseAgent": "what users give an agent or look up in it, each by its own name",
    "store.base.SessionSnapshot": "a row of the store is one value, and each column is a fact about it",
}

# Names of other packages that users look for here, each with its reason.
FACADES = {
    "io": {"antiphon.agent.streams": "the contracts of streams stand beside the agent, which is below io"},
    "testing": {"antiphon.models.embedded.script": "the steps of a script are written by tests"},
}

REALTIME_TESTS = 3

MODULES = read_modules()


def own(name: str) -> str:
    """The module's name below the root."""
    return name.removeprefix(ROOT).removeprefix(".")


def matches(name: str, patterns: list[str]) -> bool:
    """Whether `pattern.*` holds the module: the package itself, or anything in it."""
    return any(fnmatchcase(name, pattern) or name == pattern.removesuffix(".*") for pattern in patterns)


def row(name: str) -> int | None:
    """The module's row: an exact name goes before a pattern."""
    exact = [index for index, patterns in enumerate(ROWS) if name in patterns]
    return next(iter(exact), next((index for index, patterns in enumerate(ROWS) if matches(name, patterns)), None))


def package(name: str) -> str:
    """The outermost package below the root that holds the module, or the module itself."""
    return name.partition(".")[0]


def inside(target: str) -> bool:
    return target == ROOT or target.startswith(f"{ROOT}.")


def plain_modules() -> list[Module]:
    return [module for module in MODULES.values() if not module.is_package]


def report(breaches: list[str], rule: str) -> None:
    assert not breaches, "\n".join([rule, *sorted(set(breaches))])


def test_every_module_has_a_row():
    homeless = [f"  {module.at(1)}" for module in plain_modules() if row(own(module.name)) is None]
    report(homeless, "no row of ROWS names these modules (see docs/design.md): put each where its imports allow")


def test_a_module_imports_only_from_rows_below_it_or_from_its_own_package():
    breaches = []
    for module in plain_modules():
        name = own(module.name)
        here = row(name)
        for found in imports(module, MODULES):
            target = MODULES.get(found.target)
            if here is None or target is None or target.is_package:
                continue
            other = own(found.target)
            there = row(other)
            if there is None or there < here or (there == here and package(name) == package(other)):
                continue
            breaches.append(f"  {module.at(found.line)}: {name} (row {here}) imports {other} (row {there})")
    report(breaches, "imports that point upwards or sideways:")


def test_no_module_imports_from_a_package():
    breaches = [
        f"  {module.at(found.line)}: imports from the package {found.target}"
        for module in plain_modules()
        for found in imports(module, MODULES)
        if found.target in MODULES and MODULES[found.target].is_package
    ]
    report(breaches, "import from the module that defines the name, not from a package's __init__:")


def test_every_import_from_the_package_names_a_module_that_exists():
    breaches = [
        f"  {module.at(found.line)}: {found.target}"
        for module in MODULES.values()
        for found in imports(module, MODULES)
        if inside(found.target) and found.target not in MODULES
    ]
    report(breaches, "imports of modules that do not exist:")


def test_no_modules_import_one_another_in_a_circle():
    edges = {
        name: {found.target for found in imports(module, MODULES) if found.target in MODULES and found.target != name}
        for name, module in MODULES.items()
    }
    report(["  " + " · ".join(knot) for knot in knots(edges)], "modules that import one another:")


def test_a_package_names_only_what_is_its_own():
    breaches = []
    for module in MODULES.values():
        if not module.is_package or module.name == ROOT:
            continue
        breaches += [
            f"  {module.at(found.line)}: {found.target}"
            for found in imports(module, MODULES)
            if inside(found.target)
            and not found.target.startswith(f"{module.name}.")
            and found.target not in FACADES.get(own(module.name), {})
        ]
    report(breaches, "a package's __init__ holds the names of its own modules; these are others':")


def test_a_package_holds_names_and_no_logic():
    breaches = [
        f"  {module.at(node.lineno)}: {node.name}"
        for module in MODULES.values()
        if module.is_package
        for node in ast.walk(module.tree)
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and node.name not in {"__getattr__", "__dir__"}
    ]
    report(breaches, "an __init__ holds names only; give these a module:")


def test_plug_ins_of_one_contract_do_not_see_one_another():
    breaches = []
    for module in plain_modules():
        home, _, rest = own(module.name).partition(".")
        plugin = rest.partition(".")[0]
        if plugin not in PLUGINS.get(home, ()):
            continue
        for found in imports(module, MODULES):
            other_home, _, other_rest = own(found.target).partition(".")
            other = other_rest.partition(".")[0]
            if inside(found.target) and other_home == home and other in PLUGINS[home] - {plugin}:
                breaches.append(f"  {module.at(found.line)}: {home}.{plugin} imports {home}.{other}")
    report(breaches, "move what both need beside the contract:")


def test_pure_modules_import_no_clock_no_chance_and_no_io():
    breaches = [
        f"  {module.at(found.line)}: {own(module.name)} imports {found.target}"
        for module in plain_modules()
        if matches(own(module.name), PURE)
        for found in imports(module, MODULES)
        if found.target.partition(".")[0] in IMPURE
    ]
    report(breaches, "rules get these as arguments:")


def test_pure_modules_ask_no_clock_and_open_no_file():
    calls = [
        (module.at(node.lineno), ast.unparse(node.func))
        for module in plain_modules()
        if matches(own(module.name), PURE)
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Call)
    ]
    breaches = [
        f"  {where}: {called}(...)"
        for where, called in calls
        if called in {"open", "print", "input"} or called.endswith(("datetime.now", "datetime.utcnow", "date.today"))
    ]
    report(breaches, "rules get these as arguments:")


def test_only_the_clock_the_ids_and_the_edges_know_time_and_chance():
    breaches = [
        f"  {module.at(found.line)}: {own(module.name)} imports {found.target}"
        for module in plain_modules()
        if not matches(own(module.name), KNOWS_TIME_AND_CHANCE)
        for found in imports(module, MODULES)
        if found.target.partition(".")[0] in TIME_AND_CHANCE
    ]
    report(breaches, "take a Clock as an argument, or an id from antiphon.ids:")


def waits(tree: ast.Module) -> list[tuple[int, str]]:
    """Calls that let time pass: `asyncio.sleep` and `time.sleep` of anything but a plain 0."""
    bare = {
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module in {"asyncio", "time"}
        for alias in node.names
        if alias.name == "sleep"
    }
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func) in {"asyncio.sleep", "time.sleep", *bare}:
            only_yields = node.args and isinstance(node.args[0], ast.Constant) and node.args[0].value == 0
            if not only_yields:
                found.append((node.lineno, ast.unparse(node)))
    return found


def test_only_the_clocks_and_the_demo_sleep():
    breaches = [
        f"  {module.at(line)}: {call}"
        for module in plain_modules()
        if not matches(own(module.name), ["clock", "testing.clock", "demo.*"])
        for line, call in waits(module.tree)
    ]
    report(breaches, "wait by a Clock, so that tests run at any speed:")


def test_third_party_packages_are_imported_only_where_the_table_allows():
    breaches = []
    for module in MODULES.values():
        for found in imports(module, MODULES):
            top = found.target.partition(".")[0]
            if inside(found.target) or top in sys.stdlib_module_names:
                continue
            if not matches(own(module.name), THIRD_PARTY.get(top, [])):
                breaches.append(f"  {module.at(found.line)}: {found.target}")
    report(breaches, "THIRD_PARTY does not allow these:")


def test_no_class_has_more_state_than_one_can_hold_in_mind():
    too_large, unexplained, counted = [], [], set()
    for module in MODULES.values():
        for node in classes(module):
            name, count = f"{own(module.name)}.{node.name}", len(attributes(node))
            if count > STATE_LIMIT:
                too_large.append(f"  {module.at(node.lineno)}: {node.name} has {count} attributes")
            elif count > STATE_WANTED:
                counted.add(name)
                if name not in MUCH_STATE:
                    unexplained.append(f"  {name}: {count} attributes")
    report(too_large, f"no class has more than {STATE_LIMIT} attributes; these hold two ideas:")
    report(unexplained, f"more than {STATE_WANTED} attributes: split it, or give the reason in MUCH_STATE")
    report([f"  {name}" for name in MUCH_STATE if name not in counted], "MUCH_STATE names classes that are small now:")


def public_methods(node: ast.ClassDef) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Its own, without those that repeat another's description: setters, overloads, overrides."""
    return [
        statement
        for statement in node.body
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef)
        and not statement.name.startswith("_")
        and not any(
            ast.unparse(decorator).endswith((".setter", ".deleter", "overload", "override"))
            for decorator in statement.decorator_list
        )
    ]


def test_every_public_method_is_described_or_fulfils_a_contract_that_is():
    described = {
        method.name
        for module in MODULES.values()
        for node in classes(module)
        for method in public_methods(node)
        if ast.get_docstring(method)
    }
    breaches = []
    for module in plain_modules():
        if own(module.name).startswith("testing.") or any(part.startswith("_") for part in module.name.split(".")):
            continue
        for node in module.tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                breaches += [
                    f"  {module.at(method.lineno)}: {node.name}.{method.name}"
                    for method in public_methods(node)
                    if method.name not in described
                ]
    report(breaches, "public methods that no docstring describes, here or in a contract:")


# --- what happens at run time: in children, since this process has imported much already ---


def ask_child(program: str, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments], capture_output=True, text=True, check=False, timeout=170
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


# The parent has loaded what is not ours; each module is then the first of ours that a forked child imports.
IMPORT_EACH_FIRST = """
import asyncio, contextlib, importlib, json, os, sys, traceback
import msgspec, pydantic, typing_extensions
with contextlib.suppress(ImportError):
    import rich.progress, typer
with contextlib.suppress(ImportError):
    import psycopg, psycopg_pool
with contextlib.suppress(ImportError):
    import pytest, hypothesis
failed = {}
for name in sys.argv[1:]:
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        try:
            importlib.import_module(name)
        except BaseException:
            os.write(writing, traceback.format_exc(limit=-4).encode()[-4000:])
        os._exit(0)
    os.close(writing)
    with open(reading, "rb") as pipe:
        told = pipe.read().decode()
    os.waitpid(child, 0)
    if told:
        failed[name] = told
print(json.dumps(failed))
"""


def missing_extras(module: Module) -> set[str]:
    needed = {found.target.partition(".")[0] for found in imports(module, MODULES)} & OPTIONAL
    return {name for name in needed if importlib.util.find_spec(name) is None}


@pytest.mark.timeout(180)  # some two hundred processes, one after the other
def test_every_module_can_be_the_first_that_is_imported():
    names = [name for name, module in MODULES.items() if not name.endswith(".__main__") and not missing_extras(module)]
    failed = json.loads(ask_child(IMPORT_EACH_FIRST, *names))
    report([f"  {name}:\n{told}" for name, told in failed.items()], "modules that fail when imported first:")


def loaded_by(statement: str) -> set[str]:
    program = f"import sys\nbefore = set(sys.modules)\n{statement}\nprint(*(set(sys.modules) - before))"
    return set(ask_child(program).split())


def test_importing_the_root_loads_little():
    loaded = loaded_by("import antiphon")
    foreign = {name.partition(".")[0] for name in loaded} & (NEVER_BY_ROOT | {"asyncio", "pydantic", "ssl", "socket"})
    assert not foreign, f"`import antiphon` loads {sorted(foreign)}: load names on first use"
    assert len(loaded) <= 40, f"`import antiphon` loads {len(loaded)} modules: {sorted(loaded)}"


def test_using_every_name_of_the_root_loads_no_provider_database_or_audio_package():
    loaded = loaded_by("import antiphon\nfor name in getattr(antiphon, '__all__', ()): getattr(antiphon, name)")
    foreign = {name.partition(".")[0] for name in loaded} & NEVER_BY_ROOT
    assert not foreign, f"the root's names load {sorted(foreign)}"


def lazy_packages() -> list[str]:
    return [
        name
        for name, module in MODULES.items()
        if module.is_package
        and any(isinstance(node, ast.FunctionDef) and node.name == "__getattr__" for node in ast.walk(module.tree))
    ]


def type_checking_names(module: Module) -> dict[str, str]:
    """What a type checker sees: each public name and the module it comes from."""
    return {
        alias.asname or alias.name: node.module or ""
        for branch in ast.walk(module.tree)
        if isinstance(branch, ast.If) and ast.unparse(branch.test).endswith("TYPE_CHECKING")
        for statement in branch.body
        for node in ast.walk(statement)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if inside(node.module or "")
    }


def table_of_names(module: Module) -> list[set[str]]:
    """What the package looks up at run time: the keys of each table of names."""
    return [
        {ast.literal_eval(key) for key in node.value.keys if key}
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Assign | ast.AnnAssign) and isinstance(node.value, ast.Dict)
    ]


@pytest.mark.parametrize("name", lazy_packages())
def test_a_lazy_package_gives_at_run_time_the_names_a_type_checker_sees(name):
    package = importlib.import_module(name)
    seen = type_checking_names(MODULES[name])
    assert {public for public in package.__all__ if not public.startswith("__")} == set(seen)
    assert all(names == set(seen) for names in table_of_names(MODULES[name]))
    for public, home in seen.items():
        assert getattr(package, public) is getattr(importlib.import_module(home), public), public
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = package.no_such_name


def test_tests_use_no_mock_and_let_no_time_pass():
    breaches = []
    for path in sorted(Path(__file__).parent.rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        where = path.relative_to(Path(__file__).parent.parent)
        breaches += [f"  {where}:{line}: {call}" for line, call in waits(tree)]
        for node in ast.walk(tree):
            if isinstance(node, ast.Call):
                called = ast.unparse(node.func)
                last = called.rpartition(".")[2]
                swaps = called.startswith("monkeypatch.") and last in {"setattr", "delattr", "setitem", "delitem"}
                if swaps or last in {"Mock", "MagicMock", "AsyncMock"} or called in {"patch", "mocker.patch"}:
                    breaches.append(f"  {where}:{node.lineno}: {called}(...)")
    report(breaches, "use a product of antiphon.testing, a VirtualClock, or wait for an event:")


def test_at_most_three_tests_run_in_real_time(request):
    realtime = [f"  {item.nodeid}" for item in request.session.items if item.get_closest_marker("realtime")]
    assert len(realtime) <= REALTIME_TESTS, "\n".join(["drive the others by a VirtualClock:", *realtime])
