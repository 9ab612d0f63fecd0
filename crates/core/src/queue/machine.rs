//! The state machine of one queue. It is pure: an adapter stores the changes.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use bytestring::ByteString;

use super::choice;
use super::lane::Lane;
use super::{
    Enqueued, ItemPage, ItemRef, ItemResult, ItemState, ItemStatus, ItemsQuery, NewItem, PendingCounts, QueueCounts,
    QueueDefinition, QueueError, QueuePriority,
};
use crate::{Invalid, Timestamp};

/// An item, without its payload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Item {
    /// Its sequence number in the queue; lower numbers are older.
    pub seq: u64,
    /// Its id.
    pub id: ByteString,
    /// Its priority.
    pub priority: QueuePriority,
    /// The user to whom it belongs; may be empty.
    pub user: ByteString,
    /// When it was enqueued.
    pub enqueued_at: Timestamp,
    /// Its position among the items of its priority, if shares are fair.
    pub tag: u64,
    /// The number of hand-outs.
    pub attempt: u32,
    /// The token of the last hand-out.
    pub token: Option<ByteString>,
    /// The worker that took it last.
    pub worker: Option<ByteString>,
    /// When its lease ends; `None` while it is pending.
    pub lease_until: Option<Timestamp>,
}

impl Item {
    /// Returns the item as callers see it.
    pub fn status(&self) -> ItemStatus {
        let state = if self.lease_until.is_some() { ItemState::Active } else { ItemState::Pending };
        ItemStatus {
            id: self.id.clone(),
            state,
            priority: self.priority,
            user: self.user.clone(),
            enqueued_at: self.enqueued_at,
            attempt: self.attempt,
            worker: self.worker.clone(),
            lease_until: self.lease_until,
        }
    }

    fn is_of(&self, reference: &ItemRef) -> bool {
        reference.token.is_none() || reference.token == self.token
    }
}

/// The numbers of a queue that belong to no single item.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Ledger {
    /// The sequence number of the newest item.
    pub seq: u64,
    /// The number of hand-outs in a row that passed over the priority of the oldest item.
    pub passed: u64,
    /// The clock of each priority, highest first.
    pub clocks: [u64; 5],
    /// The number of hand-outs.
    pub taken: u64,
    /// The number of items whose work was done.
    pub done: u64,
    /// The number of leases that ended.
    pub expired: u64,
    /// The number of items that were returned to the queue.
    pub released: u64,
    /// The number of items that were cancelled.
    pub cancelled: u64,
    /// The number of items whose payloads were lost.
    pub lost: u64,
}

/// The changes to store.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Changes {
    /// New and changed items.
    pub put: Vec<Item>,
    /// The ids of removed items.
    pub removed: Vec<ByteString>,
}

/// The items of one queue.
#[derive(Debug, Clone, Default)]
pub struct Machine {
    ledger: Ledger,
    items: BTreeMap<u64, Item>,
    ids: HashMap<ByteString, u64>,
    lanes: [Lane; 5],
    active: BTreeSet<(Timestamp, u64)>,
    changed: BTreeSet<u64>,
    removed: BTreeSet<ByteString>,
}

impl Machine {
    /// Resumes from the stored state.
    pub fn restore(ledger: Ledger, items: impl IntoIterator<Item = Item>) -> Self {
        let mut machine = Self { ledger, ..Self::default() };
        for item in items {
            let lane = &mut machine.lanes[item.priority.index()];
            lane.found(&item.user, item.tag);
            match item.lease_until {
                None => lane.add(item.seq, &item.user, item.tag),
                Some(until) => drop(machine.active.insert((until, item.seq))),
            }
            machine.ids.insert(item.id.clone(), item.seq);
            machine.items.insert(item.seq, item);
        }
        machine
    }

    /// Returns the numbers that belong to no single item.
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// Returns the changes since the last call.
    pub fn drain_changes(&mut self) -> Changes {
        let changed = std::mem::take(&mut self.changed);
        let put: Vec<Item> = changed.iter().filter_map(|seq| self.items.get(seq).cloned()).collect();
        let mut removed = std::mem::take(&mut self.removed);
        // An id that was enqueued again has a new entry, which must not be removed.
        removed.retain(|id| !self.ids.contains_key(id));
        Changes { put, removed: removed.into_iter().collect() }
    }

    /// Ends leases that have run out: their items are pending again, with their original age.
    pub fn expire(&mut self, now: Timestamp) {
        while let Some((until, seq)) = self.active.first().copied().filter(|(until, _)| *until <= now) {
            self.active.remove(&(until, seq));
            self.ledger.expired += 1;
            self.pend(seq);
        }
    }

