//! Reads the commits of one aggregate, and the ids of the aggregates of a name.

use std::collections::{HashMap, HashSet};

use annals_core::{
    AggregateCommits, AggregateIdsQuery, AggregateQuery, Code, DEFAULT_TENANT_ID, KnownAggregate, ReadError,
    StoreError, Version, limits,
};
use futures_util::TryFutureExt;
use mongodb::bson::{Document, RawDocumentBuf, doc};

use super::heads::Head;
use super::numbers::Place;
use super::{Log, adopted};
use crate::layout::entry::{self, Entry};
use crate::layout::fields::{natural, text};
use crate::layout::foreign::{self, StoredCommit};
use crate::layout::names::{ENTRIES, event_stream};
use crate::refused::{changed_count, deleted, malformed, reading, unreadable};

/// The largest version that the layout can store.
const VERSION_MAX: Version = i32::MAX as Version;

pub(super) async fn read(log: &Log, query: AggregateQuery) -> Result<AggregateCommits, ReadError> {
    if log.adopted.there {
        return adopted::read(log, query).await;
    }
    Ok(own(log, &query).await?.0)
}

/// Reads the commits of the collection that match the query, and returns whether all of them fit into the page.
pub(super) async fn own(log: &Log, query: &AggregateQuery) -> Result<(AggregateCommits, bool), ReadError> {
    let collection = event_stream(&query.aggregate.name)?;
    let epoch = log.heads.epoch();
    let untimed = query.from_time.is_none() && query.to_time.is_none();
    let whole_range = untimed && query.to_version >= VERSION_MAX;
    // A page that reaches the end determines the version. A page of a range of versions or times does not: the newest commit is or may be
    // outside it, because times need not be monotonic.
    let asked =
        async { if whole_range { Ok(None) } else { log.read_head(&collection, &query.aggregate).await.map(Some) } };
    let (mut found, numbers, mut head) = match goes_on(query) {
        // There is usually nothing after a snapshot, and then there are no entries to read.
        true => {
            let (found, head) =
                tokio::try_join!(self::commits(log, &collection, query), asked.map_err(ReadError::from))?;
            let numbers = if found.commits.is_empty() { HashMap::new() } else { numbers(log, query).await? };
            (found, numbers, head)
        }
        false => tokio::try_join!(
            self::commits(log, &collection, query),
            numbers(log, query),
            asked.map_err(ReadError::from)
        )?,
    };
    let reaches_end = whole_range && (found.whole || query.last);
    let mut version = if reaches_end { newest(&found.commits).max(found.before) } else { 0 };
    if version == 0 {
        let head = match head.take() {
            Some(head) => head,
            None => log.read_head(&collection, &query.aggregate).await?,
        };
        if query.tenant_id.as_ref().is_some_and(|tenant| head.version > 0 && *tenant != head.tenant_id) {
            return Ok((AggregateCommits { commits: Vec::new(), version: 0 }, true));
        }
        if found.commits.is_empty() && untimed && query.from_version.max(1) <= head.version.min(query.to_version) {
            // The commits were read before the head was. A second read reaches at least that head.
            found = self::commits(log, &collection, query).await?;
        }
        version = head.version.max(newest(&found.commits));
    } else if let Some(last) = found.commits.iter().find(|commit| commit.info.version == version) {
        // A caller that loads an aggregate usually commits to it next.
        log.heads.learn(&query.aggregate, Head { version, tenant_id: last.info.tenant_id.clone() }, epoch);
    }
    let Page { mut commits, whole, .. } = found;
    commits.sort_unstable_by_key(|commit| commit.info.version);
    if untimed && (query.tenant_id.is_none() || !commits.is_empty()) {
        none_lost(log, &collection, query, (&commits, whole, version), &numbers).await?;
    }
    let mut recorded = Vec::with_capacity(commits.len());
    for commit in commits {
        let entry = numbers.get(&commit.info.version).filter(|entry| entry.commit == commit.key);
        let (first, count) = match entry {
            Some(entry) => (entry.first, entry.count),
            // It has no numbers yet, or it replaced another commit of this version, which is gone.
            None => {
                not_moved(log, &collection, &commit).await?;
                log.number_of(Place::new(&collection, &commit.key)).await?
            }
        };
        let there = commit.events.len() as u64;
        if there != count {
            return Err(changed_count(&log.database, &collection, &commit.key, count, there).into());
        }
        recorded.push(commit.recorded(first));
    }
    Ok((AggregateCommits { commits: recorded, version }, whole))
}

