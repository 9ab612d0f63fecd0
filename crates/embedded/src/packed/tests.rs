use std::sync::Arc;

use annals_conformance::model::{Operation, Operations, Shape};
use annals_core::{Data, NewCommit, NewEvent, ReceivedFrom, Subscription, Timestamp, TransactionPlace, Uuid};
use bytes::Bytes;

use super::{Codes, Counts, Dictionary, Packed, SPARE, pack, unpack};
use crate::record::{self, Stamp};

const SALT: u64 = 0x5eed;

/// A packed segment without its file.
struct Made {
    packed: Packed,
    bytes: Vec<u8>,
    places: Vec<(u64, u32)>,
}

fn codes(payloads: &[Bytes]) -> Codes {
    let mut counts = Counts::default();
    payloads.iter().for_each(|payload| counts.add(payload));
    counts.choose()
}

fn make(payloads: &[Bytes], codes: &Codes) -> Made {
    let dictionary = Dictionary::decode(&codes.encode()).expect("it was encoded");
    let (mut bytes, mut places) = (Vec::new(), Vec::new());
    for (n, payload) in (0..).zip(payloads) {
        let offset = bytes.len();
        pack(codes, &dictionary, (SALT, offset as u64), (n, n + 1), payload, &mut bytes);
        places.push((offset as u64, (bytes.len() - offset) as u32));
    }
    Made { packed: Packed { dictionary, first: 100, records_at: 0 }, bytes, places }
}

/// The payloads, with the sequence numbers and versions that stand beside them.
fn read(made: &Made, from: usize, to: usize) -> Option<Vec<(Bytes, u64, u64)>> {
    let places = &made.places[from..to];
    let start = places[0].0 as usize;
    let end = places[places.len() - 1].0 as usize + places[places.len() - 1].1 as usize;
    let mut bytes = made.bytes[start..end].to_vec();
    bytes.extend_from_slice(&[0; SPARE]);
    let mut payloads = Vec::new();
    let unpacked = unpack(&made.packed, SALT, &bytes, places.iter().copied(), &mut payloads).ok()?;
    let payloads = Bytes::from(payloads);
    let part = |it: &super::Unpacked| (payloads.slice(it.start..it.end), it.sequence_number, it.version);
    Some(unpacked.iter().map(part).collect())
}

#[track_caller]
fn come_back(payloads: &[Bytes]) -> usize {
    let made = make(payloads, &codes(payloads));
    let due: Vec<_> = (0..).zip(payloads).map(|(n, payload)| (payload.clone(), 100 + n, n + 1)).collect();
    assert_eq!(read(&made, 0, payloads.len()), Some(due.clone()));
    for (n, due) in due.into_iter().enumerate() {
        assert_eq!(read(&made, n, n + 1), Some(vec![due]), "alone");
    }
    made.bytes.len()
}

fn received_from(random: &mut fastrand::Rng) -> Arc<ReceivedFrom> {
    let part = |random: &mut fastrand::Rng| ["m", "", "a partition"][random.usize(0..3)].into();
    let subscription =
        Subscription { producer: part(random), tenant: part(random), stream: part(random), partition: part(random) };
    let at = Timestamp::from_millis(random.i64(..));
    let (sequence_number, position) = (random.u64(..), random.u64(0..300));
    Arc::new(ReceivedFrom { subscription, sequence_number, position, consent: Uuid::from_u128(random.u128(..)), at })
}

fn stamp(random: &mut fastrand::Rng) -> Stamp {
    let id = Uuid::from_u128(random.u128(..));
    let transaction = random.bool().then(|| TransactionPlace { id, place: random.u32(0..3), count: 3 });
    let now = [0, -1, 1_772_366_400_000, i64::MAX][random.usize(0..4)];
    Stamp {
        commit_id: Uuid::from_u128(random.u128(..)),
        digest: random.u128(..),
        now: Timestamp::from_millis(now),
        transaction,
        received: (random.u8(0..4) == 0).then(|| received_from(random)),
    }
}

