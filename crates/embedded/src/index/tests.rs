use std::sync::Arc;

use super::file::encode;
use super::*;
use crate::disk::{Disk, DiskFile, MemoryDisk, Open};
use crate::terms::TermKey;

const KEY: TermKey = TermKey([3; 16]);

/// `count` commits of one to three events over a few aggregates, types and tags.
fn sample(count: u32) -> MemoryIndex {
    let mut index = MemoryIndex::new(1_000);
    let (mut sequence_number, mut offset) = (1_000, 64);
    for n in 0..count {
        let aggregate = annals_core::Aggregate::new(format!("name{}", n % 2), format!("id{:03}", n % 37));
        let events = n % 3 + 1;
        let terms = [KEY.aggregate_name(&aggregate.name), KEY.event_type(&format!("t{}", n % 5)), KEY.tag("even")];
        index.push(&IndexedCommit {
            entry: Entry { sequence_number, offset, length: 100 + n },
            events,
            version: u64::from(n / 37 + 1),
            aggregate: &aggregate,
            aggregate_term: KEY.aggregate(&aggregate),
            request_term: KEY.request(&aggregate, &n.to_string()),
            terms: &terms[..if n % 2 == 0 { 3 } else { 2 }],
            tenant_id: &"(0)".into(),
        });
        sequence_number += u64::from(events);
        offset += u64::from(100 + n).next_multiple_of(8);
    }
    index
}

fn file_of(bytes: &[u8]) -> Arc<dyn DiskFile> {
    let file = MemoryDisk::default().open("index", Open::Create).expect("a new file");
    file.write_at(bytes, 0).expect("memory");
    file
}

#[test]
fn a_file_gives_the_same_answers_as_the_memory_it_was_made_from() {
    for count in [0, 1, 255, 256, 257, 2_000] {
        let memory = sample(count);
        let file = FileIndex::open(file_of(&encode(&memory, 4, 5, true)), "index".into()).expect("opens");
        assert_eq!((file.extent().number, file.extent().salt, file.extent().end), (4, 5, memory.end()));
        assert_eq!((file.commits(), file.next_sequence_number()), (memory.commits(), memory.next_sequence_number()));
        let all: Vec<u32> = (0..count + 1).collect();
        assert_eq!(file.entries(&all), Ok(memory.entries(&all)));
        assert_eq!(file.entries(&[0, 2, 3, 900]), Ok(memory.entries(&[0, 2, 3, 900])));
        for n in (990..memory.next_sequence_number() + 3).step_by(if count > 300 { 7 } else { 1 }) {
            assert_eq!(file.ordinal_of(n), Ok(memory.ordinal_of(n)), "sequence number {n}");
        }
        let mut terms: Vec<_> = (0..6).map(|n| KEY.event_type(&format!("t{n}"))).collect();
        terms.extend([KEY.tag("even"), KEY.tag("odd"), KEY.aggregate_name("name0"), KEY.aggregate_name("name2")]);
        terms.extend(
            (0..40).map(|n| {
                crate::terms::short(KEY.aggregate(&annals_core::Aggregate::new("name1", format!("id{n:03}"))))
            }),
        );
        for term in terms {
            for within in [0..u32::MAX, 0..0, 3..3, 2..260, 90..250] {
                assert_eq!(file.postings(term, within.clone()), Ok(memory.postings(term, within)));
            }
        }
        for after in ["", "name0\0", "name0\0id003", "name1\0id005x", "name9"] {
            for prefix in ["name0\0", "name1\0", "name\0"] {
                let (after, prefix) = (after.as_bytes(), prefix.as_bytes());
                assert_eq!(file.aggregates(prefix, after, 5), Ok(memory.aggregates(prefix, after, 5)));
            }
        }
    }
}

#[test]
fn every_request_is_found_in_the_file() {
    let memory = sample(700);
    let file = FileIndex::open(file_of(&encode(&memory, 1, 1, true)), "index".into()).expect("opens");
    for n in 0..700 {
        let aggregate = annals_core::Aggregate::new(format!("name{}", n % 2), format!("id{:03}", n % 37));
        let request = KEY.request(&aggregate, &n.to_string());
        assert_eq!(memory.request(request), Some(n));
        assert_eq!(file.postings(crate::terms::short(request), 0..u32::MAX), Ok(vec![n]));
    }
}

#[test]
fn a_flipped_byte_is_a_fault_and_never_a_wrong_answer() {
    let memory = sample(600);
    let good = encode(&memory, 1, 1, true);
    let term = KEY.event_type("t1");
    let all: Vec<u32> = (0..600).collect();
    for at in (0..good.len()).step_by(61) {
        let mut bad = good.clone();
        bad[at] ^= 0x40;
        let Ok(file) = FileIndex::open(file_of(&bad), "index".into()) else { continue };
        let postings = file.postings(term, 0..u32::MAX);
        assert!(postings.is_err() || postings == Ok(memory.postings(term, 0..u32::MAX)));
        assert!(file.entries(&all).is_err() || file.entries(&all) == Ok(memory.entries(&all)));
        let keys = file.aggregates(b"name1\0", b"", 50);
        assert!(keys.is_err() || keys == Ok(memory.aggregates(b"name1\0", b"", 50)));
    }
    for cut in (0..good.len()).step_by(997) {
        assert!(FileIndex::open(file_of(&good[..cut]), "index".into()).is_err());
    }
}
