//! What the order of calls and answers allows. A call that began after another was answered cannot know less than that answer told,
//! and no answer can know of a commit that nobody had sent yet.

use std::collections::HashMap;

use annals_core::{Aggregate, CommitError, SequenceNumber};

use super::Broken;
use super::final_log::{FinalLog, StoredCommit};
use super::record::{Call, Outcome, Record, Tick, What};

pub(crate) struct RealTime<'a> {
    /// By the time of the answer: the highest head that was told by then.
    told: Vec<(Tick, SequenceNumber)>,
    /// By the time of the call: the lowest head told by this or a later call.
    least: Vec<(Tick, SequenceNumber)>,
    /// The commits that were sent, by aggregate and request id.
    sent: HashMap<(&'a Aggregate, Option<&'a str>), Vec<&'a Call>>,
}

impl<'a> RealTime<'a> {
    pub fn new(record: &'a Record, log: &FinalLog<'_>, broken: &mut Broken) -> Self {
        let mut told = Vec::new();
        let mut least = Vec::new();
        let mut sent: HashMap<_, Vec<&Call>> = HashMap::new();
        for call in &record.calls {
            if let What::Commit { commit, .. } = &call.what {
                sent.entry((&commit.aggregate, commit.request_id.as_deref())).or_default().push(call);
            }
            if let (Some(ended), Some(head)) = (call.ended, head_told(call, log)) {
                told.push((ended, head));
                broken.note_unless(head <= log.head(), || format!("{call}, but the log ends at {}", log.head()));
            }
            if let Some(head) = exact_head(call) {
                least.push((call.began, head));
            }
        }
        told.sort_unstable();
        let mut highest = 0;
        told.iter_mut().for_each(|(_, head)| {
            highest = highest.max(*head);
            *head = highest;
        });
        least.sort_unstable();
        let mut lowest = SequenceNumber::MAX;
        least.iter_mut().rev().for_each(|(_, head)| {
            lowest = lowest.min(*head);
            *head = lowest;
        });
        let time = Self { told, least, sent };
        time.check_heads(record, log, broken);
        time
    }

    /// The highest head that anybody had been told before `began`.
    pub fn known(&self, began: Tick) -> SequenceNumber {
        let earlier = self.told.partition_point(|(ended, _)| *ended < began);
        earlier.checked_sub(1).map_or(0, |last| self.told[last].1)
    }

    /// The lowest head that a call after `tick` was told.
    pub fn least_after(&self, tick: Tick) -> SequenceNumber {
        self.least
            .get(self.least.partition_point(|(began, _)| *began <= tick))
            .map_or(SequenceNumber::MAX, |(_, head)| *head)
    }

    /// The calls that brought what is stored as this commit.
    pub fn senders<'s>(
        &'s self,
        stored: &'s StoredCommit<'_>,
    ) -> impl Iterator<Item = (&'a Call, &'a annals_core::NewCommit)> + 's {
        let request = stored.info.request_id.as_deref();
        let named = self.sent.get(&(&stored.info.aggregate, request)).into_iter().flatten();
        let unnamed =
            self.sent.get(&(&stored.info.aggregate, None)).filter(|_| request.is_some()).into_iter().flatten();
        named.chain(unnamed).filter_map(|call| match &call.what {
            What::Commit { commit, .. } if stored.is(commit) => Some((*call, &**commit)),
            _ => None,
        })
    }

    /// When the first of them was sent: nobody can have known of it before.
    pub fn sent_at(&self, stored: &StoredCommit<'_>) -> Option<Tick> {
        self.senders(stored).map(|(call, _)| call.began).min()
    }

    /// Each told head against what was told before, and against what had been sent by then.
    fn check_heads(&self, record: &Record, log: &FinalLog<'_>, broken: &mut Broken) {
        let mut latest = 0;
        let sent_by: Vec<(SequenceNumber, Tick)> = log
            .commits
            .iter()
            .map(|stored| {
                latest = latest.max(self.sent_at(stored).unwrap_or(0));
                (stored.first(), latest)
            })
            .collect();
        for call in &record.calls {
            if let Some(head) = exact_head(call) {
                let known = self.known(call.began);
                broken.note_unless(head >= known, || format!("{call}, although {known} was told before"));
            }
            let (Some(ended), Some(head)) = (call.ended, head_told(call, log)) else { continue };
            let below = sent_by.partition_point(|(first, _)| *first < head);
            let Some((first, sent)) = below.checked_sub(1).map(|last| sent_by[last]) else { continue };
            broken
                .note_unless(sent < ended, || format!("{call} knows of what was sent at {sent}, up to event {first}"));
        }
    }
}

/// The head as the call was told it; none when it was told less.
fn exact_head(call: &Call) -> Option<SequenceNumber> {
    match &call.what {
        What::Read { answer, .. } => answer.as_ref().map(|page| page.head),
        What::Head { answer } | What::WaitPast { answer, .. } => *answer,
        _ => None,
    }
}

/// A head that the answer proves, exact or not.
fn head_told(call: &Call, log: &FinalLog<'_>) -> Option<SequenceNumber> {
    match &call.what {
        What::Commit { commit, .. } => match call.outcome()? {
            Outcome::Stored(outcome) | Outcome::Repeat(outcome) => {
                Some(outcome.first_sequence_number + outcome.event_ids.len() as SequenceNumber)
            }
            Outcome::Refused(CommitError::VersionConflict { actual_version, .. }) => {
                log.of_version(&commit.aggregate, *actual_version).map(StoredCommit::end)
            }
            Outcome::Refused(CommitError::RequestIdReused { request_id }) => {
                log.of_request(&commit.aggregate, request_id).map(StoredCommit::end)
            }
            Outcome::Refused(CommitError::AggregateOfOtherTenant { .. }) => {
                log.of_version(&commit.aggregate, 1).map(StoredCommit::end)
            }
            Outcome::Refused(_) | Outcome::Unknown => None,
        },
        What::ReadAggregate { query, answer } => {
            answer.as_ref().and_then(|seen| log.of_version(&query.aggregate, seen.version)).map(StoredCommit::end)
        }
        What::RequestExists { aggregate, request_id, answer: Some(true) } => {
            log.of_request(aggregate, request_id).map(StoredCommit::end)
        }
        What::AggregateIds { query, answer } => answer
            .iter()
            .flatten()
            .filter_map(|known| log.of_version(&Aggregate::new(query.name.clone(), known.id.clone()), 1))
            .map(StoredCommit::end)
            .max(),
        _ => exact_head(call),
    }
}
