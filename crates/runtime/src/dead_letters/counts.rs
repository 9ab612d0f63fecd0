//! Counting letters.

use std::collections::BTreeMap;

use annals_core::bson::Bson;
use annals_core::dead_letters::{
    CRITICAL_ABOVE, DEAD_LETTERS, DeadLetter, DeadLetterError, LetterStatus, Level, Statistics, TopicStatistics,
    WARNING_ABOVE,
};
use annals_core::{Aggregation, ByteString, Condition, Group, GroupQuery, RecordError, Timestamp, limits};

use super::TenantDeadLetters;

impl TenantDeadLetters {
    /// Returns the number of open letters.
    pub(crate) async fn open_count(&self) -> Result<u64, RecordError> {
        match self.records.count(DEAD_LETTERS, &DeadLetter::open()).await {
            Err(RecordError::UnknownCollection(_)) => Ok(0),
            count => count,
        }
    }

    /// Returns the number of open letters of each consumer.
    pub(crate) async fn open_by_consumer(&self) -> Result<BTreeMap<String, u64>, RecordError> {
        let open = GroupQuery::new(DEAD_LETTERS).by("processor").matching(DeadLetter::open()).limit(limits::PAGE_MAX);
        let groups = self.groups_of_letters(open).await?;
        Ok(groups.iter().map(|group| (name_of(group), group.count)).collect())
    }

    /// Counts the letters that match a condition, in one pass: the index of statuses leads to the letters of each status. A letter whose
    /// status changes meanwhile may be counted with both, or with neither.
    pub(super) async fn counted(&self, condition: &Condition) -> Result<Statistics, DeadLetterError> {
        let mut topics: BTreeMap<String, Figures> = BTreeMap::new();
        for status in LetterStatus::ALL {
            let of_status = Condition::and([Condition::eq("status", status.name()), condition.clone()]);
            let figures = GroupQuery::new(DEAD_LETTERS)
                .by("original_topic")
                .matching(of_status)
                .figure("oldest", Aggregation::Min, "created_at")
                .figure("newest", Aggregation::Max, "created_at")
                .figure("retries", Aggregation::Sum, "retry_count")
                .figure("most", Aggregation::Max, "retry_count")
                .limit(limits::PAGE_MAX);
            for group in self.groups_of_letters(figures).await? {
                topics.entry(name_of(&group)).or_default().add(status, &group);
            }
        }
        let topics = topics.into_iter().map(|(topic, figures)| figures.of(topic));
        let mut topics: Vec<_> = topics.collect();
        topics.sort_by(|one, other| (other.total_messages, &one.topic).cmp(&(one.total_messages, &other.topic)));
        let open = topics.iter().map(TopicStatistics::open).sum();
        Ok(Statistics {
            open,
            level: Level::of(open),
            warning_above: WARNING_ABOVE,
            critical_above: CRITICAL_ABOVE,
            topics,
        })
    }

    pub(super) async fn groups_of_letters(&self, mut query: GroupQuery) -> Result<Vec<Group>, RecordError> {
        let mut groups = Vec::new();
        loop {
            let page = match self.records.group(query.clone()).await {
                Err(RecordError::UnknownCollection(_)) => return Ok(groups),
                page => page?,
            };
            groups.extend(page.groups);
            let Some(cursor) = page.next else { return Ok(groups) };
            query = query.after(cursor);
        }
    }
}

fn name_of(group: &Group) -> String {
    group.key.as_str().unwrap_or_default().to_owned()
}

/// The figures of one topic, added up over the statuses of its letters.
#[derive(Default)]
struct Figures {
    by_status: BTreeMap<ByteString, u64>,
    oldest: Option<Timestamp>,
    newest: Option<Timestamp>,
    retries: f64,
    most: i64,
}

impl Figures {
    /// Adds the letters of a status.
    fn add(&mut self, status: LetterStatus, group: &Group) {
        let time = |value: Option<&Bson>| match value {
            Some(Bson::DateTime(at)) => Some(Timestamp::from_millis(at.timestamp_millis())),
            _ => None,
        };
        self.by_status.insert(ByteString::from_static(status.name()), group.count);
        self.oldest = self.oldest.into_iter().chain(time(group.figures.first())).min();
        self.newest = self.newest.max(time(group.figures.get(1)));
        self.retries += match group.figures.get(2) {
            Some(Bson::Int64(retries)) => *retries as f64,
            Some(Bson::Double(retries)) => *retries,
            _ => 0.0,
        };
        self.most = self.most.max(group.figures.get(3).and_then(Bson::as_i64).unwrap_or(0));
    }

    fn of(self, topic: String) -> TopicStatistics {
        let total: u64 = self.by_status.values().sum();
        let average = self.retries / total.max(1) as f64;
        TopicStatistics {
            topic: topic.into(),
            total_messages: total,
            status_breakdown: self.by_status,
            oldest_message: self.oldest,
            newest_message: self.newest,
            avg_retry_count: (average * 100.0).round() / 100.0,
            max_retry_count: self.most.cast_unsigned(),
        }
    }
}
