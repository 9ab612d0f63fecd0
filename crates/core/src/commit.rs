//! Commits as callers submit them, and the rules that they must satisfy.

use std::fmt;

use bytestring::ByteString;
use highway::{HighwayHash, HighwayHasher};
use uuid::Uuid;

use crate::{
    AppendCondition, Code, Data, Invalid, KeyChanges, Metadata, Reached, SequenceNumber, Timestamp, Version, Wait,
    limits,
};

/// An aggregate, identified by its name and id. Its version is the number of its commits.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields, expecting = "an object with the name and the id of an aggregate")]
pub struct Aggregate {
    /// 1–100 bytes of `[A-Za-z0-9][A-Za-z0-9_.-]*`, for example `order`.
    pub name: ByteString,
    /// 1–256 bytes of UTF-8 without control characters.
    pub id: ByteString,
}

impl Aggregate {
    /// Creates the aggregate with this name and id, which are validated when it is used.
    pub fn new(name: impl Into<ByteString>, id: impl Into<ByteString>) -> Self {
        Self { name: name.into(), id: id.into() }
    }

    /// Creates an event source without an aggregate, for events that other software recorded outside any aggregate. It has no versions,
    /// and nothing can be committed to it: its name is empty, which is not a valid name.
    pub fn of_source(id: impl Into<ByteString>) -> Self {
        Self { name: ByteString::new(), id: id.into() }
    }

    /// Returns the event source, if it has no aggregate.
    pub fn event_source(&self) -> Option<&str> {
        self.name.is_empty().then_some(&*self.id)
    }

    /// Checks the name and the id.
    ///
    /// # Errors
    /// `invalid_name` at `aggregate.name`, `invalid_id` at `aggregate.id`.
    pub fn validate(&self) -> Result<(), Invalid> {
        valid_name("aggregate.name", &self.name)?;
        valid_id("aggregate.id", &self.id)
    }
}

impl fmt::Display for Aggregate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.name, self.id)
    }
}

/// The version that an aggregate must have for a commit to be accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ExpectedVersion {
    /// Any version.
    #[default]
    Any,
    /// No commits; the same as `Exact(0)`.
    Empty,
    /// At least one commit.
    Exists,
    /// Exactly this version.
    Exact(Version),
}

impl ExpectedVersion {
    /// Returns whether an aggregate at version `actual` satisfies it.
    pub fn admits(self, actual: Version) -> bool {
        match self {
            Self::Any => true,
            Self::Empty => actual == 0,
            Self::Exists => actual > 0,
            Self::Exact(version) => actual == version,
        }
    }
}

impl fmt::Display for ExpectedVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Any => f.write_str("any"),
            Self::Empty => f.write_str("empty"),
            Self::Exists => f.write_str("exists"),
            Self::Exact(version) => write!(f, "{version}"),
        }
    }
}

/// An event to be committed.
#[derive(Debug, Clone, PartialEq)]
pub struct NewEvent {
    /// Its type, 1–100 bytes of `[A-Za-z0-9][A-Za-z0-9_.-]*`, for example `order_placed`.
    pub event_type: ByteString,
    /// The generation of the type's schema; counts from 1.
    pub generation: u32,
    /// Its content.
    pub data: Data,
    /// Its id, unique within the commit; the store generates one if absent.
    pub id: Option<Uuid>,
    /// The tags that append conditions and filtered reads search for; at most 64.
    pub tags: Vec<ByteString>,
    /// Whether partners outside the owning system may read the event.
    pub public: bool,
    /// Notes of tools and operators, for example a trace id. They are part of the request's content.
    pub metadata: Option<Metadata>,
    /// When it happened; the time of acceptance if absent.
    pub time: Option<Timestamp>,
}

impl NewEvent {
    /// Creates an event of generation 1 without tags.
    pub fn new(event_type: impl Into<ByteString>, data: Data) -> Self {
        Self {
            event_type: event_type.into(),
            generation: 1,
            data,
            id: None,
            tags: Vec::new(),
            public: false,
            metadata: None,
            time: None,
        }
    }

    /// Adds a tag.
    #[must_use]
    pub fn tag(mut self, tag: impl Into<ByteString>) -> Self {
        self.tags.push(tag.into());
        self
    }

