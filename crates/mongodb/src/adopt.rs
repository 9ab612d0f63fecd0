//! Adopts an existing database: one that Wow or a Dolittle Runtime wrote becomes a store. [`inspect`] reports what is there and what an
//! adoption would do, and writes nothing; [`adopt`] does it.
//!
//! ```text
//! inspect ─▶ commits.rs: each collection of commits     ─▶ report: steps, findings, obstacles
//!            events.rs:  the event log, scopes.rs: those of scopes, names.rs: UUIDs
//! adopt   ─▶ the lease ─▶ apply.rs: mark, names, indexes ─▶ entries for the events ─▶ numbers for the commits (the sequencer's backlog)
//! ```
//!
//! INVARIANT: nothing that other software wrote is changed. Commits and events stay as they are, and collections of our own record their
//! sequence numbers. Each step detects what earlier runs completed, so an interrupted adoption is resumed, and a second one has nothing to
//! do.

mod apply;
mod commits;
mod events;
mod names;
mod report;
mod scopes;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use annals_core::{Code, OpenError};
use annals_system::sleep;
use futures_util::future::{BoxFuture, FutureExt};
use mongodb::{Client, Database};

pub use report::{AdoptNames, AdoptReport, Finding, FoundCommits, FoundLog, Obstacle};

use crate::connect::{Connection, connect};
use crate::layout::mapping::Mapping;
use crate::layout::names::{
    AGGREGATES, ENTRIES, EVENT_LOG, EVENT_LOG_METADATA, HELD, IDENTITY, OWNER, SEQUENCER, aggregate_of, collections,
};
use crate::layout::{mapping, owner, schema};
use crate::options::Options;
use crate::primary::Primary;
use crate::reach::{self, Reach};
use crate::refused::asking;
use crate::tenants::{Databases, databases, lease_database};
use commits::Counting;

/// A callback with the progress: how much is done, and the total.
pub type Progress<'a> = dyn FnMut(u64, u64) + Send + 'a;

/// How long a Runtime's log is watched for numbers that are still being assigned.
const WATCH: Duration = Duration::from_secs(1);

/// The database of a tenant.
struct Place {
    client: Client,
    tenant: String,
    names: Databases,
    database: Database,
    /// The database with the store's lease.
    lease: Database,
    primary: Arc<Primary>,
}

/// The findings, for the report and for the adoption itself.
struct Plan {
    report: AdoptReport,
    reach: Reach,
    mapping: Mapping,
    /// Whether some names are not stored yet.
    new_names: bool,
    /// Whether the marker, or collections or indexes, are missing.
    unready: bool,
    there: Vec<String>,
}

/// Reports what the database of `tenant` at `url` contains, and what [`adopt`] would do. Writes nothing. `progress` counts the commits and
/// events that were inspected.
///
/// # Errors
/// `invalid_config`, `invalid_names` for impossible names, `unsuitable_server`, `unreachable`. Obstacles to an adoption are part of the
/// report, and not errors.
pub fn inspect<'a>(
    url: &'a str,
    tenant: &'a str,
    options: &'a Options,
    names: &'a AdoptNames,
    progress: &'a mut Progress<'_>,
) -> BoxFuture<'a, Result<AdoptReport, OpenError>> {
    async move {
        let place = find(url, tenant, options).await?;
        Ok(look(&place, options, names, progress).await?.report)
    }
    .boxed()
}

/// Adopts the database of `tenant` at `url`, which no process of Annals may have open. Other software must have stopped assigning sequence
/// numbers; it may still add commits. `progress` counts first the commits and events that were inspected, then the events that were
/// processed.
///
/// # Errors
/// Obstacles, before anything is written: `cannot_adopt`, `invalid_names`, `foreign_numbers`, `unsuitable_server`. Later `store_locked` if
/// a process of Annals has the database open, `foreign_numbers` if numbers were assigned in the meantime, `unreachable`. The next call
/// resumes after what was done.
pub fn adopt<'a>(
    url: &'a str,
    tenant: &'a str,
    options: &'a Options,
    names: &'a AdoptNames,
    progress: &'a mut Progress<'_>,
) -> BoxFuture<'a, Result<AdoptReport, OpenError>> {
    async move {
        let place = find(url, tenant, options).await?;
        let plan = look(&place, options, names, progress).await?;
        if let Some(obstacle) = plan.report.obstacle() {
            return Err(obstacle);
        }
        if plan.report.steps.is_empty() {
            return Ok(AdoptReport { done: true, head: Some(plan.reach.known()), ..plan.report });
        }
        apply::apply(&place, options, plan, progress).await
    }
    .boxed()
}

