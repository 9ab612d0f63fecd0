//! A hash of the events of a log that does not depend on where they are stored.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use sha2::{Digest, Sha256};

use crate::{CommitInfo, KeyChanges, ReceivedFrom, RecordedEvent, SequenceNumber, Subscription};

/// The hash of a set of events: the sum, modulo 2^256, of the SHA-256 of each event, of what commits do to prepare keys, and of the
/// transactions that they belong to. An event's sequence number is part of it, so the order is too.
///
/// Two logs with the same hash hold the same events, whatever segments, indexes or backend store them. The hashes of parts add up to the
/// hash of the whole. It detects copies that differ by accident or because of a defect. It is not a signature: an attacker who can choose
/// events freely may, with great effort, find others with the same sum.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct EventsHash([u64; 4]);

impl EventsHash {
    /// Adds one event. The fields that the events of a commit share are hashed with the first one.
    pub fn add(&mut self, event: &RecordedEvent) {
        let mut hasher = Sha256::new();
        let commit = &event.commit;
        hasher.update(event.sequence_number.to_le_bytes());
        hasher.update(event.ordinal.to_le_bytes());
        hasher.update(event.id.as_bytes());
        hasher.update(event.generation.to_le_bytes());
        hasher.update([u8::from(event.public)]);
        hasher.update(event.time.as_millis().to_le_bytes());
        hasher.update(commit.commit_id.as_bytes());
        text(&mut hasher, event.event_type.as_bytes());
        hasher.update((event.tags.len() as u32).to_le_bytes());
        event.tags.iter().for_each(|tag| text(&mut hasher, tag.as_bytes()));
        text(&mut hasher, event.data.as_bytes());
        if let Some(metadata) = &event.metadata {
            text(&mut hasher, b"metadata");
            text(&mut hasher, metadata.data().as_bytes());
        }
        if event.ordinal == 0 {
            add_commit(&mut hasher, commit);
        }
        self.add_digest(hasher);
    }

    /// Adds a commit: its events, its changes of prepare keys and its place in a transaction. The transaction is identified by the id of
    /// its first commit.
    pub fn add_commit(&mut self, events: &[RecordedEvent], keys: &KeyChanges) {
        let commit = events.first().map(|event| &event.commit);
        if let Some(from) = commit.and_then(|commit| commit.received.as_deref()) {
            self.add_received(events[0].sequence_number, from);
        }
        let transaction = commit.and_then(|commit| commit.transaction);
        events.iter().for_each(|event| self.add(event));
        if keys.is_empty() && transaction.is_none() {
            return;
        }
        let mut hasher = Sha256::new();
        text(&mut hasher, b"keys and transaction");
        hasher.update(events.first().map_or(0, |event| event.sequence_number).to_le_bytes());
        let (place, count) = transaction.map_or((0, 1), |it| (it.place, it.count));
        hasher.update(place.to_le_bytes());
        hasher.update(count.to_le_bytes());
        for release in &keys.release {
            text(&mut hasher, release.name.as_bytes());
            text(&mut hasher, release.key.as_bytes());
            hasher.update([u8::from(release.value.is_some())]);
            text(&mut hasher, release.value.as_ref().map_or(&[], |value| value.data().as_bytes()));
        }
        text(&mut hasher, b"reserve");
        for reserve in &keys.reserve {
            text(&mut hasher, reserve.name.as_bytes());
            text(&mut hasher, reserve.key.as_bytes());
            text(&mut hasher, reserve.value.data().as_bytes());
            hasher.update([u8::from(reserve.ttl_at.is_some())]);
            hasher.update(reserve.ttl_at.unwrap_or_default().as_millis().to_le_bytes());
        }
        self.add_digest(hasher);
    }

    fn add_received(&mut self, number: SequenceNumber, from: &ReceivedFrom) {
        let mut hasher = Sha256::new();
        text(&mut hasher, b"received");
        let Subscription { producer, tenant, stream, partition } = &from.subscription;
        [producer, tenant, stream, partition].iter().for_each(|part| text(&mut hasher, part.as_bytes()));
        for number in [number, from.sequence_number, from.position] {
            hasher.update(number.to_le_bytes());
        }
        hasher.update(from.consent.as_bytes());
        hasher.update(from.at.as_millis().to_le_bytes());
        self.add_digest(hasher);
    }

    fn add_digest(&mut self, hasher: Sha256) {
        let digest = hasher.finalize();
        let (words, _) = digest.as_chunks::<8>();
        let words: [u64; 4] = std::array::from_fn(|n| words.get(n).copied().map_or(0, u64::from_le_bytes));
        self.join(&Self(words));
    }

    /// Adds every event that another hash covers.
    pub fn join(&mut self, other: &Self) {
        let mut carry = false;
        for (sum, more) in self.0.iter_mut().zip(other.0) {
            let (part, first) = sum.overflowing_add(more);
            let (whole, second) = part.overflowing_add(u64::from(carry));
            *sum = whole;
            carry = first || second;
        }
    }
}

