//! `annals-blocks`: the entries of about 1,000 commits in one document, so that a reader that starts at the beginning of the log need not
//! read an entry for each commit. Blocks are derived from the entries; everything works without them.
//!
//! ```text
//! {_id: first number, end: number behind, last: first number of the last commit, colls[], commits: binary}
//! commits: of each  events, place in colls, id     numbers have 7 bits a byte, the lowest first
//! id: 0 and the 16 bytes of a UUID, or the length of another text and one more, and its bytes
//! ```
//!
//! INVARIANT: blocks form a chain: each begins where the previous one ends. `_id` is unique, so no two blocks disagree about a number.

use std::collections::HashMap;

use annals_core::{ByteString, SequenceNumber};
use mongodb::bson::{Document, RawDocument, RawDocumentBuf, doc};
use uuid::Uuid;
use uuid::fmt::Hyphenated;

use super::entry::Entry;
use super::fields::{Field, fields, text};
use super::names::ENTRIES;
use super::writer::Writer;

/// Commits in a block.
pub(crate) const COMMITS: usize = 1000;
/// Approximate limit of the bytes of ids and names in a block: it is shorter if those of other software are long.
const BYTES_MAX: usize = 1024 * 1024;

/// Contiguous entries.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Block {
    pub(crate) first: SequenceNumber,
    /// The number after its last event.
    pub(crate) end: SequenceNumber,
    pub(crate) entries: Vec<Entry>,
}

impl Block {
    pub(crate) fn holds(&self, number: SequenceNumber) -> bool {
        self.first <= number && number < self.end
    }
}

/// Returns how many of these entries form a block that begins at `from`; `None` if there are too few, or if they are not contiguous.
pub(crate) fn full(entries: &[Entry], from: SequenceNumber) -> Option<usize> {
    let (mut next, mut bytes) = (from, 0);
    for (at, entry) in entries.iter().enumerate() {
        if entry.first != next || entry.count == 0 {
            return None;
        }
        next += entry.count;
        bytes += entry.commit.len() + entry.collection.len();
        if at + 1 == COMMITS || bytes >= BYTES_MAX {
            return Some(at + 1);
        }
    }
    None
}

/// Writes a block of contiguous entries; `None` if there are no entries.
pub(crate) fn write(entries: &[Entry]) -> Option<Result<RawDocumentBuf, mongodb::bson::error::Error>> {
    let (first, last) = entries.first().zip(entries.last())?;
    let mut collections: Vec<&str> = Vec::new();
    let mut places: HashMap<&str, usize> = HashMap::new();
    let mut commits = Vec::with_capacity(entries.len() * 20);
    for entry in entries {
        let place = *places.entry(&*entry.collection).or_insert_with(|| {
            collections.push(&entry.collection);
            collections.len() - 1
        });
        push_natural(&mut commits, entry.count);
        push_natural(&mut commits, place as u64);
        push_id(&mut commits, &entry.commit);
    }
    let mut out = Writer::with_capacity(commits.len() + 256);
    out.int64("_id", first.first as i64);
    out.int64("end", (last.first + last.count) as i64);
    out.int64("last", last.first as i64);
    out.texts("colls", collections.into_iter());
    out.binary("commits", 0, &commits);
    Some(out.raw())
}

/// Returns the pipeline for the block that contains this number, or else the last one before it, with the entry that [`read`] needs as its
/// proof.
pub(crate) fn at(number: SequenceNumber) -> [Document; 4] {
    found(doc! { "$lte": bound(number) }, -1, 1)
}

/// Returns the pipeline for at most `most` blocks, starting where one of them begins.
pub(crate) fn from(first: SequenceNumber, most: usize) -> [Document; 4] {
    found(doc! { "$gte": bound(first) }, 1, most)
}

fn bound(number: SequenceNumber) -> i64 {
    number.min(i64::MAX as u64) as i64
}

