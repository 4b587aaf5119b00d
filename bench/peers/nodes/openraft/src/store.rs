//! What openraft leaves to its user: a log store (one file, one fdatasync per drained batch and per vote), kept small and
//! without recovery, for every run begins with an empty folder; and a state machine that counts.
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::fs::{File, OpenOptions};
use std::io::{Cursor, Write};
use std::ops::RangeBounds;
use std::path::Path;
use std::sync::{mpsc, Arc, Mutex};

use openraft::storage::{LogFlushed, LogState, RaftLogStorage, RaftStateMachine, Snapshot};
use openraft::{
    BasicNode, Entry, EntryPayload, LogId, OptionalSend, RaftLogReader, RaftSnapshotBuilder, SnapshotMeta,
    StorageError, StoredMembership, Vote,
};

use crate::{NodeId, Types};

type Result<T> = std::result::Result<T, StorageError<NodeId>>;

#[derive(Default)]
struct Memory {
    entries: BTreeMap<u64, Entry<Types>>,
    purged: Option<LogId<NodeId>>,
    vote: Option<Vote<NodeId>>,
    committed: Option<LogId<NodeId>>,
}

enum Work {
    Append(Vec<u8>, LogFlushed<Types>),
    Mark(Vec<u8>),
}

#[derive(Clone)]
pub struct Store {
    memory: Arc<Mutex<Memory>>,
    work: mpsc::Sender<Work>,
    votes: Arc<Mutex<File>>,
}

fn open(path: &Path) -> File {
    OpenOptions::new().create(true).append(true).open(path).unwrap()
}

/// Write what is queued in one go, flush once, and only then say so.
fn write_batches(mut file: File, work: mpsc::Receiver<Work>) {
    let mut bytes = Vec::new();
    let mut callbacks = Vec::new();
    while let Ok(first) = work.recv() {
        bytes.clear();
        let mut next = Some(first);
        while let Some(item) = next {
            match item {
                Work::Append(encoded, callback) => {
                    bytes.extend_from_slice(&encoded);
                    callbacks.push(callback);
                }
                Work::Mark(encoded) => bytes.extend_from_slice(&encoded),
            }
            next = work.try_recv().ok();
        }
        file.write_all(&bytes).unwrap();
        file.sync_data().unwrap();
        for callback in callbacks.drain(..) {
            callback.log_io_completed(Ok(()));
        }
    }
}

impl Store {
    pub fn create(folder: &Path) -> Store {
        std::fs::create_dir_all(folder).unwrap();
        let log = open(&folder.join("log"));
        let (sender, receiver) = mpsc::channel();
        std::thread::spawn(move || write_batches(log, receiver));
        let votes = Arc::new(Mutex::new(open(&folder.join("vote"))));
        Store { memory: Arc::default(), work: sender, votes }
    }
}

impl RaftLogReader<Types> for Store {
    async fn try_get_log_entries<RB: RangeBounds<u64> + Clone + Debug + OptionalSend>(
        &mut self,
        range: RB,
    ) -> Result<Vec<Entry<Types>>> {
        Ok(self.memory.lock().unwrap().entries.range(range).map(|(_, entry)| entry.clone()).collect())
    }
}

impl RaftLogStorage<Types> for Store {
    type LogReader = Store;

    async fn get_log_state(&mut self) -> Result<LogState<Types>> {
        let memory = self.memory.lock().unwrap();
        let last = memory.entries.values().next_back().map(|entry| entry.log_id).or(memory.purged);
        Ok(LogState { last_purged_log_id: memory.purged, last_log_id: last })
    }

    async fn get_log_reader(&mut self) -> Store {
        self.clone()
    }

    async fn save_vote(&mut self, vote: &Vote<NodeId>) -> Result<()> {
        self.memory.lock().unwrap().vote = Some(*vote);
        let mut file = self.votes.lock().unwrap();
        file.write_all(&bincode::serialize(vote).unwrap()).unwrap();
        file.sync_data().unwrap();
        Ok(())
    }

    async fn read_vote(&mut self) -> Result<Option<Vote<NodeId>>> {
        Ok(self.memory.lock().unwrap().vote)
    }

