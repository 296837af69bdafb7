"""The tools of one agent, by name, and where they come from.

A tool is given as a decorated function, any other `AgentTool`, a `ToolProvider`, a module, a string that names a module,
a function in one or a file, or a list or tuple of these.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import os
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any, cast

from antiphon.content import ToolSpec
from antiphon.errors import DuplicateToolError, InvalidInputError, ToolLoadError
from antiphon.ids import new_uuid7
from antiphon.iothread import IOThread
from antiphon.tools.base import AgentTool, ToolProvider

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")

ToolSource = AgentTool | ToolProvider | ModuleType | str | Iterable[Any]
"""What tools may be given as; lists and tuples hold the same again."""


def check_tool_name(name: object) -> str:
    """`name`, when a tool may have it: 1 to 64 letters, digits, `-` and `_`. Every provider accepts these.

    Raises:
        ToolLoadError: If it may not.
    """
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ToolLoadError(f"tool name {name!r} must be 1 to 64 letters, digits, '-' and '_': use @tool(name=...)")
    return name


@dataclass(frozen=True, slots=True)
class _Found:
    """What sources came to."""

    tools: list[AgentTool] = field(default_factory=list[AgentTool])
    providers: list[ToolProvider] = field(default_factory=list[ToolProvider])


class ToolRegistry:
    """Tools by name.

    Names that differ only in `-` and `_` are one name: a direct call, `agent.tool.my_tool()`, cannot tell them apart.

    Args:
        tools: The first tools, as for `register`.

    Raises:
        DuplicateToolError: If two tools have one name.
        ToolLoadError: If a source cannot be loaded.
    """

    def __init__(self, tools: ToolSource = ()) -> None:
        self._tools: dict[str, AgentTool] = {}
        self._providers: list[ToolProvider] = []
        self._specs: list[ToolSpec] | None = None
        self.consumer_id = new_uuid7()
        """Names this registry to providers."""
        self.register(tools)

    def register(self, tools: ToolSource) -> list[str]:
        """Add tools: all of them, or none when one cannot be added.

        Providers are loaded before this returns, on a thread of their own, also inside a running event loop; the
        registry is then a consumer of theirs until `release`.

        Args:
            tools: Decorated functions, `AgentTool`s, `ToolProvider`s, modules, strings (`package.module`,
                `package.module:function`, `path/to/file.py`, `path/to/file.py:function`), and lists or tuples of these.
                A module stands for its public tools, in the order in which it defines them.

        Returns:
            The names of the new tools, in order.

        Raises:
            DuplicateToolError: If a name is taken already.
            ToolLoadError: If a source cannot be loaded, or is nothing of the above; the message names the source.
        """
        found = _Found()
        try:
            self._gather(tools, found)
            added = self._named(found.tools)
        except BaseException:
            self._leave(found.providers)
            raise
        self._tools.update(added)
        self._providers += found.providers
        self._specs = None
        return list(added)

    def get(self, name: str) -> AgentTool | None:
        """The tool with exactly this name."""
        return self._tools.get(name)

    def find(self, name: str) -> AgentTool | None:
        """The tool with this name, where `-` and `_` are the same."""
        return self._tools.get(name) or next(
            (tool for known, tool in self._tools.items() if _loose(known) == _loose(name)), None
        )

    def names(self) -> list[str]:
        """The names, in order of registration."""
        return list(self._tools)

    def specs(self) -> list[ToolSpec]:
        """What a model is told, in order of registration. The list is the caller's, the specs in it are not."""
        if self._specs is None:
            self._specs = [tool.tool_spec for tool in self._tools.values()]
        return list(self._specs)

    def release(self) -> None:
        """Tell every provider that its tools are no longer used here. The tools stay registered."""
        providers, self._providers = self._providers, []
        self._leave(providers)

    def __contains__(self, name: object) -> bool:
        return name in self._tools

    def __iter__(self) -> Iterator[AgentTool]:
        return iter(self._tools.values())

    def __len__(self) -> int:
        return len(self._tools)

    def _named(self, tools: list[AgentTool]) -> dict[str, AgentTool]:
        taken = {_loose(name): name for name in self._tools}
        added: dict[str, AgentTool] = {}
        for tool in tools:
            name = _described(tool)
            other = taken.get(_loose(name))
            if other is not None:
                also = "" if other == name else f": it differs from {other!r} only in '-' and '_'"
                raise DuplicateToolError(f"a tool named {name!r} is registered already{also}")
            taken[_loose(name)] = name
            added[name] = tool
        return added

    def _gather(self, source: object, found: _Found) -> None:
        if isinstance(source, AgentTool):
            found.tools.append(source)
        elif isinstance(source, ToolProvider):
            self._consume(source, found)
        elif isinstance(source, ModuleType):
            found.tools.extend(_tools_of(source, f"module {source.__name__!r}"))
        elif isinstance(source, str):
            found.tools.extend(_load(source))
        elif isinstance(source, (list, tuple, Iterator)):
            for item in cast("Iterable[object]", source):
                self._gather(item, found)
        else:
            raise ToolLoadError(_unusable(source))

    def _consume(self, provider: ToolProvider, found: _Found) -> None:
        if any(known is provider for known in [*self._providers, *found.providers]):
            raise DuplicateToolError(f"tool provider {provider!r} is given twice")
        found.providers.append(provider)
        provider.add_consumer(self.consumer_id)
        thread = IOThread("antiphon-tools")
        try:
            tools = thread.call_async(lambda: _loaded(provider))
        except Exception as error:
            raise ToolLoadError(f"failed to load tools of provider {provider!r}: {_told(error)}") from error
        finally:
            thread.close()
        for tool in tools:
            if not isinstance(cast("object", tool), AgentTool):
                raise ToolLoadError(f"provider {provider!r} gave {tool!r}, which is not an AgentTool")
            found.tools.append(tool)

    def _leave(self, providers: list[ToolProvider]) -> None:
        for provider in providers:
            provider.remove_consumer(self.consumer_id)


