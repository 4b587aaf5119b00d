"""Access control, quotas, credentials and tokens: what no recording shows, and the whole life of a token."""

from __future__ import annotations

import hashlib
import hmac
import math

import pytest
from controller_stage import ControllerStage

from kraftcore.config.security import SecurityProtocol
from kraftcore.errors import RemoteProtocolError
from kraftcore.metadata import Acl
from kraftcore.plugins.controller import acls, quotas, tokens
from kraftcore.plugins.controller.caller import Caller
from kraftcore.plugins.controller.decision import MAX_RECORDS, Context, ControllerResult, Refusal
from kraftcore.protocol.error_codes import ErrorCode
from kraftcore.protocol.features import MetadataVersion
from kraftcore.protocol.messages.alter_client_quotas import AlterClientQuotasRequest
from kraftcore.protocol.messages.alter_user_scram_credentials import AlterUserScramCredentialsRequest
from kraftcore.protocol.messages.create_acls import CreateAclsRequest
from kraftcore.protocol.messages.create_delegation_token import CreateDelegationTokenRequest
from kraftcore.protocol.messages.delete_acls import DeleteAclsRequest
from kraftcore.protocol.messages.describe_acls import DescribeAclsRequest
from kraftcore.protocol.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest
from kraftcore.protocol.messages.expire_delegation_token import ExpireDelegationTokenRequest
from kraftcore.protocol.messages.renew_delegation_token import RenewDelegationTokenRequest
from kraftcore.security.acl import Operation, ResourceType
from kraftcore.security.audit import Action

AUTHORIZER = {"authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer"}
SECRET = "a secret"
DAY = 86_400_000
EVERYTHING = DeleteAclsRequest.DeleteAclsFilter(
    resource_type_filter=1,
    resource_name_filter=None,
    pattern_type_filter=1,
    principal_filter=None,
    host_filter=None,
    operation=1,
    permission_type=1,
)


def creation(name: str, **fields: object) -> CreateAclsRequest.AclCreation:
    known = {"resource_type": 2, "principal": "User:a", "host": "*", "operation": 3, "permission_type": 3}
    return CreateAclsRequest.AclCreation(resource_name=name, **{**known, **fields})  # type: ignore[arg-type]


# --- access control entries


def test_each_entry_gets_an_id_of_its_own_and_is_removed_by_it():
    stage = ControllerStage(static_configs=AUTHORIZER)
    step = stage.ask(CreateAclsRequest(creations=[creation("t"), creation("u"), creation("t")]))
    ids = [record.id for record, _ in step.records]
    assert len(set(ids)) == len(ids) == 2
    assert [(each.error_code, each.error_message) for each in step.answer.results] == [(0, "")] * 3
    assert stage.ask(CreateAclsRequest(creations=[creation("u")])).records == []
    step = stage.ask(DeleteAclsRequest(filters=[EVERYTHING, EVERYTHING]))
    assert [record.id for record, _ in step.records] == ids
    assert [len(each.matching_acls) for each in step.answer.filter_results] == [2, 2]
    assert not stage.image.acls


@pytest.mark.parametrize(
    ("field", "text"),
    [
        ("resource_type_filter", "Unknown patternFilter."),
        ("pattern_type_filter", "Unknown patternFilter."),
        ("operation", "Unknown entryFilter."),
        ("permission_type", "Unknown entryFilter."),
    ],
)
@pytest.mark.parametrize("number", [-1, 99])
def test_a_filter_with_a_number_that_nobody_knows_removes_nothing_and_the_others_do(field, text, number):
    stage = ControllerStage(static_configs=AUTHORIZER)
    stage.ask(CreateAclsRequest(creations=[creation("t")]))
    step = stage.ask(DeleteAclsRequest(filters=[EVERYTHING.replace(**{field: number}), EVERYTHING]))
    first, second = step.answer.filter_results
    assert (first.error_code, first.error_message, first.matching_acls) == (ErrorCode.INVALID_REQUEST, text, [])
    assert (second.error_code, len(second.matching_acls), len(step.records)) == (ErrorCode.NONE, 1, 1)


def test_an_entrys_name_is_looked_at_before_its_numbers():
    stage = ControllerStage(static_configs=AUTHORIZER)
    step = stage.ask(CreateAclsRequest(creations=[creation("", operation=99), creation("x", operation=99)]))
    assert [(each.error_code, each.error_message) for each in step.answer.results] == [
        (ErrorCode.INVALID_REQUEST, "Invalid empty resource name"),
        (ErrorCode.INVALID_REQUEST, "Invalid operation UNKNOWN"),
    ]


