//! Checks whether an index file agrees with its segment: the index is rebuilt in memory, and the bytes are compared.

use crate::disk::{Disk, Open};
use crate::index::{self, FileIndex, MemoryIndex, PAGE, page_is_whole};
use crate::log::{SegmentFile, names};

use super::super::{Outcome, unreadable};

/// The outcome for an index file.
pub(super) enum Found {
    /// There is no index file.
    None,
    Agrees,
    /// It belongs to the form that the segment had before it was packed.
    OfEarlierForm,
    /// It differs: where and why.
    Differs {
        offset: Option<u64>,
        what: String,
    },
}

/// Compares the index file of a segment with the index built by walking the segment.
pub(super) fn compare(disk: &dyn Disk, dir: &str, at: &SegmentFile, collected: &MemoryIndex) -> Outcome<Found> {
    let name = names::index(dir, at.number);
    let file = match disk.open(&name, Open::Read) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Found::None),
        Err(error) => return Err(unreadable(&name, &error)),
    };
    let due = index::encode(collected, at.number, at.salt, true);
    let length = file.length().map_err(|error| unreadable(&name, &error))?;
    let mut page = vec![0; PAGE];
    for (number, wanted) in (0u32..).zip(due.chunks(PAGE)) {
        let offset = u64::from(number) * PAGE as u64;
        let got = file.read_at(&mut page, offset).map_err(|error| unreadable(&name, &error))?;
        if got == wanted.len() && page[..got] == *wanted {
            continue;
        }
        let what = if !page_is_whole(number, &page[..got]) {
            format!("page {number} of {name} is damaged")
        } else {
            match FileIndex::open(file.clone(), name.clone()) {
                Ok(index)
                    if at.packed.is_some() && index.extent().number == at.number && index.extent().salt != at.salt =>
                {
                    return Ok(Found::OfEarlierForm);
                }
                Ok(index) if (index.extent().number, index.extent().salt) != (at.number, at.salt) => {
                    format!("{name} is the index of another segment")
                }
                _ => format!("page {number} of {name} does not say what the segment holds"),
            }
        };
        return Ok(Found::Differs { offset: Some(offset), what });
    }
    if length != due.len() as u64 {
        let what = format!("{name} has {length} bytes, but the index of its segment has {}", due.len());
        return Ok(Found::Differs { offset: None, what });
    }
    Ok(Found::Agrees)
}
