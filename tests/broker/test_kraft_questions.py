"""What administrators ask of a broker under a KRaft controller: producers, tokens, transactions, what has settings."""

from __future__ import annotations

import pytest
import trio
from broker_rig import until
from kraft_rig import open_kraft_rig
from noted_request import NotedRequest

from kraftcore.config.security import SecurityProtocol
from kraftcore.core.batch import build_batch
from kraftcore.metadata import Image
from kraftcore.metadata.configs import BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP, TOPIC
from kraftcore.plugins.broker import transactions_topic
from kraftcore.plugins.broker.api.describe_delegation_token import DescribeDelegationToken
from kraftcore.plugins.broker.api.permits import Permits
from kraftcore.plugins.broker.transactions_topic import TransactionsTopic
from kraftcore.plugins.controller.tokens import token_hmac
from kraftcore.protocol.error_codes import ErrorCode
from kraftcore.protocol.messages.api_versions import ApiVersionsRequest
from kraftcore.protocol.messages.create_partitions import CreatePartitionsRequest
from kraftcore.protocol.messages.create_topics import CreateTopicsRequest
from kraftcore.protocol.messages.delete_topics import DeleteTopicsRequest
from kraftcore.protocol.messages.describe_delegation_token import DescribeDelegationTokenRequest
from kraftcore.protocol.messages.describe_producers import DescribeProducersRequest
from kraftcore.protocol.messages.find_coordinator import FindCoordinatorRequest
from kraftcore.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from kraftcore.protocol.messages.init_producer_id import InitProducerIdRequest
from kraftcore.protocol.messages.list_config_resources import ListConfigResourcesRequest
from kraftcore.protocol.messages.list_transactions import ListTransactionsRequest
from kraftcore.protocol.messages.metadata import MetadataRequest
from kraftcore.protocol.messages.produce import ProduceRequest
from kraftcore.protocol.records.delegation_token_record import DelegationTokenRecord
from kraftcore.security.principals import Principal

AUTHORIZER = {"authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer"}
TRANSACTION = 1
SECRET = "a secret"


def play(folder, script, **properties):
    """A controller and two brokers, and something that is asked of them."""

    async def main():
        async with open_kraft_rig(folder) as rig:
            rig.controller_properties |= {**properties, "super.users": "User:ANONYMOUS"}
            rig.broker_properties |= properties
            await rig.controller()
            await rig.broker(1)
            await rig.broker(2)
            await script(rig)

    trio.run(main)


async def producers(rig, topic, *partitions, broker_id=1):
    kind = DescribeProducersRequest.TopicRequest
    request = DescribeProducersRequest(topics=[kind(name=topic, partition_indexes=list(partitions))])
    return (await rig.ask(broker_id, request, 0)).topics[0].partitions


def test_who_wrote_to_a_partition_with_a_producer_id(tmp_path):
    async def script(rig):
        await rig.create([1], [2])
        await rig.create([1, 2], topic="two")
        await rig.led_by(1)
        await rig.led_by(1, "two")
        kind = ProduceRequest.TopicProduceData
        for sequence in (0, 2):
            batch = build_batch(
                [b"a", b"b"], timestamp_ms=7 + sequence, producer_id=5, producer_epoch=3, base_sequence=sequence
            )
            part = kind.PartitionProduceData(index=0, records=batch)
            topics = [kind(name=name, partition_data=[part]) for name in ("t", "two")]
            answer = await rig.ask(1, ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=topics), 9)
            assert [each.partition_responses[0].error_code for each in answer.responses] == [0, 0]
        here, elsewhere, nowhere = await producers(rig, "t", 0, 1, 2)
        [found] = here.active_producers
        assert (here.error_code, here.partition_index, here.error_message) == (0, 0, None)
        assert (found.producer_id, found.producer_epoch, found.last_sequence, found.last_timestamp) == (5, 3, 3, 9)
        assert (found.coordinator_epoch, found.current_txn_start_offset) == (-1, -1)
        assert (elsewhere.error_code, elsewhere.error_message) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, None)
        # Followers know, too.
        assert (await producers(rig, "two", 0, broker_id=2))[0].active_producers == [found]
        assert (nowhere.error_code, nowhere.active_producers) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, [])
        assert [each.error_code for each in await producers(rig, "u", 0)] == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
        assert [each.error_code for each in await producers(rig, "a b", 0)] == [ErrorCode.INVALID_TOPIC_EXCEPTION]
        codes = [each.error_code for each in await producers(rig, "t", 0, 0, 0, 0, 0)]
        assert codes == [ErrorCode.NONE] * 4 + [ErrorCode.INVALID_REQUEST]

    play(tmp_path, script)


