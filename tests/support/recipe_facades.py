"""Recipes for asyncio and for threads, written from trio's: the same names, arguments, types and docstrings.

``Facade("asyncio").text()`` and ``Facade("threads").text()`` are the modules `kraftcore.aio.recipes` and
`kraftcore.blocking.recipes`. An object there holds one of trio's, and calls its methods through the node.
"""

from __future__ import annotations

import ast
import shutil
import subprocess
import sys
from collections.abc import Iterator
from copy import deepcopy
from inspect import cleandoc
from pathlib import Path
from textwrap import indent

from project import ROOT

from kraftcore.plugins import recipes

RECIPES = ROOT / "plugins" / "recipes"
SOURCES = ("containers", "leases", "sequences", "transactions", "locks")
NODES = {"asyncio": "aio", "threads": "blocking"}
FILES = {world: ROOT / "kraftcore" / module / "recipes.py" for world, module in NODES.items()}
PLACES = {"asyncio": "asyncio", "threads": "programs with threads"}
PLAIN = ("ABSENT", "Change", "Holder", "RecipeMachine", "Versioned")
ATTRIBUTES = {
    **dict.fromkeys(("max_size", "lease_ms", "permits", "parties"), "int"),
    "every_s": "float",
    "info": "Any",
}
# Methods that take something, which goes back when the caller is gone.
TAKING = {
    "get": "partial(inner._take, timeout_s), partial(inner._read_or_raise, timeout_s)",
    "get_nowait": "partial(inner._take, 0), partial(inner._read_or, default)",
    "acquire": "partial(inner.acquire, timeout_s), as_it_is",
    "try_acquire": "inner.try_acquire, as_it_is",
}
# What leases know of themselves: the object they come from, and an attribute, which is a property here.
GRANTS = {
    "Lease": ("Lender", "", "token", "int", "The fencing token, > 0; larger than that of any earlier grant."),
    "Taken": ("_Queue[Item]", "[Item]", "item", "Item", "The item."),
}
# Methods that only call others of the facade, and a function of the program's: what they do is the same everywhere.
SHARED = ("run", "run_each")
ITERATED = ("Watch", "Observation")
HELD = ("Held", "HeldItem")
TAKEN = {
    "asyncio": """
        try:
            return await self._node.call(taking)
        except BaseException:
            if taking.abandon():
                await settled(asyncio.ensure_future(self._node.call(taking.give_back)))
            raise""",
    "threads": """
        try:
            return self._node.call(taking)
        except BaseException:
            if taking.abandon():
                with suppress(NodeStoppedError):
                    self._node.submit(taking.give_back)
            raise""",
}
Function = ast.FunctionDef | ast.AsyncFunctionDef


def sources() -> tuple[dict[str, ast.ClassDef], dict[str, str]]:
    """Trio's classes by name, and the module of each."""
    found: dict[str, ast.ClassDef] = {}
    modules: dict[str, str] = {}
    for name in SOURCES:
        for node in ast.parse((RECIPES / f"{name}.py").read_text()).body:
            if isinstance(node, ast.ClassDef):
                found[node.name], modules[node.name] = node, name
    return found, modules


def has(function: Function, decorator: str) -> bool:
    return any(ast.unparse(each) == decorator for each in function.decorator_list)


def listed(tree: ast.Module) -> list[str]:
    """A module's ``__all__``."""
    (found,) = (node.value for node in tree.body if ast.unparse(node).startswith("__all__ = "))
    names: list[str] = ast.literal_eval(found)
    return names


def meaning(text: str) -> str:
    """What a module says, however it is formatted."""
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            node.value.value = cleandoc(node.value.value)
    return ast.unparse(tree)


def functions(source: ast.ClassDef) -> Iterator[Function]:
    """Those that users call."""
    for node in source.body:
        if isinstance(node, Function) and (not node.name.startswith("_") or node.name.startswith("__")):
            yield node


