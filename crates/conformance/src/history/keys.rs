//! Prepare keys. No read shows them, so their states follow from what was sent and is in the log. These states show whether a key was
//! held twice, and which answers a commit could get.

use std::collections::HashMap;

use annals_core::{KeyChanges, NewCommit, Release, Reserve, SequenceNumber, Timestamp};

use super::Broken;
use super::final_log::{FinalLog, StoredCommit};
use super::real_time::RealTime;
use super::sent::{Outcome, Sent};

type Id<'a> = (&'a str, &'a str);

/// The holders of all keys over time.
pub(crate) struct KeyLog<'a> {
    /// The changes of each commit of the log. `None` if they are ambiguous, because calls with unknown outcomes have the same events and
    /// other keys.
    changes: Vec<Option<&'a KeyChanges>>,
    /// For each key, its states, each with the head of the log from which it holds.
    states: HashMap<Id<'a>, Vec<(SequenceNumber, State<'a>)>>,
}

#[derive(Clone, Copy)]
enum State<'a> {
    Nobody,
    Held(&'a Reserve),
    Unknown,
}

/// Why a change is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    Taken,
    NotHeld,
}

/// The change of a sent commit that was refused.
#[derive(Clone, Copy)]
pub(crate) struct RefusedKey<'a> {
    /// The commit's index in what was sent.
    pub place: usize,
    pub fault: Fault,
    pub id: Id<'a>,
}

/// The range of heads of the log at which a request can have been checked.
#[derive(Clone, Copy)]
pub(crate) struct Window {
    pub from: SequenceNumber,
    pub to: SequenceNumber,
}

impl<'a> KeyLog<'a> {
    /// Replays the log, and notes each key that was taken while it was held, or released while it was not.
    pub fn new(log: &FinalLog<'_>, time: &RealTime<'a>, broken: &mut Broken) -> Self {
        let mut keys = Self { changes: Vec::with_capacity(log.commits.len()), states: HashMap::new() };
        for stored in &log.commits {
            let brought = brought(stored, log, time);
            let certain = brought.first().filter(|first| brought.iter().all(|other| same(&first.keys, &other.keys)));
            let certain = certain.map(|commit| &commit.keys);
            keys.changes.push(certain);
            // The time of acceptance is the commit's, unless an event has a time of its own.
            let accepted = brought.iter().all(|commit| commit.events[0].time.is_none()).then_some(stored.info.time);
            let mut set = |id, state| keys.states.entry(id).or_default().push((stored.end(), state));
            match certain {
                None => brought.iter().flat_map(|it| changes(&it.keys)).for_each(|it| set(it.id(), State::Unknown)),
                Some(certain) => {
                    for change in changes(certain) {
                        let states = keys.states.entry(change.id()).or_default();
                        let before = states.last().map_or(State::Nobody, |(_, state)| *state);
                        broken.note_unless(change.can(before, accepted).pass, || {
                            format!("{stored}: {change:?}, although it was held by {}", before.holder())
                        });
                        states.push((stored.end(), change.after()));
                    }
                }
            }
        }
        keys
    }

    /// Returns whether the request could pass with all its keys, or be refused because of the key that the answer names.
    pub fn allows(&self, sent: &Sent<'_>, refused: Option<RefusedKey<'_>>, window: Window) -> bool {
        let ids = sent.commits.iter().flat_map(|commit| changes(&commit.keys)).map(Change::id);
        let turns = ids.flat_map(|id| self.states.get(&id).into_iter().flatten()).map(|(from, _)| *from);
        let turns = turns.filter(|turn| (window.from + 1..=window.to).contains(turn));
        std::iter::once(window.from).chain(turns).any(|at| self.allows_at(sent, refused, at))
    }

    fn allows_at(&self, sent: &Sent<'_>, refused: Option<RefusedKey<'_>>, at: SequenceNumber) -> bool {
        let mut changed = HashMap::new();
        let all = sent.commits.iter().enumerate();
        for (place, change) in all.flat_map(|(place, commit)| changes(&commit.keys).map(move |it| (place, it))) {
            let before = changed.get(&change.id()).copied().unwrap_or_else(|| self.state_at(change.id(), at));
            let can = change.can(before, None);
            let told = refused.is_some_and(|it| (it.place, it.fault, it.id) == (place, change.fault(), change.id()));
            if told && can.fail {
                return true;
            }
            if !can.pass {
                return false;
            }
            changed.insert(change.id(), change.after());
        }
        refused.is_none()
    }

