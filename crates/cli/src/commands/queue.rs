//! `annals queue …`.

mod shown;

use std::sync::Arc;

use annals::handlers::Reason;
use annals::queue::{
    ItemRef, ItemResult, ItemState, ItemsBody, ItemsQuery, NewItem, PriorityBody, QueueBody, QueueError, QueuePriority,
    Queues, RenewBody, TakeBody,
};
use annals::{ByteString, Code};
use clap::{Args, Subcommand, ValueEnum};

use super::Run;
use crate::context::{Context, Reaches};
use crate::failure::{Failure, Stop};
use crate::output::Output;
use crate::target::Target;
use crate::why::Why;

/// Define and operate work queues, and enqueue, take and settle their items
#[derive(Debug, Args)]
pub struct Queue {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Define a queue, or change its definition
    #[command(
        after_help = "Settings that are left out have their defaults.\n\nExample:\n  annals queue put executions --cap 10"
    )]
    Put(Put),
    /// List queues with the numbers of their items
    #[command(after_help = "Example:\n  annals queue list --output table")]
    List,
    /// Print a queue with the numbers and the history of its items
    #[command(after_help = "Example:\n  annals queue stats executions")]
    Stats(Named),
    /// List the items of a queue, oldest first
    #[command(after_help = "Example:\n  annals queue items executions --state active --output table")]
    Items(Items),
    /// Delete a queue with its items
    #[command(after_help = "Example:\n  annals queue delete executions --reason 'nothing runs any more'")]
    Delete(Operate),
    /// Add an item, unless its id is pending or active
    #[command(
        after_help = "Example:\n  annals queue enqueue executions x-1 --priority high --user eva --payload '{\"script\":\"print(1)\"}'"
    )]
    Enqueue(Enqueue),
    /// Take items, with leases
    #[command(after_help = "Example:\n  annals queue take executions --max 3 --lease-ms 60000 --worker worker-1")]
    Take(Take),
    /// Extend the lease of an item that was taken
    #[command(after_help = "Example:\n  annals queue renew executions x-1 --token TOKEN --lease-ms 60000")]
    Renew(Renew),
    /// Remove an item whose work is done
    #[command(
        after_help = "Without --token, the current hand-out is completed, of whichever worker. It has no effect if the item does not exist.\n\nExample:\n  annals queue done executions x-1 --token TOKEN"
    )]
    Done(Settle),
    /// Return an item to the queue, with its age
    #[command(
        after_help = "A worker passes the token that came with the item. An operator passes a reason, which releases the item whichever worker has it; an unknown id is refused.\n\nExample:\n  annals queue release executions x-1 --token TOKEN\n  annals queue release executions x-1 --reason 'its worker hangs'"
    )]
    Release(Release),
    /// Change the priority of an item; its age is kept
    #[command(
        after_help = "Example:\n  annals queue prioritise executions x-1 critical --reason 'a customer waits for it'"
    )]
    Prioritise(Prioritise),
    /// Remove an item, pending or active
    #[command(after_help = "Example:\n  annals queue cancel executions x-1 --reason 'nobody waits for it'")]
    Cancel(Cancel),
}

#[derive(Debug, Args)]
struct Named {
    /// The queue's name
    queue: String,
}

