//! Measures the bare disk under the same closed loop: a file that is zero-filled ahead, and one thread that writes all waiting commits
//! with one write and one sync, and then answers. Without checks, this is the minimum of any durable log; with checks, it is the barest
//! log.

use std::fs::File;
use std::marker::PhantomData;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tokio::sync::{mpsc, oneshot};

use crate::bare_log::Check;
use crate::cell::{Cell, Commits, Measured, run};
use crate::workload::{EVENT_BYTES, Row, Turn, Writer, payloads};

/// The number of bytes by which the file grows.
const STEP_BYTES: u64 = 64 * 1024 * 1024;
/// Bytes for the envelope around the events of a commit.
const COMMIT_HEAD_BYTES: usize = 64;

struct Waiting {
    turn: Turn,
    bytes: Vec<u8>,
    /// The channel that returns the turn when it is durable, or `None` if it was refused.
    synced: oneshot::Sender<Option<Turn>>,
}

struct Probe<C> {
    queue: mpsc::UnboundedSender<Waiting>,
    payloads: Arc<Vec<String>>,
    writer: Writer,
    events: usize,
    check: PhantomData<fn() -> C>,
}

impl<C: Check> Commits for Probe<C> {
    async fn commit(&mut self) -> Result<(), String> {
        let turn = self.writer.turn();
        let mut bytes = Vec::with_capacity(COMMIT_HEAD_BYTES + EVENT_BYTES * self.events);
        bytes.extend_from_slice(&[0; 4]);
        bytes.extend_from_slice(&turn.expected_version.to_le_bytes());
        bytes.extend_from_slice(turn.aggregate_id.as_bytes());
        bytes.extend_from_slice(turn.request_id.as_bytes());
        bytes.resize(COMMIT_HEAD_BYTES, 1);
        for offset in 0..self.events {
            bytes.extend_from_slice(self.payloads[(turn.payload + offset) % self.payloads.len()].as_bytes());
        }
        let checksum = C::checksum(&bytes[4..]);
        bytes[..4].copy_from_slice(&checksum.to_le_bytes());
        let (synced, answer) = oneshot::channel();
        self.queue.send(Waiting { turn, bytes, synced }).map_err(|_| "the probe's writer ended".to_owned())?;
        let turn =
            answer.await.map_err(|_| "the probe's writer ended".to_owned())?.ok_or("the probe refused a commit")?;
        self.writer.committed(&turn, turn.expected_version + 1, false)
    }
}

/// Measures the disk under `folder` with these checks.
pub async fn measure<C: Check>(row: &Row, cell: &Cell, folder: &Path, check: C) -> Result<Measured, String> {
    let file = File::create_new(folder.join("probe")).map_err(|error| error.to_string())?;
    let ahead =
        Arc::new(Ahead { file, filled: AtomicU64::new(0), written: AtomicU64::new(0), over: AtomicBool::new(false) });
    ahead.fill_step().and_then(|()| ahead.fill_step()).map_err(|error| error.to_string())?;
    let filler = std::thread::spawn({
        let ahead = Arc::clone(&ahead);
        move || ahead.keep_filled()
    });
    let (queue, waiting) = mpsc::unbounded_channel();
    let writer = std::thread::spawn({
        let ahead = Arc::clone(&ahead);
        move || write(&ahead, waiting, check)
    });
    let payloads = Arc::new(payloads());
    let probe = |number: usize| Probe::<C> {
        queue: queue.clone(),
        payloads: Arc::clone(&payloads),
        writer: Writer::new(number, row),
        events: row.events,
        check: PhantomData,
    };
    let measured = run(cell, (0..row.writers).map(probe).collect()).await;
    drop(queue);
    let wrote = writer.join();
    ahead.over.store(true, Ordering::Release);
    filler.thread().unpark();
    let filled = filler.join();
    for ended in [wrote, filled] {
        ended.map_err(|_| "a thread of the probe panicked")?.map_err(|error| format!("the probe's file: {error}"))?;
    }
    measured
}

/// The file, and how far it is filled with zeros. Writing over zeros spares each sync a change of the file's extents.
struct Ahead {
    file: File,
    filled: AtomicU64,
    written: AtomicU64,
    over: AtomicBool,
}

impl Ahead {
    fn fill_step(&self) -> std::io::Result<()> {
        let zeros = vec![0; 1024 * 1024];
        let start = self.filled.load(Ordering::Acquire);
        let mut at = start;
        while at < start + STEP_BYTES {
            self.file.write_all_at(&zeros, at)?;
            at += zeros.len() as u64;
        }
        self.file.sync_all()?;
        self.filled.store(at, Ordering::Release);
        Ok(())
    }

    /// Keeps the file filled at least one step ahead of what is written.
    fn keep_filled(&self) -> std::io::Result<()> {
        while !self.over.load(Ordering::Acquire) {
            if self.filled.load(Ordering::Acquire) < self.written.load(Ordering::Acquire) + 2 * STEP_BYTES {
                self.fill_step()?;
            } else {
                std::thread::park_timeout(std::time::Duration::from_millis(5));
            }
        }
        Ok(())
    }
}

fn write(ahead: &Ahead, mut waiting: mpsc::UnboundedReceiver<Waiting>, mut check: impl Check) -> std::io::Result<()> {
    let mut batch = Vec::new();
    let mut answers = Vec::new();
    let mut at = 0;
    while let Some(first) = waiting.blocking_recv() {
        batch.clear();
        let mut next = Some(first);
        while let Some(Waiting { turn, bytes, synced }) = next {
            let admitted = check.admit(&turn);
            if admitted {
                batch.extend_from_slice(&bytes);
            }
            answers.push((synced, admitted.then_some(turn)));
            next = waiting.try_recv().ok();
        }
        while ahead.filled.load(Ordering::Acquire) < at + batch.len() as u64 {
            std::thread::park_timeout(std::time::Duration::from_millis(1));
        }
        ahead.file.write_all_at(&batch, at)?;
        ahead.file.sync_data()?;
        at += batch.len() as u64;
        ahead.written.store(at, Ordering::Release);
        for (synced, turn) in answers.drain(..) {
            // A writer whose time is up no longer listens.
            let _ = synced.send(turn);
        }
    }
    Ok(())
}
