//! `annals events …`.

mod archive;

use std::sync::Arc;

use annals::Timestamp;
use annals::archive::Archive;
use annals::browse::{
    Browse, BrowseError, BrowseQuery, BrowseSort, CSV_HEADER, EventSummary, ExportFormat, ReplayFilter,
    StatisticsQuery, ViewBody, ViewSwitch, shown,
};
use annals::bson::Document;
use annals::handlers::Reason;
use clap::{Args, Subcommand, ValueEnum};

use super::Run;
use crate::cli::Format;
use crate::context::{Context, Reaches};
use crate::failure::{Failure, Stop};
use crate::output::Output;
use crate::progress::Progress;
use crate::target::Target;
use crate::why::Why;

/// Browse events, count them, and export them
#[derive(Debug, Args)]
pub struct Events {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// List events, newest first
    #[command(
        after_help = "Example:\n  annals events list --type order_placed,order_paid --since 2026-03-01T00:00:00Z"
    )]
    List(Box<List>),
    /// Print an event and other events of its aggregate
    #[command(after_help = "Example:\n  annals events get 019c2f4e-7a41-7000-8000-1d1c3f4a5b6c")]
    Get(Named),
    /// Count the events of the last hours
    #[command(after_help = "Example:\n  annals events statistics --hours 24")]
    Statistics(Hours),
    /// Print all events that match a filter, as CSV or JSON lines
    #[command(after_help = "Example:\n  annals events export --format csv --user-id ada > events.csv")]
    Export(Box<Export>),
    /// List archived events, newest first
    #[command(after_help = "Example:\n  annals events archive --type order_placed\n  annals events archive --files")]
    Archive(Box<archive::Archived>),
    /// Move an event from the browse view into the archive
    #[command(
        after_help = "Example:\n  annals events delete 019c2f4e-7a41-7000-8000-1d1c3f4a5b6c --reason 'a test' --dry-run"
    )]
    Delete(archive::Delete),
    /// Put an archived event back into the browse view
    #[command(
        after_help = "Example:\n  annals events restore 019c2f4e-7a41-7000-8000-1d1c3f4a5b6c --reason 'still needed'"
    )]
    Restore(archive::Restore),
    /// Print the state of the browse view
    #[command(after_help = "Example:\n  annals events view")]
    View,
    /// Switch the browse view on or off, or change its retention
    #[command(
        after_help = "Example:\n  annals events set-view --state on --retention-days 30 --reason 'less disk'\n  \
                      annals events set-view --state off --reason 'less disk' --dry-run"
    )]
    SetView(SetView),
    /// Rebuild the browse view from the log, beside the live one
    #[command(after_help = "Example:\n  annals events rebuild --reason 'after a restore'")]
    Rebuild(Why),
}

/// Which events.
#[derive(Debug, Args)]
pub struct Selection {
    /// Events with this id; may be repeated
    #[arg(long = "event-id", value_name = "ID")]
    event_ids: Vec<String>,
    /// Events of these types, separated by commas
    #[arg(long = "type", value_name = "TYPES", value_delimiter = ',')]
    types: Vec<String>,
    /// No events of these types, separated by commas
    #[arg(long = "exclude-type", value_name = "TYPES", value_delimiter = ',')]
    exclude_types: Vec<String>,
    /// Events of the aggregates with this id
    #[arg(long, value_name = "ID")]
    aggregate_id: Option<String>,
    /// Events whose data names this execution
    #[arg(long, value_name = "ID")]
    execution_id: Option<String>,
    /// Events of this user
    #[arg(long, value_name = "ID")]
    user_id: Option<String>,
    /// Events of this service
    #[arg(long, value_name = "NAME")]
    service: Option<String>,
    /// Events that happened at this time or later
    #[arg(long, value_name = "TIME", value_parser = Timestamp::parse)]
    since: Option<Timestamp>,
    /// Events that happened at this time or earlier
    #[arg(long, value_name = "TIME", value_parser = Timestamp::parse)]
    until: Option<Timestamp>,
}

impl Selection {
    /// Returns the filter that the flags describe.
    pub fn filter(&self) -> ReplayFilter {
        let list = |values: &Vec<String>| (!values.is_empty()).then(|| values.clone());
        ReplayFilter {
            event_ids: list(&self.event_ids),
            execution_id: self.execution_id.clone(),
            aggregate_id: self.aggregate_id.clone(),
            event_types: list(&self.types),
            exclude_event_types: list(&self.exclude_types),
            start_time: self.since,
            end_time: self.until,
            user_id: self.user_id.clone(),
            service_name: self.service.clone(),
        }
    }
}

