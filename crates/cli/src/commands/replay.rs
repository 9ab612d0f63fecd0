//! `annals replay …`.

use std::sync::Arc;

use annals::handlers::Reason;
use annals::replays::{
    OnError, OnOutage, PreviewBody, ReplayAct, ReplayBody, ReplayOrder, ReplayState, ReplayStatus, ReplayTarget,
    Replays,
};
use annals::{ByteString, Clock, Code, SystemClock};
use clap::{Args, Subcommand, ValueEnum};

use super::Run;
use super::events::{Selection, print as print_event};
use crate::cli::Format;
use crate::context::{Context, Reaches};
use crate::failure::{Failure, Stop};
use crate::output::Output;
use crate::progress::Progress;
use crate::target::Target;

/// Send events of the log again
#[derive(Debug, Args)]
pub struct Replay {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Create a replay, which sends nothing until it is started
    #[command(after_help = "Example:\n  annals replay create --type order_placed --to handler:billing --dry-run\n  \
                            annals replay create --type order_placed --to handler:billing --start")]
    Create(Box<Create>),
    /// Start a replay
    #[command(after_help = "Example:\n  annals replay start 019c2f4e-7a41-7000-8000-1d1c3f4a5b6c --wait")]
    Start(Start),
    /// Pause a replay
    #[command(
        after_help = "Example:\n  annals replay pause 019c2f4e-7a41-7000-8000-1d1c3f4a5b6c --reason 'peak hours'"
    )]
    Pause(Acted),
    /// Resume a replay with its next event
    #[command(after_help = "Example:\n  annals replay resume 019c2f4e-7a41-7000-8000-1d1c3f4a5b6c")]
    Resume(Start),
    /// Cancel a replay
    #[command(
        after_help = "Example:\n  annals replay cancel 019c2f4e-7a41-7000-8000-1d1c3f4a5b6c --reason 'wrong filter'"
    )]
    Cancel(Acted),
    /// List replays, newest first
    #[command(after_help = "Example:\n  annals replay list --output table")]
    List,
    /// Print the state of a replay
    #[command(after_help = "Example:\n  annals replay get 019c2f4e-7a41-7000-8000-1d1c3f4a5b6c")]
    Get(Named),
    /// Remove replays that ended long ago
    #[command(after_help = "Example:\n  annals replay remove --older-than-hours 48 --dry-run")]
    Remove(Remove),
}