/// Checks that a commit did not get its sequence numbers under another version or id before other software changed it.
async fn not_moved(log: &Log, collection: &str, commit: &StoredCommit) -> Result<(), ReadError> {
    let entries = log.database.collection::<RawDocumentBuf>(ENTRIES);
    let entry = entries.find_one(doc! { "coll": collection, "commit": &commit.key });
    let entry = entry.projection(doc! { "id": 1, "version": 1 }).await.map_err(|error| reading(&error))?;
    let Some(entry) = entry else { return Ok(()) };
    let (id, version) = (text(&entry, "id").unwrap_or_default(), natural(&entry, "version").unwrap_or(0));
    if *commit.info.aggregate.id == *id && commit.info.version == version {
        return Ok(());
    }
    let (key, now) = (&commit.key, commit.info.version);
    let sentence = format!(
        "{}.{collection}: the document with the _id {key:?}: it got its sequence numbers as version {version} of id {id:?}, and is version \
         {now} of id {:?}, so other software has changed it; put it back from a backup of the database",
        log.database.name(),
        commit.info.aggregate.id,
    );
    Err(StoreError::other(Code::MalformedDocument, sentence).into())
}

/// Checks that the page has every numbered commit of its range. Other software may have deleted one or moved it to another version or
/// aggregate; the rest would then be a different history. Versions that were accepted as missing have no entry.
async fn none_lost(
    log: &Log,
    collection: &str,
    query: &AggregateQuery,
    (commits, whole, version): (&[StoredCommit], bool, Version),
    numbers: &HashMap<Version, Entry>,
) -> Result<(), ReadError> {
    let there: HashSet<Version> = commits.iter().map(|commit| commit.info.version).collect();
    let (mut low, mut high) = (query.from_version.max(1), numbers.keys().copied().fold(version, Version::max));
    high = high.min(query.to_version);
    match (whole, query.last) {
        (true, _) => {}
        (false, false) => high = high.min(newest(commits)),
        (false, true) => low = low.max(commits.first().map_or(low, |first| first.info.version)),
    }
    if (high + 1).saturating_sub(low) <= there.len() as u64 {
        return Ok(());
    }
    let read = if numbers.is_empty() { self::numbers(log, query).await? } else { HashMap::new() };
    let entries = numbers.iter().chain(&read);
    let lost = entries.filter(|(version, entry)| {
        (low..=high).contains(*version) && !there.contains(*version) && entry.collection == collection
    });
    let Some((version, entry)) = lost.min_by_key(|(version, _)| **version) else { return Ok(()) };
    let stored = log.database.collection::<RawDocumentBuf>(collection);
    let same = doc! { "_id": &entry.commit, "aggregateId": &*query.aggregate.id, "version": version.cast_signed() };
    let same = stored.find_one(same).projection(doc! { "_id": 1 }).await.map_err(|error| reading(&error))?;
    // It was stored after the page was read.
    if same.is_some() {
        return Ok(());
    }
    let what = format!(
        "commit {:?}, which has sequence number {} as version {version} of {},",
        entry.commit, entry.first, query.aggregate
    );
    Err(deleted(&log.database, collection, what).into())
}

fn newest(commits: &[StoredCommit]) -> Version {
    commits.iter().map(|commit| commit.info.version).max().unwrap_or(0)
}

/// The commits that a collection has for a query.
struct Page {
    commits: Vec<StoredCommit>,
    /// Whether all of them fit into the page.
    whole: bool,
    /// The version before the page's first, if it was requested and exists; 0 otherwise.
    before: Version,
}

/// Returns whether the page resumes after a version. The commit of that version is then read as well: if nothing follows it, it determines
/// the aggregate's version.
fn goes_on(query: &AggregateQuery) -> bool {
    let untimed = query.from_time.is_none() && query.to_time.is_none();
    untimed && !query.last && (2..=VERSION_MAX).contains(&query.from_version)
}

