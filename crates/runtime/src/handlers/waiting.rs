//! Waiting until a handler has handled events.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use annals_core::handlers::{FailingRecord, HandlerError};
use annals_core::{
    ByteString, Code, DEFAULT_SCOPE, Invalid, LogQuery, RecordedEvent, SequenceNumber, TypedRecords, limits,
};
use tokio::sync::oneshot;

use super::TenantHandlers;
use super::status::absent;
use crate::engine::owner::{Awaited, Command};
use crate::engine::source::Source;

/// How often the stored state is read while another process owns the handler.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// The number of reads before an owner is asked again. Meanwhile another process can take the lease.
const LOOKS: usize = 10;

impl TenantHandlers {
    /// Checks that a handler is defined.
    pub(crate) async fn check_defined(&self, name: &str) -> Result<(), HandlerError> {
        self.open()?;
        let definition = self.definition(name).await?;
        if *definition.scope != *DEFAULT_SCOPE {
            let scope = &*definition.scope;
            let message = format!(
                "handler {name:?} handles events of scope {scope:?}, but commits go to the default scope; wait for a handler of the default scope"
            );
            return Err(Invalid::new(Code::InvalidWait, "wait.for", message).into());
        }
        Ok(())
    }

    /// Waits until a handler has handled these events of the log, or has passed those that do not match its source.
    pub(crate) async fn until_handled(&self, name: &str, events: Range<SequenceNumber>) -> Result<(), HandlerError> {
        let source = self.source(&self.definition(name).await?)?;
        // A partition is handled in order, so waiting for its last event suffices.
        let (mut last, mut read_to): (BTreeMap<ByteString, u64>, u64) = (BTreeMap::new(), 0);
        let mut from = events.start;
        while from < events.end {
            let limit = usize::try_from(events.end - from).unwrap_or(usize::MAX).min(limits::PAGE_MAX);
            let page = self.log.read(LogQuery { from: Some(from), limit, ..LogQuery::default() }).await?;
            for event in &page.events {
                match self.place_of(&source, event).await? {
                    Awaited::Event { position, partition } => _ = last.insert(partition, position),
                    Awaited::ReadTo(position) => read_to = read_to.max(position),
                }
            }
            match page.events.is_empty() {
                true => self.pause().await?,
                false => from = page.next,
            }
        }
        if read_to > 0 {
            self.until(name, &Awaited::ReadTo(read_to)).await?;
        }
        for (partition, position) in last {
            self.until(name, &Awaited::Event { position, partition }).await?;
        }
        Ok(())
    }

    /// Returns what to wait for, once the source has decided whether it has the event.
    async fn place_of(&self, source: &Source, event: &RecordedEvent) -> Result<Awaited, HandlerError> {
        loop {
            if let Some(awaited) = source.place_of(event).await? {
                return Ok(awaited);
            }
            self.pause().await?;
        }
    }

    async fn pause(&self) -> Result<(), HandlerError> {
        self.open()?;
        self.clock().sleep(LOOK_EVERY).await;
        Ok(())
    }

    async fn until(&self, name: &str, awaited: &Awaited) -> Result<(), HandlerError> {
        loop {
            let owner = self.owner(name).await?;
            let (answer, answered) = oneshot::channel();
            if owner.send(Command::UntilHandled { awaited: awaited.clone(), answer }).await.is_ok() {
                match answered.await {
                    Ok(Err(HandlerError::OwnedElsewhere { .. })) | Err(_) => {}
                    Ok(answer) => return answer,
                }
            }
            // The owner is in another process, has ended, or is restarted.
            for _ in 0..LOOKS {
                if self.is_stored_as_handled(name, awaited).await? {
                    return Ok(());
                }
                self.pause().await?;
            }
        }
    }

    /// Returns whether it is handled, according to what an owner stored.
    async fn is_stored_as_handled(&self, name: &str, awaited: &Awaited) -> Result<bool, HandlerError> {
        let processor = self.kind.processor_of(name);
        let Some(stored) = self.stored(&processor).await? else { return Ok(*awaited == Awaited::ReadTo(0)) };
        let progress = stored.progress();
        match awaited {
            Awaited::ReadTo(position) => Ok(position.checked_sub(1).is_none_or(|last| progress.is_settled(last))),
            Awaited::Event { position, .. } if !progress.is_settled(*position) => Ok(false),
            Awaited::Event { position, partition } => {
                let id = FailingRecord::id_of(&processor, partition);
                let failing = TypedRecords::<FailingRecord>::declared(Arc::clone(&self.records));
                let failing = absent(failing.get(id).await)?;
                Ok(failing.is_none_or(|failing| failing.value.read().position > *position))
            }
        }
    }
}