/// Whatever the model's clients commit.
fn commits(seed: u64, shape: Shape) -> Vec<NewCommit> {
    let mut operations = Operations::new(seed, shape);
    let mut commits = Vec::new();
    while commits.len() < 150 {
        match operations.next_operation() {
            Operation::Commit(commit) => commits.push(commit),
            Operation::Transact(transaction) => commits.extend(transaction.commits),
            _ => {}
        }
    }
    commits
}

#[test]
fn whatever_is_committed_unpacks_to_the_same_bytes() {
    for seed in 0..40 {
        let mut random = fastrand::Rng::with_seed(seed);
        let shape = Shape { bytes_max: [20, 200, 3_000][random.usize(0..3)], ..Shape::default() };
        let encode = |commit: &NewCommit| Bytes::from(record::encode(commit, &stamp(&mut random)));
        let payloads: Vec<_> = commits(seed, shape).iter().map(encode).collect();
        assert!(come_back(&payloads) < payloads.iter().map(|payload| payload.len() + 8).sum());
    }
}

/// The type and the value of an element: every type that BSON has, those with a rare form too.
fn element(random: &mut fastrand::Rng, depth: usize, out: &mut Vec<u8>) {
    let kinds = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 0x7f, 0xff];
    let kind = kinds[random.usize(0..if depth > 18 { 2 } else { kinds.len() })];
    out.push(kind);
    out.extend_from_slice(["a", "b", "name", "", "0", "a longer name of a field"][random.usize(0..6)].as_bytes());
    out.push(0);
    let bytes = |random: &mut fastrand::Rng, length: usize| (0..length).map(|_| random.u8(..)).collect::<Vec<u8>>();
    let text = |random: &mut fastrand::Rng, out: &mut Vec<u8>| {
        let text = ["", "x", "EUR", "placed", "ž", "a text that is longer than sixteen bytes"][random.usize(0..6)];
        let text = if random.bool() { text.to_owned() } else { format!("{text}{}", random.u64(..)).repeat(3) };
        out.extend_from_slice(&(text.len() as u32 + 1).to_le_bytes());
        out.extend_from_slice(text.as_bytes());
        out.push(0);
    };
    match kind {
        2 | 13 | 14 => text(random, out),
        3 | 4 => document(random, depth + 1, out),
        5 => {
            let length = random.usize(0..40);
            out.extend_from_slice(&(length as u32).to_le_bytes());
            out.extend(bytes(random, length + 1));
        }
        11 => out.extend_from_slice(b"^a\0i\0"),
        12 => {
            text(random, out);
            out.extend(bytes(random, 12));
        }
        15 => {
            let start = out.len();
            out.extend_from_slice(&[0; 4]);
            text(random, out);
            document(random, depth + 1, out);
            let length = (out.len() - start) as u32;
            out[start..start + 4].copy_from_slice(&length.to_le_bytes());
        }
        8 => out.push(random.u8(0..2)),
        16 => out.extend_from_slice(&random.i32(-300..300).to_le_bytes()),
        1 | 9 | 17 | 18 => {
            let number = if random.bool() { random.u64(..) } else { random.u64(0..300) };
            out.extend_from_slice(&number.to_le_bytes());
        }
        7 => out.extend(bytes(random, 12)),
        19 => out.extend(bytes(random, 16)),
        _ => {}
    }
}

fn document(random: &mut fastrand::Rng, depth: usize, out: &mut Vec<u8>) {
    let start = out.len();
    out.extend_from_slice(&[0; 4]);
    let most = if depth < 3 { 7 } else { 2 };
    (0..random.usize(0..most)).for_each(|_| element(random, depth, out));
    out.push(0);
    let length = (out.len() - start) as u32;
    out[start..start + 4].copy_from_slice(&length.to_le_bytes());
}

fn events(documents: Vec<Vec<u8>>, random: &mut fastrand::Rng) -> Vec<Bytes> {
    let commit = |documents: &[Vec<u8>]| {
        let mut commit = NewCommit::new("order", format!("{}", random.u8(0..9)));
        for document in documents {
            let data = Data::from_stored(document.clone().into()).expect("its length is right");
            commit = commit.event(NewEvent::new("placed", data));
        }
        Bytes::from(record::encode(&commit, &stamp(random)))
    };
    documents.chunks(3).map(commit).collect()
}

