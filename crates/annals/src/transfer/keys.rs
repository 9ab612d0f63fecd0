//! Exports and imports prepare keys that were changed without a commit. Changes by commits are exported with their events; these lines
//! hold the final state of the keys that differ from that.

use std::collections::BTreeSet;
use std::io::Write;
use std::sync::Arc;

use annals_core::{
    ByteString, Code, DEFAULT_SCOPE, KeyChange, KeyError, KeyHolder, KeyState, KeyValue, PrepareKeys, Release, Reserve,
    SequenceNumber, Store, Timestamp,
};
use serde::{Deserialize, Serialize};
use tokio::sync::OnceCell;

use super::write::line;
use super::{ExportedLog, from_hex, to_hex};
use crate::operations::OperationError;

type Outcome<T> = Result<T, OperationError>;

/// A key of the tenant of the log before it.
#[derive(Serialize, Deserialize)]
struct KeyLine {
    key: StateLine,
}

/// The value of its holder; absent if the key is free.
#[derive(Serialize, Deserialize)]
struct StateLine {
    name: ByteString,
    key: ByteString,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    value_bson: Option<String>,
    /// Milliseconds since 1970-01-01 UTC, for times that RFC 3339 cannot represent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ttl_at_millis: Option<i64>,
}

/// The line after the keys.
#[derive(Serialize, Deserialize)]
pub(super) struct KeysEnd {
    pub(super) keys_end: MovedKeys,
}

/// The keys of a tenant that were exported or imported besides its commits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MovedKeys {
    /// The tenant.
    pub tenant: String,
    /// Their number.
    pub keys: u64,
}

/// Writes the keys as they were at the head of the log. They belong to the tenant, and its default log records their changes.
pub(super) async fn export(
    store: &dyn Store,
    log: &ExportedLog,
    out: &mut (dyn Write + Send),
    moved: &mut Vec<MovedKeys>,
) -> Outcome<()> {
    if log.scope != DEFAULT_SCOPE {
        return Ok(());
    }
    let states = open(store, log)?.beside_commits(log.head).await.map_err(refused)?;
    for state in &states {
        let KeyState { name, key, holder } = state.clone();
        let value_bson = holder.as_ref().map(|holder| to_hex(holder.value.data().as_bytes()));
        let ttl_at_millis = holder.and_then(|holder| holder.ttl_at).map(Timestamp::as_millis);
        line(out, &KeyLine { key: StateLine { name, key, value_bson, ttl_at_millis } })?;
    }
    let keys_end = MovedKeys { tenant: log.tenant.clone(), keys: states.len() as u64 };
    if keys_end.keys > 0 {
        moved.push(keys_end.clone());
    }
    line(out, &KeysEnd { keys_end })
}

fn open(store: &dyn Store, log: &ExportedLog) -> Outcome<Arc<dyn PrepareKeys>> {
    store.prepare_keys(&log.tenant).map_err(|error| OperationError::new(error.code(), error.to_string()))
}

fn refused(error: KeyError) -> OperationError {
    OperationError::new(error.code(), error.to_string())
}

/// Refuses an import if a key of this store was changed without a commit, because copied commits change keys unchecked. An import of the
/// same file changes such keys only after the last of its commits.
pub(super) async fn none_of_others(store: &dyn Store, log: &ExportedLog) -> Outcome<()> {
    let open_log = store.log(&log.tenant, &log.scope);
    let open_log = open_log.map_err(|error| OperationError::new(error.code(), error.to_string()))?;
    let head = open_log.head().await.map_err(|error| OperationError::new(error.code(), error.to_string()))?;
    if log.scope != DEFAULT_SCOPE || head >= log.head {
        return Ok(());
    }
    match open(store, log)?.beside_commits(SequenceNumber::MAX).await.map_err(refused)?.into_iter().next() {
        Some(KeyState { name, key, holder }) => Err(taken(&log.tenant, &name, &key, holder.as_ref())),
        None => Ok(()),
    }
}