async def resources(rig, *types, version=1):
    answer = await rig.ask(1, ListConfigResourcesRequest(resource_types=list(types)), version)
    return answer.error_code, {(each.resource_type, each.resource_name) for each in answer.config_resources}


def test_what_may_have_a_configuration(tmp_path):
    async def script(rig):
        await rig.create([1])
        kind = IncrementalAlterConfigsRequest.AlterConfigsResource
        for resource_type, name, key, value in (
            (CLIENT_METRICS, "m", "interval.ms", "1000"),
            (GROUP, "g", "consumer.session.timeout.ms", "50000"),
        ):
            config = kind.AlterableConfig(name=key, config_operation=0, value=value)
            changed = kind(resource_type=resource_type, resource_name=name, configs=[config])
            answer = await rig.ask(1, IncrementalAlterConfigsRequest(resources=[changed]), 1)
            assert answer.responses[0].error_code == 0, answer
        await until(lambda: rig.image(1).configs.of(GROUP, "g"))
        brokers = {(BROKER, "1"), (BROKER, "2")}
        loggers = {(BROKER_LOGGER, name) for _, name in brokers}
        set_ones = {(CLIENT_METRICS, "m"), (GROUP, "g")}
        assert await resources(rig) == (0, {(TOPIC, "t"), *brokers, *loggers, *set_ones})
        assert await resources(rig, TOPIC, GROUP) == (0, {(TOPIC, "t"), (GROUP, "g")})
        assert await resources(rig, version=0) == (0, {(CLIENT_METRICS, "m")})
        assert await resources(rig, TOPIC, 99) == (ErrorCode.UNSUPPORTED_VERSION, set())

    play(tmp_path, script)


def test_both_are_asked_about(tmp_path):
    async def script(rig):
        await rig.create([1])
        await until(lambda: rig.partition(1) and rig.partition(1).leading)
        assert (await resources(rig))[0] == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        for topic in ("t", "u"):
            found = await producers(rig, topic, 0)
            assert [each.error_code for each in found] == [ErrorCode.TOPIC_AUTHORIZATION_FAILED]

    async def without_super_users(rig):
        rig.broker_properties.pop("super.users", None)
        await script(rig)

    play(tmp_path, without_super_users, **AUTHORIZER)


async def find(rig, version):
    if version < 4:
        return await rig.ask(2, FindCoordinatorRequest(key="x", key_type=TRANSACTION), version)
    request = FindCoordinatorRequest(key_type=TRANSACTION, coordinator_keys=["x"])
    return (await rig.ask(2, request, version)).coordinators[0]


def test_transactional_producers_are_refused_for_good(tmp_path):
    """Not with an error that they repeat until their user has waited a minute."""

    async def script(rig):
        await until(lambda: 2 in rig.brokers[2].parts.cache.brokers)
        for version in (1, 6):
            # The other broker is asked first whether it coordinates transactions.
            with trio.fail_after(60):
                while (found := await find(rig, version)).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE:
                    await trio.sleep(0.01)
            assert (found.error_code, found.node_id, found.host) == (0, 2, "n2")
        answer = await rig.ask(2, InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=1000), 5)
        assert (answer.error_code, answer.producer_id) == (ErrorCode.UNSUPPORTED_VERSION, -1)
        answer = await rig.ask(1, ListTransactionsRequest(state_filters=["Ongoing", "Other"]), 2)
        assert (answer.error_code, answer.transaction_states, answer.unknown_state_filters) == (0, [], ["Other"])
        bad = ErrorCode.INVALID_REGULAR_EXPRESSION
        long = f"a{{1,{'9' * 5000}}}"
        for pattern, error in ((r"a.*\z", 0), ("", 0), (None, 0), ("a(?=b)", bad), (long, bad)):
            answer = await rig.ask(1, ListTransactionsRequest(transactional_id_pattern=pattern), 2)
            assert answer.error_code == error, pattern

    play(tmp_path, script)