async fn find(url: &str, tenant: &str, options: &Options) -> Result<Place, OpenError> {
    let connection = connect(url, &options.connection).await?;
    let mut all = databases(options, connection.database.as_deref())?;
    let lease = connection.client.database(lease_database(&all));
    let Some(names) = all.remove(tenant) else {
        let message = format!("tenant {tenant:?} is not declared; declare it under [tenants], or correct --tenant");
        return Err(OpenError::new(Code::UnknownTenant, message));
    };
    let database = connection.client.database(&names.events);
    let Connection { client, primary, .. } = connection;
    Ok(Place { client, tenant: tenant.to_owned(), names, database, lease, primary })
}

async fn look(
    place: &Place,
    options: &Options,
    given: &AdoptNames,
    progress: &mut Progress<'_>,
) -> Result<Plan, OpenError> {
    let database = &place.database;
    let asked = |error: mongodb::error::Error| asking(database.name(), &error);
    let mut there = collections(database).await.map_err(asked)?;
    there.sort_unstable();
    let mut report =
        AdoptReport { tenant: place.tenant.clone(), database: database.name().to_owned(), ..AdoptReport::default() };
    let reach = reach::read(database).await.map_err(asked)?;
    let streams: Vec<String> = there.iter().filter(|name| aggregate_of(name).is_some()).cloned().collect();
    let mut all = reach.end() - reach.known();
    for name in &streams {
        all += database.collection::<mongodb::bson::Document>(name).estimated_document_count().await.map_err(asked)?;
    }
    let mut counting = Counting { done: 0, all, progress };
    let mut contexts = BTreeSet::new();
    for name in &streams {
        let found = commits::look(database, name, &mut report, &mut contexts, &mut counting).await.map_err(asked)?;
        report.commits.push(found);
    }
    let stored = Mapping::read(database).await.map_err(asked)?;
    let mapping = names::read(&stored, given)?;
    let (log, uuids) = events::look(database, &reach, &mut report, &mut counting).await.map_err(asked)?;
    report.names = names::needed(&mapping, &uuids);
    if let Some(sentence) = names::missing(&mapping, &uuids) {
        report.obstruct(Code::InvalidNames, sentence);
    }
    shared_names(&mut report, &reach, &streams);
    let mut of_scopes = scopes::look(database, &there).await.map_err(asked)?;
    of_scopes.retain(|uuid, _| !uuids.contains_key(uuid));
    names::add_of_scopes(&mapping, &of_scopes, &mut report);
    let is_log = log.to_take_in > 0 || reach.adopted.is_some() || reach.events > 0;
    report.log = Some(log).filter(|_| is_log);
    whose(database, options, &reach, &contexts, &mut report).await?;
    let missing = match schema::lacking(database, &there, &streams, options).await {
        Ok(missing) => missing,
        Err(error) if error.code == Code::UnsuitableServer => {
            report.obstruct(error.code, error.message);
            0
        }
        Err(error) => return Err(error),
    };
    still_numbered(database, &reach, &mut report).await?;
    report.left = there.iter().filter(|name| is_left(name)).cloned().collect();
    let marked = owner::marked(database).await.map_err(asked)?.is_some();
    let known = |kind, uuid| stored.given(kind, uuid).is_some() || mapping.given(kind, uuid).is_none();
    let new_names = uuids.keys().chain(of_scopes.keys()).any(|(kind, uuid)| !known(*kind, *uuid));
    let unready = !marked || !reach.opened || missing > 0;
    steps(&mut report, marked, missing, new_names, &reach);
    Ok(Plan { report, reach, mapping, new_names, unready, there })
}

/// Lists in the report what would be done, in order.
fn steps(report: &mut AdoptReport, marked: bool, missing: usize, new_names: bool, reach: &Reach) {
    let mut steps = Vec::new();
    if !marked {
        steps.push(format!("mark the database as context {:?}'s", report.context));
    }
    if missing > 0 || !reach.opened {
        steps.push(format!("make {missing} collections and indexes that are missing"));
    }
    if new_names {
        let count = report.names.event_types.values().chain(report.names.aggregates.values()).flatten().count();
        steps.push(format!("keep the names of {count} UUIDs"));
    }
    let log = report.log.clone().unwrap_or_default();
    if log.to_take_in > 0 {
        steps.push(format!("take in {} events of {EVENT_LOG} with the numbers that they have", log.to_take_in));
    }
    if log.to_take_in > 0 || reach.under_way || reach.next.unwrap_or(0) != reach.known() {
        steps.push(format!("go on with number {}", log.next));
    }
    for found in &report.commits {
        if found.to_number > 0 {
            let (commits, events, name) = (found.to_number, found.events_to_number, &found.collection);
            steps.push(format!("give numbers to {commits} commits with {events} events of {name}"));
        }
        if found.to_hold > found.held {
            steps.push(format!("hold back {} commits of {}", found.to_hold - found.held, found.collection));
        }
    }
    report.steps = steps;
}

