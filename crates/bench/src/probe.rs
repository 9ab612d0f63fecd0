//! The bare disk under the same closed loop: a file filled with zeros ahead, and one thread that writes all waiting commits as one
//! write with one sync and then answers. No checks, no index, no checksum: what any durable log must at least do.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tokio::sync::{mpsc, oneshot};

use crate::cell::{Cell, Commits, Measured, run};
use crate::workload::{EVENT_BYTES, Row, payloads};

/// How far the file grows at once.
const STEP_BYTES: u64 = 64 * 1024 * 1024;
/// Bytes for what stands around the events of a commit.
const COMMIT_HEAD_BYTES: usize = 64;

struct Waiting {
    bytes: Vec<u8>,
    synced: oneshot::Sender<()>,
}

struct Probe {
    queue: mpsc::UnboundedSender<Waiting>,
    payloads: Arc<Vec<String>>,
    next: usize,
    events: usize,
}

impl Commits for Probe {
    async fn commit(&mut self) -> Result<(), String> {
        let mut bytes = Vec::with_capacity(COMMIT_HEAD_BYTES + EVENT_BYTES * self.events);
        bytes.resize(COMMIT_HEAD_BYTES, 1);
        for _ in 0..self.events {
            bytes.extend_from_slice(self.payloads[self.next].as_bytes());
            self.next = (self.next + 1) % self.payloads.len();
        }
        let (synced, answer) = oneshot::channel();
        self.queue.send(Waiting { bytes, synced }).map_err(|_| "the probe's writer ended".to_owned())?;
        answer.await.map_err(|_| "the probe's writer ended".to_owned())
    }
}

/// Measures the disk under `folder`.
pub async fn measure(row: &Row, cell: &Cell, folder: &Path) -> Result<Measured, String> {
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
        move || write(&ahead, waiting)
    });
    let payloads = Arc::new(payloads());
    let probe = |number: usize| Probe {
        queue: queue.clone(),
        payloads: Arc::clone(&payloads),
        next: number * 13 % payloads.len(),
        events: row.events,
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

/// The file and how far it is filled with zeros. Zeros that are there already spare each sync a change of the file's extents.
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

    /// Keeps at least one step ahead of what is written.
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

fn write(ahead: &Ahead, mut waiting: mpsc::UnboundedReceiver<Waiting>) -> std::io::Result<()> {
    let mut batch = Vec::new();
    let mut answers = Vec::new();
    let mut at = 0;
    while let Some(first) = waiting.blocking_recv() {
        batch.clear();
        let mut next = Some(first);
        while let Some(commit) = next {
            batch.extend_from_slice(&commit.bytes);
            answers.push(commit.synced);
            next = waiting.try_recv().ok();
        }
        while ahead.filled.load(Ordering::Acquire) < at + batch.len() as u64 {
            std::thread::park_timeout(std::time::Duration::from_millis(1));
        }
        ahead.file.write_all_at(&batch, at)?;
        ahead.file.sync_data()?;
        at += batch.len() as u64;
        ahead.written.store(at, Ordering::Release);
        for answer in answers.drain(..) {
            // A writer whose time is over does not listen any more.
            let _ = answer.send(());
        }
    }
    Ok(())
}
