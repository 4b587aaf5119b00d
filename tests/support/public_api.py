"""The public line as text: which modules are public, and what each of them has, with signatures.

Everything is read from source files, stubs in place of compiled modules, so that the text has what type checkers see.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from copy import deepcopy
from functools import cache
from importlib import import_module
from inspect import iscoroutinefunction
from types import ModuleType
from typing import NamedTuple, TypeVar

from project import ROOT, module_name, sources

PAGE = ROOT / "docs" / "api.md"
LIST = ROOT / "docs" / "api.txt"
WIDTH = 120
# Classes whose fields are Kafka's: their versions say enough.
OF_KAFKA = ("kraftcore.protocol.messages", "kraftcore.protocol.records")
# What an object can be used in: the other special methods say nothing that a signature could show.
_SPECIAL = "aenter aexit aiter anext await call contains enter exit getitem iter len next"
SPECIAL = {f"__{name}__" for name in _SPECIAL.split()}
FILES = {module_name(path): path for path in sources(".py", ".pyi")}
Function = ast.FunctionDef | ast.AsyncFunctionDef
Node = TypeVar("Node", bound=ast.stmt)


def public_modules() -> dict[str, str]:
    """Module to "Stable" or "Provisional", as the page has them, in its order."""
    found = {}
    for section in PAGE.read_text().split("\n## ")[1:]:
        for name in re.findall(r"^\| `([\w.]+)` \|", section, re.MULTILINE):
            found[name] = section.split("\n")[0]
    return found


class Found(NamedTuple):
    """Where a name is defined, and how."""

    module: str
    node: ast.stmt


@cache
def tree(module: str) -> ast.Module:
    return ast.parse(FILES[module].read_text())


def statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Those that type checkers read."""
    for node in body:
        if isinstance(node, ast.If):
            is_hidden = ast.unparse(node.test) == "not TYPE_CHECKING"
            yield from statements(node.orelse if is_hidden else node.body)
        else:
            yield node


def names_of(node: ast.stmt) -> list[str]:
    if isinstance(node, ast.ClassDef | Function):
        return [node.name]
    if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        return [node.target.id]
    if isinstance(node, ast.Assign):
        return [target.id for target in node.targets if isinstance(target, ast.Name)]
    return []


@cache
def resolve(module: str, name: str) -> Found | None:
    """Where a name comes from that a module defines or imports; None for modules, and for what is not ours."""
    if module not in FILES:
        return None
    for node in statements(tree(module).body):
        if name in names_of(node):
            return Found(module, node)
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            for alias in node.names:
                if alias.name == "*" and (found := resolve(node.module, name)):
                    return found
                if (alias.asname or alias.name) == name and f"{node.module}.{name}" not in FILES:
                    return resolve(node.module, alias.name)
    return None


def public_names() -> dict[tuple[str, str], str]:
    """(Module where it is defined, name) to its public name: in the module nearest to that, where there are several."""
    found: dict[tuple[str, str], str] = {}
    for module in sorted(public_modules(), key=len, reverse=True):
        for name in import_module(module).__all__:
            home = resolve(module, name)
            if home is not None:
                key = (home.module, name)
                if key not in found or ((home.module + ".").startswith(module + ".") and module != "kraftcore"):
                    found[key] = f"{module}.{name}"
    return found


