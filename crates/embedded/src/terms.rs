//! Terms, by which the index is searched. Each is a keyed hash of what it represents.
//!
//! The key is secret and specific to a tenant, so nobody can choose ids that collide. 128 bits identify an aggregate or a request
//! exactly. Half of them, 64 bits, look up postings, where a collision only costs reading a frame that turns out not to match.

use std::hash::Hasher;

use annals_core::{Aggregate, AggregateFilter, KeyChanges, NewCommit};
use siphasher::sip128::{Hasher128, SipHasher13};

/// The secret key of a tenant's hashes and digests.
#[derive(Clone, Copy)]
pub(crate) struct TermKey(pub(crate) [u8; 16]);

/// The exact identifier of an aggregate, a request or a prepare key.
pub(crate) type ExactTerm = u128;
/// The term by which postings are looked up.
pub(crate) type Term = u64;

/// Returns the postings term of an exact one.
pub(crate) fn short(exact: ExactTerm) -> Term {
    exact as u64
}

impl TermKey {
    fn hash(&self, kind: u8, parts: &[&[u8]]) -> ExactTerm {
        let mut hasher = SipHasher13::new_with_key(&self.0);
        hasher.write_u8(kind);
        for part in parts {
            hasher.write_u32(part.len() as u32);
            hasher.write(part);
        }
        hasher.finish128().as_u128()
    }

    pub(crate) fn aggregate(&self, aggregate: &Aggregate) -> ExactTerm {
        self.hash(1, &[aggregate.name.as_bytes(), aggregate.id.as_bytes()])
    }

    pub(crate) fn request(&self, aggregate: &Aggregate, request_id: &str) -> ExactTerm {
        self.hash(2, &[aggregate.name.as_bytes(), aggregate.id.as_bytes(), request_id.as_bytes()])
    }

    pub(crate) fn event_type(&self, name: &str) -> Term {
        short(self.hash(3, &[name.as_bytes()]))
    }

    pub(crate) fn tag(&self, tag: &str) -> Term {
        short(self.hash(4, &[tag.as_bytes()]))
    }

    pub(crate) fn aggregate_name(&self, name: &str) -> Term {
        short(self.hash(5, &[name.as_bytes()]))
    }

    /// Returns the owner value in the headers of a scope's segments; never 0.
    pub(crate) fn owner(&self, scope: &str) -> u64 {
        short(self.hash(7, &[scope.as_bytes()])).max(1)
    }

    /// Returns the exact identifier of a prepare key.
    pub(crate) fn key(&self, name: &str, key: &str) -> ExactTerm {
        self.hash(6, &[name.as_bytes(), key.as_bytes()])
    }

    pub(crate) fn aggregate_filter(&self, filter: &AggregateFilter) -> Term {
        match &filter.id {
            Some(id) => short(self.aggregate(&Aggregate { name: filter.name.clone(), id: id.clone() })),
            None => self.aggregate_name(&filter.name),
        }
    }

    /// Returns the distinct terms of a commit's types, tags and prepare keys, and of its aggregate's name if it has one, ascending.
    pub(crate) fn filterable<'a>(
        &self,
        aggregate_name: &str,
        events: impl Iterator<Item = (&'a str, &'a [annals_core::ByteString])>,
        keys: &KeyChanges,
    ) -> Vec<Term> {
        let mut terms = Vec::new();
        if !aggregate_name.is_empty() {
            terms.push(self.aggregate_name(aggregate_name));
        }
        let mut last_type = None;
        for (event_type, tags) in events {
            if last_type != Some(event_type) {
                terms.push(self.event_type(event_type));
                last_type = Some(event_type);
            }
            terms.extend(tags.iter().map(|tag| self.tag(tag)));
        }
        terms.extend(keys.names().map(|(name, key)| short(self.key(name, key))));
        terms.sort_unstable();
        terms.dedup();
        terms
    }

    pub(crate) fn of_new(&self, commit: &NewCommit) -> Vec<Term> {
        let events = commit.events.iter().map(|event| (&*event.event_type, &event.tags[..]));
        self.filterable(&commit.aggregate.name, events, &commit.keys)
    }
}
