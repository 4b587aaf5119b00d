"""No module needs, however far around, a module that needs it: imports for type checkers count, too."""

from __future__ import annotations

from project import imports, module_name, sources


def graph() -> dict[str, set[str]]:
    """Module -> modules it names in import statements."""
    files = {module_name(path): path for path in sources(".py", ".pyx")}
    found: dict[str, set[str]] = {}
    for module, path in files.items():
        named = imports(path) & files.keys()
        # ``from package import module`` needs the module, not what the package has for others.
        packages = {name for name in named if files[name].name == "__init__.py"}
        only = {name for name in packages if any(other.rpartition(".")[0] == name for other in named)}
        found[module] = named - only - {module}
    return found


def circles(found: dict[str, set[str]]) -> set[frozenset[str]]:
    """Groups of modules that all reach each other (Tarjan's strongly connected components of more than one)."""
    number: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    groups: set[frozenset[str]] = set()
    for start in found:
        if start in number:
            continue
        work = [(start, iter(sorted(found[start])))]
        number[start] = low[start] = len(number)
        stack.append(start)
        while work:
            module, following = work[-1]
            for other in following:
                if other not in number:
                    number[other] = low[other] = len(number)
                    stack.append(other)
                    work.append((other, iter(sorted(found[other]))))
                    break
                if other in stack:
                    low[module] = min(low[module], number[other])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[module])
                if low[module] == number[module]:
                    at = stack.index(module)
                    group, stack[at:] = frozenset(stack[at:]), []
                    if len(group) > 1:
                        groups.add(group)
    return groups


def test_there_are_no_circles():
    found = circles(graph())
    assert not found, "\n".join(" ".join(sorted(group)) for group in found)


def test_the_search_finds_them():
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"b", "d"}, "d": set()}) == {frozenset({"b", "c"})}
    assert circles({"a": {"b"}, "b": {"a", "c"}, "c": {"d"}, "d": {"c"}}) == {frozenset("ab"), frozenset("cd")}
    assert circles({"a": {"b", "c"}, "b": {"c"}, "c": set()}) == set()
