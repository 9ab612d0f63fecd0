//! Fetches commits of the log in the order of their entries.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use annals_core::{ReadError, StoreError};
use annals_system::sleep;
use futures_util::future::try_join_all;
use mongodb::bson::{Document, RawDocumentBuf, doc};

use super::{Log, adopted};
use crate::layout::entry::Entry;
use crate::layout::fields::text;
use crate::layout::foreign::{self, StoredCommit};
use crate::layout::names::{EVENT_LOG, aggregate_of};
use crate::refused::{changed_count, deleted, malformed, reading, unreadable};

/// Approximate limit of the bytes of commits that are fetched together.
const BYTES: usize = 4 * 1024 * 1024;
/// A fetch stops after this many bytes: it requests a number of commits based on the size of earlier ones.
const BYTES_MAX: usize = 4 * BYTES;
/// Commits that are fetched together at first, and at most.
const FIRST: usize = 100;
const MOST: usize = 1000;
/// How often, and at which interval, commits of an entry are looked up again: after a change of the primary, the entry may be visible a
/// moment before its commit.
const TRIES: usize = 20;
const PAUSE: Duration = Duration::from_millis(50);

/// The number of commits to fetch together, adapted to the size of earlier ones.
pub(super) struct Pace(AtomicUsize);

impl Default for Pace {
    fn default() -> Self {
        Self(AtomicUsize::new(FIRST))
    }
}

impl Pace {
    pub(super) fn commits(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    fn learn(&self, commits: usize, bytes: usize) {
        let each = bytes / commits.max(1) + 1;
        self.0.store((BYTES / each).clamp(1, MOST), Ordering::Relaxed);
    }
}

/// Returns the next entries with their commits, as many as are fetched together.
pub(super) async fn fetch_next<'a>(
    log: &Log,
    rest: &mut &'a [Entry],
    pace: &Pace,
) -> Result<impl Iterator<Item = (&'a Entry, StoredCommit)>, ReadError> {
    let commits = fetch(log, &rest[..pace.commits().min(rest.len())], pace).await?;
    let (some, behind) = rest.split_at(commits.len());
    *rest = behind;
    Ok(some.iter().zip(commits))
}

/// Fetches the commits of these entries in order. Returns all of them, unless they are much larger than earlier ones or one no longer
/// matches its entry. Returns at least one.
///
/// # Errors
/// Errors of the server; `malformed_document` if the first commit was changed or deleted.
pub(super) async fn fetch(log: &Log, entries: &[Entry], pace: &Pace) -> Result<Vec<StoredCommit>, ReadError> {
    let mut collections: HashMap<&str, Wanted<'_>> = HashMap::new();
    for (place, entry) in entries.iter().enumerate() {
        collections.entry(&entry.collection).or_default().ids.push((&entry.commit, place));
    }
    let read = AtomicUsize::new(0);
    let all = collections.into_iter().map(|(name, wanted)| of_collection(log, name, wanted, &read));
    let (found, cut): (Vec<_>, Vec<bool>) = try_join_all(all).await?.into_iter().unzip();
    let mut commits: Vec<Option<Result<StoredCommit, StoreError>>> = entries.iter().map(|_| None).collect();
    pace.learn(found.iter().map(Vec::len).sum(), read.into_inner());
    for (place, commit) in found.into_iter().flatten() {
        commits[place] = Some(commit);
    }
    if cut.contains(&true) {
        commits.truncate(commits.iter().position(Option::is_none).unwrap_or(commits.len()));
        if commits.is_empty() {
            // Only later commits were read before the limit; a single commit is not cut off.
            return Box::pin(fetch(log, &entries[..1], pace)).await;
        }
    }
    let mut whole = Vec::with_capacity(commits.len());
    for (commit, entry) in commits.into_iter().zip(entries) {
        let gone = || deleted(&log.database, &entry.collection, format_args!("commit {:?} of the log", entry.commit));
        let commit = commit.unwrap_or_else(|| Err(gone())).and_then(|commit| same_events(log, entry, commit));
        match commit {
            Ok(commit) => whole.push(commit),
            Err(why) if whole.is_empty() => return Err(why.into()),
            // The earlier commits are intact; a reader that resumes here gets the error.
            Err(_) => break,
        }
    }
    Ok(whole)
}

/// Checks that a commit has as many events as were numbered. If other software has added or removed events, sequence numbers would be used
/// twice or left out.
pub(super) fn same_events(log: &Log, entry: &Entry, commit: StoredCommit) -> Result<StoredCommit, StoreError> {
    let (due, there) = (entry.count, commit.events.len() as u64);
    if due == there {
        return Ok(commit);
    }
    Err(changed_count(&log.database, &entry.collection, &entry.commit, due, there))
}

/// A commit with its index among the requested ones.
type Found = (usize, Result<StoredCommit, StoreError>);