fn found(range: Document, order: i32, most: usize) -> [Document; 4] {
    let proof = doc! {
        "from": ENTRIES, "localField": "last", "foreignField": "_id", "as": "proof",
        "pipeline": [{ "$project": { "commit": 1 } }],
    };
    [
        doc! { "$match": { "_id": range } },
        doc! { "$sort": { "_id": order } },
        doc! { "$limit": most as i64 },
        doc! { "$lookup": proof },
    ]
}

/// Reads a block. It is valid only if its last entry is in the log and agrees with it: a database that was partially restored may have
/// blocks of an earlier state.
///
/// # Errors
/// A sentence that says what is wrong.
pub(crate) fn read(document: &RawDocument) -> Result<Block, String> {
    let [first, end, collections, commits, proof] = fields(document, ["_id", "end", "colls", "commits", "proof"]);
    let number = |value: Option<Field<'_>>| value.and_then(Field::natural).ok_or("a bound is no number");
    let (first, end) = (number(first)?, number(end)?);
    let collections = collections.and_then(Field::values).ok_or("colls is no array")?;
    let collections = collections.map(|name| name.and_then(Field::text).map(ByteString::from));
    let collections: Vec<ByteString> = collections.collect::<Option<_>>().ok_or("colls holds what is no text")?;
    let mut rest = commits.and_then(Field::binary).ok_or("commits is no binary")?;
    let mut entries = Vec::with_capacity(COMMITS);
    let mut next = first;
    while !rest.is_empty() {
        let entry = take_entry(&mut rest, next, &collections).ok_or("commits is cut")?;
        next = next.checked_add(entry.count).ok_or("commits goes beyond every number")?;
        entries.push(entry);
    }
    let last = entries.last().filter(|_| next == end).ok_or("commits does not reach to its end")?;
    let proof = proof.and_then(Field::values).and_then(|mut found| found.next().flatten()).and_then(Field::document);
    if proof.and_then(|proof| text(proof, "commit")) != Some(&*last.commit) {
        return Err(format!("{ENTRIES} has another commit at {}", last.first));
    }
    Ok(Block { first, end, entries })
}

fn take_entry(rest: &mut &[u8], first: SequenceNumber, collections: &[ByteString]) -> Option<Entry> {
    let count = take_natural(rest).filter(|count| *count > 0)?;
    let collection = collections.get(usize::try_from(take_natural(rest)?).ok()?)?.clone();
    Some(Entry { first, count, collection, commit: take_id(rest)? })
}

fn push_id(out: &mut Vec<u8>, id: &str) {
    match Uuid::try_parse(id) {
        // Only the canonical form becomes 16 bytes, so that every id is read back unchanged.
        Ok(uuid) if *uuid.hyphenated().encode_lower(&mut Uuid::encode_buffer()) == *id => {
            out.push(0);
            out.extend_from_slice(uuid.as_bytes());
        }
        _ => {
            // The length plus one, because 0 marks a UUID.
            push_natural(out, id.len() as u64 + 1);
            out.extend_from_slice(id.as_bytes());
        }
    }
}

fn take_id(rest: &mut &[u8]) -> Option<String> {
    match take_natural(rest)? {
        0 => {
            let uuid = Uuid::from_slice(rest.split_off(..16)?).ok()?;
            let mut text = [0; Hyphenated::LENGTH];
            Some(uuid.hyphenated().encode_lower(&mut text).to_owned())
        }
        length => {
            let bytes = rest.split_off(..usize::try_from(length).ok()? - 1)?;
            String::from_utf8(bytes.to_vec()).ok()
        }
    }
}