def test_an_id_in_use_is_not_drawn_again():
    stage = ControllerStage(static_configs=AUTHORIZER)
    stage.ask(CreateAclsRequest(creations=[creation("t")]))
    stage.random = type(stage.random)()  # draws the same once more
    step = stage.ask(CreateAclsRequest(creations=[creation("u")]))
    assert len(step.records) == 1
    assert {acl.resource_name for acl in stage.image.acls.values()} == {"t", "u"}


@pytest.mark.parametrize(
    "request_",
    [
        CreateAclsRequest(creations=[creation("good"), creation("t", operation=0)]),
        DeleteAclsRequest(filters=[EVERYTHING, EVERYTHING.replace(permission_type=0)]),
        DescribeAclsRequest(pattern_type_filter=0, resource_type_filter=1, operation=1, permission_type=1),
    ],
    ids=lambda request: type(request).__name__,
)
def test_a_request_with_unknown_elements_cannot_be_read(request_):
    stage = ControllerStage(static_configs=AUTHORIZER)
    with pytest.raises(RemoteProtocolError, match="contains unknown elements"):
        acls.APIS[type(request_)].decide(stage.context(), request_, 3)


def test_how_many_entries_one_request_makes_and_removes():
    stage = ControllerStage(static_configs=AUTHORIZER)
    many = [creation(f"t{number}") for number in range(MAX_RECORDS + 1)]
    step = stage.ask(CreateAclsRequest(creations=many))
    assert {each.error_code for each in step.answer.results} == {ErrorCode.POLICY_VIOLATION}
    assert step.records == []
    for part in (many[:MAX_RECORDS], many[MAX_RECORDS:]):
        assert stage.ask(CreateAclsRequest(creations=part)).error is None
    step = stage.ask(DeleteAclsRequest(filters=[EVERYTHING]))
    result = step.answer.filter_results[0]
    text = "Cannot remove more than 10000 acls in a single delete operation."
    assert (result.error_code, result.error_message, step.records) == (ErrorCode.INVALID_REQUEST, text, [])
    assert len(stage.image.acls) == MAX_RECORDS + 1


def test_acls_of_the_image_are_what_was_asked_for():
    stage = ControllerStage(static_configs=AUTHORIZER)
    stage.ask(CreateAclsRequest(creations=[creation("p", resource_pattern_type=4, host="1.1.1.1", permission_type=2)]))
    assert [*stage.image.acls.values()] == [Acl(2, "p", 4, "User:a", "1.1.1.1", 3, 2)]


# --- quotas


def quota(value: float, **entity: str | None) -> AlterClientQuotasRequest:
    entry = AlterClientQuotasRequest.EntryData
    names = [entry.EntityData(entity_type=kind, entity_name=name) for kind, name in entity.items()]
    key = "connection_creation_rate" if "ip" in entity else "request_percentage"
    return AlterClientQuotasRequest(entries=[entry(entity=names, ops=[entry.OpData(key=key, value=value)])])


def test_a_quota_is_a_number():
    """Kafka stores what is none."""
    step = ControllerStage().ask(quota(math.nan, user="u"))
    assert (step.answer.entries[0].error_code, step.records) == (ErrorCode.INVALID_REQUEST, [])
    assert step.answer.entries[0].error_message == "Quota request_percentage must be greater than 0"


@pytest.mark.parametrize("name", ["localhost", "10.0.0.1", "10.1", "::1", "[::1]", "fe80::1%1"])
def test_addresses(name):
    assert quotas.is_address(name)


@pytest.mark.parametrize("name", ["", "some.host", "256.0.0.1", "1.2.3.4.5", "4294967296", "[::1", "10.0.0.1 ", "1:2"])
def test_other_names_are_not_looked_up(name):
    assert not quotas.is_address(name)
    if name:
        step = ControllerStage().ask(quota(1.0, ip=name))
        assert step.answer.entries[0].error_message == f"{name} is not a valid IP or resolvable host."


# --- SCRAM credentials