/// The requested ids of one collection, with their indexes in the request.
#[derive(Default)]
struct Wanted<'a> {
    /// Sorted by id.
    ids: Vec<(&'a str, usize)>,
    /// Where the next id is expected: a range is usually read in the order of ids.
    next: usize,
}

impl Wanted<'_> {
    /// Returns the index of a commit, if it was requested.
    fn place(&mut self, id: &str) -> Option<usize> {
        let at = match self.ids.get(self.next) {
            Some((next, _)) if *next == id => self.next,
            _ => self.ids.binary_search_by(|(wanted, _)| (*wanted).cmp(id)).ok()?,
        };
        self.next = at + 1;
        Some(self.ids[at].1)
    }
}

/// Fetches the commits of one collection, and returns whether the byte limit cut them off.
async fn of_collection(
    log: &Log,
    collection: &str,
    mut wanted: Wanted<'_>,
    read: &AtomicUsize,
) -> Result<(Vec<Found>, bool), ReadError> {
    wanted.ids.sort_unstable();
    let mut missing: Vec<&str> = wanted.ids.iter().map(|(id, _)| *id).collect();
    let mut found: Vec<Found> = Vec::with_capacity(missing.len());
    if let Some((least, greatest)) = range(&missing) {
        let range = doc! { "$gte": least, "$lte": greatest };
        if of_ids(log, collection, range, 2 * missing.len(), &mut wanted, &mut found, read).await? {
            return Ok((found, true));
        }
        keep_missing(&mut missing, &wanted, &found);
    }
    for _ in 0..TRIES {
        if missing.is_empty() {
            break;
        }
        if collection == EVENT_LOG {
            let (events, bytes) = adopted::fetch_events(log, &missing, BYTES_MAX).await?;
            found.extend(events.into_iter().filter_map(|event| Some((wanted.place(&event.key)?, Ok(event)))));
            if read.fetch_add(bytes, Ordering::Relaxed) + bytes > BYTES_MAX {
                return Ok((found, true));
            }
        } else if of_ids(log, collection, doc! { "$in": &missing }, missing.len(), &mut wanted, &mut found, read)
            .await?
        {
            return Ok((found, true));
        }
        keep_missing(&mut missing, &wanted, &found);
        if !missing.is_empty() {
            sleep(PAUSE).await;
        }
    }
    Ok((found, false))
}

fn keep_missing<'a>(missing: &mut Vec<&'a str>, wanted: &Wanted<'a>, found: &[Found]) {
    missing.clear();
    if found.len() < wanted.ids.len() {
        let there: HashSet<usize> = found.iter().map(|(place, _)| *place).collect();
        missing.extend(wanted.ids.iter().filter(|(_, place)| !there.contains(place)).map(|(id, _)| *id));
    }
}

/// Reads commits by a condition on `_id`, at most `most` documents. Returns whether the byte limit stopped it before the last one.
async fn of_ids(
    log: &Log,
    collection: &str,
    ids: Document,
    most: usize,
    wanted: &mut Wanted<'_>,
    found: &mut Vec<Found>,
    read: &AtomicUsize,
) -> Result<bool, ReadError> {
    let name = aggregate_of(collection).ok_or_else(|| unreadable(format!("{collection} holds no commits")))?;
    let documents = log.database.collection::<RawDocumentBuf>(collection);
    let find = documents.find(doc! { "_id": ids }).limit(most as i64).batch_size(most as u32 + 1);
    let mut cursor = find.await.map_err(|error| reading(&error))?;
    while cursor.advance().await.map_err(|error| reading(&error))? {
        let document = cursor.current();
        if read.fetch_add(document.as_bytes().len(), Ordering::Relaxed) > BYTES_MAX {
            return Ok(true);
        }
        // A range includes documents between the requested ones.
        let Some(place) = text(document, "_id").and_then(|id| wanted.place(id)) else { continue };
        let commit = foreign::read(document, name);
        // It was well-formed when it was numbered.
        let commit = commit.map_err(|why| malformed(&log.database, collection, document, why));
        found.push((place, commit));
    }
    Ok(false)
}

/// Returns the lowest and highest id if a range read is worthwhile: the ids are UUIDv7, which begin with their time, so most ids between
/// them are requested too. The server reads a range without looking up each id. Commits that the range misses are looked up by id.
fn range<'a>(ids: &[&'a str]) -> Option<(&'a str, &'a str)> {
    const FEW: usize = 16;
    const VERSION_AT: usize = 14;
    let ordered = |id: &&str| id.len() == 36 && id.as_bytes()[VERSION_AT] == b'7';
    if ids.len() < FEW || !ids.iter().all(ordered) {
        return None;
    }
    Some((ids.iter().min()?, ids.iter().max()?))
}
