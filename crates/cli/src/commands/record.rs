//! `annals record …`: reading. Commands that change records are in `record/write.rs`.

mod group;
mod write;

use annals::Records;
use std::sync::Arc;

use annals::bson::Bson;
use annals::wire::records::{Encoding, extended_value, read_collection};
use annals::{ChangeFollower, Code, Collection, DocumentKind, RecordQuery, is_system_collection, limits};
use clap::{Args, Subcommand};

use super::Run;
use crate::context::{Context, Reaches};
use crate::failure::{Failure, Stop};
use crate::output::Output;
use crate::reconnect::Reconnect;
use crate::selection::{Matching, Selection, any_time, at_flag};
use crate::signals;
use crate::target::Target;

/// Read or change records: documents in collections, beside the log
#[derive(Debug, Args)]
pub struct Record {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Print the collections, each with its indexes
    #[command(after_help = "Example:\n  annals record list")]
    List,
    /// Declare a collection, its indexes and its feed of changes; existing indexes are kept
    #[command(
        after_help = "An index is {\"name\", \"fields\": [{\"field\", \"direction\"}], \"unique\", \"hashed\", \"text\", \"language\", \"sparse\", \"partial\", \"expires_after_seconds\"}; everything but the fields is optional. An index with \"text\": true serves `match`: a collection has at most one, on every field whose words are searched, without directions; \"language\" compares word stems, on MongoDB. Indexes cannot be changed or dropped: to get another one, declare another collection.\n\nExample:\n  annals record declare customers --indexes '[{\"fields\": [{\"field\": \"email\"}], \"unique\": true}]'"
    )]
    Declare(Declare),
    /// Print the record with an id
    #[command(after_help = "Example:\n  annals record get customers c-9\n  annals record get orders 7 --ejson")]
    Get(Get),
    /// Print the records that match a condition
    #[command(
        after_help = "A condition is typed, or is JSON. Typed: FIELD TEST, joined by and, or, ( ) and nor(…, …). Tests: = != > >= < <= VALUE; contains, startsWith, endsWith TEXT [ignoreCase]; isIn, notIn, allIn, between [VALUE, …]; elemMatch (CONDITION); isNull notNull isTrue isFalse; exists [false]; today tomorrow thisWeek nextWeek lastWeek thisMonth lastMonth, recentDays and earlierDays DAYS, beforeToday '12:00', each [zone 'Europe/Berlin'] [pattern 'yyyy-MM-dd']. On the whole document: id, ids, tenantId, ownerId, spaceId, deleted, match, raw. Strings are quoted.\n\nExample:\n  annals record find orders --where \"total >= 100 and state isIn ['open', 'paid']\" --sort -total,_id --limit 10\n  annals record find orders --where '{\"field\": \"total\", \"operator\": \"GTE\", \"value\": 100}'"
    )]
    Find(Find),
    /// Print how records are found: the index that is used, and how much is read
    #[command(after_help = "Example:\n  annals record explain orders --where \"state = 'open'\" --sort -total")]
    Explain(Find),
    /// Print the number of records that match a condition
    #[command(after_help = "Example:\n  annals record count orders --where \"state = 'open'\"")]
    Count(Count),
    /// Print groups of records: their number, with sums, averages, lowest and highest values
    #[command(
        after_help = "Without --by all records are one group. Sums and averages are of numbers; lowest and highest values are of any type. A path leads through documents; a value inside an array counts as null.\n\nExample:\n  annals record group orders --by state --sum total --max createdAt\n  annals record group orders --by createdAt --every day --where \"state = 'paid'\""
    )]
    Group(group::Group),
    /// Insert documents that do not exist yet: one by --document, or one per line
    #[command(
        after_help = "Documents are Extended JSON, with an _id. A refused line is reported and the other lines continue; the exit code is that of the first refusal.\n\nExample:\n  annals record insert orders --document '{\"_id\": \"o-1\", \"total\": 12.5}'\n  annals record insert orders < orders.jsonl"
    )]
    Insert(write::Insert),
    /// Replace the documents with the same _id, if they are as expected
    #[command(
        after_help = "Documents are Extended JSON. Without a flag the record must exist, whatever its content.\n\nExample:\n  annals record replace orders --document '{\"_id\": \"o-1\", \"total\": 13}' --revision 7\n  annals record replace orders --or-insert < orders.jsonl"
    )]
    Replace(write::Replace),
    /// Change named fields of a record and leave the others as they are
    #[command(
        after_help = "Values are Extended JSON; names are paths. Missing documents on the path to a field are created.\n\nExample:\n  annals record set orders o-1 --fields '{\"state\": \"paid\", \"address.city\": \"Oslo\"}' --unset note --revision 7"
    )]
    Set(write::Set),
    /// Check that a record is as expected, without changing it
    #[command(
        after_help = "Prints the revision, which is 0 if the record is absent as allowed. Exits with 3 if the record is not as expected.\n\nExample:\n  annals record check orders o-1 --matching \"state = 'paid'\"\n  annals record check orders o-2 --absent"
    )]
    Check(write::Check),
    /// Delete a record, if it is as expected
    #[command(after_help = "Example:\n  annals record delete orders o-1 --revision 7")]
    Delete(write::Delete),
    /// Print the changes of a collection so far and then each new one, until Ctrl-C
    #[command(
        after_help = "The collection must be declared with a feed: annals record declare orders --feed. A store that this command opens has no other writer; use --server to follow what others change.\n\nExample:\n  annals record watch orders --new --server http://127.0.0.1:4000"
    )]
    Watch(Watch),
}

