//! Files of the archive: their paths, and the events that they hold.

use std::fmt::Write;

use bson::spec::BinarySubtype;
use bson::{Binary, DateTime};
use serde::{Deserialize, Serialize};

use crate::{Index, RecordType, Timestamp};

/// The collection of the archive's files.
pub const ARCHIVE_FILES: &str = "annals-archive-files";

/// The record of an archive file. It is written in the same batch that lets the file's events expire.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ArchiveFileRecord {
    /// Its path below the archive's folder.
    #[serde(rename = "_id")]
    pub path: String,
    /// Its name, which is unique.
    pub name: String,
    /// The type of its events.
    pub event_type: String,
    /// The day of its events, `YYYY-MM-DD` in UTC.
    pub day: String,
    /// The number of its events.
    pub events: i64,
    /// Its length in bytes.
    pub bytes: i64,
    /// The SHA-256 of its content, in hexadecimal digits.
    pub sha256: String,
    /// The lowest id of its events.
    pub first_id: String,
    /// The highest id of its events.
    pub last_id: String,
    /// The sequence numbers of its events, packed by [`packed_numbers`], except those of documents that other software wrote.
    pub numbers: Binary,
    /// When the file was written.
    pub written: DateTime,
}

impl RecordType for ArchiveFileRecord {
    const COLLECTION: &'static str = ARCHIVE_FILES;

    fn indexes() -> Vec<Index> {
        let of_day = Index::ordered([
            ("event_type", crate::order::Direction::Ascending),
            ("day", crate::order::Direction::Ascending),
        ]);
        let mut name = Index::on("name");
        name.unique = true;
        vec![of_day.into(), name.into(), Index::on("first_id").into()]
    }
}

/// Returns the path of a file for events of a type and day, and the day. DuckDB and Arrow read the folders as the columns `type` and
/// `day`.
pub fn file_path(event_type: &str, happened_ms: i64, name: &str) -> (String, String) {
    let text = Timestamp::from_millis(happened_ms).nearest_writable().to_string();
    let day = text.split('T').next().unwrap_or_default().to_owned();
    (format!("type={}/day={day}/{name}", escaped(event_type)), day)
}

/// Percent-encodes every byte that the name of a type cannot contain.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-' | b'.' => out.push(char::from(byte)),
            // Writing to a string cannot fail.
            other => _ = write!(out, "%{other:02X}"),
        }
    }
    out
}

/// Packs ascending numbers as a varint of each one's distance from its predecessor.
pub fn packed_numbers(numbers: &[u64]) -> Binary {
    let (mut bytes, mut before) = (Vec::with_capacity(numbers.len() * 2), 0);
    for number in numbers {
        let mut rest = number.wrapping_sub(before);
        before = *number;
        while rest >= 0x80 {
            bytes.push((rest & 0x7f) as u8 | 0x80);
            rest >>= 7;
        }
        bytes.push(rest as u8);
    }
    Binary { subtype: BinarySubtype::Generic, bytes }
}

/// Unpacks numbers that [`packed_numbers`] packed.
pub fn numbers_of(packed: &Binary) -> Vec<u64> {
    let (mut numbers, mut before, mut rest, mut shift) = (Vec::new(), 0_u64, 0_u64, 0_u32);
    for byte in &packed.bytes {
        rest |= u64::from(byte & 0x7f).checked_shl(shift).unwrap_or(0);
        shift += 7;
        if byte & 0x80 == 0 {
            before = before.wrapping_add(rest);
            numbers.push(before);
            (rest, shift) = (0, 0);
        }
    }
    numbers
}
