"""Clients that take more than their quota are told to be silent, and nothing more is read from them meanwhile."""

import asking
import pytest
import trio
from broker_rig import until
from kraft_rig import BROKER_PORT
from noted_request import NotedRequest

from kraftcore.metadata import Image
from kraftcore.metadata.quotas import Quotas
from kraftcore.plugins.broker.quotas.clients import ByteRates, Limit, limit_of
from kraftcore.plugins.broker.quotas.rates import QuotaWindow, Rate
from kraftcore.ports.transport import Address
from kraftcore.protocol.messages.alter_client_quotas import AlterClientQuotasRequest
from kraftcore.protocol.messages.fetch import FetchRequest
from kraftcore.protocol.records.client_quota_record import ClientQuotaRecord
from kraftcore.security.principals import Principal

WINDOW = QuotaWindow(11, 1000)
PRODUCER, CONSUMER = "producer_byte_rate", "consumer_byte_rate"


def quotas_of(*given) -> Quotas:
    """Each a dict of names by type, and its rate."""
    quotas = Image().quotas
    for names, rate in given:
        entity = [ClientQuotaRecord.EntityData(entity_type=kind, entity_name=name) for kind, name in names.items()]
        quotas.on_quota(ClientQuotaRecord(entity=entity, key=PRODUCER, value=rate))
    return quotas


def context_of(user="alice", client_id="app"):
    return NotedRequest(9, "h:1", "BROKER", client_id, principal=Principal("User", user))


def test_a_rate_is_that_of_ten_seconds_at_least():
    rate = Rate(WINDOW)
    rate.record(10_000, 0)
    assert rate.excess_ms(1000, 0) == 0  # just as much as is allowed
    rate.record(10_000, 500)
    assert rate.excess_ms(1000, 500) == 9500  # 20,000 in the 10.5 s that began with the first
    assert rate.excess_ms(1000, 9999) == 9001
    assert rate.excess_ms(1000, 10_999) == 9001
    assert rate.excess_ms(1000, 11_499) == 8501  # the last bytes of the sample are in the window
    assert rate.excess_ms(1000, 11_500) == 0


def test_samples_end_one_by_one():
    rate = Rate(QuotaWindow(2, 1000))
    rate.record(3000, 0)
    rate.record(500, 1000)
    assert rate.excess_ms(1000, 1000) == 2500
    assert rate.excess_ms(1000, 2000) == 0  # 500 in a second
    rate.record(-500, 2000)
    assert rate.excess_ms(1, 2000) == 0
    assert not rate.is_at_rest(3999)
    assert rate.is_at_rest(4000)


@pytest.mark.parametrize("left", range(8))
def test_the_quota_that_says_most_counts(left):
    """The order of Kafka's DefaultQuotaCallback; who shares it follows from what it names."""
    order = [
        ({"user": "alice", "client-id": "app"}, ("alice", "app")),
        ({"user": "alice", "client-id": None}, ("alice", "app")),
        ({"user": "alice"}, ("alice", None)),
        ({"user": None, "client-id": "app"}, ("alice", "app")),
        ({"user": None, "client-id": None}, ("alice", "app")),
        ({"user": None}, ("alice", None)),
        ({"client-id": "app"}, (None, "app")),
        ({"client-id": None}, (None, "app")),
    ]
    given = [(names, 100.0 + place) for place, (names, _) in enumerate(order)][left:]
    others = [({"user": "bob"}, 1.0), ({"client-id": "other"}, 1.0), ({"user": "bob", "client-id": "app"}, 1.0)]
    assert limit_of(quotas_of(*given, *others), PRODUCER, "alice", "app") == Limit(100.0 + left, order[left][1])
    assert limit_of(quotas_of(*others), PRODUCER, "alice", "app") is None
    assert limit_of(quotas_of(*given), CONSUMER, "alice", "app") is None


@pytest.mark.parametrize(("rate", "throttle_ms", "most"), [(5e-324, 2**31 - 1, 0), (float("nan"), 0, None)])
def test_rates_that_controllers_take_and_that_make_no_sense_break_nothing(rate, throttle_ms, most):
    """Kafka 4.3.1, ClientQuotaControlManager.validateQuotaKeyValue: NaN is not below zero."""
    rates, quotas = ByteRates(PRODUCER, WINDOW), quotas_of(({"user": "alice"}, rate))
    assert rates.record(quotas, context_of(), 10_000, 0) == throttle_ms
    assert rates.most(quotas, context_of()) == most


def test_clients_of_a_user_share_its_quota():
    rates, quotas = ByteRates(PRODUCER, WINDOW), quotas_of(({"user": "alice"}, 1000.0))
    assert rates.record(quotas, context_of(client_id="a"), 10_000, 0) == 0
    assert rates.record(quotas, context_of(client_id="b"), 1000, 0) == 1000
    assert rates.record(quotas, context_of("bob"), 10**9, 0) == 0  # who has none
    assert rates.most(quotas, context_of()) == 10_000
    assert rates.most(quotas, context_of("bob")) is None


def test_what_was_not_given_does_not_count():
    rates, quotas = ByteRates(PRODUCER, WINDOW), quotas_of(({"client-id": None}, 1000.0))
    assert rates.record(quotas, context_of(), 20_000, 0, keeps=False) == 10_000
    assert rates.record(quotas, context_of(), 10_000, 0, keeps=False) == 0
    assert rates.record(quotas, context_of(client_id="another"), 10_000, 0) == 0  # it has a rate of its own


def test_clients_that_never_come_again_are_forgotten():
    rates, quotas = ByteRates(PRODUCER, WINDOW), quotas_of(({"client-id": None}, 1000.0))
    for number in range(5000):
        rates.record(quotas, context_of(client_id=f"c{number}"), 1, 20 * number)
    assert len(rates) < 2000


