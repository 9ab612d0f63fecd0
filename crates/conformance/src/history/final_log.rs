//! The final log, and the checks that it allows by itself.

use std::collections::HashMap;

use annals_core::{Aggregate, CommitInfo, Filter, NewCommit, NewEvent, RecordedEvent, SequenceNumber, Uuid, Version};

use super::Broken;

pub(crate) struct FinalLog<'a> {
    pub events: &'a [RecordedEvent],
    /// The commits, in log order.
    pub commits: Vec<StoredCommit<'a>>,
    by_aggregate: HashMap<&'a Aggregate, Vec<usize>>,
    by_request: HashMap<(&'a Aggregate, &'a str), usize>,
    by_id: HashMap<Uuid, usize>,
}

pub(crate) struct StoredCommit<'a> {
    /// Its index among the commits.
    pub place: usize,
    pub info: &'a CommitInfo,
    pub events: &'a [RecordedEvent],
}

impl<'a> FinalLog<'a> {
    /// Indexes the log and notes its internal faults: holes, commits torn apart, versions with gaps, repeated ids.
    pub fn new(events: &'a [RecordedEvent], broken: &mut Broken) -> Self {
        for (index, event) in events.iter().enumerate() {
            let holds = event.sequence_number == index as u64;
            broken.note_unless(holds, || format!("event {} stands at position {index}", event.sequence_number));
        }
        let commits = commits_of(events, broken);
        let (by_aggregate, by_request, by_id) = (HashMap::new(), HashMap::new(), HashMap::new());
        let mut log = Self { events, commits, by_aggregate, by_request, by_id };
        for (index, stored) in log.commits.iter().enumerate() {
            let info = stored.info;
            let aggregate = &info.aggregate;
            let new = log.by_id.insert(info.commit_id, index).is_none();
            broken.note_unless(new, || format!("{stored} has an id that an earlier one has"));
            let of_aggregate = log.by_aggregate.entry(aggregate).or_default();
            of_aggregate.push(index);
            let version = of_aggregate.len() as Version;
            broken.note_unless(info.version == version, || format!("{stored} should have version {version}"));
            let tenant = &log.commits[of_aggregate[0]].info.tenant_id;
            broken.note_unless(info.tenant_id == *tenant, || format!("{stored} has another tenantId than {tenant}"));
            let Some(request) = info.request_id.as_deref() else { continue };
            let first = *log.by_request.entry((aggregate, request)).or_insert(index);
            broken.note_unless(first == index, || format!("{stored} repeats the request of {}", log.commits[first]));
        }
        log
    }

    pub fn head(&self) -> SequenceNumber {
        self.events.len() as SequenceNumber
    }

    pub fn of_request(&self, aggregate: &Aggregate, request_id: &str) -> Option<&StoredCommit<'a>> {
        self.by_request.get(&(aggregate, request_id)).map(|index| &self.commits[*index])
    }

    pub fn of_id(&self, commit_id: Uuid) -> Option<&StoredCommit<'a>> {
        self.by_id.get(&commit_id).map(|index| &self.commits[*index])
    }

    /// Returns the commit that holds this event.
    pub fn of_number(&self, number: SequenceNumber) -> Option<&StoredCommit<'a>> {
        let after = self.commits.partition_point(|stored| stored.first() <= number);
        self.commits.get(after.checked_sub(1)?).filter(|stored| number < stored.end())
    }

    /// Returns the commits of an aggregate, in order of version.
    pub fn of_aggregate(&self, aggregate: &Aggregate) -> impl DoubleEndedIterator<Item = &StoredCommit<'a>> {
        self.by_aggregate.get(aggregate).into_iter().flatten().map(|index| &self.commits[*index])
    }

    pub fn of_version(&self, aggregate: &Aggregate, version: Version) -> Option<&StoredCommit<'a>> {
        let index = usize::try_from(version.checked_sub(1)?).ok()?;
        self.by_aggregate.get(aggregate)?.get(index).map(|index| &self.commits[*index])
    }

    /// Returns the version that the aggregate had when the log had this head.
    pub fn version_at(&self, aggregate: &Aggregate, head: SequenceNumber) -> Version {
        self.of_aggregate(aggregate).take_while(|stored| stored.end() <= head).count() as Version
    }

    pub fn aggregates(&self) -> impl Iterator<Item = (&'a Aggregate, &StoredCommit<'a>)> {
        self.by_aggregate.iter().map(|(aggregate, commits)| (*aggregate, &self.commits[commits[0]]))
    }

    /// Returns the sequence numbers in `from..to` that pass the filter.
    pub fn matching(&self, from: SequenceNumber, to: SequenceNumber, filter: &Filter) -> Vec<SequenceNumber> {
        let index = |number: SequenceNumber| number.min(self.head()) as usize;
        let range = self.events.get(index(from)..index(to)).unwrap_or_default();
        range.iter().filter(|event| filter.admits(event)).map(|event| event.sequence_number).collect()
    }
}