#[derive(Debug, Args)]
struct List {
    #[command(flatten)]
    selection: Selection,
    /// Events whose type, service, user or execution contains at least one of these words
    #[arg(long, value_name = "WORDS")]
    search: Option<String>,
    /// The field to sort by: timestamp, sequence_number, event_type, aggregate_id or stored_at; with - before it for descending order
    #[arg(long, value_name = "FIELD", allow_hyphen_values = true, value_parser = sort)]
    sort: Option<BrowseSort>,
    /// The maximum number of events
    #[arg(long, value_name = "NUMBER", default_value_t = 100)]
    limit: u64,
}

fn sort(text: &str) -> Result<BrowseSort, String> {
    BrowseSort::parse(text).map_err(|error| error.to_string())
}

#[derive(Debug, Args)]
struct Named {
    /// The event's id
    id: String,
}

#[derive(Debug, Args)]
struct Hours {
    /// The number of hours before now, 1 to 168
    #[arg(long, value_name = "NUMBER", default_value_t = 24)]
    hours: u32,
    /// The event types that count as errors, separated by commas
    #[arg(long, value_name = "TYPES", value_delimiter = ',')]
    failure_types: Vec<String>,
}

#[derive(Debug, Args)]
struct Export {
    #[command(flatten)]
    selection: Selection,
    /// Events whose type, service, user or execution contains at least one of these words
    #[arg(long, value_name = "WORDS")]
    search: Option<String>,
    /// The format of the rows
    #[arg(long, value_enum, default_value_t = Rows::Jsonl)]
    format: Rows,
    /// The maximum number of events to print; all when absent
    #[arg(long, value_name = "NUMBER")]
    limit: Option<u64>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Rows {
    Csv,
    Jsonl,
}

#[derive(Debug, Args)]
struct SetView {
    /// Whether the view is built: always, never, or once it is first used
    #[arg(long, value_enum)]
    state: Option<Switch>,
    /// The number of days for which it keeps an event, or `forever`
    #[arg(long, value_name = "DAYS", value_parser = days)]
    retention_days: Option<Days>,
    /// The event types that it excludes, separated by commas; an empty string for none
    #[arg(long, value_name = "TYPES")]
    off_types: Option<String>,
    /// Change nothing, and print how many events would be removed from the view; for a new retention, use
    /// `annals retention set --dry-run`
    #[arg(long, conflicts_with = "retention_days")]
    dry_run: bool,
    #[command(flatten)]
    why: Why,
}

impl SetView {
    fn off_types(&self) -> Option<Vec<String>> {
        let names = |text: &String| text.split(',').filter(|it| !it.is_empty()).map(str::to_owned).collect();
        self.off_types.as_ref().map(names)
    }

    /// Returns how many events would leave the view. Like the change itself, this is refused if a hold protects events in it.
    async fn would_leave(&self, browse: &dyn Browse, archive: &dyn Archive) -> Result<u64, Stop> {
        let view = browse.view().await?;
        // A view that does not exist has no events, and reading it would build it.
        if view.collection.is_none() {
            return Ok(0);
        }
        let mut types = self.off_types().unwrap_or_default();
        types.retain(|it| !view.off_types.contains(it));
        let (act, filter) = match self.state {
            Some(Switch::Off) => ("switch off", ReplayFilter::default()),
            _ if types.is_empty() => return Ok(0),
            _ => ("exclude an event type from", ReplayFilter { event_types: Some(types), ..ReplayFilter::default() }),
        };
        if let Some(hold) = archive.holds(None, 1).await?.items.first() {
            let state = format!("hold {:?} protects events in it", hold.name);
            return Err(BrowseError::NotAllowed { act: act.to_owned(), state }.into());
        }
        Ok(browse.page(BrowseQuery { filter, limit: 1, ..BrowseQuery::default() }).await?.total)
    }
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Switch {
    Auto,
    On,
    Off,
}

/// A number of days; `None` means forever.
#[derive(Debug, Clone, Copy)]
pub struct Days(pub Option<u32>);

/// Parses a number of days, or `forever`.
pub fn days(text: &str) -> Result<Days, String> {
    match text {
        "forever" => Ok(Days(None)),
        text => {
            text.parse().map(|days| Days(Some(days))).map_err(|_| "is neither a number of days nor `forever`".into())
        }
    }
}

impl Run for Events {
    const REACHES: Reaches = Reaches::ServerOrStore;

