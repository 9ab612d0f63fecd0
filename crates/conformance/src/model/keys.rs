//! Prepare keys: their holders, and the required answers to the changes of a commit or transaction.

use std::collections::BTreeMap;

use annals_core::{
    ByteString, CommitError, KeyChange, KeyChanges, KeyError, KeyHolder, KeysQuery, ListedKey, NewCommit, Release,
    Reserve, Timestamp,
};

/// The holder of each name and key, as a result of the commits of a log.
#[derive(Debug, Clone, Default)]
pub(crate) struct Keys(BTreeMap<(ByteString, ByteString), Reserve>);

impl Keys {
    /// Returns the keys after all these commits, in order, accepted at `now`; or the index of the commit that is refused, and why.
    pub fn after<'a>(
        &self,
        commits: impl Iterator<Item = &'a NewCommit>,
        now: Timestamp,
    ) -> Result<Self, (usize, CommitError)> {
        let mut after = self.clone();
        for (place, commit) in commits.enumerate() {
            after.change(&commit.keys, now).map_err(|error| (place, error))?;
        }
        Ok(after)
    }

    /// Returns the holder of a key.
    pub fn holder(&self, name: &str, key: &str) -> Option<KeyHolder> {
        self.0.get(&(name.into(), key.into())).cloned().map(KeyHolder::from)
    }

    /// Returns the keys of a name that are held and have not expired, ascending.
    pub fn held(&self, query: &KeysQuery, now: Timestamp) -> Vec<ListedKey> {
        let wanted = |key: &ByteString| query.after.as_ref().is_none_or(|after| key.as_bytes() > after.as_bytes());
        let of_name = self.0.values().filter(|held| held.name == query.name && wanted(&held.key));
        let held = of_name.map(|held| ListedKey { key: held.key.clone(), holder: KeyHolder::from(held.clone()) });
        let mut held: Vec<_> = held.filter(|held| held.holder.lives(now)).collect();
        held.sort_unstable_by(|a, b| a.key.as_bytes().cmp(b.key.as_bytes()));
        held
    }

    /// Applies a change without a commit, if it is allowed.
    pub fn serve(&mut self, change: &KeyChange, now: Timestamp) -> Result<bool, KeyError> {
        change.validate()?;
        if !change.judge(|name, key| self.holder(name, key), now)? {
            return Ok(false);
        }
        let KeyChanges { release, reserve } = change.made();
        for old in release {
            self.0.remove(&(old.name, old.key));
        }
        for new in reserve {
            self.0.insert((new.name.clone(), new.key.clone()), new);
        }
        Ok(true)
    }

    fn change(&mut self, changes: &KeyChanges, now: Timestamp) -> Result<(), CommitError> {
        for release in &changes.release {
            let id = (release.name.clone(), release.key.clone());
            if !self.0.get(&id).is_some_and(|holder| may_release(release, holder, now)) {
                return Err(CommitError::KeyNotHeld { name: id.0.to_string(), key: id.1.to_string() });
            }
            self.0.remove(&id);
        }
        for reserve in &changes.reserve {
            let id = (reserve.name.clone(), reserve.key.clone());
            if self.0.get(&id).is_some_and(|holder| !has_expired(holder, now)) {
                return Err(CommitError::KeyTaken { name: id.0.to_string(), key: id.1.to_string() });
            }
            self.0.insert(id, reserve.clone());
        }
        Ok(())
    }
}

pub(crate) fn has_expired(holder: &Reserve, now: Timestamp) -> bool {
    holder.ttl_at.is_some_and(|ttl_at| ttl_at < now)
}

/// Returns whether a release is allowed. A correct value is proof enough; without one, the reservation must not have expired.
pub(crate) fn may_release(release: &Release, holder: &Reserve, now: Timestamp) -> bool {
    match &release.value {
        Some(value) => *value == holder.value,
        None => !has_expired(holder, now),
    }
}
