//! The targets of replays. Records that a target stores are part of the batch that advances the replay.

use std::borrow::Cow;
use std::fs::{File, OpenOptions};
use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use annals_core::browse::{ShownDocument, stored_browse_document};
use annals_core::bson::raw::RawDocument;
use annals_core::groups::GroupDefinition;
use annals_core::handlers::{HandlerDefinition, HandlerError};
use annals_core::replays::{InboxRecord, OnError, ReplayBody, ReplaySession, ReplayTarget, Sent};
use annals_core::{
    ByteString, Code, Data, Expected, Filter, Matcher, RecordChange, RecordError, RecordedEvent, StoreError, Timestamp,
    TypedRecords, event_document,
};
use serde_json::{Value, json};

use super::next::Next;
use super::webhook::Webhook;
use super::{ReplayError, TenantReplays};
use crate::handlers::Kind;

/// A target that is ready to receive events.
pub(super) enum Target {
    Nowhere,
    /// The handlers or groups that receive deliveries.
    Inbox(Vec<Receiver>),
    File(Lines),
    Webhook(Webhook),
}

/// A handler or a group.
pub(super) struct Receiver {
    processor: String,
    definition: HandlerDefinition,
    filter: Filter,
    matcher: Option<Matcher>,
    /// The topics that a group reads; `None` for a handler.
    topics: Option<Vec<ByteString>>,
}

/// A file of lines.
pub(super) struct Lines {
    file: File,
    bytes: u64,
}

/// The outcome of sending some events.
pub(super) struct Outcome {
    pub sent: Vec<Sent>,
    pub changes: Vec<RecordChange>,
}

impl Outcome {
    /// Returns why the target is down, if it is.
    pub fn unreachable(&self) -> Option<&str> {
        self.sent.iter().find_map(|sent| if let Sent::Unreachable(reason) = sent { Some(&**reason) } else { None })
    }
}

impl TenantReplays {
    /// Opens the target of a session. An error describes what is wrong with the target.
    pub(super) async fn target(&self, session: &ReplaySession, body: &ReplayBody) -> Result<Target, ReplayError> {
        match &body.target {
            ReplayTarget::Test {} => Ok(Target::Nowhere),
            ReplayTarget::Handler { name } => {
                let definition = self.handlers.definition(name).await?;
                Ok(Target::Inbox(vec![Receiver::new(Kind::Handlers.processor_of(name), definition, None)]))
            }
            ReplayTarget::Topic { .. } => Ok(Target::Inbox(self.group_receivers().await?)),
            ReplayTarget::Webhook { url } => {
                let sending = Arc::clone(&self.shared.options.partners.sending);
                Ok(Target::Webhook(Webhook { sending, url: url.clone() }))
            }
            ReplayTarget::File { name } => {
                let bytes = session.annals.file_bytes.cast_unsigned();
                Ok(Target::File(Lines::open(self.path_in(self.exports()?, name), bytes).map_err(broken)?))
            }
        }
    }

    /// Checks that this process has what sending to the target requires; another process may have it.
    pub(super) fn can_send(&self, body: &ReplayBody) -> Result<(), ReplayError> {
        match &body.target {
            ReplayTarget::File { .. } => self.exports().map(|_| ()),
            _ => Ok(()),
        }
    }

    /// Returns the folder to which this process writes the files of replays. The process that created the replay had one.
    fn exports(&self) -> Result<&Path, ReplayError> {
        self.shared.options.exports.as_deref().ok_or_else(|| {
            let message = "this process has no folder for the file of the replay, so another one must send it; set \
                           server.exports (ANNALS__SERVER__EXPORTS) and restart the process";
            StoreError::other(Code::InvalidReplay, message).into()
        })
    }

    /// Returns whether a group that follows the log reads a topic to which events of a replay may be sent.
    pub(super) async fn reads_a_topic_of(&self, body: &ReplayBody) -> Result<bool, HandlerError> {
        let receivers = self.group_receivers().await?;
        let mut read = receivers.iter().filter_map(|it| it.topics.as_ref()).flatten();
        Ok(match &body.filter.event_types {
            Some(types) if !types.is_empty() => {
                read.any(|topic| types.iter().any(|it| body.target.topic_of(it) == &**topic))
            }
            // Events of any type.
            _ => read.any(|topic| match &body.target {
                ReplayTarget::Topic { name: Some(name), topics } => {
                    topic == name || topics.values().any(|it| it == topic)
                }
                _ => true,
            }),
        })
    }

    async fn group_receivers(&self) -> Result<Vec<Receiver>, HandlerError> {
        let mut receivers = Vec::new();
        let mut after: Option<ByteString> = None;
        loop {
            let page = self.groups.defined(after.as_deref()).await?;
            let Some(last) = page.last() else { return Ok(receivers) };
            after = Some(last.name.clone());
            receivers.extend(page.into_iter().map(|definition| {
                let group = GroupDefinition::of_handler(&definition);
                Receiver::new(Kind::Groups.processor_of(&definition.name), definition, Some(group.topics))
            }));
        }
    }
}

fn broken(error: std::io::Error) -> ReplayError {
    StoreError::Io(error.to_string()).into()
}

impl Receiver {
    fn new(processor: String, definition: HandlerDefinition, topics: Option<Vec<ByteString>>) -> Self {
        let filter = definition.filter().unwrap_or_default();
        let matcher = definition.condition.as_ref().map(Matcher::new);
        Self { processor, definition, filter, matcher, topics }
    }

    /// Returns whether it takes an event.
    fn takes(&self, next: &Next, target: &ReplayTarget) -> bool {
        let Some(event) = &next.event else { return false };
        match &self.topics {
            Some(topics) => topics.iter().any(|topic| **topic == *target.topic_of(&event.event_type)),
            None => {
                self.filter.admits(event)
                    && self.matcher.as_ref().is_none_or(|matcher| matcher.matches(&event_document(event)))
            }
        }
    }
}