class Listing:
    """Writes the list: each thing once, where it is at home, and elsewhere as another name of that."""

    def __init__(self) -> None:
        self._modules = public_modules()
        self._homes = public_names()

    def text(self) -> str:
        head = "What is public: see api.md. Written by `pytest tests/house/test_public.py --rewrite`.\n\n"
        return head + "\n".join("\n".join([*self._module(name), ""]) for name in self._modules)

    def _module(self, name: str) -> Iterator[str]:
        yield f"{name} ({self._modules[name].lower()})"
        module = import_module(name)
        for public in module.__all__:
            value = getattr(module, public)
            if isinstance(value, ModuleType):
                yield f"    module {public}"
            elif name in OF_KAFKA:
                first, last = value.schema.versions or ("none", "none")
                yield f"    {public}: versions {first} to {last}"
            else:
                yield from (f"    {line}" for line in self._entry(name, public, value))

    def _entry(self, module: str, name: str, value: object) -> Iterator[str]:
        found = resolve(module, name)
        if found is None:
            yield f"{name} = {value!r}"
        elif (home := self._homes[found.module, name]) != f"{module}.{name}":
            yield f"{name} = {home}"
        elif isinstance(found.node, ast.ClassDef):
            yield from self._class(found.module, found.node)
        elif isinstance(found.node, Function):
            for each in overloads(tree(found.module).body, name):
                yield from call(self._choices_spelled(found.module, each))
        else:
            yield from self._value(found, name)

    def _value(self, found: Found, name: str) -> Iterator[str]:
        value = getattr(found.node, "value", None)
        if isinstance(value, ast.Attribute) and isinstance(value.value, ast.Name):
            owner = resolve(found.module, value.value.id)
            if owner is not None and isinstance(owner.node, ast.AnnAssign):  # a method of an object of the module's
                kind = resolve(owner.module, ast.unparse(owner.node.annotation).partition("[")[0])
                yield from call(method_of(kind, value.attr), name, is_method=True)
                return
        if isinstance(found.node, ast.AnnAssign) and ast.unparse(found.node.annotation) != "TypeAlias":
            yield f"{name}: {ast.unparse(found.node.annotation)}"
        else:
            yield f"{name} = {ast.unparse(value)}"

    def _class(self, module: str, node: ast.ClassDef) -> Iterator[str]:
        bases = [ast.unparse(base) for base in node.bases if not self._is_internal(module, base)]
        yield f"class {node.name}" + (f"({', '.join(bases)})" if bases else "")
        lines: dict[str, list[str]] = {}
        for home, kind in self._lineage(module, node):
            lines |= dict(self._members(home, self._choices_spelled(home, kind)))
        # Fields are arguments of the constructor, and so in order.
        has_fields = "NamedTuple" in bases or any("dataclass" in ast.unparse(each) for each in node.decorator_list)
        fields = [name for each in node.body if isinstance(each, ast.AnnAssign) for name in names_of(each)]
        first = ["__init__", *(fields if has_fields else ())]
        ordered = [name for name in first if name in lines] + sorted(lines.keys() - set(first))
        yield from (f"    {line}" for name in ordered for line in lines[name])

    def _lineage(self, module: str, node: ast.ClassDef) -> Iterator[tuple[str, ast.ClassDef]]:
        """A class behind those of its bases that are not public themselves."""
        for base in node.bases:
            found = resolve(module, ast.unparse(base).partition("[")[0])
            if self._is_internal(module, base) and found is not None and isinstance(found.node, ast.ClassDef):
                yield from self._lineage(found.module, found.node)
        yield module, node

    def _choices_spelled(self, module: str, node: Node) -> Node:
        """The same with the choices themselves for the internal names of choices: a new one is a change, too."""
        homes = self._homes

        class Speller(ast.NodeTransformer):
            def visit_Name(self, name: ast.Name) -> ast.expr:
                found = resolve(module, name.id)
                value = getattr(found.node, "value", None) if found is not None else None
                is_choice = isinstance(value, ast.Subscript) and ast.unparse(value.value) == "Literal"
                return value if is_choice and (found.module, name.id) not in homes else name

        return Speller().visit(deepcopy(node))

    def _is_internal(self, module: str, expression: ast.expr) -> bool:
        """Whether it names a class of ours that is not public."""
        for node in ast.walk(expression):
            found = resolve(module, node.id) if isinstance(node, ast.Name) else None
            if found is None or not isinstance(found.node, ast.ClassDef):
                continue
            is_spread = ast.unparse(expression).startswith("Unpack")  # a name for several arguments
            if (found.module, found.node.name) not in self._homes and not is_spread:
                return True
        return False

    def _takes_internals(self, module: str, node: Function) -> bool:
        arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs, node.args.vararg, node.args.kwarg]
        annotations = [each.annotation for each in arguments if each is not None]
        return any(each is not None and self._is_internal(module, each) for each in [*annotations, node.returns])

    def _members(self, module: str, node: ast.ClassDef) -> Iterator[tuple[str, list[str]]]:
        """Names and lines: fields, what the constructor sets, then what is written in the class."""
        made = overloads(node.body, "__init__")
        is_made_elsewhere = "Made by" in (ast.get_docstring(node) or "")
        if made and not is_made_elsewhere and not self._takes_internals(module, made[0]):
            yield "__init__", [line for each in made for line in call(each, is_method=True)]
        if made:
            yield from attributes(made[0])
        for each in statements(node.body):
            for name in names_of(each):
                if name.startswith("_") and name not in SPECIAL:
                    continue
                if isinstance(each, Function):
                    if not self._takes_internals(module, each):
                        yield name, [line for one in overloads(node.body, name) for line in call(one, is_method=True)]
                elif isinstance(each, ast.AnnAssign):
                    yield name, [f"{name}: {ast.unparse(each.annotation)}{default_of(each.value)}"]
                elif isinstance(each, ast.Assign):
                    yield name, assigned(module, node.name, name, each.value)


