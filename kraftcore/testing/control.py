"""The HTTP interface of a Kafka for tests: ``kraftcore up --control``. JSON in and out, described by its OpenAPI."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from http import HTTPStatus
from typing import Any, Literal, get_type_hints

from kraftcore import __version__
from kraftcore.errors import KraftError, LocalError, MissingDependencyError
from kraftcore.testing.faults import Closing, Fault
from kraftcore.testing.kafka_cluster import NodeState
from kraftcore.testing.kafka_thread import KafkaThread

try:
    import msgspec
except ImportError:
    raise MissingDependencyError("--control needs msgspec: pip install 'kraftcore[control]'") from None

_BODY_MAX = 1 << 20
_PARAMETER = re.compile(r"\{(\w+)\}")
_FORMS = {int: "([0-9]{1,9})", str: "([^/]+)"}


class _Model(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """A JSON object of the interface."""


class NodeView(_Model):
    """A node: clients connect to a broker at its address."""

    id: int
    role: Literal["broker", "controller"]
    state: NodeState
    address: str | None


class Leadership(_Model):
    """Who leads a partition, and who is in sync with it."""

    leader: int | None
    isr: list[int]


class To(_Model):
    """The broker that is to lead; null: any other one that is in sync."""

    to: int | None = None


class Groups(_Model):
    """Groups of nodes between which nothing passes; nodes in none of them are one more group."""

    groups: list[list[int]]


class NewFault(_Model):
    """What is to happen to which requests. `times`: null until it is deleted."""

    api: str
    error: str | None = None
    delay_ms: float = 0
    close: Closing | None = None
    times: int | None = 1
    topic: str | None = None
    broker: int | None = None
    client_id: str | None = None


class FaultView(NewFault, kw_only=True):
    """A fault: how many requests it has met, and whether it has ended."""

    id: int
    hits: int
    has_ended: bool


class EndpointView(_Model):
    """A request that is answered here."""

    method: str
    path: str
    what: str


class Overview(_Model):
    """The cluster, and what can be asked here."""

    bootstrap_servers: str
    security_protocol: str
    ca_file: str | None
    nodes: list[NodeView]
    faults: list[FaultView]
    endpoints: list[EndpointView]


class Problem(_Model):
    """Why a request was not carried out."""

    error: str


class _Refusal(Exception):
    def __init__(self, status: HTTPStatus, text: str) -> None:
        super().__init__(text)
        self.status = status


class _Route:
    """A request, and who answers it.

    Args:
        method: of HTTP.
        path: with names of parameters in braces.
        answer: takes the parameters, and the JSON as ``body`` if it takes that; its docstring says what it does.
    """

    def __init__(self, method: str, path: str, answer: Callable[..., Any]) -> None:
        self.method = method
        self.path = path
        self.answer = answer
        self.what = (answer.__doc__ or "").partition("\n")[0].rstrip(".")
        self.hints = get_type_hints(answer)
        self.body = self.hints.get("body")
        self._parameters = _PARAMETER.findall(path)
        self._pattern = re.compile(_PARAMETER.sub(lambda each: _FORMS[self.hints[each[1]]], path))

    def match(self, path: str) -> dict[str, Any] | None:
        """The arguments in a path; None: it is another one."""
        found = self._pattern.fullmatch(path)
        if found is None:
            return None
        return {name: self.hints[name](text) for name, text in zip(self._parameters, found.groups(), strict=True)}

    def describe(self, schema_of: Mapping[str, Any]) -> dict[str, Any]:
        """The operation, as OpenAPI has it; schemas by the text of their types."""
        result = self.hints["return"]
        good = {"204": {"description": "Done"}}
        if result is not type(None):
            good = {"200": {"description": "Done", **_content(schema_of[str(result)])}}
        found: dict[str, Any] = {
            "operationId": self.answer.__name__,
            "summary": self.what,
            "responses": {**good, "default": {"description": "Not done", **_content(schema_of[str(Problem)])}},
        }
        if self._parameters:
            kinds = {int: "integer", str: "string"}
            found["parameters"] = [
                {"name": name, "in": "path", "required": True, "schema": {"type": kinds[self.hints[name]]}}
                for name in self._parameters
            ]
        if self.body is not None:
            is_needed = any(each.required for each in msgspec.structs.fields(self.body))
            found["requestBody"] = {"required": is_needed, **_content(schema_of[str(self.body)])}
        return found


class Control:
    """The interface as a WSGI application.

    Args:
        kafka: the cluster.

    Raises:
        MissingDependencyError: msgspec is not installed; already when this module is imported.
    """

    def __init__(self, kafka: KafkaThread) -> None:
        self._kafka = kafka
        node, place, fault = "/nodes/{node}", "/topics/{topic}/partitions/{partition}", "/faults/{fault}"
        self._routes = (
            _Route("GET", "/", self.overview),
            _Route("GET", "/openapi.json", self.describe),
            _Route("GET", "/ready", self.wait_ready),
            _Route("GET", "/nodes", self.nodes),
            _Route("GET", node, self.node),
            _Route("POST", f"{node}/kill", self.kill),
            _Route("POST", f"{node}/stop", self.stop),
            _Route("POST", f"{node}/start", self.start),
            _Route("POST", f"{node}/restart", self.restart),
            _Route("POST", f"{node}/pause", self.pause),
            _Route("POST", f"{node}/resume", self.resume),
            _Route("POST", "/network/partition", self.partition),
            _Route("POST", "/network/heal", self.heal),
            _Route("GET", place, self.leadership),
            _Route("POST", f"{place}/leader", self.move_leader),
            _Route("GET", "/faults", self.faults),
            _Route("POST", "/faults", self.inject),
            _Route("DELETE", "/faults", self.clear_faults),
            _Route("GET", fault, self.fault),
            _Route("DELETE", fault, self.clear_fault),
        )

    # --- answers ------------------------------------------------------------------------------------------------------

    def overview(self) -> Overview:
        """What there is: the cluster, and what can be asked here."""
        return Overview(
            self._kafka.bootstrap_servers,
            self._kafka.security_protocol,
            self._kafka.ca_file,
            self.nodes(),
            self.faults(),
            [EndpointView(each.method, each.path, each.what) for each in self._routes],
        )

    def nodes(self) -> list[NodeView]:
        """All nodes, whether they run or not."""
        return [self._view(node_id, state) for node_id, state in self._kafka.states.items()]

    def node(self, node: int) -> NodeView:
        """One node."""
        return self._view(node, self._known(node))

    def kill(self, node: int) -> NodeView:
        """End a node as SIGKILL would."""
        return self._do(self._kafka.kill, node)

    def stop(self, node: int) -> NodeView:
        """Stop a node in good order, as SIGTERM would."""
        return self._do(self._kafka.stop, node)

    def start(self, node: int) -> NodeView:
        """Start a node that does not run; a broker need not be unfenced yet."""
        return self._do(self._kafka.start, node)

    def restart(self, node: int) -> NodeView:
        """Kill a node if it runs, and start it."""
        return self._do(self._kafka.restart, node)

    def pause(self, node: int) -> NodeView:
        """Freeze a node as SIGSTOP would; connections to it stay."""
        return self._do(self._kafka.pause, node)

    def resume(self, node: int) -> NodeView:
        """Let a node that was paused go on."""
        return self._do(self._kafka.resume, node)

    def wait_ready(self) -> list[NodeView]:
        """Wait until all brokers that run are unfenced."""
        self._kafka.wait_ready()
        return self.nodes()

    def partition(self, body: Groups) -> Groups:
        """Let nothing pass between groups of nodes, silently; clients reach everybody."""
        self._kafka.partition(*body.groups)
        return body

    def heal(self) -> None:
        """Undo every partition."""
        self._kafka.heal()

    def leadership(self, topic: str, partition: int) -> Leadership:
        """Who leads a partition, and who is in sync."""
        try:
            return Leadership(self._kafka.leader(topic, partition), sorted(self._kafka.isr(topic, partition)))
        except LocalError as error:
            raise _Refusal(HTTPStatus.NOT_FOUND, str(error)) from None

    def move_leader(self, topic: str, partition: int, body: To) -> Leadership:
        """Have another broker lead a partition, and wait until it does."""
        self.leadership(topic, partition)
        self._kafka.move_leader(topic, partition, body.to)
        return self.leadership(topic, partition)

    def faults(self) -> list[FaultView]:
        """The faults that have not ended."""
        return [_of_fault(each) for each in self._kafka.faults]

    def inject(self, body: NewFault) -> FaultView:
        """Have requests of clients be answered by an error, late, or by a closed connection."""
        return _of_fault(self._kafka.faults.inject(**msgspec.structs.asdict(body)))

    def clear_faults(self) -> None:
        """End all faults."""
        self._kafka.faults.clear()

    def fault(self, fault: int) -> FaultView:
        """One fault, be it ended."""
        try:
            return _of_fault(self._kafka.faults.get(fault))
        except LocalError as error:
            raise _Refusal(HTTPStatus.NOT_FOUND, str(error)) from None

    def clear_fault(self, fault: int) -> FaultView:
        """End a fault."""
        self.fault(fault)
        self._kafka.faults.clear(fault)
        return self.fault(fault)

    def _do(self, action: Callable[[int], None], node: int) -> NodeView:
        self._known(node)
        action(node)
        return self.node(node)

    def _known(self, node: int) -> NodeState:
        states = self._kafka.states
        if node not in states:
            raise _Refusal(HTTPStatus.NOT_FOUND, f"there is no node {node}: there are {', '.join(map(str, states))}")
        return states[node]

    def _view(self, node_id: int, state: NodeState) -> NodeView:
        try:
            return NodeView(node_id, "broker", state, self._kafka.address(node_id))
        except LocalError:
            return NodeView(node_id, "controller", state, None)

    # --- HTTP ---------------------------------------------------------------------------------------------------------

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        """See PEP 3333."""
        try:
            found = self._answer(environ)
            status = HTTPStatus.NO_CONTENT if found is None else HTTPStatus.OK
        except _Refusal as error:
            status, found = error.status, Problem(str(error))
        except (LocalError, msgspec.MsgspecError) as error:
            status, found = HTTPStatus.BAD_REQUEST, Problem(str(error))
        except AssertionError as error:
            status, found = HTTPStatus.GATEWAY_TIMEOUT, Problem(str(error))
        except KraftError as error:
            status, found = HTTPStatus.INTERNAL_SERVER_ERROR, Problem(str(error))
        text = b"" if found is None else msgspec.json.format(msgspec.json.encode(found), indent=2) + b"\n"
        headers = [("Content-Type", "application/json"), ("Content-Length", str(len(text)))]
        start_response(f"{status.value} {status.phrase}", headers if text else headers[1:])
        return [text]

    def _answer(self, environ: dict[str, Any]) -> Any:
        if environ.get("HTTP_ORIGIN"):
            raise _Refusal(HTTPStatus.FORBIDDEN, "pages in a browser may ask nothing here: ask from a program")
        route, arguments = self._find(environ["REQUEST_METHOD"], environ.get("PATH_INFO") or "/")
        if (kind := route.body) is not None:
            try:
                arguments["body"] = msgspec.json.decode(_body(environ) or b"{}", type=kind)
            except msgspec.ValidationError as error:
                fields = ", ".join(each.encode_name for each in msgspec.structs.fields(kind))
                text = f"{error}. The fields are {fields}: see /openapi.json"
                raise _Refusal(HTTPStatus.BAD_REQUEST, text) from None
        return route.answer(**arguments)

    def _find(self, method: str, path: str) -> tuple[_Route, dict[str, Any]]:
        """Who answers a request, with the arguments that its path has."""
        others = []
        for route in self._routes:
            arguments = route.match(path)
            if arguments is not None and route.method == method:
                return route, arguments
            if arguments is not None:
                others.append(route.method)
        if others:
            raise _Refusal(HTTPStatus.METHOD_NOT_ALLOWED, f"{path} takes {', '.join(others)}, not {method}")
        raise _Refusal(HTTPStatus.NOT_FOUND, f"there is no {path}: GET / lists what there is")

    def describe(self) -> dict[str, Any]:
        """This interface as an OpenAPI document."""
        kinds = {kind for route in self._routes for kind in (*route.hints.values(), Problem) if kind is not type(None)}
        ordered = sorted((kind for kind in kinds if kind not in (int, str)), key=str)
        schemas, components = msgspec.json.schema_components(ordered, ref_template="#/components/schemas/{name}")
        schema_of = dict(zip(map(str, ordered), schemas, strict=True))
        paths: dict[str, dict[str, Any]] = {}
        for route in self._routes:
            paths.setdefault(route.path, {})[route.method.lower()] = route.describe(schema_of)
        return {
            "openapi": "3.1.0",
            "info": {"title": "kraftcore up --control", "version": __version__},
            "paths": paths,
            "components": {"schemas": components},
        }


def _body(environ: dict[str, Any]) -> bytes:
    length = environ.get("CONTENT_LENGTH") or "0"
    if "HTTP_TRANSFER_ENCODING" in environ or not length.isdecimal() or int(length) > _BODY_MAX:
        raise _Refusal(HTTPStatus.BAD_REQUEST, f"send a body of at most {_BODY_MAX} bytes, with its Content-Length")
    body: bytes = environ["wsgi.input"].read(int(length))
    return body


def _of_fault(fault: Fault) -> FaultView:
    return FaultView(**{name: getattr(fault, name) for name in FaultView.__struct_fields__})


def _content(schema: Any) -> dict[str, Any]:
    return {"content": {"application/json": {"schema": schema}}}
