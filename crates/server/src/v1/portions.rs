//! What followers of the same events have been sent lately, so that it is read and encoded once and not for each of them.
//!
//! ```text
//!   follower ─▶ is there a portion from its position? ─┬─ yes ─▶ send it, position = its end
//!                                                      └─ no ──▶ read a page ─▶ encode a portion ─▶ share it, position = its end
//! ```
//!
//! A portion ends where the first follower that came to its position ended it. So all followers of the same events take the same portions,
//! from wherever they meet. A follower without company shares nothing.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use annals_core::{Filter, SequenceNumber};
use bytes::Bytes;

/// The bytes of all portions that are kept. The oldest ones are dropped first.
const BYTES_MAX: usize = 8 * 1024 * 1024;
/// A portion with more bytes than this is not kept, because it would displace too many others.
const PORTION_BYTES_MAX: usize = 1024 * 1024;

/// The events that a follower is sent, and how they are encoded.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Wanted {
    pub tenant: String,
    pub scope: String,
    pub incarnation: u32,
    pub filter: Filter,
}

/// The encoded events in front of a sequence number that follow another portion, or the position of a follower.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Portion {
    pub bytes: Bytes,
    /// The number from which the next portion begins.
    pub next: SequenceNumber,
}

/// The portions of a server. Clones share them.
#[derive(Clone, Default)]
pub(crate) struct Portions(Arc<Mutex<Kept>>);

#[derive(Default)]
struct Kept {
    companies: HashMap<Arc<Wanted>, Arc<Company>>,
    portions: HashMap<Place, Portion>,
    /// The places of the portions in the order in which they were added.
    order: VecDeque<Place>,
    bytes: usize,
    /// The number of the next company.
    next: u64,
}

/// The number of a company, and that of the event from which a portion begins.
type Place = (u64, SequenceNumber);

/// The followers of the same events.
struct Company {
    number: u64,
    followers: AtomicUsize,
}

/// A follower among those of the same events.
pub(crate) struct Sharing {
    portions: Portions,
    wanted: Arc<Wanted>,
    company: Arc<Company>,
}

impl Portions {
    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a follower of these events, until it is dropped.
    pub fn join(&self, wanted: Wanted) -> Sharing {
        let mut kept = self.kept();
        let (wanted, company) = match kept.companies.get_key_value(&wanted) {
            Some((wanted, company)) => (Arc::clone(wanted), Arc::clone(company)),
            None => {
                let company = Arc::new(Company { number: kept.next, followers: AtomicUsize::new(0) });
                let wanted = Arc::new(wanted);
                kept.next += 1;
                kept.companies.insert(Arc::clone(&wanted), Arc::clone(&company));
                (wanted, company)
            }
        };
        company.followers.fetch_add(1, Ordering::Relaxed);
        drop(kept);
        Sharing { portions: self.clone(), wanted, company }
    }
}

impl Kept {
    fn add(&mut self, place: Place, portion: Portion) {
        self.bytes += portion.bytes.len();
        self.order.push_back(place);
        self.portions.insert(place, portion);
        while self.bytes > BYTES_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.bytes -= self.portions.remove(&oldest).map_or(0, |portion| portion.bytes.len());
        }
    }
}

impl Sharing {
    fn is_alone(&self) -> bool {
        self.company.followers.load(Ordering::Relaxed) < 2
    }

    /// Returns the portion from this number on, if another follower has been sent it lately.
    pub fn find(&self, from: SequenceNumber) -> Option<Portion> {
        if self.is_alone() {
            return None;
        }
        self.portions.kept().portions.get(&(self.company.number, from)).cloned()
    }

    /// Keeps a portion for the other followers. If there is one from this number on already, that one is kept and returned, so that all
    /// continue from the same number.
    pub fn share(&self, from: SequenceNumber, portion: Portion) -> Portion {
        if self.is_alone() || portion.bytes.len() > PORTION_BYTES_MAX {
            return portion;
        }
        let place = (self.company.number, from);
        let mut kept = self.portions.kept();
        if let Some(first) = kept.portions.get(&place) {
            return first.clone();
        }
        kept.add(place, portion.clone());
        portion
    }
}

impl Drop for Sharing {
    fn drop(&mut self) {
        let mut kept = self.portions.kept();
        if self.company.followers.fetch_sub(1, Ordering::Relaxed) == 1 {
            // Its portions are dropped in their turn; no other company gets its number.
            kept.companies.remove(&self.wanted);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_type(name: &str) -> Wanted {
        let filter = Filter { types: vec![name.into()], ..Filter::default() };
        Wanted { tenant: "t".to_owned(), scope: "s".to_owned(), incarnation: 0, filter }
    }

    fn portion(next: SequenceNumber, bytes: usize) -> Portion {
        Portion { bytes: vec![b'x'; bytes].into(), next }
    }

    #[test]
    fn followers_of_the_same_events_share_and_no_others() {
        let portions = Portions::default();
        let (one, other) = (portions.join(of_type("a")), portions.join(of_type("b")));
        let another = portions.join(of_type("a"));
        assert_eq!(one.find(3), None);
        one.share(3, portion(7, 10));
        assert_eq!(another.find(3), Some(portion(7, 10)));
        assert_eq!((another.find(4), other.find(3)), (None, None));
        // Those who come to a number later continue where the first one did.
        assert_eq!(another.share(3, portion(5, 4)), portion(7, 10));
    }

    #[test]
    fn a_follower_alone_keeps_nothing() {
        let portions = Portions::default();
        let one = portions.join(of_type("a"));
        assert_eq!(one.share(0, portion(1, 10)), portion(1, 10));
        drop(portions.join(of_type("a")));
        one.share(1, portion(2, 10));
        assert!(portions.kept().portions.is_empty());
        drop(one);
        assert!(portions.kept().companies.is_empty());
    }

    #[test]
    fn the_oldest_portions_make_room_for_new_ones() {
        const COUNT: u64 = 12;
        let portions = Portions::default();
        let (one, other) = (portions.join(of_type("a")), portions.join(of_type("a")));
        for n in 0..COUNT {
            one.share(n, portion(n + 1, PORTION_BYTES_MAX));
        }
        assert_eq!(portions.kept().bytes, BYTES_MAX);
        let kept = (0..COUNT).filter(|n| other.find(*n).is_some()).collect::<Vec<_>>();
        assert_eq!(kept, (4..COUNT).collect::<Vec<_>>());
        one.share(COUNT, portion(COUNT + 1, PORTION_BYTES_MAX + 1));
        assert_eq!((other.find(COUNT), portions.kept().bytes), (None, BYTES_MAX));
    }
}
