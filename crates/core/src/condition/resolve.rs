//! From what a person asks for to what a store judges: names of fields as they are stored, and times that do not move.

use jiff::tz::TimeZone;

use super::{Condition, Deletion, Test, window};
use crate::{Code, Invalid, Timestamp};

/// What documents a question is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DocumentKind {
    /// Records of one's own: fields are named as they are.
    Record,
    /// Commits, which keep their `id` as `_id`.
    Commit,
    /// Snapshots, which keep their `aggregateId` as `_id`, and of which those that are deleted are left out unless they are asked for.
    Snapshot,
}

impl DocumentKind {
    /// The path under which a field is stored. Only the whole path is converted: `body.id` is the id of an event.
    pub fn stored(self, path: &str) -> &str {
        match (self, path) {
            (Self::Commit, "id") | (Self::Snapshot, "aggregateId") => "_id",
            _ => path,
        }
    }
}

/// When a question is asked, and in which zone a day is a day when it names none.
#[derive(Debug, Clone)]
pub struct Now {
    pub(super) at: Timestamp,
    pub(super) zone: TimeZone,
}

impl Now {
    /// At this time, with the days of UTC.
    pub fn utc(at: Timestamp) -> Self {
        Self { at, zone: TimeZone::UTC }
    }

    /// At this time, with the days of a zone that the IANA database names, for example `Europe/Berlin`.
    ///
    /// # Errors
    /// `invalid_query` when there is no such zone.
    pub fn in_zone(at: Timestamp, zone: &str) -> Result<Self, Invalid> {
        let zone = window::zone(zone).map_err(|message| Invalid::new(Code::InvalidQuery, "zone", message))?;
        Ok(Self { at, zone })
    }
}

impl Condition {
    /// The condition that a store is asked: fields under the names that documents of this kind have, and windows of time as the times that
    /// they are now. Inside `ElemMatch` names stay as they are, and inside `Raw` everything does.
    ///
    /// # Errors
    /// `invalid_condition` when a zone or a date pattern is not known.
    pub fn resolved(&self, kind: DocumentKind, now: &Now) -> Result<Self, Invalid> {
        Resolver { kind, now, parts: 0 }.condition(self, "condition", 0)
    }

    /// Leaves out what is deleted, unless the condition says itself which are meant: `Deleted` as the whole of it, or joined by `And`,
    /// however deep.
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
            // Too much to go through: what the store's own check then says.
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
