"""A proxy that lies, in front of the right side: to prove that the comparison sees each kind of fault.

A mutation is a class with any of: request(key, version, body), answer(key, version, body), batch(batch) -> list of raw
batches, before_restart(side). Each returns the changed value, or None for no change. `every` faults strike each time,
others once.
"""

import contextlib
import socket
import struct
import threading

from conformance import codec
from conformance.codec import FETCH
from conformance.target import HOST
from conformance.wire import read_frame, write_frame

KEY = codec.API


class Mutation:
    left = 1  # how many times it strikes; below zero: always

    def strike(self):
        if self.left == 0:
            return False
        self.left -= 1
        return True

    def request(self, key, version, body):
        pass

    def answer(self, key, version, body):
        pass

    def batch(self, b):
        pass

    def before_restart(self, side):
        pass


def rebuild(b, records):
    """A batch with other records: (key, value) pairs."""
    return codec.batch(b.base, b.epoch, records, timestamp=b.first_ts, attributes=b.attributes)


def change_records(b, kind, change, same_count=True):
    """Change the decoded records of one type. change(record) -> the new record, or None to leave it."""
    out, changed = [], False
    for (_, k, v), r in zip(b.pairs, b.records, strict=False):
        new = change(dict(r)) if r["kind"] == kind else None
        if new is not None:
            changed = True
            body = {f: x for f, x in new.items() if f not in ("offset", "kind", "version", "_present")}
            k, v = codec.metadata(kind, body, new["version"])
        out.append((k, v))
    return [rebuild(b, out)] if changed else None


class ErrorCode(Mutation):
    """another error code in the first refused AlterPartition"""

    def answer(self, key, version, body):
        if key == KEY["AlterPartition"]:
            for t in body["Topics"]:
                for p in t["Partitions"]:
                    if p["ErrorCode"] and self.strike():
                        p["ErrorCode"] = 42 if p["ErrorCode"] != 42 else 95
                        return body
        return None


class DroppedRecord(Mutation):
    """the last record of the first batch with several partition changes is missing from the log"""

    def batch(self, b):
        if not b.control and len(b.records) > 1 and b.records[-1]["kind"] == "PartitionChangeRecord" and self.strike():
            raw = bytearray(rebuild(b, [(k, v) for _, k, v in b.pairs[:-1]]))
            struct.pack_into(">i", raw, 23, b.last_delta)  # the offsets stay as they were
            import crc32c

            struct.pack_into(">I", raw, 17, crc32c.crc32c(bytes(raw[21:])))
            return [bytes(raw)]
        return None


class SwappedIsr(Mutation):
    """the ISR of a new partition is written in another order"""

    def batch(self, b):
        def swap(r):
            if len(r["Isr"]) > 1 and r["Isr"] != r["Isr"][::-1] and self.strike():
                return {**r, "Isr": r["Isr"][::-1]}
            return None

        return None if b.control else change_records(b, "PartitionRecord", swap)


class EpochPlusOne(Mutation):
    """a registration answers the broker epoch plus one"""

    def answer(self, key, version, body):
        if key == KEY["BrokerRegistration"] and body["BrokerEpoch"] > 0 and self.strike():
            body["BrokerEpoch"] += 1
            return body
        return None


class LeaderEpoch(Mutation):
    """AlterPartition answers a leader epoch that is one too high"""

    def answer(self, key, version, body):
        if key == KEY["AlterPartition"]:
            for t in body["Topics"]:
                for p in t["Partitions"]:
                    if not p["ErrorCode"] and self.strike():
                        p["LeaderEpoch"] += 1
                        return body
        return None


class ErrorMessage(Mutation):
    """one error message of CreateTopics has another wording (a soft difference)"""

    def answer(self, key, version, body):
        if key == KEY["CreateTopics"]:
            for t in body["Topics"]:
                if t.get("ErrorMessage") and self.strike():
                    t["ErrorMessage"] = "No: " + t["ErrorMessage"]
                    return body
        return None


class SplitBatch(Mutation):
    """an atomic batch is written as two (a soft difference)"""

    def batch(self, b):
        if not b.control and len(b.pairs) > 2 and b.records[0]["kind"] == "TopicRecord" and self.strike():
            pairs = [(k, v) for _, k, v in b.pairs]
            return [
                rebuild(b, pairs[:1]),
                codec.batch(b.base + 1, b.epoch, pairs[1:], timestamp=b.first_ts, attributes=b.attributes),
            ]
        return None


class NoElr(Mutation):
    """eligible leader replicas are never written"""

    left = -1

    def batch(self, b):
        def clear(r):
            if r.get("EligibleLeaderReplicas"):
                return {**r, "EligibleLeaderReplicas": None}
            return None

        return None if b.control else change_records(b, "PartitionChangeRecord", clear)


class RecordVersion(Mutation):
    """partitions are written as version 1 records"""

    left = -1

    def batch(self, b):
        def older(r):
            return {k: v for k, v in {**r, "version": 1}.items() if k not in ("EligibleLeaderReplicas", "LastKnownElr")}

        return None if b.control else change_records(b, "PartitionRecord", older)


class DeafToFence(Mutation):
    """the controller takes no notice of WantFence"""

    left = -1

    def request(self, key, version, body):
        if key == KEY["BrokerHeartbeat"] and body["WantFence"]:
            body["WantFence"] = False
            return body
        return None