def overloads(body: list[ast.stmt], name: str) -> list[Function]:
    """The functions of a name that callers see."""
    found = [node for node in statements(body) if isinstance(node, Function) and node.name == name]
    return [node for node in found if "overload" in marks(node)] or found


def marks(node: Function) -> set[str]:
    return {ast.unparse(each) for each in node.decorator_list}


def method_of(found: Found | None, name: str) -> Function:
    assert found is not None
    assert isinstance(found.node, ast.ClassDef)
    (method,) = overloads(found.node.body, name)
    return method


def call(node: Function, name: str = "", *, is_method: bool = False, is_async: bool | None = None) -> list[str]:
    """A function's lines: one, or one an argument where that would be too long."""
    given, name = marks(node), name or node.name
    result = "" if node.returns is None else ast.unparse(node.returns)
    if given & {"property", "cached_property"}:
        return [f"{name}: {result}"]
    arguments = list(parameters(node.args))[1 if is_method and "staticmethod" not in given else 0 :]
    before, behind = "", f" -> {result}" if result and name != "__init__" else ""
    for mark, returned, words in (
        ("asynccontextmanager", "AbstractAsyncContextManager[", "async with "),
        ("contextmanager", "AbstractContextManager[", "with "),
    ):
        if mark in given or result.startswith(returned):
            before, behind = words, f" -> {result.partition('[')[2].removesuffix(']')}"
    before += "".join(f"{mark} " for mark in ("classmethod", "staticmethod") if mark in given)
    if isinstance(node, ast.AsyncFunctionDef) if is_async is None else is_async:
        before += "" if "asynccontextmanager" in given else "async "
    line = f"{before}{name}({', '.join(arguments)}){behind}"
    if len(line) <= WIDTH - 8:
        return [line]
    return [f"{before}{name}(", *(f"    {each}," for each in arguments), f"){behind}"]


def parameters(arguments: ast.arguments) -> Iterator[str]:
    positional = [*arguments.posonlyargs, *arguments.args]
    defaults = [None] * (len(positional) - len(arguments.defaults)) + list(arguments.defaults)
    for number, (each, default) in enumerate(zip(positional, defaults, strict=True), 1):
        yield ast.unparse(each) + default_of(default)
        if number == len(arguments.posonlyargs):
            yield "/"
    if arguments.vararg is not None:
        yield f"*{ast.unparse(arguments.vararg)}"
    elif arguments.kwonlyargs:
        yield "*"
    for each, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
        yield ast.unparse(each) + default_of(default)
    if arguments.kwarg is not None:
        yield f"**{ast.unparse(arguments.kwarg)}"


def default_of(value: ast.expr | None) -> str:
    """As it is written; that of a field is what the field says, and ``...`` what a call makes."""
    if isinstance(value, ast.Call):
        options = {each.arg: each.value for each in value.keywords}
        if "init" in options:
            return ""
        return default_of(options["default"]) if "default" in options else " = ..."
    return "" if value is None else f" = {ast.unparse(value)}"


def assigned(module: str, class_name: str, name: str, value: ast.expr) -> list[str]:
    """A method taken from another class, as ``append = _through(TrioNode.append)``, is shown as that method."""
    if isinstance(value, ast.Call) and value.args and isinstance(value.args[0], ast.Attribute):
        owner = resolve(module, ast.unparse(value.args[0].value))
        made = vars(getattr(import_module(module), class_name))[name]
        if owner is not None:
            method = method_of(owner, value.args[0].attr)
            return call(method, name, is_method=True, is_async=iscoroutinefunction(made))
    if isinstance(value, ast.Tuple):  # a member of an Enum that is more than its value
        value = value.elts[0]
    return [f"{name} = {ast.unparse(value)}"]


def attributes(init: Function) -> Iterator[tuple[str, list[str]]]:
    """What ``__init__`` gives an object, public names only, with types where they are written down."""
    given = {one.arg: one.annotation for one in [*init.args.args, *init.args.kwonlyargs]}
    pairs: list[tuple[ast.expr, ast.expr | None]] = []
    for node in ast.walk(init):
        if isinstance(node, ast.AnnAssign):
            pairs.append((node.target, node.annotation))
        elif isinstance(node, ast.Assign):
            kind = given.get(node.value.id) if isinstance(node.value, ast.Name) else None
            pairs.extend((target, kind) for target in node.targets)
    for target, annotation in pairs:
        if isinstance(target, ast.Attribute) and ast.unparse(target.value) == "self" and target.attr[0] != "_":
            yield target.attr, [target.attr + ("" if annotation is None else f": {ast.unparse(annotation)}")]