    async fn save_committed(&mut self, committed: Option<LogId<NodeId>>) -> Result<()> {
        self.memory.lock().unwrap().committed = committed;
        Ok(())
    }

    async fn read_committed(&mut self) -> Result<Option<LogId<NodeId>>> {
        Ok(self.memory.lock().unwrap().committed)
    }

    async fn append<I>(&mut self, entries: I, callback: LogFlushed<Types>) -> Result<()>
    where
        I: IntoIterator<Item = Entry<Types>> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let mut bytes = Vec::new();
        {
            let mut memory = self.memory.lock().unwrap();
            for entry in entries {
                bincode::serialize_into(&mut bytes, &entry).unwrap();
                memory.entries.insert(entry.log_id.index, entry);
            }
        }
        self.work.send(Work::Append(bytes, callback)).unwrap();
        Ok(())
    }

    async fn truncate(&mut self, from: LogId<NodeId>) -> Result<()> {
        self.memory.lock().unwrap().entries.split_off(&from.index);
        self.work.send(Work::Mark(bincode::serialize(&("truncate", from.index)).unwrap())).unwrap();
        Ok(())
    }

    async fn purge(&mut self, upto: LogId<NodeId>) -> Result<()> {
        let mut memory = self.memory.lock().unwrap();
        memory.purged = Some(upto);
        memory.entries = memory.entries.split_off(&(upto.index + 1));
        Ok(())
    }
}

#[derive(Default)]
struct State {
    applied: Option<LogId<NodeId>>,
    membership: StoredMembership<NodeId, BasicNode>,
    count: u64,
}

#[derive(Clone, Default)]
pub struct Counter(Arc<Mutex<State>>);

impl Counter {
    fn save(&self) -> Snapshot<Types> {
        let state = self.0.lock().unwrap();
        let meta = SnapshotMeta {
            last_log_id: state.applied,
            last_membership: state.membership.clone(),
            snapshot_id: format!("{:?}", state.applied),
        };
        Snapshot { meta, snapshot: Box::new(Cursor::new(state.count.to_be_bytes().to_vec())) }
    }
}

impl RaftSnapshotBuilder<Types> for Counter {
    async fn build_snapshot(&mut self) -> Result<Snapshot<Types>> {
        Ok(self.save())
    }
}

impl RaftStateMachine<Types> for Counter {
    type SnapshotBuilder = Counter;

    async fn applied_state(&mut self) -> Result<(Option<LogId<NodeId>>, StoredMembership<NodeId, BasicNode>)> {
        let state = self.0.lock().unwrap();
        Ok((state.applied, state.membership.clone()))
    }

    async fn apply<I>(&mut self, entries: I) -> Result<Vec<u64>>
    where
        I: IntoIterator<Item = Entry<Types>> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let mut state = self.0.lock().unwrap();
        let mut results = Vec::new();
        for entry in entries {
            state.applied = Some(entry.log_id);
            if let EntryPayload::Membership(ref membership) = entry.payload {
                state.membership = StoredMembership::new(Some(entry.log_id), membership.clone());
            }
            state.count += 1;
            results.push(state.count);
        }
        Ok(results)
    }

    async fn get_snapshot_builder(&mut self) -> Counter {
        self.clone()
    }

    async fn begin_receiving_snapshot(&mut self) -> Result<Box<Cursor<Vec<u8>>>> {
        Ok(Box::new(Cursor::new(vec![])))
    }

    async fn install_snapshot(
        &mut self,
        meta: &SnapshotMeta<NodeId, BasicNode>,
        snapshot: Box<Cursor<Vec<u8>>>,
    ) -> Result<()> {
        let mut state = self.0.lock().unwrap();
        state.applied = meta.last_log_id;
        state.membership = meta.last_membership.clone();
        state.count = snapshot.into_inner().try_into().map(u64::from_be_bytes).unwrap_or(0);
        Ok(())
    }

    async fn get_current_snapshot(&mut self) -> Result<Option<Snapshot<Types>>> {
        Ok(Some(self.save()))
    }
}