fn push_natural(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

fn take_natural(rest: &mut &[u8]) -> Option<u64> {
    let mut number = 0_u64;
    for place in 0..9 {
        let byte = *rest.split_off_first()?;
        number |= u64::from(byte & 0x7f) << (7 * place);
        if byte < 0x80 {
            return Some(number);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn entries(of: &[(u64, &str, &str)], from: SequenceNumber) -> Vec<Entry> {
        let mut next = from;
        let entry = |&(count, collection, commit): &(u64, &str, &str)| {
            let first = next;
            next += count;
            Entry { first, count, collection: collection.into(), commit: commit.to_owned() }
        };
        of.iter().map(entry).collect()
    }

    /// The block as it comes back, proven by an entry of this commit.
    fn read_back(entries: &[Entry], proof: &str) -> Result<Block, String> {
        let stored = write(entries).expect("there are entries").expect("it is written");
        let mut document = Document::try_from(&*stored).expect("it is a document");
        document.insert("proof", vec![doc! { "_id": 1_i64, "commit": proof }]);
        read(&RawDocumentBuf::try_from(&document).expect("it is a document"))
    }

    #[test]
    fn a_block_is_not_believed_when_the_log_says_something_else() {
        let some = entries(&[(1, "order_event_stream", "a"), (3, "cart_event_stream", "b")], 7);
        assert_eq!(read_back(&some, "b").map(|block| (block.first, block.end)), Ok((7, 11)));
        assert!(read_back(&some, "a").expect_err("another commit is there").contains("at 8"));
        let stored = write(&some).expect("there are entries").expect("it is written");
        assert!(read(&stored).expect_err("no entry is there").contains("at 8"));
    }

    #[test]
    fn a_block_that_is_cut_or_damaged_is_no_block() {
        let some = entries(&[(1, "c", "018f0000-0000-7000-8000-000000000001"), (2, "c", "x")], 0);
        let stored = write(&some).expect("there are entries").expect("it is written");
        let mut document = Document::try_from(&*stored).expect("it is a document");
        document.insert("proof", vec![doc! { "commit": "x" }]);
        let commits = document.get_binary_generic("commits").expect("it is binary").clone();
        for length in 0..commits.len() {
            let mut cut = document.clone();
            let bytes = commits[..length].to_vec();
            cut.insert(
                "commits",
                mongodb::bson::Binary { subtype: mongodb::bson::spec::BinarySubtype::Generic, bytes },
            );
            assert!(read(&RawDocumentBuf::try_from(&cut).expect("it is a document")).is_err(), "{length}");
        }
        for (key, value) in [("end", 4_i64.into()), ("colls", Vec::<String>::new().into()), ("_id", "0".into())] {
            let value: mongodb::bson::Bson = value;
            let mut other = document.clone();
            other.insert(key, value);
            assert!(read(&RawDocumentBuf::try_from(&other).expect("it is a document")).is_err(), "{key}");
        }
    }

    #[test]
    fn a_block_is_full_or_there_is_none() {
        let many: Vec<_> = (0..COMMITS as u64).map(|_| (2, "c", "x")).collect();
        let mut some = entries(&many, 5);
        assert_eq!(full(&some, 5), Some(COMMITS));
        assert_eq!(full(&some[1..], 5), None, "one is missing");
        assert_eq!(full(&some[1..], 7), None, "too few");
        some[10].first += 1;
        assert_eq!(full(&some, 5), None, "a hole");
        let long = "x".repeat(BYTES_MAX / 2);
        assert_eq!(full(&entries(&[(1, "c", &long), (1, "c", &long), (1, "c", "y")], 0), 0), Some(2));
    }

    proptest! {
        #[test]
        fn entries_come_back_as_they_were(
            of in proptest::collection::vec((1_u64..20_000, "[a-c]{1,3}", "[0-9a-f]{0,3}|[a-zA-Z0-9é-]{36}|[0-9a-fA-F]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-8[0-9a-f]{3}-[0-9a-f]{12}"), 1..50),
            from in 0_u64..1 << 40,
        ) {
            let of: Vec<_> = of.iter().map(|(count, collection, id)| (*count, &**collection, &**id)).collect();
            let some = entries(&of, from);
            let block = read_back(&some, &some[some.len() - 1].commit);
            prop_assert_eq!(block.map(|block| block.entries), Ok(some));
        }
    }
}
