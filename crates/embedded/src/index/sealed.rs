//! The index of a closed segment, which is rebuilt from the segment if its file proves damaged.
//!
//! Pages are verified when they are read, so damage is found by the reader that needs the page. The segment contains everything that its
//! index does. The reader that finds the damage waits for the rebuild and is answered from the new index.

use std::sync::OnceLock;

use super::{Answer, FileIndex, IndexFault};

/// Rebuilds an index, given what is wrong with its file. Returns a fault if the segment is damaged as well.
pub(crate) type Rebuild = Box<dyn Fn(&IndexFault) -> Answer<FileIndex> + Send + Sync>;

/// The index of a closed segment.
pub(crate) struct Sealed {
    file: FileIndex,
    again: OnceLock<Answer<FileIndex>>,
    rebuild: Rebuild,
}

impl Sealed {
    pub(crate) fn new(file: FileIndex, rebuild: Rebuild) -> Self {
        Self { file, again: OnceLock::new(), rebuild }
    }

    /// Returns the index for values that a rebuild does not change, or that are in memory.
    pub(crate) fn file(&self) -> &FileIndex {
        match self.again.get() {
            Some(Ok(again)) => again,
            _ => &self.file,
        }
    }

    /// Queries the index. If the answer depends on damaged pages, the index is rebuilt, once, and queried again.
    ///
    /// # Errors
    /// What is wrong with the index, and why it cannot be rebuilt.
    pub(crate) fn ask<T>(&self, question: impl Fn(&FileIndex) -> Answer<T>) -> Answer<T> {
        match question(self.file()) {
            Err(fault) => match self.again.get_or_init(|| (self.rebuild)(&fault)) {
                Ok(again) => question(again),
                Err(why) => Err(why.clone()),
            },
            answer => answer,
        }
    }
}
