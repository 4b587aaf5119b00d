"""What all parts of the generator draw from: brokers and topics that ought to exist, and the steps so far."""

import random

BROKERS = [1, 2, 3, 4, 5]
TOPICS = ["t0", "t1", "t2", "t3", "t4", "t5", "t.6", "t-7"]


def ref(kind, **args):
    return {"$": kind, **args}


class Draws:
    def __init__(self, seed, bad=0.45):  # a step meant to fail is one step, others bring several: a third in all
        self.rng, self.bad_rate, self.old = random.Random(seed), bad, False
        self.brokers = {}  # id -> {"n": registrations, "fenced", "down"}
        self.topics, self.gone = {}, []  # name -> list of replica lists
        self.names = list(TOPICS)  # of topics that are there, or may be made
        self.steps, self.autos = [], 0

    def pick(self, *items):
        return self.rng.choice(items)

    def chance(self, p):
        return self.rng.random() < p

    def registered(self):
        return [b for b, s in self.brokers.items() if s["n"] and not s.get("gone")]

    def usable(self):
        return [b for b in self.registered() if not self.brokers[b]["fenced"] and not self.brokers[b]["down"]]

    def broker(self):
        return self.pick(*(self.registered() or BROKERS)) if self.chance(0.95) else self.pick(*BROKERS)

    def topic(self):
        """Mostly a topic that ought to exist."""
        return self.pick(*self.topics) if self.topics and self.chance(0.95) else self.pick(*self.names)

    def rename(self):
        """Other names for topics to come: a Kafka that began from a snapshot may give one what another of its name
        was configured with (`known.CONFIGS`)."""
        self.names = [name if name in self.topics else f"{name}{len(self.steps)}" for name in self.names]

    def may_unseat(self):
        """Whether a request may come over which Kafka's active controller resigns, and ours stays.

        Kafka's next term has forgotten which brokers were shutting down, so none may be.
        """
        return not any(s["down"] for s in self.brokers.values())

    def where(self):
        t = self.topic()
        n = len(self.topics.get(t, [1]))
        return {"topic": t, "partition": self.rng.randrange(n)}

    def add(self, api, version, note, body, **more):
        self.steps.append({"api": api, "version": version, "note": note, "body": body, **more})

    def dirs(self, b):
        return [ref("uuid", of=f"dir {b}.a"), ref("uuid", of=f"dir {b}.b")]

    def placement(self, rf=None):
        pool = self.usable() if self.chance(0.8) and self.usable() else self.registered() or BROKERS
        rf = min(rf or self.rng.choice([1, 2, 3, 3, 3, 4]), len(pool))
        return [self.rng.sample(pool, rf) for _ in range(self.rng.randint(1, 3))]