class Client:
    """One connection."""

    def __init__(self, rig, name: str) -> None:
        self._rig, self._name = rig, name
        self.address = Address("n1", BROKER_PORT, hash(name) % 1000)
        self._count = 0

    async def ask(self, request, version):
        self._count += 1
        return await asking.ask(self._rig.transport, self.address, request, version, self._count, self._name)

    async def produce(self, size: int, **more):
        return await self.ask(asking.produce_request(bytes(size), **more), asking.PRODUCE_VERSION)

    async def fetch(self, offset: int, **more):
        return await self.ask(asking.fetch_request(offset, **more), asking.FETCH_VERSION)


async def begin(rig) -> None:
    """One broker, whose rates are those of a second or two, and a topic."""
    await rig.controller()
    await rig.broker(1, quota_samples=2)
    await rig.create([1])
    await rig.led_by(1)


async def limit(rig, key: str, rate: float, client_id: str | None) -> None:
    """Set a quota of a client id, or of all, and wait until the broker knows it."""
    kind = AlterClientQuotasRequest.EntryData
    entry = kind(
        entity=[kind.EntityData(entity_type="client-id", entity_name=client_id)],
        ops=[kind.OpData(key=key, value=rate, remove=False)],
    )
    answer = await rig.ask_controller(AlterClientQuotasRequest(entries=[entry], validate_only=False), 1)
    assert answer.entries[0].error_code == 0
    parts = rig.brokers[1].parts
    name = client_id or "anybody"
    await until(lambda: limit_of(parts.image().quotas, key, "ANONYMOUS", name) == Limit(rate, (None, name)))


def test_a_producer_that_writes_too_much_is_not_heard_for_a_while(play):
    @play
    async def main(rig):
        await begin(rig)
        await limit(rig, PRODUCER, 1000.0, "eager")
        eager, other = Client(rig, "eager"), Client(rig, "other")
        assert (await eager.produce(100)).throttle_time_ms == 0
        answer = await eager.produce(3000)
        assert asking.produced(answer).error_code == 0
        assert 1500 < answer.throttle_time_ms < 3500  # more than 3,000 bytes where 1,000 are allowed
        answers = []

        async def go_on():
            answers.append(await eager.produce(1))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(go_on)
            for _ in range(20):
                assert (await other.produce(10_000)).throttle_time_ms == 0
            assert answers == []
        assert asking.produced(answers[0]).error_code == 0
        assert [len(value) for value in await rig.values(1)] == [100, 3000, *20 * [10_000], 1]


def test_who_is_to_be_silent_for_longer_than_an_answer_can_say_is_answered(play):
    """With one byte a second, three megabytes in a window of a second are too much for the next 34 days."""

    @play
    async def main(rig):
        await begin(rig)
        await limit(rig, PRODUCER, 1.0, "eager")
        answers = []
        for lane in range(3):
            eager = Client(rig, "eager")
            eager.address = eager.address._replace(lane=1000 + lane)
            answers.append(await eager.produce(1_000_000))
        assert [asking.produced(each).error_code for each in answers] == [0, 0, 0]
        assert answers[2].throttle_time_ms == 2**31 - 1


def test_producers_without_answers_are_held_back_as_well(play):
    @play
    async def main(rig):
        await begin(rig)
        await limit(rig, PRODUCER, 1000.0, "eager")
        eager = Client(rig, "eager")
        asked = asking.encode_request_parts(
            asking.produce_request(bytes(3000), acks=0), asking.PRODUCE_VERSION, 1000, "eager"
        )
        rig.transport.request(eager.address, asked, 60_000, lambda _: None)
        answers = []

        async def go_on():
            answers.append(await eager.produce(1))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(go_on)
            await until(lambda: rig.partition(1).high_watermark == 1)
            for _ in range(20):
                await Client(rig, "other").produce(1)
            assert answers == []
        assert asking.produced(answers[0]).base_offset == 21


def test_a_consumer_that_reads_too_much_gets_nothing_for_a_while(play):
    @play
    async def main(rig):
        await begin(rig)
        for _ in range(3):
            await Client(rig, "producer").produce(1000)
        await limit(rig, CONSUMER, 1500.0, "eager")
        eager = Client(rig, "eager")
        first = await eager.fetch(0, session_epoch=0)
        assert first.throttle_time_ms == 0
        assert len(asking.values_in(asking.fetched(first))) == 1  # no more than fit its quota
        again = FetchRequest(max_wait_ms=0, min_bytes=1, session_id=first.session_id, session_epoch=1)
        again.topics = asking.fetch_request(1).topics
        second = await eager.ask(again, asking.FETCH_VERSION)
        assert (second.error_code, second.session_id, second.responses) == (0, first.session_id, [])
        assert second.throttle_time_ms > 0
        again.session_epoch = 2
        again.topics = []
        third = await eager.ask(again, asking.FETCH_VERSION)
        while third.throttle_time_ms:  # what came to it before is still in the window
            again.session_epoch += 1
            third = await eager.ask(again, asking.FETCH_VERSION)
        assert (third.error_code, third.session_id) == (0, first.session_id)
        assert [each.partitions[0].records is not None for each in third.responses] == [True]
        assert asking.values_in(third.responses[0].partitions[0]) == [bytes(1000)]


def test_replicas_have_no_quota(play):
    @play
    async def main(rig):
        await rig.begin(1, 2)
        await limit(rig, CONSUMER, 1.0, None)
        for _ in range(3):
            assert (await rig.produce(1, bytes(5000))).error_code == 0
