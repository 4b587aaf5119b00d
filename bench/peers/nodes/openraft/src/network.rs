//! The other thing openraft leaves to its user: bincode behind a length, over one TCP connection per peer.
use std::io;

use openraft::error::{InstallSnapshotError, NetworkError, RPCError, RaftError, RemoteError, Unreachable};
use openraft::network::{RPCOption, RaftNetwork, RaftNetworkFactory};
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, InstallSnapshotRequest, InstallSnapshotResponse, VoteRequest,
    VoteResponse,
};
use openraft::BasicNode;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::{NodeId, Raft, Types};

type CallError<E> = RPCError<NodeId, BasicNode, E>;

#[derive(Serialize, Deserialize)]
enum Request {
    Append(AppendEntriesRequest<Types>),
    Vote(VoteRequest<NodeId>),
    Snapshot(InstallSnapshotRequest<Types>),
}

#[derive(Serialize, Deserialize)]
enum Response {
    Append(Result<AppendEntriesResponse<NodeId>, RaftError<NodeId>>),
    Vote(Result<VoteResponse<NodeId>, RaftError<NodeId>>),
    Snapshot(Result<InstallSnapshotResponse<NodeId>, RaftError<NodeId, InstallSnapshotError>>),
}

async fn read_frame(stream: &mut TcpStream) -> io::Result<Vec<u8>> {
    let size = stream.read_u32().await?;
    let mut frame = vec![0; size as usize];
    stream.read_exact(&mut frame).await?;
    Ok(frame)
}

async fn write_frame<T: Serialize>(stream: &mut TcpStream, message: &T) -> io::Result<()> {
    let body = bincode::serialize(message).unwrap();
    let mut frame = (body.len() as u32).to_be_bytes().to_vec();
    frame.extend_from_slice(&body);
    stream.write_all(&frame).await
}

pub struct Network;

pub struct Client {
    target: NodeId,
    address: String,
    stream: Option<TcpStream>,
}

impl RaftNetworkFactory<Types> for Network {
    type Network = Client;

    async fn new_client(&mut self, target: NodeId, node: &BasicNode) -> Client {
        Client { target, address: node.addr.clone(), stream: None }
    }
}

impl Client {
    /// A connection that failed or timed out in the middle of a call is dropped; the next call makes a new one.
    async fn call(&mut self, request: Request, option: RPCOption) -> io::Result<Response> {
        let exchange = async {
            let mut stream = match self.stream.take() {
                Some(stream) => stream,
                None => {
                    let stream = TcpStream::connect(&self.address).await?;
                    stream.set_nodelay(true)?;
                    stream
                }
            };
            write_frame(&mut stream, &request).await?;
            let frame = read_frame(&mut stream).await?;
            self.stream = Some(stream);
            Ok(bincode::deserialize(&frame).unwrap())
        };
        tokio::time::timeout(option.hard_ttl(), exchange).await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
    }

    fn remote<E: std::error::Error>(&self, error: E) -> CallError<E> {
        RPCError::RemoteError(RemoteError::new(self.target, error))
    }
}

fn failed<E: std::error::Error>(error: io::Error) -> CallError<E> {
    if error.kind() == io::ErrorKind::ConnectionRefused {
        RPCError::Unreachable(Unreachable::new(&error))
    } else {
        RPCError::Network(NetworkError::new(&error))
    }
}

impl RaftNetwork<Types> for Client {
    async fn append_entries(
        &mut self,
        request: AppendEntriesRequest<Types>,
        option: RPCOption,
    ) -> Result<AppendEntriesResponse<NodeId>, CallError<RaftError<NodeId>>> {
        match self.call(Request::Append(request), option).await.map_err(failed)? {
            Response::Append(result) => result.map_err(|error| self.remote(error)),
            _ => unreachable!(),
        }
    }

    async fn vote(
        &mut self,
        request: VoteRequest<NodeId>,
        option: RPCOption,
    ) -> Result<VoteResponse<NodeId>, CallError<RaftError<NodeId>>> {
        match self.call(Request::Vote(request), option).await.map_err(failed)? {
            Response::Vote(result) => result.map_err(|error| self.remote(error)),
            _ => unreachable!(),
        }
    }

    async fn install_snapshot(
        &mut self,
        request: InstallSnapshotRequest<Types>,
        option: RPCOption,
    ) -> Result<InstallSnapshotResponse<NodeId>, CallError<RaftError<NodeId, InstallSnapshotError>>> {
        match self.call(Request::Snapshot(request), option).await.map_err(failed)? {
            Response::Snapshot(result) => result.map_err(|error| self.remote(error)),
            _ => unreachable!(),
        }
    }
}

/// Answer the other nodes.
pub async fn serve(listener: TcpListener, raft: Raft) -> io::Result<()> {
    loop {
        let (mut stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        let raft = raft.clone();
        tokio::spawn(async move {
            while let Ok(frame) = read_frame(&mut stream).await {
                let response = match bincode::deserialize(&frame).unwrap() {
                    Request::Append(request) => Response::Append(raft.append_entries(request).await),
                    Request::Vote(request) => Response::Vote(raft.vote(request).await),
                    Request::Snapshot(request) => Response::Snapshot(raft.install_snapshot(request).await),
                };
                if write_frame(&mut stream, &response).await.is_err() {
                    break;
                }
            }
        });
    }
}