    /// Sets the metadata: an object whose values are strings and numbers.
    ///
    /// # Errors
    /// A sentence that names the value that is neither a string nor a number.
    pub fn with_metadata(mut self, value: &impl serde::Serialize) -> Result<Self, String> {
        self.metadata = Metadata::of(Data::from_value(value)?)?;
        Ok(self)
    }
}

/// One atomic batch of events of one aggregate.
#[derive(Debug, Clone, PartialEq)]
pub struct NewCommit {
    /// The aggregate that the events belong to.
    pub aggregate: Aggregate,
    /// The version that the aggregate must have.
    pub expected_version: ExpectedVersion,
    /// Identifies the request, so that a repeat is recognised; the store generates one if absent.
    pub request_id: Option<ByteString>,
    /// The id of the command that caused the commit.
    pub command_id: Option<ByteString>,
    /// The events, 1 to 10,000.
    pub events: Vec<NewEvent>,
    /// Free text for tools, at most 64 KiB, in the given order. It is read with each event, so times the number of events it may be as
    /// large as a commit.
    pub header: Vec<(ByteString, ByteString)>,
    /// The tenantId of the aggregate; `(0)` if absent. The first commit determines it.
    pub tenant_id: Option<ByteString>,
    /// The owner of the aggregate.
    pub owner_id: Option<ByteString>,
    /// The space of the aggregate.
    pub space_id: Option<ByteString>,
    /// Correlates everything that follows from one cause.
    pub correlation_id: Option<ByteString>,
    /// The id of the direct cause.
    pub causation_id: Option<ByteString>,
    /// The append condition: events that the log must not hold.
    pub append_condition: Option<AppendCondition>,
    /// The prepare keys that the commit reserves and releases.
    pub keys: KeyChanges,
    /// The stage to wait for before answering.
    pub wait: Wait,
}

impl NewCommit {
    /// Creates a commit without events that expects any version.
    pub fn new(aggregate_name: impl Into<ByteString>, aggregate_id: impl Into<ByteString>) -> Self {
        Self {
            aggregate: Aggregate::new(aggregate_name, aggregate_id),
            expected_version: ExpectedVersion::Any,
            request_id: None,
            command_id: None,
            events: Vec::new(),
            header: Vec::new(),
            tenant_id: None,
            owner_id: None,
            space_id: None,
            correlation_id: None,
            causation_id: None,
            append_condition: None,
            keys: KeyChanges::default(),
            wait: Wait::default(),
        }
    }

    /// Adds an event.
    #[must_use]
    pub fn event(mut self, event: NewEvent) -> Self {
        self.events.push(event);
        self
    }

    /// Sets the expected version.
    #[must_use]
    pub fn expect(mut self, version: ExpectedVersion) -> Self {
        self.expected_version = version;
        self
    }

    /// Sets the request id.
    #[must_use]
    pub fn request_id(mut self, id: impl Into<ByteString>) -> Self {
        self.request_id = Some(id.into());
        self
    }

    /// Sets the append condition.
    #[must_use]
    pub fn fail_if(mut self, condition: AppendCondition) -> Self {
        self.append_condition = Some(condition);
        self
    }

    /// Sets the stage to wait for before answering.
    #[must_use]
    pub fn wait_until(mut self, reached: Reached) -> Self {
        self.wait = Wait::until(reached);
        self
    }

    /// Checks every rule that needs no store: names, ids and limits. Backends call it first.
    ///
    /// # Errors
    /// The first rule that is broken, with its path.
    pub fn validate(&self) -> Result<(), Invalid> {
        self.aggregate.validate()?;
        for (path, id) in [
            ("request_id", &self.request_id),
            ("command_id", &self.command_id),
            ("tenant_id", &self.tenant_id),
            ("correlation_id", &self.correlation_id),
            ("causation_id", &self.causation_id),
        ] {
            id.as_ref().map_or(Ok(()), |id| valid_id(path, id))?;
        }
        for (path, id) in [("owner_id", &self.owner_id), ("space_id", &self.space_id)] {
            // Empty is the default, so it may also be given explicitly.
            id.as_ref().filter(|id| !id.is_empty()).map_or(Ok(()), |id| valid_id(path, id))?;
        }
        self.append_condition.as_ref().map_or(Ok(()), AppendCondition::validate)?;
        self.keys.validate()?;
        self.wait.validate()?;
        self.validate_header()?;
        self.validate_events()
    }