#[test]
fn documents_of_every_type_unpack_to_the_same_bytes() {
    for seed in 0..60 {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut kinds: Vec<_> = (0..20).map(|_| random.u64(..)).collect();
        kinds.extend_from_within(..10);
        let documents = (0..200).map(|_| {
            // Some come again as they were, some with the same fields and other values.
            let mut fields = fastrand::Rng::with_seed(kinds[random.usize(0..kinds.len())]);
            let mut out = Vec::new();
            document(&mut fields, 1, &mut out);
            out
        });
        let documents = documents.collect();
        come_back(&events(documents, &mut random));
    }
}

#[test]
fn documents_whose_lengths_do_not_agree_unpack_to_the_same_bytes() {
    let mut random = fastrand::Rng::with_seed(3);
    let documents = (0..3_000).map(|n| {
        let mut out = Vec::new();
        let kind = n % 30;
        document(&mut fastrand::Rng::with_seed(kind), 1, &mut out);
        if n % 3 > 0 && out.len() > 5 {
            let at = random.usize(4..out.len() - 1);
            out[at] = random.u8(..);
        }
        out
    });
    // The outermost length is all that a stored document promises, and its last byte.
    let documents = documents.collect();
    come_back(&events(documents, &mut random));
}

#[test]
fn deep_documents_and_very_long_shapes_are_stored_as_they_are() {
    let mut deep = vec![5, 0, 0, 0, 0];
    for _ in 0..40 {
        let mut outer = (deep.len() as u32 + 8).to_le_bytes().to_vec();
        outer.extend_from_slice(&[3, b'a', 0]);
        outer.extend_from_slice(&deep);
        outer.push(0);
        deep = outer;
    }
    let names: String = (0..2_000).map(|n| format!("\"field{n}\":{n},")).collect();
    let wide = Data::from_json(&format!("{{{}}}", names.trim_end_matches(','))).expect("valid");
    let documents = vec![deep.clone(), wide.as_bytes().to_vec(), deep, wide.as_bytes().to_vec()];
    come_back(&events(documents, &mut fastrand::Rng::with_seed(1)));
}

#[test]
fn no_altered_byte_goes_unnoticed_and_none_is_unsafe() {
    let mut random = fastrand::Rng::with_seed(9);
    let payloads: Vec<_> = commits(5, Shape::default())
        .iter()
        .take(20)
        .map(|commit| Bytes::from(record::encode(commit, &stamp(&mut random))))
        .collect();
    let mut made = make(&payloads, &codes(&payloads));
    for n in 0..made.places.len() {
        let (offset, length) = made.places[n];
        for at in offset as usize..offset as usize + length as usize {
            made.bytes[at] ^= 1 << random.u8(0..8);
            let altered = read(&made, n, n + 1);
            // The byte that checks the length is for those who have no index.
            let is_check = altered.as_ref().is_some_and(|read| read[0].0 == payloads[n]);
            assert!(altered.is_none() || is_check, "byte {at}");
            made = make(&payloads, &codes(&payloads));
        }
    }
}

#[test]
fn a_dictionary_that_is_not_one_is_refused() {
    let payloads = events(
        vec![Data::from_json(r#"{"a":"text","b":[1,2]}"#).expect("valid").as_bytes().to_vec(); 9],
        &mut fastrand::Rng::with_seed(1),
    );
    let bytes = codes(&payloads).encode();
    assert!(Dictionary::decode(&bytes).is_some());
    for length in 0..bytes.len() {
        assert!(Dictionary::decode(&bytes[..length]).is_none(), "{length}");
    }
    let mut random = fastrand::Rng::with_seed(2);
    for _ in 0..5_000 {
        let mut altered = bytes.clone();
        let at = random.usize(..altered.len());
        altered[at] = random.u8(..);
        // Whatever it is, it is read without a panic; its checksum says whether it is right.
        let _ = Dictionary::decode(&altered);
    }
}
