//! Rebuilds the index of a closed segment from the segment if its file is damaged.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use annals_core::SequenceNumber;

use super::recovery::index_record;
use super::segment::SegmentFile;
use super::walk::{Step, Walk};
use super::{Place, names};
use crate::disk::{Disk, MemoryDisk, Open};
use crate::index::{self, Answer, FileIndex, Index, IndexFault, MemoryIndex, Sealed};
use crate::terms::TermKey;
use crate::whole::write_whole;

/// Notes for operators: what opening a log found, and what was found and repaired since.
#[derive(Clone, Default)]
pub(crate) struct Notes(Arc<Mutex<Vec<String>>>);

impl Notes {
    pub(crate) fn add(&self, note: String) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(note);
    }

    pub(crate) fn all(&self) -> Vec<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// What is needed to rebuild an index.
struct Remake {
    disk: Arc<dyn Disk>,
    dir: String,
    key: TermKey,
    notes: Notes,
    at: SegmentFile,
    first: SequenceNumber,
    end: u64,
    next: SequenceNumber,
}

/// Wraps the index file of a closed segment whose first sequence number is `first`, so that it is rebuilt if it proves damaged.
pub(super) fn sealed(place: &Place, notes: &Notes, file: FileIndex, at: &SegmentFile, first: SequenceNumber) -> Index {
    let extent = file.extent();
    let remake = Remake {
        disk: place.disk.clone(),
        dir: place.dir.clone(),
        key: place.key,
        notes: notes.clone(),
        at: at.clone(),
        first,
        end: extent.end,
        next: extent.next,
    };
    Index::File(Box::new(Sealed::new(file, Box::new(move |fault| remake.run(fault)))))
}

impl Remake {
    fn run(&self, fault: &IndexFault) -> Answer<FileIndex> {
        let why = &fault.0;
        let collected = self.collect().map_err(|error| {
            tracing::error!(why, error, "the index cannot be rebuilt from its segment");
            IndexFault(format!("{error}; {why}"))
        })?;
        let bytes = index::encode(&collected, self.at.number, self.at.salt, true);
        let name = names::index(&self.dir, self.at.number);
        let written = match self.is_replaced(&name) {
            true => Err(io::Error::other("the file is the index of another form of the segment")),
            false => write_whole(&*self.disk, &self.dir, &name, &bytes),
        };
        let file = match written {
            Ok(file) => file,
            Err(error) => {
                tracing::warn!(name, %error, "the rebuilt index is kept in memory");
                in_memory(&bytes).map_err(|error| IndexFault(format!("{why}; {error}")))?
            }
        };
        let note = format!("{why}; the index was rebuilt from the segment");
        tracing::warn!(note, "a damaged index");
        self.notes.add(note);
        FileIndex::open(file, name)
    }

    /// Indexes all commits of the segment, or returns what is wrong with it.
    fn collect(&self) -> Result<MemoryIndex, String> {
        let unreadable = |error: io::Error| format!("{}: {error}", self.at.name);
        let mut walk = Walk::new(&self.at, self.end).map_err(unreadable)?;
        let mut collected = MemoryIndex::new(self.first);
        loop {
            let next = collected.next_sequence_number();
            let damage = |offset: u64, what: &str| self.at.damage(offset, what).to_string();
            match walk.step().map_err(unreadable)? {
                Step::Commit(placed) if placed.first() == next => {
                    index_record(&mut collected, self.key, placed.offset, placed.length, &placed.record);
                }
                Step::End if next == self.next => return Ok(collected),
                Step::End => return Err(damage(self.end, "commits are missing")),
                Step::Commit(placed) => return Err(damage(placed.offset, "a commit does not follow the previous one")),
                Step::Fault { offset, what, .. } => return Err(damage(offset, what)),
            }
        }
    }

    /// Returns whether the segment was packed since, so that the file is the index of its packed form.
    fn is_replaced(&self, name: &str) -> bool {
        let there = self.disk.open(name, Open::Read).ok();
        let there = there.and_then(|file| FileIndex::open(file, name.to_owned()).ok());
        there.is_some_and(|index| index.extent().salt != self.at.salt)
    }
}

fn in_memory(bytes: &[u8]) -> io::Result<Arc<dyn crate::disk::DiskFile>> {
    let file = MemoryDisk::default().open("index", Open::Create)?;
    file.write_at(bytes, 0)?;
    Ok(file)
}
