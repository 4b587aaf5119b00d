//! The driver's protocol, as in ../../go/control/control.go: one JSON object a line, one answer a line.
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::Deserialize;
use serde_json::{json, Value};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{sleep, timeout};

use crate::{NodeId, Raft};

#[derive(Deserialize)]
#[serde(tag = "op", rename_all = "lowercase")]
enum Request {
    Status,
    Try { timeout_ms: u64 },
    Load { value_bytes: usize, in_flight: usize, batch: usize, warm_s: f64, measure_s: f64 },
}

#[derive(Default)]
struct Flags {
    stopped: AtomicBool,
    measuring: AtomicBool,
    errors: AtomicU64,
}

async fn propose_in_a_loop(raft: Raft, value: Vec<u8>, flags: Arc<Flags>) -> Vec<Duration> {
    let mut latencies = Vec::new();
    while !flags.stopped.load(Relaxed) {
        let begin = Instant::now();
        if raft.client_write(value.clone()).await.is_err() {
            flags.errors.fetch_add(1, Relaxed);
            sleep(Duration::from_millis(1)).await;
        } else if flags.measuring.load(Relaxed) && !flags.stopped.load(Relaxed) {
            latencies.push(begin.elapsed());
        }
    }
    latencies
}

async fn load(raft: &Raft, value_bytes: usize, in_flight: usize, warm_s: f64, measure_s: f64) -> Value {
    let value: Vec<u8> = (0..value_bytes).map(|i| (i * 7 + 1) as u8).collect();
    let flags = Arc::new(Flags::default());
    let callers: Vec<_> =
        (0..in_flight).map(|_| tokio::spawn(propose_in_a_loop(raft.clone(), value.clone(), flags.clone()))).collect();
    sleep(Duration::from_secs_f64(warm_s)).await;
    let begin = Instant::now();
    flags.measuring.store(true, Relaxed);
    sleep(Duration::from_secs_f64(measure_s)).await;
    flags.stopped.store(true, Relaxed);
    let elapsed = begin.elapsed();
    let mut latencies = Vec::new();
    for caller in callers {
        latencies.extend(caller.await.unwrap());
    }
    latencies.sort_unstable();
    let mut answer = json!({
        "calls": latencies.len(), "errors": flags.errors.load(Relaxed), "seconds": elapsed.as_secs_f64(),
    });
    if let Some(last) = latencies.len().checked_sub(1) {
        let quantile = |share: f64| latencies[(share * last as f64) as usize].as_nanos() as f64 / 1e3;
        answer["p50_us"] = quantile(0.5).into();
        answer["p99_us"] = quantile(0.99).into();
    }
    answer
}

async fn answer(raft: &Raft, id: NodeId, request: Request) -> Value {
    match request {
        Request::Status => json!({"leader": raft.metrics().borrow().current_leader == Some(id)}),
        Request::Try { timeout_ms } => {
            let proposal = raft.client_write(b"try".to_vec());
            json!({"ok": matches!(timeout(Duration::from_millis(timeout_ms), proposal).await, Ok(Ok(_)))})
        }
        Request::Load { batch, .. } if batch != 1 => json!({"unsupported": "openraft 0.9 takes one entry a call"}),
        Request::Load { value_bytes, in_flight, warm_s, measure_s, .. } => {
            load(raft, value_bytes, in_flight, warm_s, measure_s).await
        }
    }
}

async fn converse(stream: TcpStream, raft: Raft, id: NodeId) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut stream = BufReader::new(stream);
    let mut line = String::new();
    while stream.read_line(&mut line).await? > 0 {
        let result = answer(&raft, id, serde_json::from_str(&line)?).await;
        stream.get_mut().write_all(format!("{result}\n").as_bytes()).await?;
        line.clear();
    }
    Ok(())
}

/// Answer the driver until the process ends.
pub async fn serve(listener: TcpListener, raft: Raft, id: NodeId) -> io::Result<()> {
    loop {
        let (stream, _) = listener.accept().await?;
        let raft = raft.clone();
        tokio::spawn(converse(stream, raft, id));
    }
}
