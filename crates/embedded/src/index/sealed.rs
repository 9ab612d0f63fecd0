//! The index of a closed segment, which is made again from the segment when its file turns out to be damaged.
//!
//! Pages are verified when they are read, so damage is found by whoever needs the page. The segment says all that its index does; so the
//! one who finds the damage waits until the index was made again, and is answered from that.

use std::sync::OnceLock;

use super::{Answer, FileIndex, IndexFault};

/// Makes an index again, given what is wrong with its file; the fault where the segment is damaged as well.
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

    /// What does not change when the index is made again, and what is in memory.
    pub(crate) fn file(&self) -> &FileIndex {
        match self.again.get() {
            Some(Ok(again)) => again,
            _ => &self.file,
        }
    }

    /// Asks the index. Where the answer stands on damaged pages, it is made again, once, and asked again.
    ///
    /// # Errors
    /// What is wrong with the index, and why it cannot be made again.
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
