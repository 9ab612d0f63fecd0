//! Files that exist completely or not at all.

use std::io;
use std::sync::Arc;

use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::value::{RawValue, to_raw_value};

use crate::disk::{Disk, DiskFile, Open};
use crate::format::FORMAT;

/// The suffix of a file's name until the file is complete.
pub(crate) const UNFINISHED: &str = ".unfinished";

/// Writes a file so that after a crash it exists completely or not at all.
pub(crate) fn write_whole(disk: &dyn Disk, dir: &str, name: &str, bytes: &[u8]) -> io::Result<Arc<dyn DiskFile>> {
    let unfinished = format!("{name}{}", UNFINISHED);
    match disk.remove(&unfinished) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let file = disk.open(&unfinished, Open::Create)?;
    file.write_at(bytes, 0)?;
    file.sync()?;
    disk.rename(&unfinished, name)?;
    disk.sync_dir(dir)?;
    Ok(file)
}

/// No sealed file of a store is larger, in bytes.
pub(crate) const SEALED_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// Reads the first `most` bytes of a file. A longer file is not as written, whatever follows, and must not fill the memory.
pub(crate) fn read_whole(disk: &dyn Disk, path: &str, most: u64) -> io::Result<Vec<u8>> {
    let file = disk.open(path, Open::Read)?;
    let mut bytes = vec![0; file.length()?.min(most) as usize];
    let got = file.read_at(&mut bytes, 0)?;
    bytes.truncate(got);
    Ok(bytes)
}

/// A small JSON document with its format and the checksum of its text.
#[derive(Serialize, Deserialize)]
struct Sealed {
    format: u32,
    content: Box<RawValue>,
    crc32c: u32,
}

/// Encodes a small file: JSON with a checksum.
pub(crate) fn seal(content: &impl Serialize) -> io::Result<Vec<u8>> {
    let content = to_raw_value(content)?;
    let crc32c = crc32c::crc32c(content.get().as_bytes());
    Ok(serde_json::to_vec(&Sealed { format: FORMAT, content, crc32c })?)
}

/// Decodes what [`seal`] encoded, or returns `None` if the bytes are anything else.
pub(crate) fn unseal<T: DeserializeOwned>(bytes: &[u8]) -> Option<T> {
    let sealed: Sealed = serde_json::from_slice(bytes).ok()?;
    let whole = sealed.format == FORMAT && crc32c::crc32c(sealed.content.get().as_bytes()) == sealed.crc32c;
    serde_json::from_str(sealed.content.get()).ok().filter(|_| whole)
}

/// Returns the format that a sealed file states, whatever else a newer version has added to it.
pub(crate) fn format_of(bytes: &[u8]) -> Option<u32> {
    let document: serde_json::Value = serde_json::from_slice(bytes).ok()?;
    document.get("format")?.as_u64()?.try_into().ok()
}