#[derive(Debug, Args)]
struct Create {
    #[command(flatten)]
    selection: Selection,
    /// handler:NAME, topic, topic:NAME, webhook:URL, file:NAME or test
    #[arg(long, value_name = "TARGET", value_parser = target)]
    to: ReplayTarget,
    /// The order of the events
    #[arg(long, value_enum, default_value_t = Order::Timestamp)]
    order: Order,
    /// The speed relative to the times of the events, 0.1 to 100; as fast as possible when absent
    #[arg(long, value_name = "NUMBER")]
    speed: Option<f64>,
    /// The maximum number of events per second
    #[arg(long, value_name = "NUMBER")]
    rate: Option<f64>,
    /// The maximum number of events to send before the position is stored
    #[arg(long, value_name = "NUMBER", default_value_t = 100)]
    batch_size: u32,
    /// The maximum number of events to send
    #[arg(long, value_name = "NUMBER")]
    max_events: Option<u64>,
    /// Stop after the first event that cannot be sent
    #[arg(long)]
    stop_on_error: bool,
    /// The number of retries of an event that could not be sent
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    retries: u32,
    /// What happens while the target of a webhook is down; `wait` unless `--retries` or `--stop-on-error` is given
    #[arg(long, value_enum)]
    outage: Option<Outage>,
    /// Send every event with the time at which it is sent, instead of its own
    #[arg(long)]
    current_timestamps: bool,
    /// Only print what would be sent
    #[arg(long, conflicts_with = "start")]
    dry_run: bool,
    /// Start it immediately, and wait until it ends; exit code 3 if it fails or is cancelled
    #[arg(long)]
    start: bool,
    #[command(flatten)]
    why: Why,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Order {
    Timestamp,
    SequenceNumber,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Outage {
    /// Wait until the target responds, then send the event
    Wait,
    /// Count the event as one that could not be sent
    Fail,
}

fn target(text: &str) -> Result<ReplayTarget, String> {
    let (kind, name) = text.split_once(':').map_or((text, None), |(kind, name)| (kind, Some(name)));
    match (kind, name) {
        ("test", None) => Ok(ReplayTarget::Test {}),
        ("handler", Some(name)) => Ok(ReplayTarget::Handler { name: name.into() }),
        ("topic", name) => Ok(ReplayTarget::Topic { name: name.map(ByteString::from), topics: Default::default() }),
        ("webhook", Some(url)) => Ok(ReplayTarget::Webhook { url: url.to_owned() }),
        ("file", Some(name)) => Ok(ReplayTarget::File { name: name.to_owned() }),
        _ => Err("is not a target; use handler:NAME, topic, topic:NAME, webhook:URL, file:NAME or test".to_owned()),
    }
}

#[derive(Debug, Args)]
struct Named {
    /// The replay's id
    id: String,
}

#[derive(Debug, Args)]
struct Start {
    /// The replay's id
    id: String,
    /// Wait until it ends; exit code 3 if it fails or is cancelled
    #[arg(long)]
    wait: bool,
    #[command(flatten)]
    why: Why,
}

#[derive(Debug, Args)]
struct Acted {
    /// The replay's id
    id: String,
    #[command(flatten)]
    why: crate::why::Why,
}

#[derive(Debug, Args)]
struct Remove {
    /// Only replays that ended more than this many hours ago
    #[arg(long, value_name = "HOURS", default_value_t = 24)]
    older_than_hours: u32,
    /// Only print the replays that would be removed
    #[arg(long)]
    dry_run: bool,
}

#[derive(Debug, Args)]
struct Why {
    /// The reason, for the record
    #[arg(long, value_name = "TEXT", default_value = "from the command line")]
    reason: String,
    /// The user who acts, for the record
    #[arg(long, value_name = "NAME")]
    by: Option<String>,
}

impl Why {
    fn reason(&self) -> Reason {
        Reason { reason: self.reason.clone(), by: self.by.clone() }
    }
}

impl Run for Replay {
    const REACHES: Reaches = Reaches::ServerOrStore;

    async fn run(&self, context: &Context) -> Result<(), Stop> {
        let target = match &self.what {
            What::Create(_) => context.to_write().await?,
            _ => context.to_write_existing().await?,
        };
        target
            .run(async |target| {
                let mut output = context.output();
                self.work(target, &mut output).await?;
                output.flush()
            })
            .await
    }
}

impl Replay {
    async fn work(&self, target: &Target, output: &mut Output) -> Result<(), Stop> {
        let replays = target.replays()?;
        let replays = &*replays;
        // A replay that this process started ends with it, so the process waits.
        let waits = |wait: bool| wait || !target.is_remote();
        match &self.what {
            What::Create(args) => create(replays, args, output).await,
            What::Start(args) => {
                let status = replays.act(&args.id, ReplayAct::Start, args.why.reason()).await?;
                print_when(replays, status, waits(args.wait), output).await
            }
            What::Resume(args) => {
                let status = replays.act(&args.id, ReplayAct::Resume, args.why.reason()).await?;
                print_when(replays, status, waits(args.wait), output).await
            }
            What::Pause(args) => act(replays, args, ReplayAct::Pause, output).await,
            What::Cancel(args) => act(replays, args, ReplayAct::Cancel, output).await,
            What::List => list(replays, |_| true, output).await,
            What::Get(args) => output.json(&replays.get(&args.id).await?),
            What::Remove(args) if args.dry_run => {
                let before = SystemClock.now().as_millis() - i64::from(args.older_than_hours) * 3_600_000;
                let is_old = |it: &ReplayStatus| it.completed_at.is_some_and(|at| at.as_millis() < before);
                list(replays, |it| it.status.is_terminal() && is_old(it), output).await
            }
            What::Remove(args) => {
                let removed = replays.clean_up(args.older_than_hours).await?;
                output.json(&serde_json::json!({ "removed": removed }))
            }
        }
    }
}

async fn act(replays: &dyn Replays, args: &Acted, act: ReplayAct, output: &mut Output) -> Result<(), Stop> {
    output.json(&replays.act(&args.id, act, args.why.reason()).await?)
}

async fn create(replays: &dyn Replays, args: &Create, output: &mut Output) -> Result<(), Stop> {
    let filter = args.selection.filter();
    if args.dry_run {
        let preview = PreviewBody { filter, target: args.to.clone(), max_events: args.max_events };
        let preview = replays.preview(preview).await?;
        return match output.format() {
            Format::Json => output.json(&preview),
            Format::Table => {
                output.text(format_args!("{} events would be sent to {}", preview.count, args.to.kind()))?;
                preview.first.iter().try_for_each(|it| print_event(output, it))
            }
        };
    }
    let body = ReplayBody {
        order: match args.order {
            Order::Timestamp => ReplayOrder::Timestamp,
            Order::SequenceNumber => ReplayOrder::SequenceNumber,
        },
        speed: args.speed,
        batch_size: args.batch_size,
        max_events: args.max_events,
        rate: args.rate,
        on_error: if args.stop_on_error { OnError::Stop } else { OnError::Skip },
        retry_attempts: args.retries,
        outage: args.outage.map(|outage| match outage {
            Outage::Wait => OnOutage::Wait,
            Outage::Fail => OnOutage::Fail,
        }),
        preserve_timestamps: !args.current_timestamps,
        reason: Some(args.why.reason.clone()),
        by: args.why.by.clone(),
        ..ReplayBody::new(filter, args.to.clone())
    };
    let mut status = replays.create(body).await?;
    if args.start {
        status = replays.act(&status.session_id, ReplayAct::Start, args.why.reason()).await?;
    }
    print_when(replays, status, args.start, output).await
}

/// The advice for a replay that was waited for and has not sent everything.
const ENDED: &str = "`errors` in its state lists the events that could not be sent. A replay that has ended cannot be resumed; create another one for the rest.";

/// Prints the state of a replay, at once or when it is over. If it was waited for and did not complete, that is a failure.
async fn print_when(
    replays: &dyn Replays,
    mut status: ReplayStatus,
    waits: bool,
    output: &mut Output,
) -> Result<(), Stop> {
    let bar = Progress::of_events();
    while waits && !status.status.is_terminal() {
        status = replays.changed(&status.session_id, Some(&status)).await?;
        bar.reach(status.replayed + status.failed + status.skipped, status.total);
    }
    drop(bar);
    output.json(&status)?;
    if !waits || status.status == ReplayState::Completed {
        return Ok(());
    }
    output.flush()?;
    let why = status.error.as_deref().map(|error| format!(": {error}")).unwrap_or_default();
    let message = format!("replay {} ended with the state {}{why}", status.session_id, status.status.name());
    Err(Failure::new(Code::StateConflict, message).advise(ENDED).into())
}

/// Prints the replays that `wanted` selects.
async fn list(replays: &dyn Replays, wanted: impl Fn(&ReplayStatus) -> bool, output: &mut Output) -> Result<(), Stop> {
    let mut cursor: Option<ByteString> = None;
    loop {
        let page = replays.list(None, cursor.as_deref(), 1_000).await?;
        for it in page.items.iter().filter(|it| wanted(it)) {
            match output.format() {
                Format::Json => output.json(it)?,
                Format::Table => {
                    output.head(format_args!(
                        "{:<36}  {:<10}  {:>10}  {:>10}  CREATED",
                        "ID", "STATE", "SENT", "TOTAL"
                    ))?;
                    let (id, state, created) = (&it.session_id, it.status.name(), it.created_at);
                    output.text(format_args!(
                        "{id:<36}  {state:<10}  {:>10}  {:>10}  {created}",
                        it.replayed, it.total
                    ))?;
                }
            }
        }
        cursor = page.cursor;
        if cursor.is_none() {
            return Ok(());
        }
    }
}

impl Target {
    /// Returns the replays of the tenant.
    pub fn replays(&self) -> Result<Arc<dyn Replays>, Failure> {
        self.port::<dyn Replays>(
            |client| Arc::new(client.replays()),
            |opened| {
                opened.host.start_defined();
                opened.host.replays(&self.tenant)
            },
        )
    }
}
