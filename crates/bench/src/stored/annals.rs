//! Our store: embedded, and behind the server through the Rust client.

use std::net::SocketAddr;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use annals::Client;
use annals_core::{
    Aggregate, AggregateQuery, DEFAULT_SCOPE, DEFAULT_TENANT, Data, EventLog, EventRef, Filter, Follower, LogQuery,
    NewCommit, NewEvent, ScanQuery, Store, limits,
};
use annals_embedded::disk::{Disk, RealDisk};
use annals_embedded::operations::pack;
use annals_embedded::{EmbeddedStore, Options, Packing};
use tokio::process::Command;
use tokio::sync::mpsc::UnboundedSender;

use super::{Reads, Remote, Stored, Weight, disk_bytes};
use crate::corpus::{Commit, TAG};
use crate::library;
use crate::served::Served;

const AGGREGATE_NAME: &str = "order";

/// The log, and what it is in.
#[derive(Clone)]
pub struct Annals {
    log: Arc<dyn EventLog>,
    store: Option<Arc<EmbeddedStore>>,
    server: Option<Arc<Served>>,
}

impl Annals {
    async fn pages(&self, filter: Filter) -> Result<usize, String> {
        let (mut read, mut from) = (0, 0);
        loop {
            let query =
                LogQuery { from: Some(from), limit: limits::PAGE_MAX, filter: filter.clone(), ..LogQuery::default() };
            let page = self.log.read(query).await.map_err(|error| error.to_string())?;
            if page.events.is_empty() {
                return Ok(read);
            }
            read += page.events.len();
            from = page.next;
        }
    }
}

impl Reads for Annals {
    async fn append(&self, commit: Commit) -> Result<(), String> {
        let mut new = NewCommit::new(AGGREGATE_NAME, commit.aggregate_id);
        for (place, payload) in commit.payloads.iter().enumerate() {
            let mut event = NewEvent::new("order_placed", Data::from_json(payload)?);
            if commit.tagged && place == 0 {
                event.tags.push(TAG.into());
            }
            new = new.event(event);
        }
        let new = new.request_id(format!("request-{:010}", commit.number));
        self.log.commit(new).await.map(drop).map_err(|error| error.to_string())
    }

    async fn read_all(&self) -> Result<usize, String> {
        self.pages(Filter::default()).await
    }

    /// A server cannot lend events.
    fn lends(&self) -> bool {
        self.store.is_some()
    }

    async fn lend_all(&self) -> Result<usize, String> {
        let mut events = 0;
        let mut visit = |event: EventRef<'_>| {
            std::hint::black_box((event.event_type, event.data.as_bytes()));
            events += 1;
            ControlFlow::Continue(())
        };
        self.log.scan(ScanQuery::default(), &mut visit).await.map_err(|error| error.to_string())?;
        Ok(events)
    }

    async fn read_aggregate(&self, id: &str) -> Result<usize, String> {
        let query = AggregateQuery::new(Aggregate::new(AGGREGATE_NAME, id.to_owned()));
        let found = self.log.read_aggregate(query).await.map_err(|error| error.to_string())?;
        Ok(found.commits.iter().map(|commit| commit.events.len()).sum())
    }

    async fn read_tagged(&self, tag: &str) -> Result<usize, String> {
        self.pages(Filter { tags: vec![tag.into()], ..Filter::default() }).await
    }

    async fn follow(&self, events: usize, seen: UnboundedSender<Instant>) -> Result<(), String> {
        let head = self.log.head().await.map_err(|error| error.to_string())?;
        let mut follower = Follower::new(Arc::clone(&self.log), head, Filter::default());
        let nobody = |_| "nobody waits for the follower".to_owned();
        seen.send(Instant::now()).map_err(nobody)?;
        let mut left = events;
        while left > 0 {
            let events = follower.next_page().await.map_err(|error| error.to_string())?;
            left = left.saturating_sub(events.len());
            for _ in events {
                seen.send(Instant::now()).map_err(nobody)?;
            }
        }
        Ok(())
    }
}

impl Stored for Annals {
    fn open(folder: &Path) -> Result<Self, String> {
        let store = library::open(folder)?;
        Ok(Self { log: library::log(&store)?, store: Some(Arc::new(store)), server: None })
    }

