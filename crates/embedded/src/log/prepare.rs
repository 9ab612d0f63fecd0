//! Prepare keys as a service: a change is a frame without events, which is checked and made durable like a commit.
//!
//! This gives a single source for who holds a key, a single order of the changes by commits and by the service, and a single recovery.

use annals_core::{
    FoundKey, KeyChange, KeyError, KeyHolder, KeyPage, KeyState, KeysQuery, NewCommit, PrepareKeys, SequenceNumber,
    StoreError, Timestamp, new_uuid, valid_key,
};
use async_trait::async_trait;

use super::Log;
use super::beside_commits;
use super::commit::{judged, room_for};
use super::core::Core;
use super::keys::{self, KeyFault};
use super::list_keys;
use super::queue::{Encoded, ProbedHead, Refusal, Request, Verdict};
use crate::record::{self, Stamp};

#[async_trait]
impl PrepareKeys for Log {
    async fn change(&self, change: KeyChange) -> Result<bool, KeyError> {
        change.validate()?;
        let core = &self.core;
        let now = core.options.clock.now().nearest_writable();
        let encoded = encode(core, &change, now);
        let room = room_for(core, encoded.payload.len()).await?;
        match judged(core, Request::commit_of(encoded, None, now, room)).await? {
            Verdict::Committed { .. } => Ok(true),
            Verdict::Refused(_, Refusal::Key { fault: KeyFault::NotHeld, .. })
                if matches!(change, KeyChange::Move { .. }) =>
            {
                Err(change.not_held())
            }
            Verdict::Refused(_, Refusal::Key { .. }) => Ok(false),
            Verdict::Refused(..) | Verdict::Repeat(_) => {
                Err(StoreError::Failed("a change of a key was judged as a commit".to_owned()).into())
            }
        }
    }

    async fn look(&self, name: &str, key: &str) -> Result<Option<FoundKey>, KeyError> {
        valid_key(name, key)?;
        let core = &self.core;
        let holder = core.noticed(holder(core, name, key))?;
        // Nobody knows whether the key was taken or released after the damage.
        let holder = core.unless_about_the_end(holder, true)?;
        let now = core.options.clock.now().nearest_writable();
        Ok(holder.map(|holder| holder.found(now)))
    }

    async fn list(&self, query: KeysQuery) -> Result<KeyPage, KeyError> {
        query.validate()?;
        let core = &self.core;
        let page = core.noticed(list_keys::list(core, &query, core.options.clock.now().nearest_writable()).await)?;
        // Nobody knows which keys were taken or released after the damage.
        Ok(core.unless_about_the_end(page, true)?)
    }

    async fn beside_commits(&self, to: SequenceNumber) -> Result<Vec<KeyState>, KeyError> {
        let keys = self.core.noticed(beside_commits::keys(&self.core, to).await)?;
        Ok(self.core.unless_about_the_end(keys, true)?)
    }
}

fn holder(core: &Core, name: &str, key: &str) -> Result<Option<KeyHolder>, StoreError> {
    let term = core.key.key(name, key);
    Ok(keys::look_up(&core.view(), .., &name.into(), &key.into(), term)?.flatten())
}

/// Encodes a change and computes everything that the log writer needs to know about it.
fn encode(core: &Core, change: &KeyChange, now: Timestamp) -> Encoded {
    // Without an aggregate and events it is not a commit; see `record.rs`.
    let recorded = NewCommit { keys: change.made(), ..NewCommit::new("", "") };
    let commit_id = new_uuid(now, &*core.options.random);
    let payload = record::encode(&recorded, &Stamp { commit_id, digest: 0, now, transaction: None, received: None });
    Encoded {
        aggregate_term: 0,
        request_term: 0,
        terms: core.key.of_new(&recorded),
        keys: keys::of_service(core.key, change.clone()),
        events: 0,
        aggregate: recorded.aggregate,
        tenant_id: annals_core::DEFAULT_TENANT_ID.into(),
        expected: recorded.expected_version,
        condition: None,
        payload_crc: crc32c::crc32c(&payload),
        payload,
        probed: ProbedHead::default(),
    }
}
