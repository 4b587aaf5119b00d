"""Symbolic arguments. In a script {"$": "topic_id", "topic".

"t3"} stands for a value that each side finds in its own log.

A name that does not resolve (a topic that was never made, a broker that never registered) becomes a fixed stand-in, so
that any part of a script is a script.
"""

from conformance.codec import NULL


class Resolver:
    def __init__(self, side):
        self.side, self.image, self.sym = side, side.image, side.symbols

    def value(self, x):
        if isinstance(x, dict):
            if "$" in x:
                return getattr(self, "get_" + x["$"])(**{k: self.value(v) for k, v in x.items() if k != "$"})
            return {k: self.value(v) for k, v in x.items()}
        if isinstance(x, list):
            return [self.value(v) for v in x]
        return x

    # -- fixed things
    def get_uuid(self, of):
        return self.sym.given(of)

    def get_cluster_id(self):
        return self.side.cluster_id

    def get_null(self):
        return NULL

    def get_bytes(self, **of):
        return bytes.fromhex(of["hex"])

    def get_repeat(self, of, times):
        return of * times

    # -- brokers
    def get_broker_epoch(self, broker, back=0, plus=0):
        """Epoch of the broker's newest registration, or of the one before (back=1)."""
        known = self.sym.epochs.get(broker, [])
        return known[max(0, len(known) - 1 - back)] + plus if known else -1 + plus

    def get_placeable(self):
        """The factor that leaves the controller no choice of brokers: all that are registered.

        99 while dirs are cordoned or offline.
        """
        whole = all(b["dirs"] and not b["cordoned"] for b in self.image.brokers.values())
        return len(self.image.brokers) if whole else 99

    def get_end(self, plus=0):
        return self.side.observer.offset + plus

    # -- topics
    def get_topic_id(self, topic, back=0):
        ids = self.sym.topic_ids.get(topic, [])
        return ids[max(0, len(ids) - 1 - back)] if ids else self.sym.given(f"no topic {topic}")

    def part(self, topic, partition):
        return self.image.partition(topic, partition) or {
            "leader": 1,
            "leader_epoch": 0,
            "partition_epoch": 0,
            "replicas": [1],
            "isr": [1],
            "elr": [],
            "directories": [],
        }

    def get_count(self, topic, plus=0):
        t = self.image.topics.get(self.image.topic_names.get(topic))
        return (len(t["partitions"]) if t else 1) + plus

    def get_leader(self, topic, partition):
        """The leader; the first replica when there is none."""
        p = self.part(topic, partition)
        return p["leader"] if p["leader"] >= 0 else p["replicas"][0]

    def get_not_leader(self, topic, partition):
        p = self.part(topic, partition)
        others = [r for r in p["replicas"] if r != p["leader"]]
        return others[0] if others else (p["leader"] + 1 if p["leader"] > 0 else 2)

    def get_leader_epoch(self, topic, partition, plus=0):
        return self.part(topic, partition)["leader_epoch"] + plus

    def get_partition_epoch(self, topic, partition, plus=0):
        return self.part(topic, partition)["partition_epoch"] + plus

    def get_recovery(self, topic, partition):
        return self.part(topic, partition).get("recovery", 0)

    def get_replica(self, topic, partition, index):
        replicas = self.part(topic, partition)["replicas"]
        return replicas[index % len(replicas)]

    def get_replicas(self, topic, partition, drop=None, add=(), rotate=0):
        out = list(self.part(topic, partition)["replicas"])
        if drop is not None and len(out) > 1:
            out.pop(drop % len(out))
        out = out[rotate % len(out) :] + out[: rotate % len(out)] if out else out
        return out + [b for b in add if b not in out]

    def isr(self, topic, partition, of, drop, add, reverse):
        p = self.part(topic, partition)
        if of == "isr":
            out = list(p["isr"])
        elif of == "replicas":
            out = list(p["replicas"])
        elif of == "usable":
            out = [
                r
                for r in p["replicas"]
                if r in self.image.brokers
                and not self.image.brokers[r]["fenced"]
                and not self.image.brokers[r]["shutdown"]
            ]
        elif of == "leader":
            out = [self.get_leader(topic, partition)]
        else:
            out = []
        if drop == "leader":
            out = [r for r in out if r != p["leader"]]
        elif drop is not None and len(out) > 1:
            others = [r for r in out if r != p["leader"]] or out
            out.remove(others[drop % len(others)])
        out += list(add)
        return out[::-1] if reverse else out

    def get_isr(self, topic, partition, of="isr", drop=None, add=(), reverse=False):
        """Broker ids for AlterPartition v2."""
        return self.isr(topic, partition, of, drop, add, reverse)

    def get_isr_epochs(self, topic, partition, of="isr", drop=None, add=(), reverse=False, epochs="right"):
        """Broker ids with epochs for AlterPartition v3; epochs: right, none (-1), old."""

        def epoch(b):
            return -1 if epochs == "none" else self.get_broker_epoch(b) - (1 if epochs == "old" else 0)

        return [{"BrokerId": b, "BrokerEpoch": epoch(b)} for b in self.isr(topic, partition, of, drop, add, reverse)]