    async fn run(&self, context: &Context) -> Result<(), Stop> {
        // The first request for the view builds it in the store.
        let work = async |target: &Target, output: &mut Output| self.work(target, output).await;
        match &self.what {
            What::SetView(args) if !args.dry_run => context.writing(work).await,
            _ => context.writing_existing(work).await,
        }
    }
}

impl Events {
    async fn work(&self, target: &Target, output: &mut Output) -> Result<(), Stop> {
        let browse = &*target.browse()?;
        match &self.what {
            What::Archive(args) => args.list(&*target.archive()?, output).await,
            What::Delete(args) => args.run(&*target.archive()?, browse, output).await,
            What::Restore(args) => args.run(&*target.archive()?, output).await,
            What::List(args) => list(browse, args, output).await,
            What::Get(args) => output.json(&browse.event(&args.id).await?),
            What::Statistics(args) => {
                let failure_types = (!args.failure_types.is_empty()).then(|| args.failure_types.clone());
                output.json(&browse.statistics(StatisticsQuery { hours: args.hours, failure_types }).await?)
            }
            What::Export(args) => export(browse, args, output).await,
            What::View => output.json(&browse.view().await?),
            What::SetView(args) if args.dry_run => {
                let would_leave = args.would_leave(browse, &*target.archive()?).await?;
                output.json(&serde_json::json!({ "would_leave": would_leave }))
            }
            What::SetView(args) => {
                let state = args.state.map(|state| match state {
                    Switch::Auto => ViewSwitch::Auto,
                    Switch::On => ViewSwitch::On,
                    Switch::Off => ViewSwitch::Off,
                });
                let Reason { reason, by } = args.why.reason();
                let retention_days = args.retention_days.map(|days| days.0);
                let body = ViewBody { state, retention_days, off_types: args.off_types(), reason, by };
                output.json(&browse.set_view(body).await?)
            }
            What::Rebuild(why) => output.json(&browse.rebuild(why.reason()).await?),
        }
    }
}

async fn list(browse: &dyn Browse, args: &List, output: &mut Output) -> Result<(), Stop> {
    let query = BrowseQuery {
        filter: args.selection.filter(),
        search: args.search.clone(),
        sort: args.sort.unwrap_or_default(),
        ..BrowseQuery::default()
    };
    let page = async |cursor, limit| {
        let (rows, next) = browse.rows(BrowseQuery { cursor, limit, ..query.clone() }).await?;
        let rows = rows.iter().map(|row| Document::try_from(&**row).unwrap_or_default());
        Ok((rows.collect::<Vec<_>>(), next))
    };
    let row = |output: &mut Output, row: &_| match output.format() {
        Format::Json => output.json(&shown(row)),
        Format::Table => print(output, &EventSummary::of(row)),
    };
    output.limited(args.limit, page, row).await
}

/// Prints an event as a row of a table.
pub fn print(output: &mut Output, it: &EventSummary) -> Result<(), Stop> {
    output.head(format_args!("{:<36}  {:<28}  {:<24}  AGGREGATE", "ID", "TYPE", "TIME"))?;
    let time = it.timestamp.map(|time| time.to_string()).unwrap_or_default();
    let aggregate = it.aggregate_id.as_deref().unwrap_or("-");
    output.text(format_args!("{:<36}  {:<28}  {time:<24}  {aggregate}", it.event_id, it.event_type))
}

async fn export(browse: &dyn Browse, args: &Export, output: &mut Output) -> Result<(), Stop> {
    let format = match args.format {
        Rows::Csv => ExportFormat::Csv,
        Rows::Jsonl => ExportFormat::JsonLines,
    };
    let mut query = BrowseQuery {
        filter: args.selection.filter(),
        search: args.search.clone(),
        limit: 1,
        ..BrowseQuery::default()
    };
    let all = browse.page(query.clone()).await?.total.min(args.limit.unwrap_or(u64::MAX));
    let bar = Progress::of_events();
    let mut done = 0;
    if matches!(args.format, Rows::Csv) {
        output.verbatim(CSV_HEADER.trim_end_matches('\n'))?;
    }
    while args.limit.is_none_or(|limit| done < limit) {
        let left = args.limit.map_or(u64::MAX, |limit| limit - done);
        query.limit = usize::try_from(left).unwrap_or(1_000).min(1_000);
        let (rows, cursor) = browse.rows(query.clone()).await?;
        for row in &rows {
            output.verbatim(format.row(row).trim_end_matches('\n'))?;
        }
        done += rows.len() as u64;
        bar.reach(done, all.max(done));
        query.cursor = cursor;
        if query.cursor.is_none() {
            break;
        }
    }
    Ok(())
}

impl Target {
    /// Returns the browse view of the tenant.
    pub fn browse(&self) -> Result<Arc<dyn Browse>, Failure> {
        self.port::<dyn Browse>(
            |client| Arc::new(client.browse()),
            |opened| {
                opened.host.start_defined();
                opened.host.browse(&self.tenant)
            },
        )
    }
}
