"""Settings: what is taken, what is refused, and what they are read as."""

from dataclasses import replace
from pathlib import Path

from kraftcore import Endpoint, NodeConfig, SaslConfig, SaslLogin, TlsConfig

config = NodeConfig(
    node_id=1,
    directory=Path("data"),
    listeners=["CONTROLLER://127.0.0.1:9093", Endpoint("OTHER", "127.0.0.1", 9094)],
    voters=["1@127.0.0.1:9093", "2@127.0.0.1:9095"],
    create="join",
    election_timeout_ms=500,
    plugins=["metrics"],
    plugin_settings={"metrics.port": "9100"},
    tls=TlsConfig(certificate=Path("node.pem"), ca="ca.pem", client_auth="required"),
    listener_sasl={"CONTROLLER": SaslConfig(mechanisms=["SCRAM-SHA-512"], users={"node": "secret"})},
    sasl=SaslLogin(mechanism="SCRAM-SHA-512", username="node", password="secret"),
)
listeners: tuple[Endpoint, ...] = config.listeners
directory: str = config.directory
plugins: tuple[str, ...] = config.plugins
other: NodeConfig = replace(config, node_id=2)
from_file: NodeConfig = NodeConfig.from_properties("node.properties", with_broker=True, directory="elsewhere")

NodeConfig(node_id="1", directory="data")  # refused
NodeConfig(node_id=1, directory="data", listeners=7)  # refused
NodeConfig(node_id=1, directory="data", create="standalon")  # refused
NodeConfig(node_id=1, directory="data", nonsense=3)  # refused
NodeConfig(node_id=1)  # refused
NodeConfig(1, "data")  # refused
NodeConfig.from_properties("node.properties", directry="elsewhere")  # refused
NodeConfig.from_environment(node_id="1")  # refused
TlsConfig(certificate="node.pem", client_auth="require")  # refused
TlsConfig(certificat="node.pem")  # refused
SaslConfig(mechanisms=["SCRAM"])  # refused
SaslLogin(mechanism="GSSAPI")  # refused
config.node_id = 2  # refused
