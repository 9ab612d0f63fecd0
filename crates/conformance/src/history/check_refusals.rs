//! Checks refusals: whether the log supports the reason, and whether another reason should have come first.

use annals_core::{CommitError, NewCommit, SequenceNumber, Version};

use super::check_commits::{Knowledge, require, stored_request, tenant};
use super::final_log::StoredCommit;
use super::keys::{Fault, RefusedKey, Window};
use super::sent::{Part, Sent};

pub(super) fn check_refusal(
    sent: &Sent<'_>,
    error: &CommitError,
    part: Part,
    knowledge: Knowledge<'_>,
) -> Result<(), String> {
    let Knowledge { log, time, .. } = knowledge;
    let refused = Refused { sent, part, knowledge, known: time.known(sent.call.began) };
    if let CommitError::AggregateOfOtherTenant { tenant_id } = error {
        return refused.for_its_tenant(tenant_id);
    }
    let foreign = sent.commits.iter().any(|commit| {
        refused.first_of(commit).is_some_and(|it| it.end() <= refused.known && it.info.tenant_id != tenant(commit))
    });
    require(!foreign, || "it should have been refused for its tenantId".into())?;
    let request = stored_request(sent, log);
    if let CommitError::RequestIdReused { .. } = error {
        return refused.for_its_request(request.ok_or("the request id was not used")?);
    }
    require(request.is_none_or(|stored| stored.end() > refused.known), || {
        "its request id should have been judged first".into()
    })?;
    if let CommitError::AppendConditionFailed { pattern, sequence_number } = error {
        return refused.for_its_append_condition(*pattern, *sequence_number);
    }
    if let Some(event) = sent.excluded(log, refused.known) {
        return Err(format!("it should have been refused because of event {}", event.sequence_number));
    }
    match error {
        CommitError::KeyTaken { name, key } => refused.for_its_key(Fault::Taken, (name, key)),
        CommitError::KeyNotHeld { name, key } => refused.for_its_key(Fault::NotHeld, (name, key)),
        CommitError::VersionConflict { actual_version, .. } => refused.for_its_version(*actual_version),
        _ => Err(format!("{error} is no answer to a commit")),
    }
}

struct Refused<'a> {
    sent: &'a Sent<'a>,
    part: Part,
    knowledge: Knowledge<'a>,
    known: SequenceNumber,
}

impl Refused<'_> {
    fn commit(&self) -> Result<&NewCommit, String> {
        match self.part {
            Part::Commit(n) => Ok(&self.sent.commits[n]),
            _ => Err(format!("{:?} is none of its commits", self.part)),
        }
    }

    fn first_of(&self, commit: &NewCommit) -> Option<&StoredCommit<'_>> {
        self.knowledge.log.of_version(&commit.aggregate, 1)
    }

    fn for_its_tenant(&self, told: &str) -> Result<(), String> {
        let commit = self.commit()?;
        let first = self.first_of(commit).ok_or("the aggregate does not exist")?;
        let right = first.info.tenant_id == *told && tenant(commit) != told;
        require(right, || format!("the aggregate has tenantId {}", first.info.tenant_id))
    }

    fn for_its_request(&self, stored: &StoredCommit<'_>) -> Result<(), String> {
        let Knowledge { log, time, keys } = self.knowledge;
        let count = time.count_together(stored);
        let same = count == Some(self.sent.commits.len())
            && self.sent.has_content_of(log, stored.place)
            && keys.are_of(self.sent, stored.place) == Some(true);
        require(!same, || "it has the same content and is a repeat".into())
    }

    fn for_its_append_condition(&self, pattern: usize, told: SequenceNumber) -> Result<(), String> {
        let condition = self.commit()?.append_condition.as_ref().ok_or("it has no append condition")?;
        let event = self.knowledge.log.of_number(told).map(|stored| &stored.events[(told - stored.first()) as usize]);
        let event = event.ok_or("the event that it was told is gone")?;
        let pattern = condition.fail_if.get(pattern).ok_or("it has no such pattern")?;
        require(told >= condition.from() && pattern.matches(&event.event_type, &event.tags), || {
            format!("{event:?} is not excluded")
        })
    }

    fn for_its_key(&self, fault: Fault, id: (&str, &str)) -> Result<(), String> {
        let Part::Commit(place) = self.part else { return Err(format!("{:?} is none of its commits", self.part)) };
        let allowed = self.knowledge.keys.allows(self.sent, Some(RefusedKey { place, fault, id }), self.window());
        require(allowed, || format!("the log never said so of {id:?} while it was judged"))
    }

    /// Returns the possible heads: from what was known before the call was sent to what had been sent before it was answered.
    fn window(&self) -> Window {
        let Knowledge { log, time, .. } = self.knowledge;
        let to = self.sent.call.ended.map_or(log.head(), |ended| time.sent_before(ended, log));
        Window { from: self.known, to: to.max(self.known) }
    }

    fn for_its_version(&self, told: Version) -> Result<(), String> {
        let named = self.sent.aggregate(self.part).zip(self.sent.expected_version(self.part));
        let (aggregate, expected) = named.ok_or_else(|| format!("{:?} expects no version", self.part))?;
        require(!expected.admits(told), || format!("{expected} admits {told}"))?;
        require(self.knowledge.keys.allows(self.sent, None, self.window()), || {
            "it should have been refused because of a key".into()
        })?;
        let log = self.knowledge.log;
        let least = log.version_at(aggregate, self.known);
        require(told >= least, || format!("the aggregate was known to be at {least}"))?;
        let exists = told == 0 || log.of_version(aggregate, told).is_some();
        require(exists, || "the version it was told is gone".into())
    }
}
