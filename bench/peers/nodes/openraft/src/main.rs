//! A node of openraft with its default configuration; three of these processes form a cluster.
//! Arguments: index of this node, host:port of each node's raft (separated by commas), host:port for the driver, folder.
mod control;
mod network;
mod store;

use std::collections::BTreeMap;
use std::io::Cursor;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use openraft::{BasicNode, Config};
use tokio::net::TcpListener;

openraft::declare_raft_types!(pub Types: D = Vec<u8>, R = u64);
pub type NodeId = u64;
pub type Raft = openraft::Raft<Types>;

/// The first node waits until the others listen, then founds the cluster.
const FOUND_AFTER: Duration = Duration::from_millis(300);

#[tokio::main]
async fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, id, peers, address, folder] = arguments.as_slice() else {
        panic!("arguments: ID PEERS CONTROL FOLDER");
    };
    let id: NodeId = id.parse().expect("ID is a number");
    let peers: Vec<&str> = peers.split(',').collect();
    let config = Arc::new(Config::default().validate().unwrap());
    let (log, machine) = (store::Store::create(Path::new(folder)), store::Counter::default());
    let raft = Raft::new(id, config, network::Network, log, machine).await.unwrap();
    let listener = TcpListener::bind(peers[id as usize]).await.unwrap();
    tokio::spawn(network::serve(listener, raft.clone()));
    if id == 0 {
        tokio::time::sleep(FOUND_AFTER).await;
        let members: BTreeMap<NodeId, BasicNode> = (0..).zip(peers.iter().map(BasicNode::new)).collect();
        raft.initialize(members).await.unwrap();
    }
    let listener = TcpListener::bind(address).await.unwrap();
    control::serve(listener, raft, id).await.unwrap();
}