def test_transactions_of_other_brokers_are_not_denied(tmp_path):
    """A broker of Kafka would coordinate them, had it the leadership of their log."""

    async def script(rig):
        await rig.create([1], topic="__transaction_state")
        await until(lambda: rig.partition(1, "__transaction_state") and rig.partition(1, "__transaction_state").leading)
        await until(lambda: rig.image(2).topics.by_name("__transaction_state"))
        assert (await find(rig, 6)).node_id == 1
        answer = await rig.ask(1, ListTransactionsRequest(), 2)
        assert answer.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert (await rig.ask(2, ListTransactionsRequest(), 2)).error_code == 0

    play(tmp_path, script)


@pytest.mark.parametrize("replicas", [[1, 2], [1]], ids=["a replica coordinates", "no replica does"])
def test_the_log_of_transactions_is_handed_over_to_who_coordinates_them_unasked(tmp_path, monkeypatch, replicas):
    """Clients ask any broker for a coordinator; and one that has gone asks nobody, while consumers wait for its end."""

    async def coordinates(topic, address):
        return address.host == "n2"  # as if it were Kafka's

    monkeypatch.setattr(TransactionsTopic, "coordinates", coordinates)

    async def script(rig):
        await rig.create(replicas, topic="__transaction_state")
        await rig.led_by(2, topic="__transaction_state")

    play(tmp_path, script)


def test_a_broker_that_hangs_does_not_keep_the_log_of_transactions_from_one_that_coordinates(tmp_path, monkeypatch):
    async def coordinates(topic, address):
        if address.host == "n3":
            await trio.sleep_forever()
        return address.host == "n2"

    monkeypatch.setattr(TransactionsTopic, "coordinates", coordinates)
    monkeypatch.setattr(transactions_topic, "KNOWN_S", 0.5)

    async def script(rig):
        await rig.broker(3)
        await rig.create([1, 2], topic="__transaction_state")
        await rig.led_by(2, topic="__transaction_state")

    play(tmp_path, script)


def test_the_log_of_transactions_goes_to_another_coordinator_while_its_first_replica_is_away(tmp_path, monkeypatch):
    async def coordinates(topic, address):
        return address.host in ("n2", "n3")

    monkeypatch.setattr(TransactionsTopic, "coordinates", coordinates)

    async def script(rig):
        await rig.broker(3)
        await rig.create([3, 1, 2], topic="__transaction_state")
        await rig.led_by(3, topic="__transaction_state")
        await until(lambda: len(rig.row("__transaction_state").isr) == 3)
        await rig.stop(3)
        await rig.led_by(2, topic="__transaction_state")

    play(tmp_path, script)


def test_who_changes_topics_at_a_broker_finds_them_changed_there(tmp_path):
    async def script(rig):
        async def partitions():
            named = MetadataRequest.MetadataRequestTopic(name="t")
            request = MetadataRequest(topics=[named], allow_auto_topic_creation=False)
            [told] = (await rig.ask(1, request, 12)).topics
            return told.error_code or len(told.partitions)

        kind = CreateTopicsRequest.CreatableTopic
        for version in (2, 7):
            topics = [kind(name="t", num_partitions=1, replication_factor=1)]
            answer = await rig.ask(1, CreateTopicsRequest(topics=topics, timeout_ms=30_000), version)
            assert answer.topics[0].error_code == 0, answer
            assert await partitions() == 1
            grown = CreatePartitionsRequest.CreatePartitionsTopic(name="t", count=4, assignments=None)
            await rig.ask(1, CreatePartitionsRequest(topics=[grown], timeout_ms=30_000), 3)
            assert await partitions() == 4
            state = DeleteTopicsRequest.DeleteTopicState(name="t")
            if version == 7:
                await rig.ask(1, DeleteTopicsRequest(topics=[state], timeout_ms=30_000), 6)
            else:
                await rig.ask(1, DeleteTopicsRequest(topic_names=["t"], timeout_ms=30_000), 1)
            assert await partitions() == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    play(tmp_path, script)