    /// Returns the size that counts towards [`limits::COMMIT_BYTES_MAX`]: bytes of data and metadata as BSON, types, tags and prepare
    /// keys.
    pub(crate) fn content_bytes(&self) -> usize {
        let tags = |event: &NewEvent| event.tags.iter().map(|tag| tag.len()).sum::<usize>();
        let metadata = |event: &NewEvent| event.metadata.as_ref().map_or(0, Metadata::bytes);
        let bytes =
            |event: &NewEvent| event.data.as_bytes().len() + metadata(event) + event.event_type.len() + tags(event);
        self.events.iter().map(bytes).sum::<usize>() + self.keys.content_bytes()
    }

    /// Returns whether a header of this size is allowed: at most [`limits::HEADER_BYTES_MAX`], and at most [`limits::COMMIT_BYTES_MAX`]
    /// after it is multiplied by the number of events, because it is read with each of them.
    pub(crate) fn may_have_header_of(&self, bytes: usize) -> bool {
        bytes <= limits::HEADER_BYTES_MAX && bytes.saturating_mul(self.events.len()) <= limits::COMMIT_BYTES_MAX
    }

    fn validate_header(&self) -> Result<(), Invalid> {
        let mut bytes = 0;
        for (key, value) in &self.header {
            valid_text(Code::InvalidHeader, "header", "a key", key, limits::ID_BYTES_MAX)?;
            bytes += key.len() + value.len();
        }
        if bytes > limits::HEADER_BYTES_MAX {
            let message = format!("holds {bytes} bytes; at most {} are allowed", limits::HEADER_BYTES_MAX);
            return Err(Invalid::new(Code::InvalidHeader, "header", message));
        }
        if !self.may_have_header_of(bytes) {
            let (count, most) = (self.events.len(), limits::COMMIT_BYTES_MAX);
            let message = format!(
                "holds {bytes} bytes, which are read with each of {count} events; at most {most} bytes are allowed for all together, so \
                 shorten it or commit fewer events at once"
            );
            return Err(Invalid::new(Code::InvalidHeader, "header", message));
        }
        let mut keys: Vec<_> = self.header.iter().map(|(key, _)| key).collect();
        keys.sort_unstable();
        match keys.windows(2).find(|pair| pair[0] == pair[1]) {
            Some(pair) => Err(Invalid::new(Code::InvalidHeader, "header", format!("key {:?} is given twice", pair[0]))),
            None => Ok(()),
        }
    }

    fn validate_events(&self) -> Result<(), Invalid> {
        let count = self.events.len();
        if count == 0 || count > limits::EVENTS_MAX {
            let message = format!("holds {count} events; a commit has 1 to {}", limits::EVENTS_MAX);
            return Err(Invalid::new(Code::InvalidEvents, "events", message));
        }
        self.events.iter().enumerate().try_for_each(|(index, event)| validate_event(index, event))?;
        let total = self.content_bytes();
        if total > limits::COMMIT_BYTES_MAX {
            let message = format!(
                "{total} bytes of data as BSON, types, tags and prepare keys; at most {} are allowed",
                limits::COMMIT_BYTES_MAX
            );
            return Err(Invalid::new(Code::CommitTooLarge, "events", message));
        }
        let mut ids: Vec<_> = self.events.iter().filter_map(|event| event.id).collect();
        ids.sort_unstable();
        match ids.windows(2).find(|pair| pair[0] == pair[1]) {
            Some(pair) => {
                Err(Invalid::new(Code::InvalidEvents, "events", format!("event id {} is given twice", pair[0])))
            }
            None => Ok(()),
        }
    }