    fn state_at(&self, id: Id<'_>, at: SequenceNumber) -> State<'a> {
        let states = self.states.get(&id).map(Vec::as_slice).unwrap_or_default();
        let after = states.partition_point(|(from, _)| *from <= at);
        after.checked_sub(1).map_or(State::Nobody, |last| states[last].1)
    }

    /// Returns whether the adjacent commits from `start` on change the same keys as those that were sent, if that can be told.
    pub fn are_of(&self, sent: &Sent<'_>, start: usize) -> Option<bool> {
        let stored = self.changes.get(start..start + sent.commits.len()).unwrap_or_default();
        let compared = || stored.iter().zip(sent.commits).map(|(stored, commit)| Some(same((*stored)?, &commit.keys)));
        if compared().any(|same| same == Some(false)) {
            Some(false)
        } else {
            compared().collect::<Option<Vec<_>>>().map(|_| true)
        }
    }
}

/// Returns the sent commits that can have become this one: the one that was told so, or all that got no answer.
fn brought<'a>(stored: &StoredCommit<'_>, log: &FinalLog<'_>, time: &RealTime<'a>) -> Vec<&'a NewCommit> {
    let mut unknown = Vec::new();
    for (sent, place) in time.senders(stored, log) {
        let commits: &'a [NewCommit] = sent.commits;
        match sent.outcome() {
            Outcome::Stored(outcomes)
                if outcomes.get(place).is_some_and(|it| it.commit_id == stored.info.commit_id) =>
            {
                return vec![&commits[place]];
            }
            Outcome::Unknown => unknown.push(&commits[place]),
            _ => {}
        }
    }
    unknown
}

/// Returns whether both are the same content, by which a repeat is distinguished from a reuse.
fn same(a: &KeyChanges, b: &KeyChanges) -> bool {
    let digest =
        |keys: &KeyChanges| NewCommit { keys: keys.clone(), ..NewCommit::new("", "") }.content_digest(&[0; 16]);
    digest(a) == digest(b)
}

#[derive(Debug, Clone, Copy)]
enum Change<'a> {
    Release(&'a Release),
    Reserve(&'a Reserve),
}

/// The possible results of a change.
struct Can {
    pass: bool,
    fail: bool,
}

/// Returns all changes, in the order in which they are checked.
fn changes(keys: &KeyChanges) -> impl Iterator<Item = Change<'_>> {
    keys.release.iter().map(Change::Release).chain(keys.reserve.iter().map(Change::Reserve))
}

impl<'a> Change<'a> {
    fn id(self) -> Id<'a> {
        match self {
            Self::Release(Release { name, key, .. }) | Self::Reserve(Reserve { name, key, .. }) => (name, key),
        }
    }

    fn fault(self) -> Fault {
        match self {
            Self::Release(_) => Fault::NotHeld,
            Self::Reserve(_) => Fault::Taken,
        }
    }

    fn after(self) -> State<'a> {
        match self {
            Self::Release(_) => State::Nobody,
            Self::Reserve(reserve) => State::Held(reserve),
        }
    }

    /// Returns the possible results of a change at `now`, or at any time.
    fn can(self, before: State<'_>, now: Option<Timestamp>) -> Can {
        let holder = match before {
            State::Unknown => return Can { pass: true, fail: true },
            State::Nobody => None,
            State::Held(holder) => Some(holder),
        };
        let passes = |expired: bool| match (self, holder) {
            (Self::Reserve(_), holder) => holder.is_none() || expired,
            (Self::Release(_), None) => false,
            (Self::Release(Release { value: Some(value), .. }), Some(holder)) => *value == holder.value,
            (Self::Release(_), Some(_)) => !expired,
        };
        let (can_be_good, can_be_expired) = match (holder.and_then(|holder| holder.ttl_at), now) {
            (None, _) => (true, false),
            (Some(ttl_at), Some(now)) => (ttl_at >= now, ttl_at < now),
            (Some(_), None) => (true, true),
        };
        let pass = (can_be_good && passes(false)) || (can_be_expired && passes(true));
        let fail = (can_be_good && !passes(false)) || (can_be_expired && !passes(true));
        Can { pass, fail }
    }
}

impl State<'_> {
    fn holder(self) -> String {
        match self {
            Self::Nobody => "nobody".to_owned(),
            Self::Held(reserve) => format!("{reserve:?}"),
            Self::Unknown => "who knows".to_owned(),
        }
    }
}