impl Target {
    /// Returns the most records that each event can become.
    pub fn receivers(&self) -> usize {
        match self {
            Self::Inbox(receivers) => receivers.len(),
            _ => 0,
        }
    }

    pub fn is_inbox(&self) -> bool {
        matches!(self, Self::Inbox(_))
    }

    /// Returns whether each event is stored as sent before the next one is sent, because sending cannot be undone.
    pub fn sends_singly(&self) -> bool {
        matches!(self, Self::Webhook(_))
    }

    /// Sends events. For an inbox, they are sent by writing the changes.
    pub async fn send(
        &mut self,
        session: &mut ReplaySession,
        body: &ReplayBody,
        group: &[Next],
        now: Timestamp,
    ) -> Result<Outcome, RecordError> {
        let mut outcome = Outcome { sent: Vec::with_capacity(group.len()), changes: Vec::new() };
        let (mut lines, replay) = (Vec::new(), replay_of(session));
        for (n, next) in group.iter().enumerate() {
            let Some(event) = &next.event else {
                outcome.sent.push(Sent::Failed("its document does not describe an event of this log".to_owned()));
                match body.on_error {
                    OnError::Skip => continue,
                    // The events after it are not sent.
                    OnError::Stop => break,
                }
            };
            let event = match body.preserve_timestamps {
                true => Cow::Borrowed(event),
                false => Cow::Owned(RecordedEvent { time: now.nearest_writable(), ..event.clone() }),
            };
            let event = &*event;
            match self {
                Self::Nowhere => outcome.sent.push(Sent::Done),
                Self::Webhook(webhook) => outcome.sent.push(webhook.send(event, session).await),
                Self::Inbox(receivers) => {
                    let place = session.done() + n as u64;
                    let topic = body.target.topic_of(&event.event_type);
                    let topic = (topic != &*event.event_type).then(|| topic.to_owned());
                    let mut taken = receivers.iter().filter(|receiver| receiver.takes(next, &body.target)).peekable();
                    outcome.sent.push(if taken.peek().is_some() { Sent::Done } else { Sent::Skipped });
                    for receiver in taken {
                        let partition = &receiver.definition.partition_by;
                        let record = InboxRecord {
                            id: InboxRecord::id_of(&receiver.processor, &session.id, place),
                            processor: receiver.processor.clone(),
                            session: session.id.clone(),
                            replay_id: session.replay_id.clone(),
                            event_id: event.id.hyphenated().to_string(),
                            sequence_number: event.sequence_number.cast_signed(),
                            partition: partition.is_partitioned().then(|| partition.of(event).to_string()),
                            topic: topic.clone(),
                            time: (!body.preserve_timestamps).then(|| event.time.as_millis()),
                            ready_at: 0,
                            attempts: 0,
                            attempts_max: i64::from(body.retry_attempts) + 1,
                            last_reason: None,
                            holder: None,
                            life: None,
                            claim: None,
                        };
                        outcome.changes.push(TypedRecords::replacement(&record, Expected::Absent)?);
                    }
                }
                Self::File(_) => {
                    lines.extend_from_slice(line(event, &replay).as_bytes());
                    lines.push(b'\n');
                    outcome.sent.push(Sent::Done);
                }
            }
        }
        if let Self::File(file) = self {
            match file.append(&lines) {
                Ok(bytes) => session.annals.file_bytes = bytes.cast_signed(),
                Err(error) => {
                    let failed = || Sent::Failed(format!("the file cannot be written: {error}"));
                    outcome.sent.iter_mut().for_each(|sent| *sent = failed());
                }
            }
        }
        Ok(outcome)
    }
}

/// Returns the description of the replay that each of its events carries.
pub(super) fn replay_of(session: &ReplaySession) -> Value {
    json!({ "id": session.replay_id, "session_id": session.id })
}

/// Returns an event as JSON: the document of the browse view, and the replay that sends it.
pub(super) fn line(event: &RecordedEvent, replay: &Value) -> String {
    let line = |document: &RawDocument| ShownDocument::new(document).with("replay", replay).readable_text();
    // The event without data that cannot be decoded.
    let bare = || RecordedEvent { data: Data::empty(), ..event.clone() };
    let written = line(&stored_browse_document(event, None));
    written.or_else(|| line(&stored_browse_document(&bare(), None))).unwrap_or_default()
}

impl Lines {
    /// Opens a file and truncates it to the stored length, which removes lines that are not stored as sent.
    fn open(path: PathBuf, bytes: u64) -> std::io::Result<Self> {
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder)?;
        }
        let file = OpenOptions::new().create(true).truncate(false).write(true).open(&path)?;
        if file.metadata()?.len() < bytes {
            let message = format!("{} is shorter than the {bytes} bytes that were written", path.display());
            return Err(std::io::Error::other(message));
        }
        file.set_len(bytes)?;
        Ok(Self { file, bytes })
    }

    /// Appends lines and syncs them. Returns the length of the file. After a failure the file is truncated to its earlier length, if
    /// possible.
    fn append(&mut self, lines: &[u8]) -> std::io::Result<u64> {
        let written = self.file.seek(SeekFrom::Start(self.bytes)).and_then(|_| self.file.write_all(lines));
        match written.and_then(|()| self.file.sync_data()) {
            Ok(()) => {
                self.bytes += lines.len() as u64;
                Ok(self.bytes)
            }
            Err(error) => {
                let _ = self.file.set_len(self.bytes);
                Err(error)
            }
        }
    }
}