#[derive(Debug, Args)]
struct Put {
    /// The queue's name
    queue: String,
    /// The maximum number of active items [default: 10]
    #[arg(long, value_name = "COUNT")]
    cap: Option<u32>,
    /// Whether users of one priority are served in turn [default: true]
    #[arg(long, value_name = "BOOL")]
    fair: Option<bool>,
    /// How long the oldest item waits before its priority is served out of turn, in milliseconds; 0 for never [default: 60000]
    #[arg(long, value_name = "MS")]
    ageing_ms: Option<u64>,
    /// The default length of a lease, in milliseconds [default: 30000]
    #[arg(long, value_name = "MS")]
    lease_ms: Option<u64>,
    /// The maximum number of pending items [default: 10000]
    #[arg(long, value_name = "COUNT")]
    pending_max: Option<u32>,
    /// The maximum number of pending items of one user; 0 for no limit [default: 0]
    #[arg(long, value_name = "COUNT")]
    pending_max_per_user: Option<u32>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum State {
    Pending,
    Active,
}

#[derive(Debug, Args)]
struct Items {
    /// The queue's name
    queue: String,
    /// Only items in this state: pending or active
    #[arg(long)]
    state: Option<State>,
    /// Only the items of this user
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
}

#[derive(Debug, Args)]
struct Operate {
    /// The queue's name
    queue: String,
    #[command(flatten)]
    why: Why,
}

#[derive(Debug, Args)]
struct Enqueue {
    /// The queue's name
    queue: String,
    /// The item's id, unique among the pending and active items of the queue
    id: String,
    /// critical, high, normal, low or background
    #[arg(long, default_value = "normal")]
    priority: String,
    /// The user whose work it is, for fair shares
    #[arg(long, value_name = "NAME", default_value = "")]
    user: String,
    /// The payload for the worker, as JSON
    #[arg(long, value_name = "JSON", default_value = "null")]
    payload: String,
}

#[derive(Debug, Args)]
struct Take {
    /// The queue's name
    queue: String,
    /// The maximum number of items
    #[arg(long, value_name = "COUNT", default_value_t = 1)]
    max: usize,
    /// The length of the leases, in milliseconds; the queue's default when absent
    #[arg(long, value_name = "MS")]
    lease_ms: Option<u64>,
    /// The name of the worker, for people
    #[arg(long, value_name = "NAME", default_value = "annals")]
    worker: String,
}

#[derive(Debug, Args)]
struct Settle {
    /// The queue's name
    queue: String,
    /// The item's id
    id: String,
    /// The token that came with the item
    #[arg(long, value_name = "TOKEN")]
    token: Option<String>,
}

#[derive(Debug, Args)]
struct Renew {
    #[command(flatten)]
    settle: Settle,
    /// The new length of the lease from now, in milliseconds; the queue's default when absent
    #[arg(long, value_name = "MS")]
    lease_ms: Option<u64>,
}

#[derive(Debug, Args)]
struct Release {
    #[command(flatten)]
    settle: Settle,
    /// The reason of an operator for releasing it, for the record
    #[arg(long, value_name = "TEXT", conflicts_with = "token")]
    reason: Option<String>,
    /// The user who acts, for the record
    #[arg(long, value_name = "NAME", requires = "reason")]
    by: Option<String>,
}

#[derive(Debug, Args)]
struct Prioritise {
    /// The queue's name
    queue: String,
    /// The item's id
    id: String,
    /// critical, high, normal, low or background
    priority: String,
    #[command(flatten)]
    why: Why,
}

#[derive(Debug, Args)]
struct Cancel {
    /// The queue's name
    queue: String,
    /// The item's id
    id: String,
    #[command(flatten)]
    why: Why,
}

impl Settle {
    fn reference(&self) -> ItemRef {
        ItemRef { id: (&*self.id).into(), token: self.token.as_deref().map(Into::into) }
    }

    fn body(&self) -> ItemsBody {
        ItemsBody::of([self.reference()])
    }
}

impl Release {
    /// Releases the item as its worker, or as an operator if a reason is given.
    async fn released(&self, queues: &dyn Queues) -> Result<Vec<ItemResult>, QueueError> {
        let Settle { queue, id, .. } = &self.settle;
        match self.reason.clone() {
            Some(reason) => {
                let reason = Reason { reason, by: self.by.clone() };
                Ok(vec![queues.release_item(queue, id, reason).await?])
            }
            None => queues.release(queue, self.settle.body()).await,
        }
    }
}

impl Run for Queue {
    const REACHES: Reaches = Reaches::ServerOrStore;