/// Reads the commits that match the query.
async fn commits(log: &Log, collection: &str, query: &AggregateQuery) -> Result<Page, ReadError> {
    let along = u64::from(goes_on(query));
    let range = AggregateQuery { from_version: query.from_version - along, ..query.clone() };
    let limit = query.limit + along as usize;
    let mut filter = doc! { "aggregateId": &*query.aggregate.id, "version": versions(&range) };
    if let Some(tenant) = &query.tenant_id {
        filter.insert("tenantId", &**tenant);
    }
    let mut time = Document::new();
    query.from_time.iter().for_each(|from| drop(time.insert("$gte", from.as_millis())));
    query.to_time.iter().for_each(|to| drop(time.insert("$lte", to.as_millis())));
    if !time.is_empty() {
        filter.insert("createTime", time);
    }
    let order = if query.last { -1 } else { 1 };
    let documents = log.database.collection::<RawDocumentBuf>(collection);
    let find = documents.find(filter).sort(doc! { "version": order });
    let find = find.limit(limit as i64).batch_size(limit as u32 + 1);
    let mut cursor = find.await.map_err(|error| reading(&error))?;
    let (mut commits, mut bytes, mut before) = (Vec::new(), 0, 0);
    while cursor.advance().await.map_err(|error| reading(&error))? {
        let document = cursor.current();
        if along > 0 && natural(document, "version") == Some(range.from_version) {
            before = range.from_version;
            continue;
        }
        bytes += document.as_bytes().len();
        if !commits.is_empty() && bytes > limits::PAGE_BYTES_MAX {
            return Ok(Page { commits, whole: false, before });
        }
        let read = foreign::read(document, &query.aggregate.name);
        let commit = read.map_err(|why| malformed(&log.database, collection, document, why))?;
        // The header is written with each event.
        bytes += commit.events.len().saturating_sub(1) * commit.info.header_bytes();
        if !commits.is_empty() && bytes > limits::PAGE_BYTES_MAX {
            return Ok(Page { commits, whole: false, before });
        }
        commits.push(commit);
    }
    let whole = commits.len() < query.limit;
    Ok(Page { commits, whole, before })
}

/// Reads the entries of the commits of these versions that have one.
async fn numbers(log: &Log, query: &AggregateQuery) -> Result<HashMap<Version, Entry>, ReadError> {
    let (name, id) = (&*query.aggregate.name, &*query.aggregate.id);
    let filter = doc! { "aggregate": name, "id": id, "version": versions(query) };
    let order = if query.last { -1 } else { 1 };
    let entries = log.database.collection::<RawDocumentBuf>(ENTRIES);
    let find = entries.find(filter).sort(doc! { "version": order });
    // With a range of times, the matching versions are not known here; entries that are missing are looked up one by one.
    let find = find
        .limit(query.limit as i64)
        .batch_size(query.limit as u32 + 1)
        .projection(doc! { "version": 1, "n": 1, "coll": 1, "commit": 1 });
    let mut cursor = find.await.map_err(|error| reading(&error))?;
    let mut numbers = HashMap::new();
    while cursor.advance().await.map_err(|error| reading(&error))? {
        let missing = || unreadable(format!("{ENTRIES}: an entry of {} has no version", query.aggregate));
        let version = natural(cursor.current(), "version").ok_or_else(missing)?;
        numbers.insert(version, entry::read(cursor.current()).map_err(unreadable)?);
    }
    Ok(numbers)
}

pub(super) fn versions(query: &AggregateQuery) -> Document {
    let bound = |version: Version| version.min(VERSION_MAX) as i64;
    doc! { "$gte": bound(query.from_version.max(1)), "$lte": bound(query.to_version) }
}

pub(super) async fn ids(log: &Log, query: AggregateIdsQuery) -> Result<Vec<KnownAggregate>, ReadError> {
    let collection = &event_stream(&query.name)?;
    let commits = log.database.collection::<RawDocumentBuf>(collection);
    // Excludes malformed commits whose id is not a string; `annals held list` shows them.
    let after = query.after.as_deref().unwrap_or_default();
    let filter =
        doc! { "aggregateName": &*query.name, "version": 1, "aggregateId": { "$type": "string", "$gt": after } };
    let find = commits.find(filter).sort(doc! { "aggregateId": 1 }).limit(query.limit as i64);
    let find = find.projection(doc! { "aggregateId": 1, "tenantId": 1 });
    let mut cursor = find.await.map_err(|error| reading(&error))?;
    let mut ids = Vec::new();
    while cursor.advance().await.map_err(|error| reading(&error))? {
        let found = cursor.current();
        let wrong = || malformed(&log.database, collection, found, "aggregateId is not a string");
        let id = text(found, "aggregateId").ok_or_else(wrong)?;
        let tenant_id = text(found, "tenantId").unwrap_or(DEFAULT_TENANT_ID).into();
        ids.push(KnownAggregate { id: id.into(), tenant_id });
    }
    ids.extend(adopted::ids(log, &query.name, query.after.as_deref(), query.limit).await?);
    ids.sort_unstable_by(|a, b| a.id.cmp(&b.id));
    ids.truncate(query.limit);
    Ok(ids)
}