/// Splits the log into commits, and notes those that are torn apart or incomplete at their beginning.
fn commits_of<'a>(events: &'a [RecordedEvent], broken: &mut Broken) -> Vec<StoredCommit<'a>> {
    let mut commits = Vec::new();
    let mut rest = events;
    while let Some(first) = rest.first() {
        let info = &first.commit;
        let count = rest.iter().take_while(|event| event.commit.commit_id == info.commit_id).count();
        let (events, after) = rest.split_at(count);
        let stored = StoredCommit { place: commits.len(), info, events };
        for (ordinal, event) in events.iter().enumerate() {
            let holds = event.ordinal as usize == ordinal && event.commit == *info;
            broken.note_unless(holds, || format!("{stored}: event {ordinal} is {event:?}"));
        }
        commits.push(stored);
        rest = after;
    }
    commits
}

impl StoredCommit<'_> {
    pub fn first(&self) -> SequenceNumber {
        self.events[0].sequence_number
    }

    /// Returns the sequence number after its last event.
    pub fn end(&self) -> SequenceNumber {
        self.first() + self.events.len() as SequenceNumber
    }

    /// Returns whether its content is that of `commit`, which decides whether a request id is repeated or reused.
    pub fn has_content_of(&self, commit: &NewCommit) -> bool {
        let same = |new: &NewEvent, event: &RecordedEvent| {
            (&new.event_type, new.generation, &new.data, &new.tags, new.public)
                == (&event.event_type, event.generation, &event.data, &event.tags, event.public)
                && new.metadata == event.metadata
                && new.id.is_none_or(|id| id == event.id)
        };
        self.events.len() == commit.events.len()
            && commit.events.iter().zip(self.events).all(|(new, event)| same(new, event))
    }

    /// Returns whether it is `commit` as it would be stored: its content and everything else in it.
    pub fn is(&self, commit: &NewCommit) -> bool {
        let info = self.info;
        let default_tenant = annals_core::DEFAULT_TENANT_ID;
        info.aggregate == commit.aggregate
            && (commit.request_id.is_none() || commit.request_id == info.request_id)
            && *commit.tenant_id.as_deref().unwrap_or(default_tenant) == *info.tenant_id
            && *commit.owner_id.as_deref().unwrap_or_default() == *info.owner_id
            && *commit.space_id.as_deref().unwrap_or_default() == *info.space_id
            && (&commit.command_id, &commit.correlation_id, &commit.causation_id)
                == (&info.command_id, &info.correlation_id, &info.causation_id)
            && commit.header == info.header
            && self.has_content_of(commit)
            && commit.events.iter().zip(self.events).all(|(new, event)| new.time.is_none_or(|time| time == event.time))
    }
}

impl std::fmt::Display for StoredCommit<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let info = self.info;
        let request = info.request_id.as_deref().unwrap_or("(none)");
        let (aggregate, version) = (&info.aggregate, info.version);
        write!(f, "commit {aggregate} v{version}, request {request}, events {}..{}", self.first(), self.end())
    }
}
