//! Files of the archive: where they are, and which events they hold.

use std::fmt::Write;

use bson::spec::BinarySubtype;
use bson::{Binary, DateTime};
use serde::{Deserialize, Serialize};

use crate::{Index, RecordType, Timestamp};

/// The collection of the archive's files.
pub const ARCHIVE_FILES: &str = "annals-archive-files";

/// A file of the archive. The record is written in the batch that lets the events of the file expire.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ArchiveFileRecord {
    /// Its path below the archive's folder.
    #[serde(rename = "_id")]
    pub path: String,
    /// Its name, which no other file has.
    pub name: String,
    /// The type of its events.
    pub event_type: String,
    /// The day on which they happened, `YYYY-MM-DD` in UTC.
    pub day: String,
    /// How many they are.
    pub events: i64,
    /// Its length.
    pub bytes: i64,
    /// The SHA-256 of its content, in hexadecimal digits.
    pub sha256: String,
    /// The lowest of their ids.
    pub first_id: String,
    /// The highest of their ids.
    pub last_id: String,
    /// Their sequence numbers, packed by [`packed_numbers`]; without those of documents that other software wrote.
    pub numbers: Binary,
    /// When it was written.
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

/// Returns the day of a time, and the path of a file for events of a type and that day: folders that DuckDB and Arrow read as the columns
/// `type` and `day`.
pub fn file_path(event_type: &str, happened_ms: i64, name: &str) -> (String, String) {
    let text = Timestamp::from_millis(happened_ms).nearest_writable().to_string();
    let day = text.split('T').next().unwrap_or_default().to_owned();
    (format!("type={}/day={day}/{name}", escaped(event_type)), day)
}

/// A text as part of a path: whatever a name of a type cannot have is percent-encoded.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-' | b'.' => out.push(char::from(byte)),
            // Writing to a text cannot fail.
            other => _ = write!(out, "%{other:02X}"),
        }
    }
    out
}

/// Packs ascending numbers: each is the distance to the one before, in groups of seven bits.
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

/// Returns packed numbers.
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
