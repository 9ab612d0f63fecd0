//! Commits: what is stored against what was sent, and what was answered against what is stored.

use annals_core::{CommitError, CommitOutcome, DEFAULT_TENANT_ID, NewCommit, Uuid};

use super::Broken;
use super::final_log::{FinalLog, StoredCommit};
use super::real_time::RealTime;
use super::record::{Call, Outcome, Record, What};

pub(super) fn check(record: &Record, log: &FinalLog<'_>, time: &RealTime<'_>, broken: &mut Broken) {
    for stored in &log.commits {
        check_stored(stored, record, time, broken);
    }
    for call in &record.calls {
        let What::Commit { commit, .. } = &call.what else { continue };
        let answered = Answered { call, commit, log, time };
        if let Err(promise) = answered.check() {
            broken.note(format!("{call}: {promise}"));
        }
    }
}

/// What is stored was sent, by a call that was told so or by one that was told nothing and can have done it.
fn check_stored(stored: &StoredCommit<'_>, record: &Record, time: &RealTime<'_>, broken: &mut Broken) {
    let mut owners = 0;
    let mut possible = false;
    for (call, commit) in time.senders(stored) {
        match call.outcome() {
            Some(Outcome::Stored(outcome)) if outcome.commit_id == stored.info.commit_id => owners += 1,
            Some(Outcome::Unknown) => {
                let gone_by = record.restart_after(call.began).map_or(u64::MAX, |restart| time.least_after(restart));
                possible |= commit.expected_version.admits(stored.info.version - 1)
                    && stored.first() >= time.known(call.began)
                    && stored.first() < gone_by;
            }
            _ => {}
        }
    }
    match owners {
        0 if possible => {}
        0 => {
            let senders: Vec<String> = time.senders(stored).map(|(call, _)| format!("\n  sent by {call}")).collect();
            let senders = senders.concat();
            broken.note(format!("{stored} is in the log, but nobody sent it, or all who did were refused{senders}"));
        }
        1 => {}
        _ => broken.note(format!("{stored} was acknowledged as new {owners} times")),
    }
}

struct Answered<'a> {
    call: &'a Call,
    commit: &'a NewCommit,
    log: &'a FinalLog<'a>,
    time: &'a RealTime<'a>,
}

impl Answered<'_> {
    fn check(&self) -> Result<(), String> {
        let valid = self.commit.validate();
        match (self.call.outcome(), valid) {
            (None | Some(Outcome::Unknown | Outcome::Refused(CommitError::Store(_))), _) => Ok(()),
            (Some(Outcome::Refused(CommitError::Invalid(told))), Err(invalid)) if *told == invalid => Ok(()),
            (_, Err(invalid)) => Err(format!("it should have been refused with {invalid}")),
            (Some(Outcome::Refused(CommitError::Invalid(told))), Ok(())) => Err(format!("it breaks no rule: {told}")),
            (Some(Outcome::Stored(outcome)), Ok(())) => self.check_success(outcome),
            (Some(Outcome::Repeat(outcome)), Ok(())) => self.check_repeat(outcome),
            (Some(Outcome::Refused(error)), Ok(())) => self.check_refusal(error),
        }
    }

    fn check_success(&self, outcome: &CommitOutcome) -> Result<(), String> {
        let stored = self.log.of_id(outcome.commit_id).ok_or("it was acknowledged but is gone")?;
        self.check_outcome(outcome, stored)?;
        let (before, expected) = (stored.info.version - 1, self.commit.expected_version);
        require(stored.is(self.commit), || format!("what is stored differs: {:?}", stored.events))?;
        require(expected.admits(before), || format!("the version before was {before}"))?;
        let known = self.time.known(self.call.began);
        require(stored.first() >= known, || format!("it stands below {known}, which was told before it was sent"))
    }

    fn check_repeat(&self, outcome: &CommitOutcome) -> Result<(), String> {
        let stored = self.stored_request().ok_or("it was answered as a repeat, but the first is not there")?;
        self.check_outcome(outcome, stored)?;
        require(stored.has_content_of(self.commit), || format!("the first had other content: {:?}", stored.events))?;
        require(*self.tenant() == *stored.info.tenant_id, || "it should have been refused for its tenantId".into())
    }

    fn check_outcome(&self, outcome: &CommitOutcome, stored: &StoredCommit<'_>) -> Result<(), String> {
        let event_ids: Vec<Uuid> = stored.events.iter().map(|event| event.id).collect();
        let told = (outcome.commit_id, outcome.version, outcome.first_sequence_number, &outcome.event_ids);
        let is = (stored.info.commit_id, stored.info.version, stored.first(), &event_ids);
        require(told == is, || format!("it was told otherwise than it is stored: {is:?}"))
    }

    fn check_refusal(&self, error: &CommitError) -> Result<(), String> {
        let known = self.time.known(self.call.began);
        let first = self.log.of_version(&self.commit.aggregate, 1);
        if let CommitError::AggregateOfOtherTenant { tenant_id } = error {
            let first = first.ok_or("the aggregate does not exist")?;
            let right = first.info.tenant_id == **tenant_id && self.tenant() != *tenant_id;
            return require(right, || format!("the aggregate has tenantId {}", first.info.tenant_id));
        }
        let foreign = first.filter(|first| first.end() <= known && first.info.tenant_id != self.tenant());
        require(foreign.is_none(), || "it should have been refused for its tenantId".into())?;
        let request = self.stored_request();
        if let CommitError::RequestIdReused { .. } = error {
            let stored = request.ok_or("the request id was not used")?;
            return require(!stored.has_content_of(self.commit), || "it has the same content and is a repeat".into());
        }
        let CommitError::VersionConflict { actual_version, .. } = error else {
            return Err(format!("{error} is no answer to a commit"));
        };
        require(request.is_none_or(|stored| stored.end() > known), || {
            "its request id should have been judged first".into()
        })?;
        let expected = self.commit.expected_version;
        require(!expected.admits(*actual_version), || format!("{expected} admits {actual_version}"))?;
        let aggregate = &self.commit.aggregate;
        let least = self.log.version_at(aggregate, known);
        require(*actual_version >= least, || format!("the aggregate was known to be at {least}"))?;
        let exists = *actual_version == 0 || self.log.of_version(aggregate, *actual_version).is_some();
        require(exists, || "the version it was told is gone".into())
    }

    fn stored_request(&self) -> Option<&StoredCommit<'_>> {
        self.log.of_request(&self.commit.aggregate, self.commit.request_id.as_deref()?)
    }

    fn tenant(&self) -> &str {
        self.commit.tenant_id.as_deref().unwrap_or(DEFAULT_TENANT_ID)
    }
}

fn require(holds: bool, otherwise: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(otherwise()) }
}
