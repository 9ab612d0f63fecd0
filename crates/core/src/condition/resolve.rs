//! Resolution of conditions as people write them: to stored field names and fixed times.

use jiff::tz::TimeZone;

use super::{Condition, Deletion, Test, window};
use crate::{Code, Invalid, Timestamp};

/// The kind of documents that a query searches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DocumentKind {
    /// Records of an application: field names are stored as they are.
    Record,
    /// Commits, which keep their `id` as `_id`.
    Commit,
    /// Snapshots, which keep their `aggregateId` as `_id`. Deleted ones are left out unless the query asks for them.
    Snapshot,
}

impl DocumentKind {
    /// Returns the path under which a field is stored. Only the whole path is converted: `body.id` is the id of an event.
    pub fn stored(self, path: &str) -> &str {
        match (self, path) {
            (Self::Commit, "id") | (Self::Snapshot, "aggregateId") => "_id",
            _ => path,
        }
    }
}

/// The time of a query, and the time zone of its days unless a window names one.
#[derive(Debug, Clone)]
pub struct Now {
    pub(super) at: Timestamp,
    pub(super) zone: TimeZone,
}

impl Now {
    /// Creates a time whose days are those of UTC.
    pub fn utc(at: Timestamp) -> Self {
        Self { at, zone: TimeZone::UTC }
    }

    /// Creates a time whose days are those of a zone in the IANA database, for example `Europe/Berlin`.
    ///
    /// # Errors
    /// `invalid_query` if the zone does not exist.
    pub fn in_zone(at: Timestamp, zone: &str) -> Result<Self, Invalid> {
        let zone = window::zone(zone).map_err(|message| Invalid::new(Code::InvalidQuery, "zone", message))?;
        Ok(Self { at, zone })
    }
}

impl Condition {
    /// Returns the condition in the form that a store evaluates: with the stored field names of this kind of documents, and with windows
    /// of time as fixed times. Field names inside `ElemMatch` and everything inside `Raw` stay unchanged.
    ///
    /// # Errors
    /// `invalid_condition` if a time zone or a date pattern is invalid.
    pub fn resolved(&self, kind: DocumentKind, now: &Now) -> Result<Self, Invalid> {
        Resolver { kind, now, parts: 0 }.condition(self, "condition", 0)
    }

    /// Excludes deleted aggregates, unless the condition already takes deletion into account: it is `Deleted`, or contains it below `And`
    /// at any depth.
    pub fn guarded(self) -> Self {
        match self {
            Self::All => Self::Deleted(Deletion::Active),
            says if says.says_which_are_meant() => says,
            other => Self::And(vec![Self::Deleted(Deletion::Active), other]),
        }
    }

    fn says_which_are_meant(&self) -> bool {
        match self {
            Self::Deleted(_) => true,
            Self::And(children) => children.iter().any(Self::says_which_are_meant),
            _ => false,
        }
    }
}

struct Resolver<'n> {
    kind: DocumentKind,
    now: &'n Now,
    parts: usize,
}

impl Resolver<'_> {
    fn condition(&mut self, condition: &Condition, at: &str, depth: usize) -> Result<Condition, Invalid> {
        use crate::limits::{CONDITION_NODES_MAX, DATA_DEPTH_MAX};
        self.parts += 1;
        if depth > DATA_DEPTH_MAX || self.parts > CONDITION_NODES_MAX {
            // The condition is too large to resolve; the store's own check then refuses it.
            return Ok(condition.clone());
        }
        let mut all = |children: &[Condition]| -> Result<Vec<Condition>, Invalid> {
            let child =
                |(n, child): (usize, &Condition)| self.condition(child, &format!("{at}.children[{n}]"), depth + 1);
            children.iter().enumerate().map(child).collect()
        };
        Ok(match condition {
            Condition::And(children) => Condition::And(all(children)?),
            Condition::Or(children) => Condition::Or(all(children)?),
            Condition::Nor(children) => Condition::Nor(all(children)?),
            Condition::Field { path, test } => {
                let path = self.kind.stored(path).to_owned();
                Condition::Field { path, test: self.test(test, at, depth)? }
            }
            other => other.clone(),
        })
    }

    fn test(&mut self, test: &Test, at: &str, depth: usize) -> Result<Test, Invalid> {
        match test {
            Test::Within(window) => {
                let resolved = window.validate().and_then(|()| window.resolved(self.now));
                resolved.map_err(|message| Invalid::new(Code::InvalidCondition, at, message))
            }
            Test::ElemMatch(inner) => {
                let kind = std::mem::replace(&mut self.kind, DocumentKind::Record);
                let inner = self.condition(inner, &format!("{at}.children[0]"), depth + 1);
                self.kind = kind;
                Ok(Test::ElemMatch(Box::new(inner?)))
            }
            other => Ok(other.clone()),
        }
    }
}