#[derive(Debug, Args)]
struct Declare {
    /// The collection
    collection: String,
    /// The indexes, as a JSON list
    #[arg(long, value_name = "JSON")]
    indexes: Option<String>,
    /// Record its changes, so that they can be followed; a collection keeps its feed
    #[arg(long)]
    feed: bool,
}

#[derive(Debug, Args)]
struct Get {
    /// The collection
    collection: String,
    #[command(flatten)]
    id: Id,
}

/// The id of a record.
#[derive(Debug, Args)]
struct Id {
    /// The record's _id
    #[arg(allow_hyphen_values = true)]
    id: String,
    /// Read the id as Extended JSON, such as 7 or {"$oid": "…"}; without it, the id is a string
    #[arg(long)]
    ejson: bool,
}

#[derive(Debug, Args)]
struct Find {
    /// The collection
    collection: String,
    #[command(flatten)]
    selection: Selection,
}

#[derive(Debug, Args)]
struct Count {
    /// The collection
    collection: String,
    #[command(flatten)]
    matching: Matching,
}

#[derive(Debug, Args)]
struct Watch {
    /// The collection
    collection: String,
    /// Print only changes after this number [default: 0]
    #[arg(long, value_name = "NUMBER")]
    after: Option<u64>,
    /// Print only changes made from now on
    #[arg(long, conflicts_with = "after")]
    new: bool,
}

impl Run for Record {
    const REACHES: Reaches = Reaches::ServerOrStore;

    async fn run(&self, context: &Context) -> Result<(), Stop> {
        match &self.what {
            What::List => list(context).await,
            What::Declare(args) => declare(context, args).await,
            What::Get(args) => get(context, args).await,
            What::Find(args) => find(context, args).await,
            What::Explain(args) => explain(context, args).await,
            What::Count(args) => count(context, args).await,
            What::Group(args) => group::group(context, args).await,
            What::Set(args) => write::set(context, args).await,
            What::Check(args) => write::check(context, args).await,
            What::Insert(args) => write::insert(context, args).await,
            What::Replace(args) => write::replace(context, args).await,
            What::Delete(args) => write::delete(context, args).await,
            What::Watch(args) => watch(context, args).await,
        }
    }
}

async fn count(context: &Context, args: &Count) -> Result<(), Stop> {
    let condition = args.matching.condition()?;
    let target = to_read(context).await?;
    target
        .run(async |target| {
            let mut output = context.output();
            output.count(target.records()?.count(&args.collection, &condition).await?)?;
            output.flush()
        })
        .await
}

async fn list(context: &Context) -> Result<(), Stop> {
    let target = to_read(context).await?;
    target
        .run(async |target| {
            let mut output = context.output();
            for collection in target.records()?.collections().await? {
                output.collection(&collection)?;
            }
            output.flush()
        })
        .await
}

async fn declare(context: &Context, args: &Declare) -> Result<(), Stop> {
    not_of_the_system(&args.collection)?;
    let mut collection = declared(&args.collection, args.indexes.as_deref().unwrap_or("[]"))?;
    collection.feed = args.feed;
    collection.validate()?;
    let target = context.to_write().await?;
    target
        .run(async |target| {
            target.records()?.declare(collection.clone()).await?;
            let mut output = context.output();
            output.collection(&collection)?;
            output.flush()
        })
        .await
}