    /// Implements [`WorkQueue::enqueue`](super::WorkQueue::enqueue).
    ///
    /// # Errors
    /// [`QueueError::Full`].
    pub fn enqueue(&mut self, queue: &QueueDefinition, new: &NewItem, now: Timestamp) -> Result<Enqueued, QueueError> {
        self.expire(now);
        if let Some(known) = self.of_id(&new.id) {
            return Ok(self.enqueued(known, true));
        }
        if let Some(reason) = self.full(queue, &new.user) {
            return Err(QueueError::Full { queue: queue.name.clone(), reason });
        }
        self.ledger.seq += 1;
        let (seq, place) = (self.ledger.seq, new.priority.index());
        let tag = self.lanes[place].enter(&new.user, self.ledger.clocks[place]);
        let item = Item {
            seq,
            id: new.id.clone(),
            priority: new.priority,
            user: new.user.clone(),
            enqueued_at: now,
            tag,
            attempt: 0,
            token: None,
            worker: None,
            lease_until: None,
        };
        self.ids.insert(item.id.clone(), seq);
        self.items.insert(seq, item);
        self.pend(seq);
        Ok(self.enqueued(seq, false))
    }

    fn full(&self, queue: &QueueDefinition, user: &str) -> Option<String> {
        let pending: u64 = self.lanes.iter().map(Lane::len).sum();
        if pending >= queue.pending_max.into() {
            return Some(format!("{pending} items are pending; at most {} are allowed", queue.pending_max));
        }
        let most = u64::from(queue.pending_max_per_user);
        let own: u64 = self.lanes.iter().map(|lane| lane.pending_of(user)).sum();
        (most > 0 && own >= most).then(|| format!("user {user:?} has {own} pending items; at most {most} are allowed"))
    }

    fn enqueued(&self, seq: u64, duplicate: bool) -> Enqueued {
        let item = &self.items[&seq];
        let state = item.status().state;
        let position = (state == ItemState::Pending).then(|| self.lanes[item.priority.index()].position(seq));
        Enqueued { id: item.id.clone(), duplicate, state, position }
    }

    /// Hands out the next item, if there is one and the cap permits it.
    pub fn take_one(
        &mut self,
        queue: &QueueDefinition,
        lease: Duration,
        worker: &ByteString,
        now: Timestamp,
    ) -> Option<&Item> {
        self.expire(now);
        if self.active.len() as u64 >= queue.cap.into() {
            return None;
        }
        let items = &self.items;
        let chosen = choice::next(queue, &self.lanes, |seq| items.get(&seq), self.ledger.passed, now)?;
        self.exchange_tags(chosen.seq, chosen.lowest);
        self.ledger.passed = chosen.passed;
        self.ledger.taken += 1;
        let token = token(now, self.ledger.taken);
        let item = self.items.get_mut(&chosen.seq)?;
        let (lane, clock) = (&mut self.lanes[chosen.lane], &mut self.ledger.clocks[chosen.lane]);
        *clock = lane.advanced(*clock, item.tag);
        lane.remove(item.seq, &item.user, item.tag);
        let until = now.plus(lease);
        item.attempt += 1;
        item.token = Some(token);
        item.worker = Some(worker.clone()).filter(|worker| !worker.is_empty());
        item.lease_until = Some(until);
        self.active.insert((until, item.seq));
        self.changed.insert(item.seq);
        Some(item)
    }

    /// Exchanges the tags of two items, so that a user's oldest item is served with the user's lowest tag.
    fn exchange_tags(&mut self, one: u64, other: u64) {
        if one == other {
            return;
        }
        let (Some(first), Some(second)) = (self.items.get(&one).cloned(), self.items.get(&other).cloned()) else {
            return;
        };
        let lane = &mut self.lanes[first.priority.index()];
        for (item, tag) in [(&first, second.tag), (&second, first.tag)] {
            lane.remove(item.seq, &item.user, item.tag);
            if let Some(item) = self.items.get_mut(&item.seq) {
                item.tag = tag;
            }
            self.changed.insert(item.seq);
        }
        lane.add(one, &first.user, second.tag);
        lane.add(other, &second.user, first.tag);
    }

    /// Drops an item that was just taken, because its payload is lost.
    pub fn lost(&mut self, id: &str) {
        if let Some(seq) = self.of_id(id) {
            self.ledger.lost += 1;
            self.drop_item(seq);
        }
    }

    /// Implements [`WorkQueue::renew`](super::WorkQueue::renew), for one item.
    pub fn renew(&mut self, reference: &ItemRef, lease: Duration, now: Timestamp) -> ItemResult {
        self.expire(now);
        let held = self.of_id(&reference.id).filter(|seq| {
            let item = &self.items[seq];
            item.lease_until.is_some() && item.is_of(reference)
        });
        let Some(seq) = held else { return ItemResult::lost(reference.id.clone()) };
        let until = now.plus(lease);
        if let Some(item) = self.items.get_mut(&seq) {
            let before = item.lease_until.replace(until);
            self.active.remove(&(before.unwrap_or(until), seq));
            self.active.insert((until, seq));
            self.changed.insert(seq);
        }
        ItemResult::renewed(reference.id.clone(), until)
    }

    /// Implements [`WorkQueue::done`](super::WorkQueue::done), for one item.
    pub fn done(&mut self, reference: &ItemRef, now: Timestamp) -> ItemResult {
        self.expire(now);
        let Some(seq) = self.of_id(&reference.id) else { return ItemResult::accepted(reference.id.clone(), false) };
        let item = &self.items[&seq];
        if !item.is_of(reference) {
            return ItemResult::lost(reference.id.clone());
        }
        // Without a token, only an active item can be meant.
        let changes = item.lease_until.is_some() || reference.token.is_some();
        if changes {
            self.ledger.done += 1;
            self.drop_item(seq);
        }
        ItemResult::accepted(reference.id.clone(), changes)
    }

