//! Writes the committed inputs of the targets that read stored bytes: `cargo run --manifest-path fuzz/Cargo.toml --example corpus`
//! from the repository's root, after a change of the format. Time and ids are fixed, so the same format gives the same files.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use annals_core::bson::{DateTime, RawDocumentBuf, doc, rawdoc};
use annals_core::{Clock, Condition, Data, Metadata, NewCommit, NewEvent, Randomness, Sleep, Store, Timestamp, Uuid};
use annals_embedded::disk::{Disk, MemoryDisk, Open};
use annals_embedded::{EmbeddedStore, Options};

const SEGMENT_HEADER: usize = 64;
const FRAME_HEADER: usize = 40;
const PAGE: usize = 4096;
const PAGE_CHECKSUM: usize = 4;

struct Fixed(AtomicU64);

impl Clock for Fixed {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(1_772_366_400_000)
    }

    fn sleep_until(&self, _: Timestamp) -> Sleep<'_> {
        Box::pin(std::future::pending())
    }
}

impl Randomness for Fixed {
    fn bits(&self) -> u128 {
        u128::from(self.0.fetch_add(1, Ordering::Relaxed)).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835)
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let disk = Arc::new(MemoryDisk::default());
    let fixed = Arc::new(Fixed(AtomicU64::new(1)));
    let options = Options {
        segment_bytes_first: 4096,
        segment_bytes_max: 4096,
        clock: fixed.clone(),
        random: fixed,
        ..Options::default()
    };
    let store = EmbeddedStore::open(disk.clone(), options)?;
    let log = store.log("default", "default")?;
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    runtime.block_on(async {
        for commit in commits() {
            log.commit(commit).await?;
        }
        store.close().await;
        Ok::<_, annals_core::CommitError>(())
    })?;
    let segment = whole(&*disk, "tenants/default/default/0000000001.segment")?;
    let frames = frames(&segment);
    write("frames", "segment", &frames.concat())?;
    for (number, frame) in frames.iter().enumerate() {
        write("frames", &format!("frame_{number}"), frame)?;
        let length = u32::from_le_bytes(frame[4..8].try_into()?) as usize;
        write("payload", &format!("payload_{number}"), &frame[FRAME_HEADER..FRAME_HEADER + length])?;
    }
    let index = whole(&*disk, "tenants/default/default/0000000001.index")?;
    let pages = index.chunks(PAGE).map(|page| &page[..PAGE - PAGE_CHECKSUM]);
    write("index", "segment", &pages.collect::<Vec<_>>().concat())?;
    for (number, condition) in conditions().into_iter().enumerate() {
        let documents = [condition.to_bson()?, first_document(), second_document()];
        let bytes: Vec<u8> = documents.iter().flat_map(|document| document.as_bytes().to_vec()).collect();
        write("condition", &format!("condition_{number}"), &bytes)?;
    }
    Ok(())
}

/// Conditions that between them use every operator.
fn conditions() -> Vec<Condition> {
    let date = DateTime::from_millis(1_772_366_400_000);
    vec![
        Condition::eq("a.b.c", "x"),
        Condition::and([Condition::gt("n", 1), Condition::lte("n", i64::MAX), Condition::ne("at", date)]),
        Condition::or([Condition::between("n", 0.5, 2), Condition::is_in("list", [1, 2]), Condition::missing("gone")]),
        Condition::nor([Condition::not_in("s", ["a"]), Condition::gte("a", nested()), Condition::lt("list.0", 3)]),
    ]
}

fn nested() -> annals_core::bson::Document {
    doc! { "b": { "c": "x" } }
}

fn first_document() -> RawDocumentBuf {
    rawdoc! { "_id": 1, "a": { "b": [{ "c": "x" }] }, "n": 1.5, "list": [1, [2], "3"], "at": DateTime::from_millis(0) }
}

fn second_document() -> RawDocumentBuf {
    rawdoc! { "_id": "two", "n": i64::MIN, "s": "a\0b", "list": [], "a": true }
}

/// Commits that between them use every field; the last ones fill the segment, so that it is closed.
fn commits() -> Vec<NewCommit> {
    let data = |json: &str| Data::from_json(json).unwrap_or_else(|error| panic!("{json}: {error}"));
    let plain = NewCommit::new("order", "o-1").event(NewEvent::new("order_placed", data(r#"{"total":12.5}"#)));
    let second = NewCommit::new("order", "o-1").request_id("again").event(NewEvent::new("order_paid", Data::empty()));
    let event = NewEvent {
        generation: 3,
        id: Some(Uuid::from_u128(7)),
        public: true,
        time: Some(Timestamp::from_millis(-1)),
        metadata: Metadata::of(data(r#"{"trace":"t-1","attempt":2,"cost":0.5}"#)).unwrap_or_default(),
        ..NewEvent::new("opened", data(r#"{"a":[1,null,true,{"b":"c"}],"n":-9223372036854775808}"#)).tag("x").tag("ä")
    };
    let whole = NewCommit {
        request_id: Some("0190e5a4-8f3e-7c21-9d30-3f6f0d1f7b11".into()),
        command_id: Some("command".into()),
        header: vec![("b".into(), "1".into()), ("a".into(), "".into())],
        tenant_id: Some("tenant".into()),
        owner_id: Some("owner".into()),
        space_id: Some("space".into()),
        correlation_id: Some("correlation".into()),
        causation_id: Some("causation".into()),
        ..NewCommit::new("door", "7").event(event.clone()).event(NewEvent { id: None, time: None, ..event })
    };
    let large = NewEvent::new("filled", data(&format!(r#"{{"text":"{}"}}"#, "x".repeat(1_500))));
    let filling = (0..4).map(|n| NewCommit::new("filler", format!("f-{n}")).event(large.clone()));
    [plain, second, whole].into_iter().chain(filling).collect()
}

fn whole(disk: &dyn Disk, path: &str) -> std::io::Result<Vec<u8>> {
    let file = disk.open(path, Open::Read)?;
    let mut bytes = vec![0; file.length()? as usize];
    let read = file.read_at(&mut bytes, 0)?;
    bytes.truncate(read);
    Ok(bytes)
}

/// The frames of a segment, each with its padding.
fn frames(segment: &[u8]) -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    let mut rest = &segment[SEGMENT_HEADER..];
    while rest.len() > FRAME_HEADER && rest[0] != 0 {
        let length = u32::from_le_bytes([rest[4], rest[5], rest[6], rest[7]]) as usize;
        let padded = (FRAME_HEADER + length).next_multiple_of(8).min(rest.len());
        frames.push(rest[..padded].to_vec());
        rest = &rest[padded..];
    }
    frames
}

fn write(target: &str, name: &str, bytes: &[u8]) -> std::io::Result<()> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target);
    std::fs::create_dir_all(&folder)?;
    println!("{}/{name}: {} bytes", folder.display(), bytes.len());
    std::fs::write(folder.join(name), bytes)
}
