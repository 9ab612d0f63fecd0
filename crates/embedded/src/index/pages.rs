//! Pages with checksums, of which an index file consists.
//!
//! A page is 4,092 bytes followed by the crc32c of its number and those bytes. A section is a sequence of bytes over consecutive pages.

use std::sync::Arc;

use super::{Answer, IndexFault};
use crate::disk::DiskFile;
use crate::format::u32_at;

pub(crate) const PAGE: usize = 4096;
pub(super) const PAGE_DATA: usize = PAGE - 4;

/// A sequence of bytes over consecutive pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Section {
    pub(super) first_page: u32,
    pub(super) length: u64,
}

/// Appends `bytes` to `out` as whole pages.
pub(super) fn append(out: &mut Vec<u8>, bytes: &[u8]) -> Section {
    let first_page = (out.len() / PAGE) as u32;
    for (number, chunk) in (first_page..).zip(bytes.chunks(PAGE_DATA)) {
        let start = out.len();
        out.extend_from_slice(chunk);
        out.resize(start + PAGE_DATA, 0);
        let crc = page_crc(number, &out[start..]);
        out.extend_from_slice(&crc.to_le_bytes());
    }
    Section { first_page, length: bytes.len() as u64 }
}

fn page_crc(number: u32, data: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&number.to_le_bytes()), data)
}

/// Returns whether the page with this number is as written.
pub(crate) fn page_is_whole(number: u32, page: &[u8]) -> bool {
    page.len() == PAGE && page_crc(number, &page[..PAGE_DATA]) == u32_at(page, PAGE_DATA)
}

/// A file of pages.
pub(super) struct Pages {
    pub(super) file: Arc<dyn DiskFile>,
    pub(super) name: String,
}

impl Pages {
    /// Reads `length` bytes of a section from `offset`, or fewer at its end, and verifies every page that they span.
    pub(super) fn read(&self, section: Section, offset: u64, length: u64) -> Answer<Vec<u8>> {
        let end = section.length.min(offset.saturating_add(length));
        if offset >= end {
            return Ok(Vec::new());
        }
        let page_data = PAGE_DATA as u64;
        let (first, last) = (offset / page_data, (end - 1) / page_data);
        let mut raw = vec![0; (last - first + 1) as usize * PAGE];
        let start = u64::from(section.first_page) + first;
        let got = self.file.read_at(&mut raw, start * PAGE as u64);
        if !got.is_ok_and(|got| got == raw.len()) {
            return Err(self.fault(start));
        }
        let mut out = Vec::with_capacity(raw.len());
        for (number, page) in (start..).zip(raw.chunks_exact(PAGE)) {
            if page_crc(number as u32, &page[..PAGE_DATA]) != u32_at(page, PAGE_DATA) {
                return Err(self.fault(number));
            }
            out.extend_from_slice(&page[..PAGE_DATA]);
        }
        let skip = (offset - first * page_data) as usize;
        out.drain(..skip);
        out.truncate((end - offset) as usize);
        Ok(out)
    }

    pub(super) fn fault(&self, page: u64) -> IndexFault {
        IndexFault(format!("page {page} of {} is damaged", self.name))
    }
}

/// Splits bytes into pages with valid checksums, for fuzzers.
pub(crate) fn repair_pages(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    append(&mut out, bytes);
    out
}