class DeafToOfflineDirs(Mutation):
    """the controller takes no notice of offline log directories"""

    left = -1

    def request(self, key, version, body):
        if key == KEY["BrokerHeartbeat"] and body.get("OfflineLogDirs"):
            body["OfflineLogDirs"] = []
            return body
        return None


class ValidateDoes(Mutation):
    """a request that only validates is carried out"""

    left = -1

    def request(self, key, version, body):
        for k in ("ValidateOnly", "validateOnly"):
            if body.get(k):
                body[k] = False
                return body
        return None


class UncleanIsPreferred(Mutation):
    """unclean elections are held as preferred ones"""

    left = -1

    def request(self, key, version, body):
        if key == KEY["ElectLeaders"] and body.get("ElectionType") == 1:
            body["ElectionType"] = 0
            return body
        return None


class MemberEpochs(Mutation):
    """an ISR member's broker epoch is not checked (sent on as -1)"""

    left = -1

    def request(self, key, version, body):
        if key == KEY["AlterPartition"] and version >= 3:
            for t in body["Topics"]:
                for p in t["Partitions"]:
                    for s in p["NewIsrWithEpochs"]:
                        s["BrokerEpoch"] = -1
            return body
        return None


class ConfigDefault(Mutation):
    """CreateTopics names another default for one setting"""

    left = -1

    def answer(self, key, version, body):
        if key == KEY["CreateTopics"]:
            for t in body["Topics"]:
                for c in t.get("Configs") or []:
                    if c["Name"] == "file.delete.delay.ms":
                        c["Value"] = "60001"
            return body
        return None


class ProducerIds(Mutation):
    """a block of producer ids starts one too late"""

    def answer(self, key, version, body):
        if key == KEY["AllocateProducerIds"] and not body["ErrorCode"] and self.strike():
            body["ProducerIdStart"] += 1
            return body
        return None


class LostTail(Mutation):
    """the last batch is gone after a kill -9: it was answered before it was durable"""

    def before_restart(self, side):
        logs = sorted(side.node.part.glob("*.log"))
        data = logs[-1].read_bytes()
        found = codec.batches(data)
        if len(found) > 3 and not found[-1].control and self.strike():
            logs[-1].write_bytes(b"".join(b.raw for b in found[:-1]))


class StrayAcl(Mutation):
    """DescribeAcls shows one entry more than there is"""

    left = -1

    def answer(self, key, version, body):
        if key == KEY["DescribeAcls"] and body["Resources"]:
            acls = body["Resources"][0]["Acls"]
            acls.append({**acls[0], "Host": "10.9.9.9"})
            return body
        return None


class Silence(Mutation):
    """UnregisterBroker gets no answer: the connection is closed"""

    left = -1

    def answer(self, key, version, body):
        if key == KEY["UnregisterBroker"]:
            raise ConnectionError("on purpose")


MUTATIONS = {
    "error-code": ErrorCode,
    "dropped-record": DroppedRecord,
    "swapped-isr": SwappedIsr,
    "epoch-plus-one": EpochPlusOne,
    "leader-epoch": LeaderEpoch,
    "error-message": ErrorMessage,
    "split-batch": SplitBatch,
    "no-elr": NoElr,
    "record-version": RecordVersion,
    "deaf-to-fence": DeafToFence,
    "deaf-to-offline-dirs": DeafToOfflineDirs,
    "validate-does": ValidateDoes,
    "unclean-is-preferred": UncleanIsPreferred,
    "member-epochs": MemberEpochs,
    "config-default": ConfigDefault,
    "producer-ids": ProducerIds,
    "lost-tail": LostTail,
    "stray-acl": StrayAcl,
    "silence": Silence,
}


# ---------------------------------------------------------------- the proxy itself


class Proxy:
    """Listens on one port, talks to another; a thread for each connection."""

    def __init__(self, port, target, name):
        self.port, self.target, self.name = port, target, name
        self.reset()
        self.server = socket.create_server((HOST, port))
        self.thread = threading.Thread(target=self.accept, daemon=True)
        self.thread.start()

    def reset(self):
        self.mutation = MUTATIONS[self.name]()

    def close(self):
        with contextlib.suppress(OSError):
            self.server.shutdown(socket.SHUT_RDWR)
        self.server.close()
        self.thread.join(5)

    def accept(self):
        while True:
            try:
                sock, _ = self.server.accept()
            except OSError:
                return
            threading.Thread(target=self.serve, args=(sock,), daemon=True).start()

    def serve(self, sock):
        try:
            with sock, socket.create_connection((HOST, self.target), 20) as up:
                for s in (sock, up):
                    s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                while True:
                    frame = read_frame(sock)
                    key, version, correlation, client, body = codec.parse_request(frame)
                    new = self.mutation.request(key, version, body)
                    write_frame(
                        up, frame if new is None else codec.request_frame(key, version, correlation, new, client)
                    )
                    frame = read_frame(up)
                    _, body = codec.parse_response(key, version, frame)
                    new = self.fetch(body) if key == FETCH else self.mutation.answer(key, version, body)
                    write_frame(sock, frame if new is None else codec.response_frame(key, version, correlation, new))
        except (OSError, ValueError):
            return

    def fetch(self, body):
        changed = False
        for t in body["Responses"]:
            for p in t["Partitions"]:
                out = []
                for b in codec.batches(p["Records"] or b""):
                    new = self.mutation.batch(b)
                    changed |= new is not None
                    out += new or [b.raw]
                p["Records"] = b"".join(out)
        return body if changed else None