fn text(hasher: &mut Sha256, bytes: &[u8]) {
    hasher.update((bytes.len() as u32).to_le_bytes());
    hasher.update(bytes);
}

fn add_commit(hasher: &mut Sha256, commit: &CommitInfo) {
    hasher.update(commit.version.to_le_bytes());
    hasher.update(commit.time.as_millis().to_le_bytes());
    for part in [&commit.aggregate.name, &commit.aggregate.id, &commit.tenant_id, &commit.owner_id, &commit.space_id] {
        text(hasher, part.as_bytes());
    }
    for part in [&commit.request_id, &commit.command_id, &commit.correlation_id, &commit.causation_id] {
        hasher.update([u8::from(part.is_some())]);
        text(hasher, part.as_deref().unwrap_or_default().as_bytes());
    }
    for (key, value) in &commit.header {
        text(hasher, key.as_bytes());
        text(hasher, value.as_bytes());
    }
}

impl fmt::Display for EventsHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().rev().try_for_each(|word| write!(f, "{word:016x}"))
    }
}

impl FromStr for EventsHash {
    type Err = String;

    fn from_str(hex: &str) -> Result<Self, String> {
        let wrong = || format!("{hex:?} is not a hash of 64 hexadecimal digits");
        if hex.len() != 64 || !hex.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(wrong());
        }
        let mut words = [0; 4];
        for (n, word) in words.iter_mut().rev().enumerate() {
            *word = u64::from_str_radix(&hex[n * 16..(n + 1) * 16], 16).map_err(|_| wrong())?;
        }
        Ok(Self(words))
    }
}

impl Serialize for EventsHash {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for EventsHash {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let hex = <std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
        hex.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{Aggregate, Data, Timestamp, Uuid};

    fn event(number: u64) -> RecordedEvent {
        let commit = CommitInfo {
            commit_id: Uuid::from_u128(7),
            request_id: Some("r".into()),
            ..CommitInfo::first_of(Aggregate::new("order", "o-1"), Timestamp::from_millis(5))
        };
        RecordedEvent {
            sequence_number: number,
            ordinal: 0,
            id: Uuid::from_u128(8),
            event_type: "placed".into(),
            generation: 1,
            data: Data::empty(),
            tags: vec!["a".into()],
            public: false,
            metadata: None,
            time: Timestamp::from_millis(5),
            commit: Arc::new(commit),
        }
    }

    fn metadata(n: i64) -> Option<crate::Metadata> {
        crate::Metadata::of(Data::from_value(&serde_json::json!({ "n": n })).expect("valid")).expect("valid")
    }

    fn hash(events: &[RecordedEvent]) -> EventsHash {
        let mut hash = EventsHash::default();
        events.iter().for_each(|event| hash.add(event));
        hash
    }

    #[test]
    fn parts_add_up_to_the_whole() {
        let mut sum = hash(&[event(0), event(1)]);
        sum.join(&hash(&[event(2)]));
        assert_eq!(sum, hash(&[event(0), event(1), event(2)]));
        assert_eq!(sum.to_string().parse(), Ok(sum));
        assert!("xyz".parse::<EventsHash>().is_err());
    }

    #[test]
    fn every_part_of_an_event_counts() {
        let same = hash(&[event(0)]);
        let changed = |change: fn(&mut RecordedEvent)| {
            let mut event = event(0);
            change(&mut event);
            hash(&[event])
        };
        let of_commit = |change: fn(&mut CommitInfo)| {
            let mut event = event(0);
            let mut commit = (*event.commit).clone();
            change(&mut commit);
            event.commit = Arc::new(commit);
            hash(&[event])
        };
        let others = [
            changed(|event| event.sequence_number = 1),
            changed(|event| event.ordinal = 1),
            changed(|event| event.id = Uuid::nil()),
            changed(|event| event.event_type = "paid".into()),
            changed(|event| event.generation = 2),
            changed(|event| event.data = Data::from_json("{\"a\":1}").expect("JSON")),
            changed(|event| event.tags.clear()),
            changed(|event| event.public = true),
            changed(|event| event.metadata = metadata(1)),
            changed(|event| event.metadata = metadata(2)),
            changed(|event| event.time = Timestamp::from_millis(6)),
            of_commit(|commit| commit.commit_id = Uuid::nil()),
            of_commit(|commit| commit.request_id = None),
            of_commit(|commit| commit.aggregate.id = "o-2".into()),
            of_commit(|commit| commit.version = 2),
            of_commit(|commit| commit.tenant_id = "t".into()),
            of_commit(|commit| commit.owner_id = "o".into()),
            of_commit(|commit| commit.space_id = "s".into()),
            of_commit(|commit| commit.command_id = Some("c".into())),
            of_commit(|commit| commit.correlation_id = Some("c".into())),
            of_commit(|commit| commit.causation_id = Some("c".into())),
            of_commit(|commit| commit.header = vec![("k".into(), "v".into())]),
        ];
        for (n, other) in others.iter().enumerate() {
            assert_ne!(*other, same, "change {n}");
            assert!(!others[..n].contains(other), "change {n}");
        }
    }
}