/// Refuses names of aggregates in the log that also have a collection of commits: both would count the aggregate's versions.
fn shared_names(report: &mut AdoptReport, reach: &Reach, streams: &[String]) {
    if reach.adopted.is_some_and(|head| head > 0) {
        return;
    }
    let given: Vec<String> = report.names.aggregates.values().flatten().cloned().collect();
    for name in given {
        if streams.iter().any(|stream| aggregate_of(stream) == Some(&name)) {
            let message = format!(
                "names: aggregates: {name:?} has commits in {name}_event_stream already, and the log's events of that name would count \
                 their versions beside them; give the UUID another name"
            );
            report.obstruct(Code::InvalidNames, message);
        }
    }
}

/// Determines the context of the database: from its marker, else from the configuration, else from its documents.
async fn whose(
    database: &Database,
    options: &Options,
    reach: &Reach,
    contexts: &BTreeSet<String>,
    report: &mut AdoptReport,
) -> Result<(), OpenError> {
    let mark = owner::marked(database).await.map_err(|error| asking(database.name(), &error))?;
    let marked = mark.as_ref().and_then(|mark| mark.get_str("contextName").ok());
    let found = marked.or(options.context_name.as_deref()).or(contexts.first().map(|context| &**context));
    report.context = found.unwrap_or(owner::DEFAULT).to_owned();
    if let Some(mark) = &mark
        && let Err(error) = owner::judge(database.name(), &report.context, mark)
    {
        report.obstruct(error.code, error.message);
    }
    if options.context_name.as_ref().is_some_and(|configured| *configured != report.context) {
        let configured = options.context_name.as_deref().unwrap_or_default();
        let message = format!(
            "database {} belongs to context {:?}, and context_name is configured as {configured:?}; leave it out, or correct it",
            database.name(),
            report.context
        );
        report.obstruct(Code::CannotAdopt, message);
    }
    let others: Vec<_> = contexts.iter().filter(|context| **context != report.context).collect();
    if !others.is_empty() && reach.opened {
        let what = format!(
            "database {} is context {:?}'s and holds commits of {others:?} too: they are in the log like all others",
            database.name(),
            report.context
        );
        report.find("other_context", what);
    }
    if !others.is_empty() && !reach.opened {
        let message = format!(
            "database {} is context {:?}'s and holds commits of {others:?} too; a database belongs to one context, so move them out",
            database.name(),
            report.context
        );
        report.obstruct(Code::CannotAdopt, message);
    }
    Ok(())
}

/// Checks whether other software assigns numbers during the inspection.
async fn still_numbered(database: &Database, before: &Reach, report: &mut AdoptReport) -> Result<(), OpenError> {
    if before.events <= before.known() {
        return Ok(());
    }
    sleep(WATCH).await;
    let now = reach::read(database).await.map_err(|error| asking(database.name(), &error))?;
    if now.events != before.events || now.next != before.next {
        report.obstruct(Code::ForeignNumbers, still_writing(database, before.events, now.events));
    }
    Ok(())
}

fn still_writing(database: &Database, before: u64, now: u64) -> String {
    format!(
        "database {}: {EVENT_LOG} went on from {before} to {now} meanwhile: a Dolittle Runtime still gives numbers",
        database.name()
    )
}

/// Suffix of the collections with the states of the streams of scopes.
const STATES_OF_SCOPES: &str = "-annals-streams";

/// Returns whether a collection is neither read here nor written by Annals.
fn is_left(name: &str) -> bool {
    const KNOWN: [&str; 9] =
        [EVENT_LOG, EVENT_LOG_METADATA, AGGREGATES, ENTRIES, HELD, SEQUENCER, IDENTITY, OWNER, mapping::NAMES];
    !KNOWN.contains(&name)
        && aggregate_of(name).is_none()
        && !name.starts_with("annals-")
        && !name.ends_with(STATES_OF_SCOPES)
        && !name.starts_with("system.")
}