    /// Implements [`WorkQueue::release`](super::WorkQueue::release), for one item.
    pub fn release(&mut self, reference: &ItemRef, now: Timestamp) -> ItemResult {
        self.expire(now);
        let Some(seq) = self.of_id(&reference.id) else { return ItemResult::accepted(reference.id.clone(), false) };
        let item = &self.items[&seq];
        if !item.is_of(reference) {
            return ItemResult::lost(reference.id.clone());
        }
        let Some(until) = item.lease_until else { return ItemResult::accepted(reference.id.clone(), false) };
        self.active.remove(&(until, seq));
        self.ledger.released += 1;
        self.pend(seq);
        ItemResult::accepted(reference.id.clone(), true)
    }

    /// Implements [`WorkQueue::prioritise`](super::WorkQueue::prioritise); returns `None` for an unknown item.
    pub fn prioritise(&mut self, id: &str, priority: QueuePriority, now: Timestamp) -> Option<ItemStatus> {
        self.expire(now);
        let seq = self.of_id(id)?;
        let item = self.items.get_mut(&seq)?;
        if item.priority != priority {
            let pending = item.lease_until.is_none();
            let from = &mut self.lanes[item.priority.index()];
            if pending {
                from.remove(seq, &item.user, item.tag);
            }
            from.leave(&item.user);
            let to = &mut self.lanes[priority.index()];
            item.tag = to.enter(&item.user, self.ledger.clocks[priority.index()]);
            item.priority = priority;
            if pending {
                to.add(seq, &item.user, item.tag);
            }
            self.changed.insert(seq);
        }
        Some(item.status())
    }

    /// Implements [`WorkQueue::cancel`](super::WorkQueue::cancel); returns `None` for an unknown item.
    pub fn cancel(&mut self, id: &str, now: Timestamp) -> Option<ItemStatus> {
        self.expire(now);
        let seq = self.of_id(id)?;
        let status = self.items[&seq].status();
        self.ledger.cancelled += 1;
        self.drop_item(seq);
        Some(status)
    }

    /// Returns the item with this id.
    pub fn item(&self, id: &str) -> Option<ItemStatus> {
        self.of_id(id).and_then(|seq| self.items.get(&seq)).map(Item::status)
    }

    /// Returns a page of the items.
    ///
    /// # Errors
    /// `invalid_query` if the text is not a cursor.
    pub fn page(&self, query: &ItemsQuery) -> Result<ItemPage, Invalid> {
        let limit = query.page_length();
        let behind = self.items.range(query.start()? + 1..).map(|(seq, item)| (*seq, item.status()));
        let mut found = behind.filter(|(_, item)| query.admits(item)).take(limit + 1).collect::<Vec<_>>();
        let more = found.len() > limit;
        found.truncate(limit);
        let cursor = found.last().filter(|_| more).map(|(seq, _)| seq.to_string().into());
        Ok(ItemPage { items: found.into_iter().map(|(_, item)| item).collect(), cursor })
    }

    /// Returns the number of items, and the totals of past operations.
    pub fn counts(&self) -> QueueCounts {
        let ledger = &self.ledger;
        let oldest = self.lanes.iter().filter_map(Lane::oldest).min();
        QueueCounts {
            active: self.active.len() as u64,
            pending: PendingCounts::from_highest(self.lanes.each_ref().map(Lane::len)),
            users: self.lanes.iter().map(Lane::users).sum(),
            oldest: oldest.and_then(|seq| self.items.get(&seq)).map(|item| item.enqueued_at),
            enqueued_total: ledger.seq,
            taken_total: ledger.taken,
            done_total: ledger.done,
            expired_total: ledger.expired,
            released_total: ledger.released,
            cancelled_total: ledger.cancelled,
            lost_total: ledger.lost,
        }
    }

    fn of_id(&self, id: &str) -> Option<u64> {
        self.ids.get(id).copied()
    }

    /// Makes an item pending with its existing tag.
    fn pend(&mut self, seq: u64) {
        let Some(item) = self.items.get_mut(&seq) else { return };
        item.lease_until = None;
        self.lanes[item.priority.index()].add(seq, &item.user, item.tag);
        self.changed.insert(seq);
    }

    fn drop_item(&mut self, seq: u64) {
        let Some(item) = self.items.remove(&seq) else { return };
        let lane = &mut self.lanes[item.priority.index()];
        match item.lease_until {
            Some(until) => drop(self.active.remove(&(until, seq))),
            None => lane.remove(seq, &item.user, item.tag),
        }
        lane.leave(&item.user);
        self.ids.remove(&item.id);
        self.changed.remove(&seq);
        self.removed.insert(item.id);
    }
}

/// Creates the token of a hand-out. It contains the time, because the number starts again if the backend loses its data.
fn token(now: Timestamp, taken: u64) -> ByteString {
    format!("{}-{taken}", now.as_millis()).into()
}