async def _loaded(provider: ToolProvider) -> list[AgentTool]:
    return list(await provider.load_tools())


def _loose(name: str) -> str:
    return name.replace("-", "_")


def _told(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"


def _described(tool: AgentTool) -> str:
    """The tool's name, when its description is complete."""
    try:
        spec: Any = tool.tool_spec
    except InvalidInputError:
        raise
    except Exception as error:
        raise ToolLoadError(f"failed to describe tool {tool!r}: {_told(error)}") from error
    if not isinstance(spec, dict):
        raise ToolLoadError(f"tool_spec of {tool!r} is not a dict")
    fields = cast("dict[str, Any]", spec)
    name = check_tool_name(fields.get("name"))
    if not isinstance(fields.get("description"), str):
        raise ToolLoadError(f"tool {name!r} has no description")
    schema = fields.get("inputSchema")
    if not isinstance(schema, dict) or not isinstance(cast("dict[str, Any]", schema).get("json"), dict):
        raise ToolLoadError(
            f"tool {name!r}: inputSchema must be {{'json': <JSON Schema of an object>}}, not {schema!r}"
        )
    return name


def _unusable(source: object) -> str:
    if callable(source):
        name = getattr(source, "__qualname__", type(source).__qualname__)
        return f"failed to load tool {name!r}: it is a plain function or class, decorate a function with @tool"
    return f"failed to load tool {source!r}: it is not a tool, a provider, a module, a string or a list of these"


def _load(source: str) -> list[AgentTool]:
    place, colon, name = source.partition(":")
    is_file = place.endswith(".py") or os.sep in place
    module = _import_file(place, source) if is_file else _import_module(place, source)
    if not colon:
        return _tools_of(module, f"{source!r}")
    found: object = module
    for part in name.split("."):
        try:
            found = getattr(found, part)
        except AttributeError as error:
            raise ToolLoadError(f"failed to load tool {source!r}: {place!r} has no {name!r}") from error
    if not isinstance(found, AgentTool):
        raise ToolLoadError(f"failed to load tool {source!r}: {name!r} is not a tool, decorate it with @tool")
    return [found]


def _import_module(name: str, source: str) -> ModuleType:
    if not all(part.isidentifier() for part in name.split(".")):
        raise ToolLoadError(
            f"failed to load tool {source!r}: give package.module, package.module:function or path/to/file.py"
        )
    try:
        return importlib.import_module(name)
    except Exception as error:
        raise ToolLoadError(f"failed to load tool {source!r}: {_told(error)}") from error


def _import_file(path: str, source: str) -> ModuleType:
    path = os.path.realpath(os.path.expanduser(path))
    if not os.path.isfile(path):
        raise ToolLoadError(f"failed to load tool {source!r}: there is no file {path!r}")
    stem = re.sub(r"\W", "_", os.path.splitext(os.path.basename(path))[0])
    # A name of its own, so that two files called tools.py do not meet, nor a file and a package.
    name = f"antiphon_tools_{stem}_{hashlib.sha256(os.fsencode(path)).hexdigest()[:12]}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ToolLoadError(f"failed to load tool {source!r}: {path!r} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    before = sys.modules.get(name)
    sys.modules[name] = module  # annotations are looked up there
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        if before is None:
            del sys.modules[name]
        else:
            sys.modules[name] = before
        raise ToolLoadError(f"failed to load tool {source!r}: {_told(error)}") from error
    return module


def _tools_of(module: ModuleType, source: str) -> list[AgentTool]:
    public = getattr(module, "__all__", None)
    values: dict[str, object] = vars(module)
    tools: list[AgentTool] = []
    for name in list(values) if public is None else cast("list[str]", public):
        value = getattr(module, name, None)
        hidden = public is None and name.startswith("_")
        if isinstance(value, AgentTool) and not hidden and not any(known is value for known in tools):
            tools.append(value)
    if not tools:
        raise ToolLoadError(f"failed to load tool {source}: it defines no tools, decorate functions with @tool")
    return tools
