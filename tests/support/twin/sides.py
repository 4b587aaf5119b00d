"""One side: a controller process, a client, an observer of its log, the image and the symbols that follow from it."""

import shutil

from conformance import codec
from conformance.target import until

from twin import proxy
from twin.image import Image
from twin.normal import Symbols, named_uuid
from twin.observer import Client, Observer

NODE = 100
CLUSTER_ID = named_uuid("the cluster")
FORCED = {"metadata.log.max.record.bytes.between.snapshots": 1}
PROPERTIES = {  # time plays no part: every period is an hour or off
    "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
    "metadata.max.idle.interval.ms": 0,
    "broker.session.timeout.ms": 3600000,
    "auto.leader.rebalance.enable": "false",
    "unclean.leader.election.interval.ms": 3600000,
    "metadata.log.max.snapshot.interval.ms": 0,
    "controller.quorum.append.linger.ms": 0,
    "controller.quorum.election.timeout.ms": 100,
}


class Died(Exception):
    """The controller's process ended by itself."""


class Side:
    """A controller of a workspace; with a mutation, behind a proxy that lies."""

    def __init__(self, name, workspace, properties=(), mutation=None):
        self.name, self.kind, self.cluster_id, self.runs = name, workspace.kind, CLUSTER_ID, 0
        self.node = workspace.node(NODE, **PROPERTIES, **dict(properties))
        self.door = proxy.Proxy(workspace.port(), self.node.port, mutation) if mutation else None
        self.port = self.door.port if self.door else self.node.port
        self.client = Client(self.port, 20)
        self.made = []  # properties of scripts, until the next one

    def use(self, properties):
        """The properties of a script, instead of those of the one before."""
        self.node.set(**{**dict.fromkeys(self.made), **properties})
        self.made = [key for key in properties if key not in PROPERTIES]

    def fresh(self, release=None):
        """A formatted, empty log directory. The first format of a session (and release) is kept and copied."""
        self.kill()
        self.node.wipe()
        template = self.node.ws.base / f"template-{self.node.port}-{release or 'newest'}"
        if template.exists():
            shutil.copytree(template, self.node.dir)
        else:
            self.node.format("--standalone", *(["-r", release] if release else []), cluster_id=self.cluster_id)
            shutil.copytree(self.node.dir, template)
        if self.door:
            self.door.reset()
        self.runs = 0
        self.observer, self.image, self.batches = Observer(self.client), Image(), []
        self.symbols = Symbols({self.node.port, self.port}, self.cluster_id)
        self.symbols.names[self.node.directory_id] = "directory of the controller"

    def start(self, **more):
        if self.door and self.runs:
            self.door.mutation.before_restart(self)
        self.runs += 1
        before = {key: self.node.props.get(key) for key in more}
        self.node.set(**more)
        try:
            self.node.start()
        except RuntimeError as error:
            raise Died(str(error)) from error
        finally:
            self.node.set(**before)

    def check_alive(self):
        if not self.node.alive:
            raise Died(f"{self.name} ended by itself:\n{self.node.output()[-1500:]}")

    def kill(self):
        self.node.kill()
        self.client.close()

    def close(self):
        self.kill()
        if self.door:
            self.door.close()

    # -- the wire
    def call(self, api, version, body):
        return self.client.call(codec.API[api], version, body)

    def read(self):
        """New batches of the log, applied to the image."""
        new = self.observer.read()
        self.batches += new
        for b in new:
            if not b.control:
                for r in b.records:
                    self.image.take(r)
        return new

    def wait_ready(self, timeout=30):
        """After a start: the new leader's first records, up to the controller's own registration."""
        got = []
        self.trouble = None

        def ready():
            self.check_alive()
            try:
                got.extend(self.read())
            except (LookupError, OSError) as error:
                self.trouble = error
                return False
            return any(r["kind"] == "RegisterControllerRecord" for b in got if not b.control for r in b.records)

        try:
            until(f"{self.name} registers its controller", ready, timeout)
        except TimeoutError as error:
            if not got:
                raise TimeoutError(f"{error}; {self.trouble}") from error
        return got

    # -- snapshots
    def snapshots(self):
        """Checkpoints with data, {(end offset, epoch): path}."""
        out = {}
        for f in sorted(self.node.part.glob("*.checkpoint")):
            end, epoch = f.name.removesuffix(".checkpoint").split("-")
            if int(end):
                out[int(end), int(epoch)] = f
        return out

    def wait_snapshot(self):
        def there():
            self.check_alive()
            return any(end >= self.observer.offset for end, _ in self.snapshots())

        until(f"{self.name} writes a snapshot at {self.observer.offset}", there, 20)

    def drop_log(self):
        """What cleaning leaves behind: the newest snapshot covers all there was.

        Otherwise a start reads the log and not the snapshot.
        """
        for f in self.node.part.iterdir():
            if f.suffix in (".log", ".index", ".timeindex", ".snapshot"):
                f.unlink()

    def snapshot_image(self, path):
        image = Image()
        for b in codec.batches(path.read_bytes()):
            if not b.control:
                for r in b.records:
                    image.take(r)
        return image

    def image_at(self, end):
        image = Image()
        for b in self.batches:
            if b.last < end and not b.control:
                for r in b.records:
                    image.take(r)
        return image
