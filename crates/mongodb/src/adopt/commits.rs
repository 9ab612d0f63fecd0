//! Inspects a collection of commits: which are in the log, which can be numbered, and which cannot and why. It goes through one aggregate
//! after the other in order of version, so that it only has to remember its position in one aggregate.

use std::collections::{BTreeSet, HashSet};

use annals_core::Version;
use mongodb::Database;
use mongodb::bson::{Bson, RawDocument, RawDocumentBuf, doc};

use super::Progress;
use super::report::{AdoptReport, FoundCommits};
use crate::layout::fields::text;
use crate::layout::foreign;
use crate::layout::names::{ENTRIES, HELD, aggregate_of};
use crate::sequencer::label;

/// Commits that are looked up in the log together.
const BATCH_MAX: usize = 500;

/// The fields of a commit that matter here.
struct Seen {
    commit: String,
    read: Result<Valid, String>,
}

struct Valid {
    aggregate: String,
    version: Version,
    events: u64,
}

/// The state of the inspection.
struct Look<'a> {
    database: &'a Database,
    name: &'a str,
    found: FoundCommits,
    /// The last aggregate, and the version expected of its next commit.
    at: Option<(String, Version)>,
}

/// Inspects `collection`, and adds the contexts of its commits to `contexts`. Reports each batch to `progress`.
pub(super) async fn look(
    database: &Database,
    collection: &str,
    report: &mut AdoptReport,
    contexts: &mut BTreeSet<String>,
    progress: &mut Counting<'_, '_>,
) -> mongodb::error::Result<FoundCommits> {
    let name = aggregate_of(collection).unwrap_or_default();
    let found = FoundCommits { collection: collection.to_owned(), ..FoundCommits::default() };
    let mut look = Look { database, name, found, at: None };
    let commits = database.collection::<RawDocumentBuf>(collection);
    let find = commits.find(doc! {}).sort(doc! { "aggregateId": 1, "version": 1 }).allow_disk_use(true);
    let mut cursor = find.await?;
    let mut batch = Vec::with_capacity(BATCH_MAX);
    while cursor.advance().await? {
        let document = cursor.current();
        if let Some(context) = text(document, "contextName").filter(|context| !contexts.contains(*context)) {
            contexts.insert(context.to_owned());
        }
        batch.push(seen(document, name));
        if batch.len() >= BATCH_MAX {
            progress.advance(batch.len() as u64);
            look.judge(std::mem::take(&mut batch), report).await?;
        }
    }
    progress.advance(batch.len() as u64);
    look.judge(batch, report).await?;
    Ok(look.found)
}

/// How much has been inspected.
pub(super) struct Counting<'a, 'b> {
    pub(super) done: u64,
    pub(super) all: u64,
    pub(super) progress: &'a mut Progress<'b>,
}

impl Counting<'_, '_> {
    pub(super) fn advance(&mut self, by: u64) {
        self.done += by;
        (self.progress)(self.done, self.all.max(self.done));
    }
}

fn seen(document: &RawDocument, name: &str) -> Seen {
    let read = foreign::read(document, name).map(|commit| Valid {
        aggregate: commit.info.aggregate.id.to_string(),
        version: commit.info.version,
        events: commit.events.len() as u64,
    });
    Seen { commit: label(document), read }
}

impl Look<'_> {
    async fn judge(&mut self, batch: Vec<Seen>, report: &mut AdoptReport) -> mongodb::error::Result<()> {
        let ids: Vec<&str> = batch.iter().map(|seen| &*seen.commit).collect();
        let collection = self.found.collection.clone();
        let known = self.among(ENTRIES, doc! { "coll": &collection, "commit": { "$in": &ids } }, "commit").await?;
        let places: Vec<Bson> = ids.iter().map(|id| doc! { "coll": &collection, "commit": *id }.into()).collect();
        let held = self.among(HELD, doc! { "_id": { "$in": places } }, "_id").await?;
        for seen in &batch {
            self.found.commits += 1;
            let is_held = held.contains(&seen.commit);
            let reason = match &seen.read {
                Err(why) => Some(("malformed", why.clone())),
                Ok(valid) => self.place(valid, known.contains(&seen.commit)).await?,
            };
            let Some((kind, why)) = reason else { continue };
            self.found.to_hold += 1;
            self.found.held += u64::from(is_held);
            report.find(kind, format!("{collection}: commit {}: {why}", seen.commit));
        }
        Ok(())
    }

    /// Counts a well-formed commit, or returns why it cannot be numbered.
    async fn place(&mut self, valid: &Valid, known: bool) -> mongodb::error::Result<Option<(&'static str, String)>> {
        self.found.events += valid.events;
        if self.at.as_ref().is_none_or(|(aggregate, _)| *aggregate != valid.aggregate) {
            self.found.aggregates += 1;
            let first = if known || valid.version == 1 { valid.version } else { self.first(valid).await? };
            self.at = Some((valid.aggregate.clone(), first));
        }
        let Some((_, next)) = &mut self.at else { return Ok(None) };
        if known {
            self.found.in_log += 1;
            *next = valid.version + 1;
            return Ok(None);
        }
        if valid.version == *next {
            *next += 1;
            self.found.to_number += 1;
            self.found.events_to_number += valid.events;
            return Ok(None);
        }
        Ok(Some(("gap", format!("version {} comes where {next} is due", valid.version))))
    }

    /// Returns the version that the first commit of an aggregate in this collection must have: earlier ones may be in the adopted log.
    async fn first(&self, valid: &Valid) -> mongodb::error::Result<Version> {
        let before = doc! { "aggregate": self.name, "id": &valid.aggregate, "version": valid.version as i64 - 1 };
        let found = self.database.collection::<RawDocumentBuf>(ENTRIES).find_one(before).await?;
        Ok(if found.is_some() { valid.version } else { 1 })
    }

    /// Returns the commits that these documents name.
    async fn among(
        &self,
        collection: &str,
        filter: mongodb::bson::Document,
        key: &str,
    ) -> mongodb::error::Result<HashSet<String>> {
        let mut found = self.database.collection::<RawDocumentBuf>(collection).find(filter).await?;
        let mut commits = HashSet::new();
        while found.advance().await? {
            let document = found.current();
            let place = if key == "_id" { crate::layout::fields::inner(document, "_id") } else { Some(document) };
            commits.extend(place.and_then(|place| text(place, "commit")).map(str::to_owned));
        }
        Ok(commits)
    }
}