    /// Returns the keyed 128-bit digest of the content, which distinguishes a repeated request id from a reused one. The content is the
    /// ordered list of events and the changes of prepare keys. Of an event, it covers type, generation, data as BSON, tags, public, and
    /// the id and metadata if given. Header, times, expected version and append condition are not part of it.
    pub fn content_digest(&self, key: &[u8; 16]) -> u128 {
        let mut hasher = HighwayHasher::new(digest_key(key));
        for event in &self.events {
            let id = event.id.unwrap_or_default();
            let mut head = [0; 34];
            let lengths = [event.event_type.len(), event.data.as_bytes().len(), event.tags.len()];
            for (place, length) in head.as_chunks_mut::<4>().0.iter_mut().zip(lengths) {
                *place = (length as u32).to_le_bytes();
            }
            head[12..16].copy_from_slice(&event.generation.to_le_bytes());
            head[16..32].copy_from_slice(id.as_bytes());
            let given = u8::from(event.id.is_some()) | u8::from(event.metadata.is_some()) << 1;
            head[32..].copy_from_slice(&[u8::from(event.public), given]);
            hasher.append(&head);
            hasher.append(event.event_type.as_bytes());
            for tag in &event.tags {
                hasher.append(&(tag.len() as u32).to_le_bytes());
                hasher.append(tag.as_bytes());
            }
            hasher.append(event.data.as_bytes());
            if let Some(metadata) = &event.metadata {
                hasher.append(&(metadata.bytes() as u32).to_le_bytes());
                hasher.append(metadata.data().as_bytes());
            }
        }
        self.keys.digest(&mut hasher);
        let [low, high] = hasher.finalize128();
        u128::from(high) << 64 | u128::from(low)
    }
}

/// Derives the 256-bit key of HighwayHash from our 128-bit key: the key followed by its complement.
pub(crate) fn digest_key(key: &[u8; 16]) -> highway::Key {
    let (low, high) = (u128::from_le_bytes(*key) as u64, (u128::from_le_bytes(*key) >> 64) as u64);
    highway::Key([low, high, !low, !high])
}

fn validate_event(index: usize, event: &NewEvent) -> Result<(), Invalid> {
    let path = |field: &str| format!("events[{index}].{field}");
    if name_fault(&event.event_type).is_some() {
        valid_name(&path("type"), &event.event_type)?;
    }
    if event.generation == 0 {
        return Err(Invalid::new(Code::InvalidBody, path("generation"), "generations count from 1"));
    }
    event.time.map_or(Ok(()), |time| valid_time(&path("time"), time))?;
    let bytes = event.data.as_bytes().len();
    if bytes > limits::EVENT_BYTES_MAX {
        let message = format!("{bytes} bytes as BSON; at most {} are allowed", limits::EVENT_BYTES_MAX);
        return Err(Invalid::new(Code::EventTooLarge, path("data"), message));
    }
    if event.tags.len() > limits::TAGS_MAX {
        let message = format!("{} tags; at most {} are allowed", event.tags.len(), limits::TAGS_MAX);
        return Err(Invalid::new(Code::InvalidTags, path("tags"), message));
    }
    for (n, tag) in event.tags.iter().enumerate() {
        if text_fault(tag, limits::TAG_BYTES_MAX).is_some() {
            valid_text(Code::InvalidTags, &path(&format!("tags[{n}]")), "a tag", tag, limits::TAG_BYTES_MAX)?;
        }
    }
    event.metadata.as_ref().map_or(Ok(()), |metadata| metadata.validate(&path("metadata")))
}

/// Checks that RFC 3339 can represent a time; other times could not be returned over HTTP.
pub(crate) fn valid_time(path: &str, time: Timestamp) -> Result<(), Invalid> {
    match time.is_writable() {
        true => Ok(()),
        false => Err(Invalid::new(Code::InvalidTime, path, "is not a time that RFC 3339 can represent")),
    }
}

fn name_fault(name: &str) -> Option<&'static str> {
    let allowed = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'-');
    match name.as_bytes() {
        [] => Some("is empty"),
        bytes if bytes.len() > limits::NAME_BYTES_MAX => Some("is too long"),
        [first, rest @ ..] if first.is_ascii_alphanumeric() && rest.iter().copied().all(allowed) => None,
        _ => Some("holds a character that is not allowed"),
    }
}