def test_a_credential_holds_what_follows_from_the_salted_password():
    kind = AlterUserScramCredentialsRequest.ScramCredentialUpsertion
    stage = ControllerStage()
    for mechanism, digest in ((1, "sha256"), (2, "sha512")):
        salted = hashlib.pbkdf2_hmac(digest, b"pencil", b"salt", 4096)
        wanted = kind(name="u", mechanism=mechanism, iterations=4096, salt=b"salt", salted_password=salted)
        step = stage.ask(AlterUserScramCredentialsRequest(upsertions=[wanted]))
        record = step.records[0][0]
        stored = hashlib.new(digest, hmac.digest(salted, b"Client Key", digest)).digest()
        assert (record.stored_key, record.server_key) == (stored, hmac.digest(salted, b"Server Key", digest))
        assert (record.salt, record.iterations) == (b"salt", 4096)
    nothing = kind(name="u", mechanism=1, iterations=4096, salt=b"salt", salted_password=b"")
    step = stage.ask(AlterUserScramCredentialsRequest(upsertions=[nothing]))
    result = step.answer.results[0]
    assert (result.error_code, step.records) == (ErrorCode.UNACCEPTABLE_CREDENTIAL, [])


def test_credentials_need_a_metadata_version_that_has_them():
    kind = AlterUserScramCredentialsRequest
    old = ControllerStage(MetadataVersion.V3_5_IV1, elr=0)
    deletion = kind.ScramCredentialDeletion(name="u", mechanism=1)
    step = old.ask(kind(deletions=[deletion]))
    result = step.answer.results[0]
    text = "The current metadata.version does not support SCRAM"
    assert (result.error_code, result.error_message) == (ErrorCode.UNSUPPORTED_VERSION, text)


def test_a_controller_does_not_describe_credentials():
    step = ControllerStage().ask(DescribeUserScramCredentialsRequest(users=None))
    assert (step.answer.error_code, step.answer.results) == (-1, [])


# --- delegation tokens

ALICE, BOB, EVE = (Caller(f"User:{name}", 3) for name in ("alice", "bob", "eve"))


class Tokens:
    """A controller with a clock, and callers."""

    def __init__(self, **properties: str) -> None:
        static = {"delegation.token.secret.key": SECRET, **properties}
        self.stage = ControllerStage(static_configs=static)
        self.now = 1_000_000

    def context(self, caller: Caller) -> Context:
        context = self.stage.context()
        context.caller, context.wall_ms = caller, self.now
        return context

    def ask(self, caller: Caller, request, version: int = 2):
        api = tokens.APIS[type(request)]
        try:
            decision = api.decide(self.context(caller), request, version)
        except Refusal as refused:
            decision = ControllerResult(api.refuse(request, version, refused.code, refused.text))
        self.stage.carry_out(decision)
        return decision.answer

    def create(self, caller: Caller = ALICE, life: int = -1, renewer: str = "bob", **fields: str):
        renewers = [CreateDelegationTokenRequest.CreatableRenewers(principal_type="User", principal_name=renewer)]
        return self.ask(caller, CreateDelegationTokenRequest(renewers=renewers, max_lifetime_ms=life, **fields), 3)  # type: ignore[arg-type]

    def renew(self, caller: Caller, proof: bytes, period: int = -1):
        return self.ask(caller, RenewDelegationTokenRequest(hmac=proof, renew_period_ms=period))

    def expire(self, caller: Caller, proof: bytes, period: int):
        return self.ask(caller, ExpireDelegationTokenRequest(hmac=proof, expiry_time_period_ms=period))


def test_a_tokens_life():
    world = Tokens()
    made = world.create()
    (token,) = world.stage.image.tokens.values()
    assert made.hmac == hmac.digest(SECRET.encode(), made.token_id.encode(), "sha512")
    assert (token.id, token.owner, token.requester, token.renewers) == (
        made.token_id,
        "User:alice",
        "User:alice",
        ("User:bob",),
    )
    assert (made.issue_timestamp_ms, made.expiry_timestamp_ms, made.max_timestamp_ms) == (
        world.now,
        world.now + DAY,
        world.now + 7 * DAY,
    )
    world.now += 1000
    assert world.renew(BOB, made.hmac, 5000).expiry_timestamp_ms == world.now + 5000
    assert world.renew(ALICE, made.hmac, 30 * DAY).expiry_timestamp_ms == world.now + DAY
    assert world.expire(ALICE, made.hmac, 30 * DAY).expiry_timestamp_ms == made.max_timestamp_ms
    assert world.expire(BOB, made.hmac, 2000).expiry_timestamp_ms == world.now + 2000
    for answer in (world.renew(EVE, made.hmac), world.expire(EVE, made.hmac, -1)):
        assert (answer.error_code, answer.expiry_timestamp_ms) == (ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH, 0)
    world.now += 2001
    for answer in (world.renew(ALICE, made.hmac), world.expire(ALICE, made.hmac, 5)):
        assert answer.error_code == ErrorCode.DELEGATION_TOKEN_EXPIRED
    assert world.expire(ALICE, made.hmac, -1).expiry_timestamp_ms == world.now
    assert not world.stage.image.tokens
    assert world.renew(ALICE, made.hmac).error_code == ErrorCode.DELEGATION_TOKEN_NOT_FOUND


