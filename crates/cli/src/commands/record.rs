//! `annals record …`: reading. What changes records is in `record/write.rs`.

mod write;

use std::sync::Arc;

use annals::bson::Bson;
use annals::wire::records::{Encoding, extended_value, read_collection, read_condition};
use annals::{
    ChangeFollower, Code, Collection, Condition, DocumentKind, Invalid, Now, Projection, RecordQuery, Timestamp,
    is_system_collection, limits,
};

use crate::args::{Global, Id, Record, RecordDeclare, RecordFind, RecordGet, RecordWatch};
use crate::config::Config;
use crate::failure::{Failure, Stop};
use crate::output::Output;
use crate::signals;
use crate::target::Target;

pub async fn run(global: &Global, args: &Record, config: &Config) -> Result<(), Stop> {
    match args {
        Record::List => list(global, config).await,
        Record::Declare(args) => declare(global, args, config).await,
        Record::Get(args) => get(global, args, config).await,
        Record::Find(args) => find(global, args, config).await,
        Record::Explain(args) => explain(global, args, config).await,
        Record::Count(args) => {
            let condition = condition("--condition", args.condition.as_deref())?;
            let target = to_read(global, config).await?;
            target
                .run(async |target| {
                    let mut output = Output::new(global.output);
                    output.count(target.records.count(&args.collection, &condition).await?)?;
                    output.flush()
                })
                .await
        }
        Record::Insert(args) => write::insert(global, args, config).await,
        Record::Replace(args) => write::replace(global, args, config).await,
        Record::Delete(args) => write::delete(global, args, config).await,
        Record::Watch(args) => watch(global, args, config).await,
    }
}

async fn list(global: &Global, config: &Config) -> Result<(), Stop> {
    let target = to_read(global, config).await?;
    target
        .run(async |target| {
            let mut output = Output::new(global.output);
            for collection in target.records.collections().await? {
                output.collection(&collection)?;
            }
            output.flush()
        })
        .await
}

async fn declare(global: &Global, args: &RecordDeclare, config: &Config) -> Result<(), Stop> {
    not_of_the_system(&args.collection)?;
    let collection = declared(&args.collection, args.indexes.as_deref().unwrap_or("[]"))?;
    collection.validate()?;
    let target = Target::to_write(global, config).await?;
    target
        .run(async |target| {
            target.records.declare(collection.clone()).await?;
            let mut output = Output::new(global.output);
            output.collection(&collection)?;
            output.flush()
        })
        .await
}

async fn get(global: &Global, args: &RecordGet, config: &Config) -> Result<(), Stop> {
    let id = id(&args.id)?;
    let target = to_read(global, config).await?;
    target
        .run(async |target| {
            let Some(record) = target.records.get(&args.collection, &id).await? else {
                let message = format!("{:?} has no record {id}", args.collection);
                return Err(Failure::new(Code::UnknownRecord, message).into());
            };
            let mut output = Output::new(global.output);
            output.record(&record)?;
            output.flush()
        })
        .await
}

/// The query that is asked for.
fn query(args: &RecordFind) -> Result<RecordQuery, Failure> {
    let mut query = RecordQuery::new(args.collection.as_str()).limit(limits::PAGE_MAX);
    query.condition = condition("--condition", args.condition.as_deref())?;
    for field in &args.sort {
        query = match field.strip_prefix('-') {
            Some(field) => query.descending(field),
            None => query.ascending(field.as_str()),
        };
    }
    query.projection = match (&args.include[..], &args.exclude[..]) {
        ([], []) => Projection::Whole,
        (include, []) => Projection::Only(include.to_vec()),
        (_, exclude) => Projection::Without(exclude.to_vec()),
    };
    query.clone().resolved(DocumentKind::Record, &any_time())?.validate()?;
    Ok(query)
}

async fn explain(global: &Global, args: &RecordFind, config: &Config) -> Result<(), Stop> {
    let mut query = query(args)?;
    if let Some(limit) = args.limit {
        query.limit = usize::try_from(limit).unwrap_or(usize::MAX).clamp(1, limits::PAGE_MAX);
    }
    let target = to_read(global, config).await?;
    target
        .run(async |target| {
            let mut output = Output::new(global.output);
            output.explained(&target.records.explain(query).await?)?;
            output.flush()
        })
        .await
}