    async fn run(&self, context: &Context) -> Result<(), Stop> {
        let reads = matches!(self.what, What::List | What::Stats(_) | What::Items(_));
        let work = async |target: &Target, output: &mut Output| self.work(&*target.queues()?, output).await;
        if reads { context.reading(annals::DEFAULT_SCOPE, work).await } else { context.writing(work).await }
    }
}

impl Queue {
    async fn work(&self, queues: &dyn Queues, output: &mut Output) -> Result<(), Stop> {
        match &self.what {
            What::Put(args) => {
                queues.put(args.body().of(&args.queue)).await?;
                output.json(&queues.get(&args.queue).await?)
            }
            What::List => shown::list(queues, output).await,
            What::Stats(args) => output.json(&queues.get(&args.queue).await?),
            What::Items(args) => shown::items(queues, output, &args.queue, args.query()).await,
            What::Delete(args) => {
                queues.delete(&args.queue, args.why.reason()).await?;
                output.json(&serde_json::json!({ "deleted": true }))
            }
            What::Enqueue(args) => output.json(&queues.enqueue(&args.queue, args.item()?).await?),
            What::Take(args) => {
                let take = TakeBody { max: args.max, lease_ms: args.lease_ms, worker: (&*args.worker).into() };
                output.json(&queues.take(&args.queue, take).await?)
            }
            What::Renew(Renew { settle, lease_ms }) => {
                let renew = RenewBody { items: vec![settle.reference()], lease_ms: *lease_ms, ..RenewBody::default() };
                settled(queues.renew(&settle.queue, renew).await?, &settle.queue, output)
            }
            What::Done(args) => settled(queues.done(&args.queue, args.body()).await?, &args.queue, output),
            What::Release(args) => settled(args.released(queues).await?, &args.settle.queue, output),
            What::Prioritise(args) => {
                let Reason { reason, by } = args.why.reason();
                let body = PriorityBody { priority: priority(&args.priority)?, reason: Some(reason), by };
                output.json(&queues.prioritise(&args.queue, &args.id, body).await?)
            }
            What::Cancel(args) => output.json(&queues.cancel(&args.queue, &args.id, args.why.reason()).await?),
        }
    }
}

/// Prints the outcome for the one item that was named. A lost lease is a failure.
fn settled(results: Vec<ItemResult>, queue: &str, output: &mut Output) -> Result<(), Stop> {
    for result in results {
        if !result.accepted {
            let id = &result.id;
            let message = format!(
                "the lease on item {id:?} of queue {queue:?} is lost: it has ended, or another worker has the item; stop working on it"
            );
            return Err(Failure::new(Code::StateConflict, message).into());
        }
        output.json(&result)?;
    }
    Ok(())
}

impl Put {
    fn body(&self) -> QueueBody {
        QueueBody {
            cap: self.cap,
            fair: self.fair,
            ageing_ms: self.ageing_ms,
            lease_ms: self.lease_ms,
            pending_max: self.pending_max,
            pending_max_per_user: self.pending_max_per_user,
        }
    }
}

impl Items {
    fn query(&self) -> ItemsQuery {
        let state = self.state.map(|state| match state {
            State::Pending => ItemState::Pending,
            State::Active => ItemState::Active,
        });
        ItemsQuery { state, user: self.user.as_deref().map(ByteString::from), after: None, limit: 1_000 }
    }
}

impl Enqueue {
    fn item(&self) -> Result<NewItem, Failure> {
        let wrong = |error: serde_json::Error| Failure::new(Code::NotJson, format!("--payload is not JSON: {error}"));
        let payload = serde_json::from_str(&self.payload).map_err(wrong)?;
        Ok(NewItem { id: (&*self.id).into(), priority: priority(&self.priority)?, user: (&*self.user).into(), payload })
    }
}

fn priority(name: &str) -> Result<QueuePriority, Failure> {
    QueuePriority::from_name(name).ok_or_else(|| {
        let known = QueuePriority::ALL.map(QueuePriority::as_str).join(", ");
        Failure::new(Code::InvalidBody, format!("{name:?} is not a priority; use {known}"))
    })
}

impl Target {
    /// Returns the work queues of the tenant.
    pub fn queues(&self) -> Result<Arc<dyn Queues>, Failure> {
        self.port::<dyn Queues>(|client| Arc::new(client.queues()), |opened| opened.host.queues(&self.tenant))
    }
}