# --- tokens -----------------------------------------------------------------------------------------------------------


class Listed:
    """Tokens of an image, and who asks for them."""

    def __init__(self, permits=None, secret=SECRET):
        image = Image()
        for number, (owner, requester, renewers) in enumerate(
            (("alice", "alice", ["carol"]), ("bob", "alice", []), ("dave", "dave", []))
        ):
            record = DelegationTokenRecord(
                owner=f"User:{owner}",
                requester=f"User:{requester}",
                renewers=[f"User:{each}" for each in renewers],
                issue_timestamp=1,
                max_timestamp=9,
                expiration_timestamp=5,
                token_id=f"t{number}",
            )
            image.apply(record)
        properties = {} if secret is None else {"delegation.token.secret.key": secret}
        self.handler = DescribeDelegationToken(lambda: image, properties, permits or Nobody())

    def ask(self, name, owners=None, version=3, **more):
        kind = DescribeDelegationTokenRequest.DescribeDelegationTokenOwner
        asked = None if owners is None else [kind(principal_type="User", principal_name=each) for each in owners]
        more = {"security_protocol": SecurityProtocol.SASL_PLAINTEXT, **more}
        context = NotedRequest(version, "10.0.0.1:5", "SASL", "me", principal=Principal("User", name), **more)
        return self.handler.respond(DescribeDelegationTokenRequest(owners=asked), context)

    def names(self, *arguments, **more):
        answer = self.ask(*arguments, **more)
        assert answer.error_code == 0
        return [each.token_id for each in answer.tokens]


class Nobody(Permits):
    """Allows nothing but what it was told."""

    def __init__(self, *allowed):
        self._allowed = allowed

    def asker(self, request, context):
        return lambda action: (action.operation.name, action.resource_name) in self._allowed


def test_tokens_are_told_to_those_they_concern():
    listed = Listed()
    assert listed.names("alice") == ["t0", "t1"]
    assert listed.names("carol") == ["t0"]
    assert listed.names("bob") == ["t1"]
    assert listed.names("eve") == []
    assert listed.names("alice", ["bob", "dave"]) == ["t1"]
    assert listed.names("alice", []) == []
    [token] = listed.ask("bob").tokens
    assert (token.principal_type, token.principal_name, token.token_requester_principal_name) == (
        "User",
        "bob",
        "alice",
    )
    assert (token.issue_timestamp, token.expiry_timestamp, token.max_timestamp) == (1, 5, 9)
    assert token.hmac == token_hmac(SECRET, "t1")
    [token] = listed.ask("carol", version=2).tokens
    assert [(each.principal_type, each.principal_name) for each in token.renewers] == [("User", "carol")]
    assert token.token_requester_principal_name == ""


def test_tokens_are_told_to_those_who_may_describe_them():
    assert Listed(Nobody(("DESCRIBE", "t2"))).names("eve") == ["t2"]
    assert Listed(Nobody(("DESCRIBE_TOKENS", "User:bob"))).names("eve") == ["t1"]


@pytest.mark.parametrize(
    "how", [{"security_protocol": SecurityProtocol.PLAINTEXT}, {"is_by_token": True}], ids=["plain", "token"]
)
def test_who_did_not_prove_who_he_is_is_told_of_no_tokens(how):
    answer = Listed().ask("alice", **how)
    assert (answer.error_code, answer.tokens) == (ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, [])


def test_without_a_secret_there_are_no_tokens():
    assert Listed(secret=None).ask("alice").error_code == ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED


def test_the_epoch_of_features_is_that_of_the_metadata(tmp_path):
    """As Kafka's brokers tell it; controllers tell where a feature changed last."""

    async def script(rig):
        async def epoch():
            request = ApiVersionsRequest(client_software_name="a", client_software_version="1")
            return (await rig.ask(1, request, 4)).finalized_features_epoch

        before = await epoch()
        await rig.create([1])
        await until(lambda: rig.partition(1) and rig.partition(1).leading)
        assert await epoch() > before

    play(tmp_path, script)