fn text_fault(text: &str, bytes_max: usize) -> Option<&'static str> {
    if text.is_empty() {
        Some("is empty")
    } else if text.len() > bytes_max {
        Some("is too long")
    } else if text.chars().any(char::is_control) {
        Some("holds a control character")
    } else {
        None
    }
}

/// Checks a name: 1–100 bytes of `[A-Za-z0-9][A-Za-z0-9_.-]*`.
///
/// # Errors
/// `invalid_name` at `path`.
pub fn valid_name(path: &str, name: &str) -> Result<(), Invalid> {
    let Some(fault) = name_fault(name) else { return Ok(()) };
    let message = format!(
        "{} {fault}; a name has 1 to {} bytes of A-Z a-z 0-9 _ . - and begins with a letter or digit",
        shown(name),
        limits::NAME_BYTES_MAX
    );
    Err(Invalid::new(Code::InvalidName, path, message))
}

/// Checks an id: 1–256 bytes of UTF-8 without control characters.
///
/// # Errors
/// `invalid_id` at `path`.
pub fn valid_id(path: &str, id: &str) -> Result<(), Invalid> {
    valid_text(Code::InvalidId, path, "an id", id, limits::ID_BYTES_MAX)
}

pub(crate) fn valid_text(code: Code, path: &str, what: &str, text: &str, bytes_max: usize) -> Result<(), Invalid> {
    let Some(fault) = text_fault(text, bytes_max) else { return Ok(()) };
    let message = format!("{} {fault}; {what} has 1 to {bytes_max} bytes without control characters", shown(text));
    Err(Invalid::new(code, path, message))
}

/// Returns the value, truncated so that a message stays short.
fn shown(text: &str) -> String {
    const SHOWN_MAX: usize = 60;
    let mut cut: String = text.chars().take(SHOWN_MAX).collect();
    if cut.len() < text.len() {
        cut.push('…');
    }
    format!("{cut:?}")
}

/// The outcome of an accepted commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommitOutcome {
    /// The commit's id.
    pub commit_id: Uuid,
    /// The aggregate's version after it.
    pub version: Version,
    /// The sequence number of its first event; the others follow without gaps. It is `None` if the commit has not yet reached the log.
    /// That is possible only on a backend that assigns numbers later, if the commit waited only for storage or its wait timed out.
    pub first_sequence_number: Option<SequenceNumber>,
    /// The ids of its events, in order.
    pub event_ids: Vec<Uuid>,
    /// Whether this request id was committed before. If so, nothing was added, and this is the original outcome.
    pub duplicate: bool,
    /// The named stage that the commit waited for and reached. A log returns `None`, because the task host waits for stages.
    pub stage: Option<ByteString>,
}