class Facade:
    """One of the two modules.

    Args:
        world: "asyncio" or "threads".
    """

    def __init__(self, world: str) -> None:
        self.world = world
        self.sources, self.modules = sources()
        self.names = [name for name in self.sources if name not in (*PLAIN, *ITERATED, *HELD)]

    def text(self) -> str:
        """The module, before it is formatted."""
        raw = "\n\n\n".join([self.head(), *(self.of_class(self.sources[name]) for name in self.names)]) + "\n"
        tree = ast.parse(raw)
        used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)} | {"annotations", *listed(tree)}
        lines, unused = raw.splitlines(), "# nothing of it is used"
        for node in tree.body:
            if isinstance(node, ast.Import | ast.ImportFrom):
                node.names = [alias for alias in node.names if alias.name in used]
                lines[node.lineno - 1] = ast.unparse(node) if node.names else unused
        return "\n".join(line for line in lines if line is not unused) + "\n"

    def formatted(self) -> str:
        """The module, as it is written."""
        ruff = shutil.which("ruff") or str(Path(sys.executable).with_name("ruff"))
        command = [ruff, "format", "--quiet", "--stdin-filename", str(FILES[self.world]), "-"]
        return subprocess.run(command, input=self.text(), capture_output=True, text=True, check=True, cwd=ROOT).stdout

    def head(self) -> str:
        node = NODES[self.world]
        names = ", ".join(f'"{name}"' for name in recipes.__all__ if name not in ITERATED)
        waiting = "from kraftcore.aio.waiting import settled\n" if node == "aio" else ""
        defined, taken = "def" if self.world == "threads" else "async def", TAKEN[self.world]
        return f'''"""Recipes for {PLACES[self.world]}: all of `kraftcore.plugins.recipes`, over `kraftcore.{node}`.

Written by ``pytest tests/plugins/test_recipe_facades.py --rewrite`` from trio's recipes; not to be edited.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from math import inf
from typing import Any, Generic, NoReturn, Self, TypeVar, overload

from kraftcore.{node} import Iteration, Node
from kraftcore.{node}.held import Held
{waiting}from kraftcore.errors import LeaseLostError, NodeStoppedError
from kraftcore.namespace import listing
from kraftcore.ownership import Owned
from kraftcore.plugins.recipes import client, containers, leases, locks, sequences, transactions
from kraftcore.plugins.recipes.containers import ABSENT, Change, Default, Item, Key, Versioned
from kraftcore.plugins.recipes.holding import Taking, as_it_is, check_plain, inner_of, of_this_kind
from kraftcore.plugins.recipes.locks import Holder, Result
from kraftcore.plugins.recipes.machine import RecipeMachine
from kraftcore.plugins.recipes.values import Value

__all__ = [{names}]
__dir__ = listing(__all__)
Got = TypeVar("Got")


class Recipe(Owned):
    """Base class of the objects: a name, and a node through which it is reached.

    Objects of one kind and name are the same on every node, from trio, asyncio and threads.
    """

    _node: Node[RecipeMachine]
    _inner: client.Recipe

    {defined} _taken(
        self,
        verb: str,
        take: Callable[[], Awaitable[Any]],
        read: Callable[[Any], Awaitable[Got]],
        give_back: Callable[[Any], Awaitable[object]],
    ) -> Got:
        taking = Taking(f"{{type(self).__name__}}.{{verb}}", take, read, give_back){taken}

    @property
    def name(self) -> str:
        """The object's name."""
        return self._inner.name

    def __repr__(self) -> str:
        return repr(self._inner)
'''

    # --- classes ------------------------------------------------------------------------------------------------------

    def of_class(self, source: ast.ClassDef) -> str:
        bases = [ast.unparse(base) for base in source.bases]
        lines = [f"class {source.name}({', '.join(bases)}):", indent(self.docstring(source), "    ")]
        generic = [base[base.index("[") :] for base in bases if "[" in base][:1]
        parts = [f"_inner: {self.modules[source.name]}.{source.name}{''.join(generic)}\n", self.construction(source)]
        parts += [self.method(each, source) for each in functions(source) if each.name not in ("__init__", "__repr__")]
        return "\n".join([*lines, *(indent(part, "    ") for part in parts if part)])

    def construction(self, source: ast.ClassDef) -> str:
        made = f"{self.modules[source.name]}.{source.name}"
        if source.name in GRANTS:
            lender, generic, name, kind, meaning = GRANTS[source.name]
            return (
                f"def __init__(self, lock: {lender}, inner: {made}{generic}) -> None:\n"
                "    self.lock = lock\n    self._node = lock._node\n    self._inner = inner\n\n"
                f'@property\ndef {name}(self) -> {kind}:\n    """{meaning}"""\n    return self._inner.{name}\n\n'
                "def __repr__(self) -> str:\n    return repr(self._inner)\n"
            )
        own = [each for each in functions(source) if each.name == "__init__"]
        found = own or self.inherited(source)
        if source.name.startswith("_"):
            return ""
        text = []
        for each in found:
            if has(each, "overload"):
                text.append(ast.unparse(each))
                continue
            handed = handed_on(each.args, skip=2)
            given = "".join(f", {part}" for part in handed)
            call = f"make(node.trio_node{given})"
            if self.world == "threads":
                call = f"node.call(partial(make, node.trio_node{given}))"
            head = deepcopy(each)
            head.body = ast.parse(
                f"make: Any = {made}\nself._node = of_this_kind(node, Node)\nself._inner = {call}"
            ).body
            text.append(ast.unparse(head))
        known = {name for each in found for name in handed_on(each.args, 2, plain=True)}
        for name, kind in ATTRIBUTES.items():
            if name in known and (own or source.name == "Queue"):
                text.append(
                    f'@property\ndef {name}(self) -> {kind}:\n    """As given."""\n    return self._inner.{name}'
                )
        return "\n".join(text)

    def docstring(self, node: ast.ClassDef | Function) -> str:
        text = ast.get_docstring(node)
        if text is None:
            return ""
        if self.world == "threads":
            text = text.replace("await ", "").replace("async ", "")
        return f'"""{text}\n"""' if "\n" in text else f'"""{text}"""'

    def inherited(self, source: ast.ClassDef) -> list[Function]:
        """``__init__`` of the first base that has one."""
        for base in source.bases:
            known = self.sources.get(ast.unparse(base).split("[")[0])
            if known is not None:
                own = [each for each in functions(known) if each.name == "__init__"]
                return own or self.inherited(known)
        plain = ast.parse("def __init__(self, node: Node[RecipeMachine], name: str) -> None: ...").body[0]
        assert isinstance(plain, ast.FunctionDef)
        return [plain]

    # --- methods ------------------------------------------------------------------------------------------------------

    def method(self, source: Function, owner: ast.ClassDef) -> str:
        head = deepcopy(source)
        returns = ast.unparse(source.returns) if source.returns else "None"
        if returns.split("[")[0] in ITERATED:
            head.returns = ast.parse(f"Iteration[{self.iterated(returns)}]", mode="eval").body
        if self.world == "threads" and isinstance(head, ast.AsyncFunctionDef):
            head = ast.FunctionDef(**{field: getattr(head, field) for field in head._fields})
        if has(source, "overload"):
            return ast.unparse(ast.fix_missing_locations(head))
        if source.name in SHARED:
            if self.world == "threads":
                head = in_threads(head)
                head.body[1:1] = ast.parse(f'check_plain({head.args.args[1].arg}, "{owner.name}.{head.name}")').body
            return ast.unparse(ast.fix_missing_locations(head))
        head.body = ast.parse("pass").body
        signature = ast.unparse(ast.fix_missing_locations(head)).rsplit("\n", 1)[0]
        text = self.docstring(source)
        body = self.body(source, owner, returns)
        return f"{signature}\n{indent(text, '    ') + chr(10) if text else ''}{indent(body, '    ')}"

    def iterated(self, returns: str) -> str:
        name, _, made = returns.partition("[")
        step = next(each for each in functions(self.sources[name]) if each.name == "__anext__")
        found = ast.unparse(step.returns)
        return made.removesuffix("]") if found == "Seen" else found

    def body(self, source: Function, owner: ast.ClassDef, returns: str) -> str:
        handed = [
            f"inner_of({part})" if part in ("target", "term", "taken") else part
            for part in handed_on(source.args, skip=1)
        ]
        listed = "".join(f", {part}" for part in handed)
        inner = f"self._inner.{source.name}"
        if has(source, "property"):
            return f"return {inner}"
        if returns.split("[")[0] in ITERATED:
            return f"return self._node.iterate({inner}{listed})"
        if owner.name in ("_Queue", "Leased") and source.name in TAKING:
            call = f'self._taken("{source.name}", {TAKING[source.name]}, inner._give_back)'
            call = call if self.world == "threads" else f"await {call}"
            if source.name == "acquire":
                return f"inner = self._inner\nreturn Lease(self, {call})"
            if source.name == "try_acquire":
                return f"inner = self._inner\nfound = {call}\nreturn None if found is None else Lease(self, found)"
            return f"inner = self._inner\nreturn {call}"
        if returns.startswith("Held["):
            made = returns.removeprefix("Held[").split("[")[0].rstrip("]")
            return f"return Held(self._node, {inner}({listed[2:]}), partial({made}, self))"
        if returns == "Self":
            return f"{inner}({listed[2:]})\nreturn self"
        if source.name == "__iter__":
            made = "self._node.call(list, self._inner)" if self.world == "threads" else "self._inner"
            return f"return iter({made})"
        if isinstance(source, ast.AsyncFunctionDef):
            call = f"self._node.call({inner}{listed})"
            call = call if self.world == "threads" else f"await {call}"
        elif self.world == "threads":
            call = f"self._node.call({inner}{listed})"
        else:
            call = f"{inner}({listed[2:]})"
        if returns == "Lease":
            return f"return Lease(self, {call})"
        if returns == "Lease | None":
            return f"found = {call}\nreturn None if found is None else Lease(self, found)"
        return call if returns == "None" else f"return {call}"


class _InThreads(ast.NodeTransformer):
    """The same code without ``async`` and ``await``."""

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AST:
        self.generic_visit(node)
        return ast.FunctionDef(**{field: getattr(node, field) for field in node._fields})

    def visit_AsyncWith(self, node: ast.AsyncWith) -> ast.AST:
        self.generic_visit(node)
        return ast.With(**{field: getattr(node, field) for field in node._fields})

    def visit_Await(self, node: ast.Await) -> ast.AST:
        self.generic_visit(node)
        return node.value

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        """``Awaitable[Result]`` is ``Result``."""
        self.generic_visit(node)
        is_awaitable = isinstance(node.value, ast.Name) and node.value.id == "Awaitable"
        return node.slice if is_awaitable else node


def in_threads(function: Function) -> Function:
    found = _InThreads().visit(function)
    assert isinstance(found, ast.FunctionDef)
    return found


def handed_on(arguments: ast.arguments, skip: int, plain: bool = False) -> list[str]:
    """What a call of the same signature is given, from the argument after the first ``skip`` ones on."""
    found = [each.arg for each in [*arguments.posonlyargs, *arguments.args][skip:]]
    return found + [each.arg if plain else f"{each.arg}={each.arg}" for each in arguments.kwonlyargs]