async fn find(global: &Global, args: &RecordFind, config: &Config) -> Result<(), Stop> {
    let mut query = query(args)?;
    let target = to_read(global, config).await?;
    target
        .run(async |target| {
            let (mut output, mut left) = (Output::new(global.output), args.limit.unwrap_or(u64::MAX));
            while left > 0 {
                query.limit = usize::try_from(left).unwrap_or(usize::MAX).min(limits::PAGE_MAX);
                let page = target.records.find(query.clone()).await?;
                for record in &page.records {
                    output.record(record)?;
                }
                left -= page.records.len() as u64;
                match page.next {
                    Some(next) => query.after = Some(next),
                    None => break,
                }
            }
            output.flush()
        })
        .await
}

async fn watch(global: &Global, args: &RecordWatch, config: &Config) -> Result<(), Stop> {
    let target = to_read(global, config).await?;
    target
        .run(async |target| {
            let after = if args.new { target.records.last_change().await? } else { args.after.unwrap_or(0) };
            let follower = ChangeFollower::new(Arc::clone(&target.records), after);
            tokio::select! {
                stopped = signals::stop() => Ok(stopped?),
                ended = follow(follower, args.collection.as_deref(), Output::new(global.output)) => ended,
            }
        })
        .await
}

async fn follow(mut follower: ChangeFollower, collection: Option<&str>, mut output: Output) -> Result<(), Stop> {
    loop {
        for change in follower.next_page().await? {
            if collection.is_none_or(|wanted| wanted == change.collection) {
                output.change(&change)?;
            }
        }
        output.flush()?;
    }
}

async fn to_read(global: &Global, config: &Config) -> Result<Target, Failure> {
    Target::to_read(global, annals::DEFAULT_SCOPE, config).await
}

/// The id that is meant.
fn id(args: &Id) -> Result<Bson, Failure> {
    if !args.ejson {
        return Ok(Bson::String(args.id.clone()));
    }
    extended_value(&args.id).map_err(|message| Failure::new(Code::InvalidRecord, format!("the id: {message}")))
}

/// The condition that a flag gives, as JSON or as a person types it; every record without it.
pub(super) fn condition(flag: &str, text: Option<&str>) -> Result<Condition, Failure> {
    let Some(text) = text else { return Ok(Condition::All) };
    let read = match text.trim_start().starts_with('{') {
        true => read_condition(format!("{{\"condition\":{text}}}").as_bytes(), Encoding::ExtendedJson),
        false => Condition::parse(text),
    };
    let read = read.map_err(|error| at_flag(flag, error))?;
    read.resolved(DocumentKind::Record, &any_time())?.validate()?;
    Ok(read)
}

/// The collection with the indexes of `--indexes`.
pub(super) fn declared(collection: &str, indexes: &str) -> Result<Collection, Failure> {
    // By itself first, so that the place of what is no JSON is the one in what was typed.
    let list = serde_json::from_str::<Vec<serde::de::IgnoredAny>>(indexes);
    list.map_err(|error| Failure::new(Code::NotJson, format!("--indexes is not a list in JSON: {error}")))?;
    let body = format!("{{\"indexes\":{indexes}}}");
    read_collection(collection, body.as_bytes(), Encoding::ExtendedJson).map_err(|error| at_flag("--indexes", error))
}

/// Windows of time are the store's; whether they can be is the same at any time.
fn any_time() -> Now {
    Now::utc(Timestamp::from_millis(0))
}

fn at_flag(flag: &str, error: Invalid) -> Failure {
    Failure::new(error.code, format!("{flag}: {}", Failure::from(error.clone()).message))
}

/// Refuses names that are not for records of one's own, as a server does.
fn not_of_the_system(collection: &str) -> Result<(), Failure> {
    if !is_system_collection(collection) {
        return Ok(());
    }
    let message = format!("{collection:?} is kept by Annals, and can only be read here");
    Err(Failure::new(Code::SystemCollection, message))
}