impl CommitOutcome {
    /// Returns the stage that the commit had reached when it was answered.
    pub fn reached(&self) -> Reached {
        match (&self.stage, self.first_sequence_number) {
            (Some(stage), _) => Reached::Stage(stage.clone()),
            (None, Some(_)) => Reached::Logged,
            (None, None) => Reached::Committed,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn commit() -> NewCommit {
        NewCommit::new("order", "o-1").event(NewEvent::new("order_placed", Data::empty()))
    }

    fn refused(change: impl FnOnce(&mut NewCommit)) -> (Code, String) {
        let mut commit = commit();
        change(&mut commit);
        let invalid = commit.validate().expect_err("must be refused");
        (invalid.code, invalid.path)
    }

    #[test]
    fn a_good_commit_is_valid() {
        assert_eq!(commit().validate(), Ok(()));
        assert_eq!(NewCommit { owner_id: Some("".into()), ..commit() }.validate(), Ok(()));
    }

    #[test]
    fn each_broken_rule_is_refused_with_its_code_and_path() {
        let name = "aggregate.name".to_owned();
        for bad in ["", "-x", "a b", "ä", &"n".repeat(101), "a/b", "a\0"] {
            assert_eq!(refused(|c| c.aggregate.name = bad.into()), (Code::InvalidName, name.clone()), "{bad:?}");
        }
        for bad in ["", "a\0", "a\nb", "\u{85}", &"i".repeat(257)] {
            assert_eq!(refused(|c| c.aggregate.id = bad.into()).0, Code::InvalidId, "{bad:?}");
            assert_eq!(refused(|c| c.request_id = Some(bad.into())), (Code::InvalidId, "request_id".into()));
        }
        assert_eq!(refused(|c| c.events.clear()), (Code::InvalidEvents, "events".into()));
        let event = commit().events.remove(0);
        assert_eq!(refused(|c| c.events = vec![event.clone(); 10_001]).0, Code::InvalidEvents);
        let same_id = NewEvent { id: Some(Uuid::from_u128(7)), ..event.clone() };
        assert_eq!(refused(|c| c.events = vec![same_id.clone(), same_id]).0, Code::InvalidEvents);
        assert_eq!(refused(|c| c.events[0].event_type = "".into()), (Code::InvalidName, "events[0].type".into()));
        let beyond = Some(crate::Timestamp::from_millis(i64::MAX));
        assert_eq!(refused(|c| c.events[0].time = beyond), (Code::InvalidTime, "events[0].time".into()));
        assert_eq!(refused(|c| c.events[0].tags = vec!["t".into(); 65]).0, Code::InvalidTags);
        assert_eq!(refused(|c| c.events[0].tags = vec!["".into()]), (Code::InvalidTags, "events[0].tags[0]".into()));
        assert_eq!(refused(|c| c.header = vec![("k".into(), "v".repeat(65_536).into())]).0, Code::InvalidHeader);
        assert_eq!(
            refused(|c| c.header = vec![("k".into(), "1".into()), ("k".into(), "2".into())]).0,
            Code::InvalidHeader
        );
        let read_with_each = refused(|c| {
            c.header = vec![("k".into(), "v".repeat(2_000).into())];
            c.events = vec![event.clone(); 10_000];
        });
        assert_eq!(read_with_each, (Code::InvalidHeader, "header".into()));
        let big = Data::from_value(&serde_json::json!({ "x": "y".repeat(8 * 1024 * 1024) })).expect("valid");
        assert_eq!(refused(|c| c.events[0].data = big), (Code::EventTooLarge, "events[0].data".into()));
        let half = Data::from_value(&serde_json::json!({ "x": "y".repeat(6 * 1024 * 1024) })).expect("valid");
        let half = NewEvent::new("t", half);
        assert_eq!(refused(|c| c.events = vec![half; 3]).0, Code::CommitTooLarge);
    }

    #[test]
    fn the_digest_is_the_same_on_every_processor_and_in_every_version() {
        let digest = commit().event(NewEvent::new("note", Data::empty()).tag("a").tag("b")).content_digest(&[7; 16]);
        assert_eq!(format!("{digest:032x}"), "33882885c0774b3c874f56323d071030");
    }

    #[test]
    fn the_digest_sees_content_and_nothing_else() {
        let key = [7; 16];
        let base = commit().content_digest(&key);
        let same = NewCommit { header: vec![("a".into(), "b".into())], ..commit().expect(ExpectedVersion::Empty) };
        assert_eq!(same.content_digest(&key), base);
        assert_ne!(commit().content_digest(&[8; 16]), base);
        let changed = |change: fn(&mut NewEvent)| {
            let mut commit = commit();
            change(&mut commit.events[0]);
            commit.content_digest(&key)
        };
        assert_ne!(changed(|e| e.event_type = "other".into()), base);
        assert_ne!(changed(|e| e.generation = 2), base);
        assert_ne!(changed(|e| e.public = true), base);
        assert_ne!(changed(|e| e.tags.push("t".into())), base);
        assert_ne!(changed(|e| e.id = Some(Uuid::nil())), base);
        assert_ne!(changed(|e| e.data = Data::from_json(r#"{"a":1}"#).expect("valid")), base);
        let noted = |n: i64| NewEvent::new("t", Data::empty()).with_metadata(&serde_json::json!({ "n": n }));
        let noted = |n: i64| NewCommit::new("a", "1").event(noted(n).expect("valid")).content_digest(&key);
        assert_ne!(noted(1), noted(2));
        assert_ne!(noted(1), NewCommit::new("a", "1").event(NewEvent::new("t", Data::empty())).content_digest(&key));
        assert_eq!(changed(|e| e.time = Some(Timestamp::from_millis(1))), base);
    }
}