@pytest.mark.parametrize(
    ("life", "most", "first"),
    [(60_000, 60_000, 60_000), (2 * DAY, 2 * DAY, DAY), (0, 7 * DAY, DAY), (30 * DAY, 7 * DAY, DAY)],
)
def test_how_long_a_token_may_live(life, most, first):
    world = Tokens()
    made = world.create(life=life)
    assert (made.max_timestamp_ms - world.now, made.expiry_timestamp_ms - world.now) == (most, first)


def test_times_do_not_overflow():
    last = (1 << 63) - 1
    world = Tokens(**{"delegation.token.max.lifetime.ms": str(last), "delegation.token.expiry.time.ms": str(last)})
    made = world.create()
    assert (made.max_timestamp_ms, made.expiry_timestamp_ms) == (last, last)
    assert world.expire(ALICE, made.hmac, last).expiry_timestamp_ms == last


@pytest.mark.parametrize(
    ("caller", "allowed"),
    [
        (Caller("User:alice", SecurityProtocol.PLAINTEXT), False),
        (Caller("User:ANONYMOUS", SecurityProtocol.SSL), False),
        (Caller("User:CN=alice", SecurityProtocol.SSL), True),
        (Caller("User:alice", SecurityProtocol.SASL_PLAINTEXT), True),
        (Caller("User:alice", SecurityProtocol.SASL_SSL, is_by_token=True), False),
        (Caller("User:alice", SecurityProtocol.PLAINTEXT, is_forwarded=True), True),
        (Caller("User:alice", SecurityProtocol.PLAINTEXT, is_forwarded=True, is_by_token=True), False),
    ],
)
def test_who_may_handle_tokens(caller, allowed):
    world = Tokens()
    error = ErrorCode.NONE if allowed else ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
    made = world.create(caller)
    assert (made.error_code, made.issue_timestamp_ms) == (error, world.now if allowed else -1)
    answer = world.renew(caller, b"unknown")
    assert answer.error_code == (ErrorCode.DELEGATION_TOKEN_NOT_FOUND if allowed else error)


def test_a_token_for_somebody_else():
    world = Tokens()
    asked = []

    def ask(allowed: bool):
        context = world.context(ALICE)
        context.is_allowed = lambda permission: asked.append(permission) or allowed
        request = CreateDelegationTokenRequest(owner_principal_type="User", owner_principal_name="bob")
        return tokens.create(context, request, 3)

    refused = ask(False).answer
    assert refused.error_code == ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED
    assert (refused.principal_name, refused.token_requester_principal_name) == ("bob", "alice")
    made = ask(True)
    record = made.records[0][0]
    assert (record.owner, record.requester) == ("User:bob", "User:alice")
    assert asked == [Action(Operation.CREATE_TOKENS, ResourceType.USER, "User:bob")] * 2


def test_renewers_are_users():
    world = Tokens()
    robot = CreateDelegationTokenRequest.CreatableRenewers(principal_type="Robot", principal_name="x")
    answer = world.ask(ALICE, CreateDelegationTokenRequest(renewers=[robot]), 3)
    assert answer.error_code == ErrorCode.INVALID_PRINCIPAL_TYPE
    assert not world.stage.image.tokens


def test_without_a_secret_or_with_an_old_metadata_version():
    world = Tokens(**{"delegation.token.secret.key": ""})
    assert world.create().error_code == ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
    assert world.renew(ALICE, b"x").error_code == ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
    assert tokens.remove_expired(world.context(ALICE)).records == []
    world = Tokens()
    world.stage = ControllerStage(MetadataVersion.V3_6_IV1, elr=0, static_configs={"delegation.token.secret.key": "x"})
    assert world.create().error_code == ErrorCode.UNSUPPORTED_VERSION


def test_expired_tokens_are_removed_so_many_at_a_time():
    world = Tokens()
    for _ in range(tokens.MAX_SWEPT + 2):
        world.create(life=1000)
    kept = world.create(life=5000).token_id
    world.now += 2000
    first = tokens.remove_expired(world.context(ALICE))
    assert (len(first.records), first.is_more) == (tokens.MAX_SWEPT, True)
    world.stage.carry_out(first)
    second = tokens.remove_expired(world.context(ALICE))
    assert (len(second.records), second.is_more) == (2, False)
    world.stage.carry_out(second)
    assert [*world.stage.image.tokens] == [kept]