    async fn weigh(self, folder: &Path) -> Result<Weight, String> {
        let head = self.log.head().await.map_err(|error| error.to_string())?;
        self.store.ok_or("only an embedded store is weighed")?.close().await;
        drop(self.log);
        // Pack now what would be packed in the background later.
        let disk: Arc<dyn Disk> = Arc::new(RealDisk::new(folder.join("store")));
        pack(&disk, &Options::default(), &mut |_, _| {}).map_err(|error| error.to_string())?;
        closed(folder, head).map_err(|error| format!("{}: {error}", folder.display()))
    }
}

impl Remote for Annals {
    async fn start(folder: &Path, program: &Path) -> Result<Self, String> {
        let command = |address: SocketAddr| {
            let store = format!("embedded:{}", folder.join("store").display());
            let mut command = Command::new(program);
            command.args(["serve", "--dev", "--store", &store, "--listen", &address.to_string()]);
            command.env("ANNALS__LOG__LEVEL", "warn");
            command
        };
        let server = Served::start(folder, command).await?;
        let client = Client::new(&format!("http://{}", server.address), DEFAULT_TENANT, DEFAULT_SCOPE);
        let log: Arc<dyn EventLog> = Arc::new(client.map_err(|error| error.to_string())?);
        log.head().await.map_err(|error| error.to_string())?;
        Ok(Self { log, store: None, server: Some(Arc::new(server)) })
    }

    fn server(&self) -> Option<&Served> {
        self.server.as_deref()
    }
}

/// Opens the store and waits until every closed segment is packed.
pub async fn settle(folder: &Path) -> Result<EmbeddedStore, String> {
    const LOOK_EVERY: Duration = Duration::from_millis(100);
    let packing = Packing { behind: 0, bytes_per_second: u64::MAX, ..Packing::default() };
    let disk = Arc::new(RealDisk::new(folder.join("store")));
    let store =
        EmbeddedStore::open(disk, Options { packing, ..Options::default() }).map_err(|error| error.to_string())?;
    library::log(&store)?;
    while unpacked(folder).map_err(|error| format!("{}: {error}", folder.display()))? {
        tokio::time::sleep(LOOK_EVERY).await;
    }
    Ok(store)
}

/// Returns whether there is a closed segment that is not packed.
fn unpacked(folder: &Path) -> std::io::Result<bool> {
    use std::os::unix::fs::FileExt;
    /// The offset of the format, after the magic of the segment's header; 1 means a segment of frames.
    const FORMAT: u64 = 8;
    let mut segments = Vec::new();
    find_segments(folder, &mut segments)?;
    for segment in segments.iter().filter(|segment| segment.with_extension("index").exists()) {
        let mut format = [0; 4];
        std::fs::File::open(segment)?.read_exact_at(&mut format, FORMAT)?;
        if u32::from_le_bytes(format) == 1 {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Returns the weight of the closed segments: those that have an index file.
fn closed(folder: &Path, head: u64) -> std::io::Result<Weight> {
    let mut segments = Vec::new();
    find_segments(folder, &mut segments)?;
    segments.sort();
    let is_closed = |segment: &PathBuf| segment.with_extension("index").exists();
    let open = segments.iter().find(|segment| !is_closed(segment));
    let events = match open {
        Some(segment) => first_sequence_number(segment)?.unwrap_or(head),
        None => head,
    };
    let stem = |segment: &PathBuf| segment.file_stem().and_then(|stem| stem.to_str()).map(str::to_owned);
    let stems: Vec<String> = segments.iter().filter(|segment| is_closed(segment)).filter_map(stem).collect();
    let bytes =
        disk_bytes(folder, &|name| name.split_once('.').is_some_and(|(stem, _)| stems.iter().any(|s| s == stem)))?;
    Ok(Weight { events, bytes })
}

fn find_segments(folder: &Path, segments: &mut Vec<PathBuf>) -> std::io::Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            find_segments(&path, segments)?;
        } else if path.extension().is_some_and(|extension| extension == "segment") {
            segments.push(path);
        }
    }
    Ok(())
}

/// Returns the sequence number in the header of a segment's first frame; `None` without a frame.
fn first_sequence_number(segment: &Path) -> std::io::Result<Option<u64>> {
    use std::os::unix::fs::FileExt;
    /// The offset after the segment's header: the frame's magic, and 8 bytes further its first sequence number.
    const FRAME: u64 = 64;
    let mut bytes = [0; 16];
    std::fs::File::open(segment)?.read_exact_at(&mut bytes, FRAME)?;
    let (head, number) = bytes.split_at(8);
    let number = number.try_into().map(u64::from_le_bytes).unwrap_or_default();
    Ok(head.iter().any(|byte| *byte != 0).then_some(number))
}