/// Returns the refusal of an import because of a key.
fn taken(tenant: &str, name: &str, key: &str, holder: Option<&KeyHolder>) -> OperationError {
    let held = match holder {
        None => "was released here without a commit".to_owned(),
        Some(KeyHolder { value, ttl_at }) => {
            let value = serde_json::to_string(value).unwrap_or_default();
            let until = ttl_at.map_or(String::new(), |ttl_at| format!(" until {ttl_at}"));
            format!("is held here by {value}{until}, which the export does not say")
        }
    };
    let message = format!(
        "{tenant}: the key {key:?} of {name} {held}; import into a store that is new, or that an earlier import of the same \
         file began"
    );
    OperationError::new(Code::KeyTaken, message)
}

/// Keys that are being imported, after the commits of their tenant.
pub(super) struct Changing {
    keys: Arc<dyn PrepareKeys>,
    tenant: String,
    /// Keys that were changed in this store before the import; looked up when first needed.
    there: OnceCell<BTreeSet<(ByteString, ByteString)>>,
    count: u64,
}

impl Changing {
    pub(super) fn new(store: &dyn Store, log: &ExportedLog) -> Outcome<Self> {
        Ok(Self { keys: open(store, log)?, tenant: log.tenant.clone(), there: OnceCell::new(), count: 0 })
    }

    /// Reads the line of the next key and brings the key into the state of the line.
    pub(super) async fn take(&mut self, line: &[u8]) -> Outcome<Result<(), String>> {
        let KeyLine { key: StateLine { name, key, value_bson, ttl_at_millis } } = match serde_json::from_slice(line) {
            Ok(line) => line,
            Err(error) => return Ok(Err(error.to_string())),
        };
        let due = match value_bson.map(|hex| from_hex(&hex)) {
            None => None,
            Some(None) => return Ok(Err("the value of a key is not a BSON document in hexadecimal".to_owned())),
            Some(Some(value)) => {
                let ttl_at = ttl_at_millis.map(Timestamp::from_millis);
                Some(KeyHolder { value: KeyValue::from_data(value), ttl_at })
            }
        };
        self.count += 1;
        let found = self.keys.look(&name, &key).await.map_err(refused)?.map(|found| found.holder);
        if found == due {
            return Ok(Ok(()));
        }
        let there = self.there.get_or_try_init(|| changed(&*self.keys)).await?;
        let change = change(&name, &key, found.clone(), due);
        if !there.contains(&(name.clone(), key.clone())) && self.keys.change(change).await.map_err(refused)? {
            return Ok(Ok(()));
        }
        Err(taken(&self.tenant, &name, &key, found.as_ref()))
    }

    /// Compares the number of keys with the number in the export.
    pub(super) fn finish(self, due: MovedKeys) -> Result<MovedKeys, String> {
        let whole = due == MovedKeys { tenant: self.tenant, keys: self.count };
        if whole { Ok(due) } else { Err("a key was left out or added".to_owned()) }
    }
}

/// Returns the keys that were changed without a commit.
async fn changed(keys: &dyn PrepareKeys) -> Outcome<BTreeSet<(ByteString, ByteString)>> {
    let states = keys.beside_commits(SequenceNumber::MAX).await.map_err(refused)?;
    Ok(states.into_iter().map(|state| (state.name, state.key)).collect())
}

/// Returns the change from a key held by `found` to one held by `due`, which differ.
fn change(name: &ByteString, key: &ByteString, found: Option<KeyHolder>, due: Option<KeyHolder>) -> KeyChange {
    let (name, key) = (name.clone(), key.clone());
    match (found, due) {
        (found, Some(KeyHolder { value, ttl_at })) => {
            let new = Reserve { name, key, value, ttl_at };
            match found {
                Some(found) => KeyChange::Reprepare { old: Some(found.value), new },
                None => KeyChange::Prepare(new),
            }
        }
        (found, None) => KeyChange::Rollback(Release { name, key, value: found.map(|found| found.value) }),
    }
}
