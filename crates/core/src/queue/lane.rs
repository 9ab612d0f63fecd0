//! The pending items of one priority, in each order in which they may be chosen.

use std::collections::{BTreeMap, BTreeSet};

use bytestring::ByteString;

use super::TAG_UNIT;

/// The pending items of one priority, by their sequence numbers in the queue, and the shares of their users.
///
/// A user's items have tags, one unit apart. The lowest tag is served first, and the lane's clock follows it. A user who arrives later
/// starts at the clock, so users are served in turn (start-time fair queueing). Each hand-out also advances the clock by a fraction of a
/// unit, so that a stream of new users cannot delay an older tag indefinitely.
#[derive(Debug, Clone, Default)]
pub(super) struct Lane {
    by_age: BTreeSet<u64>,
    by_tag: BTreeSet<(u64, u64)>,
    by_user: BTreeMap<ByteString, BTreeSet<u64>>,
    /// For each user with pending or active items of this priority: the next tag, and the number of these items.
    shares: BTreeMap<ByteString, (u64, u64)>,
}

impl Lane {
    pub fn is_empty(&self) -> bool {
        self.by_age.is_empty()
    }

    pub fn len(&self) -> u64 {
        self.by_age.len() as u64
    }

    pub fn users(&self) -> u64 {
        self.by_user.len() as u64
    }

    pub fn oldest(&self) -> Option<u64> {
        self.by_age.first().copied()
    }

    pub fn pending_of(&self, user: &str) -> u64 {
        self.by_user.get(user).map_or(0, |items| items.len() as u64)
    }

    /// Returns how many pending items precede this one.
    pub fn position(&self, seq: u64) -> u64 {
        self.by_age.range(..seq).count() as u64
    }

    /// Returns the item to serve first, and the item with the lowest tag.
    pub fn first<'u>(&self, fair: bool, user: impl Fn(u64) -> Option<&'u ByteString>) -> Option<(u64, u64)> {
        let oldest = self.oldest()?;
        if !fair {
            return Some((oldest, oldest));
        }
        let (_, lowest) = *self.by_tag.first()?;
        let own = self.by_user.get(user(lowest)?)?;
        Some((*own.first()?, lowest))
    }

    /// Adds an item to the user's share, and returns its tag.
    pub fn enter(&mut self, user: &ByteString, clock: u64) -> u64 {
        let share = self.shares.entry(user.clone()).or_default();
        let tag = share.0.max(clock);
        *share = (tag + TAG_UNIT, share.1 + 1);
        tag
    }

    /// Adds an existing item with its tag to the user's share.
    pub fn found(&mut self, user: &ByteString, tag: u64) {
        let share = self.shares.entry(user.clone()).or_default();
        *share = (share.0.max(tag + TAG_UNIT), share.1 + 1);
    }

    /// Removes an item from the user's share.
    pub fn leave(&mut self, user: &ByteString) {
        let Some(share) = self.shares.get_mut(user) else { return };
        share.1 -= 1;
        if share.1 == 0 {
            self.shares.remove(user);
        }
    }

    pub fn add(&mut self, seq: u64, user: &ByteString, tag: u64) {
        self.by_age.insert(seq);
        self.by_tag.insert((tag, seq));
        self.by_user.entry(user.clone()).or_default().insert(seq);
    }

    pub fn remove(&mut self, seq: u64, user: &ByteString, tag: u64) {
        self.by_age.remove(&seq);
        self.by_tag.remove(&(tag, seq));
        if let Some(own) = self.by_user.get_mut(user) {
            own.remove(&seq);
            if own.is_empty() {
                self.by_user.remove(user);
            }
        }
    }

    /// Returns the clock after an item with this tag is handed out. Call it before the item is removed.
    pub fn advanced(&self, clock: u64, tag: u64) -> u64 {
        (clock + TAG_UNIT / self.users().max(1)).max(tag)
    }
}