async fn get(context: &Context, args: &Get) -> Result<(), Stop> {
    let id = id(&args.id)?;
    let target = to_read(context).await?;
    target
        .run(async |target| {
            let Some(record) = target.records()?.get(&args.collection, &id).await? else {
                let message = format!("{:?} has no record {id}", args.collection);
                return Err(Failure::new(Code::UnknownRecord, message).into());
            };
            let mut output = context.output();
            output.record(&record)?;
            output.flush()
        })
        .await
}

/// Builds the query from the flags.
fn query(args: &Find) -> Result<RecordQuery, Failure> {
    let mut query = RecordQuery::new(args.collection.as_str()).limit(limits::PAGE_MAX);
    query.condition = args.selection.matching.condition()?;
    for (field, descending) in args.selection.sort() {
        query = if descending { query.descending(field) } else { query.ascending(field) };
    }
    query.projection = args.selection.projection();
    query.clone().resolved(DocumentKind::Record, &any_time())?.validate()?;
    Ok(query)
}

async fn explain(context: &Context, args: &Find) -> Result<(), Stop> {
    let mut query = query(args)?;
    if let Some(limit) = args.selection.limit {
        query.limit = usize::try_from(limit).unwrap_or(usize::MAX).clamp(1, limits::PAGE_MAX);
    }
    let target = to_read(context).await?;
    target
        .run(async |target| {
            let mut output = context.output();
            output.explained(&target.records()?.explain(query).await?)?;
            output.flush()
        })
        .await
}

async fn find(context: &Context, args: &Find) -> Result<(), Stop> {
    let mut query = query(args)?;
    let target = to_read(context).await?;
    target
        .run(async |target| {
            let (mut output, mut left) = (context.output(), args.selection.limit.unwrap_or(u64::MAX));
            while left > 0 {
                query.limit = usize::try_from(left).unwrap_or(usize::MAX).min(limits::PAGE_MAX);
                let page = target.records()?.find(query.clone()).await?;
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

async fn watch(context: &Context, args: &Watch) -> Result<(), Stop> {
    let target = to_read(context).await?;
    target
        .run(async |target| {
            // Requested in any case: if a server cannot be reached at the beginning, its URL is most likely mistyped.
            let last = target.records()?.last_change(&args.collection).await?;
            let after = if args.new { last } else { args.after.unwrap_or(0) };
            let follower = ChangeFollower::new(target.records()?, &args.collection, after);
            tokio::select! {
                stopped = signals::stop() => Ok(stopped?),
                ended = follow(target, follower, context.output()) => ended,
            }
        })
        .await
}

async fn follow(target: &Target, mut follower: ChangeFollower, mut output: Output) -> Result<(), Stop> {
    let mut reconnect = Reconnect::new();
    loop {
        match follower.next_page().await {
            Ok(changes) => {
                reconnect.reached();
                for change in &changes {
                    output.change(change)?;
                }
                output.flush()?;
            }
            Err(error) => {
                let resume = format!("after change {}", follower.position());
                reconnect.after(error.into(), target, &resume).await?;
            }
        }
    }
}

async fn to_read(context: &Context) -> Result<Target, Failure> {
    context.to_read(annals::DEFAULT_SCOPE).await
}

/// Parses the id of the command line.
fn id(args: &Id) -> Result<Bson, Failure> {
    if !args.ejson {
        return Ok(Bson::String(args.id.clone()));
    }
    extended_value(&args.id).map_err(|message| Failure::new(Code::InvalidRecord, format!("the id: {message}")))
}

/// Returns the collection with the indexes of `--indexes`.
pub(super) fn declared(collection: &str, indexes: &str) -> Result<Collection, Failure> {
    // Parsed alone first, so that a syntax error is reported at its place in the text that was typed.
    let list = serde_json::from_str::<Vec<serde::de::IgnoredAny>>(indexes);
    list.map_err(|error| Failure::new(Code::NotJson, format!("--indexes is not a list in JSON: {error}")))?;
    let body = format!("{{\"indexes\":{indexes}}}");
    read_collection(collection, body.as_bytes(), Encoding::ExtendedJson).map_err(|error| at_flag("--indexes", error))
}

/// Refuses the names of system collections, as a server does.
fn not_of_the_system(collection: &str) -> Result<(), Failure> {
    if !is_system_collection(collection) {
        return Ok(());
    }
    let message = format!("{collection:?} is a system collection of Annals, which can only be read");
    Err(Failure::new(Code::SystemCollection, message))
}

impl Target {
    /// Returns the records of the tenant.
    pub fn records(&self) -> Result<Arc<dyn Records>, Failure> {
        self.port::<dyn Records>(|client| Arc::new(client.records()), |opened| opened.store.records(&self.tenant))
    }
}
