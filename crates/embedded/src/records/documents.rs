//! Documents of a collection by id: if the requested ids are adjacent, they are read sequentially instead of looked up.

use std::ops::Bound;

use annals_core::StoreError;

use super::keys;
use crate::engine::{Range, View, ViewEntries};

/// How often sequential reading may hit a document other than the requested one before every document is looked up instead.
const ASTRAY_MAX: u32 = 2;

/// Reads documents of a collection by id.
pub(super) struct Documents<'v> {
    view: &'v dyn View,
    collection: u32,
    /// The key of the last document that was looked up.
    last: Option<Vec<u8>>,
    /// The documents after the last one read, in the direction in which they are requested.
    following: Option<ViewEntries<'v>>,
    /// How often sequential reading hit another document.
    astray: u32,
}

impl<'v> Documents<'v> {
    pub(super) fn new(view: &'v dyn View, collection: u32) -> Self {
        Self { view, collection, last: None, following: None, astray: 0 }
    }

    /// Returns the stored bytes of a document.
    ///
    /// # Errors
    /// Why it cannot be read.
    pub(super) fn get(&mut self, id: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        let key = keys::document(self.collection, id);
        if let Some(following) = &mut self.following {
            match following.next().transpose()? {
                Some((found, stored)) if found == key => return Ok(Some(stored)),
                _ => {
                    self.following = None;
                    self.astray += 1;
                }
            }
        }
        let stored = self.view.get(&key)?;
        if let Some(last) = &self.last
            && self.astray < ASTRAY_MAX
        {
            let all = Range::prefix(&keys::documents(self.collection));
            self.following = Some(if key > *last {
                self.view.ascending(&Range { from: Bound::Excluded(key.clone()), to: all.to })?
            } else {
                self.view.descending(&Range { from: all.from, to: Bound::Excluded(key.clone()) })?
            });
        }
        self.last = Some(key);
        Ok(stored)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::collections::BTreeMap;

    use super::*;

    /// A state that counts look-ups.
    struct Counted {
        entries: BTreeMap<Vec<u8>, Vec<u8>>,
        looked_up: Cell<usize>,
    }

    impl View for Counted {
        fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
            self.looked_up.set(self.looked_up.get() + 1);
            Ok(self.entries.get(key).cloned())
        }

        fn ascending(&self, range: &Range) -> Result<ViewEntries<'_>, StoreError> {
            let found = self.entries.range((range.from.clone(), range.to.clone()));
            Ok(Box::new(found.map(|(key, value)| Ok((key.clone(), value.clone())))))
        }

        fn descending(&self, range: &Range) -> Result<ViewEntries<'_>, StoreError> {
            let found = self.entries.range((range.from.clone(), range.to.clone())).rev();
            Ok(Box::new(found.map(|(key, value)| Ok((key.clone(), value.clone())))))
        }
    }

    /// Asks for documents, and returns how many of them were looked up. There are those of the ids 0 to 99 in two collections.
    fn looked_up(ids: impl Iterator<Item = u8>) -> usize {
        let document = |collection: u32, id: u8| (keys::document(collection, &[id]), vec![collection as u8, id]);
        let entries = (0..100).flat_map(|id| [document(1, id), document(2, id)]).collect();
        let view = Counted { entries, looked_up: Cell::new(0) };
        let mut documents = Documents::new(&view, 1);
        for id in ids {
            let due = (id < 100).then(|| vec![1, id]);
            assert_eq!(documents.get(&[id]), Ok(due), "{id}");
        }
        view.looked_up.get()
    }

    #[test]
    fn documents_that_follow_each_other_are_read_on_in_both_directions() {
        assert_eq!(looked_up(20..80), 2);
        assert_eq!(looked_up((20..80).rev()), 2);
        // Past a gap it reads on once more.
        assert_eq!(looked_up((0..40).chain(60..100)), 3);
    }

    #[test]
    fn documents_apart_are_looked_up() {
        assert_eq!(looked_up((0..100).step_by(10)), 10);
        assert_eq!(looked_up([5, 3, 99, 100, 0, 0, 101].into_iter()), 7);
    }
}
