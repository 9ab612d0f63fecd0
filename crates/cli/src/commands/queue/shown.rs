//! Prints queues and their items.

use annals::ByteString;
use annals::queue::{ItemState, ItemStatus, ItemsQuery, QueueStatus, Queues};

use crate::cli::Format;
use crate::failure::Stop;
use crate::output::Output;

/// Prints every queue.
pub(super) async fn list(queues: &dyn Queues, output: &mut Output) -> Result<(), Stop> {
    let page = async |after: Option<ByteString>| {
        let page = queues.list(after.as_deref(), 1_000).await?;
        Ok((page.items, page.cursor))
    };
    output.pages(page, self::queue).await
}

/// Prints every item that a query selects.
pub(super) async fn items(
    queues: &dyn Queues,
    output: &mut Output,
    queue: &str,
    query: ItemsQuery,
) -> Result<(), Stop> {
    let page = async |after: Option<ByteString>| {
        let page = queues.items(queue, ItemsQuery { after, ..query.clone() }).await?;
        Ok((page.items, page.cursor))
    };
    output.pages(page, item).await
}

fn queue(output: &mut Output, it: &QueueStatus) -> Result<(), Stop> {
    match output.format() {
        Format::Json => output.json(it),
        Format::Table => {
            let columns = ["ACTIVE", "CAP", "PENDING", "OLDEST", "LOST"];
            let [active, cap, pending, oldest, lost] = columns;
            output
                .head(format_args!("{:<32}  {active:>8}  {cap:>6}  {pending:>8}  {oldest:>10}  {lost:>8}", "NAME"))?;
            let pending: u64 = it.counts.pending.highest_first().iter().sum();
            let oldest = format!("{} s", it.oldest_seconds);
            output.text(format_args!(
                "{:<32}  {:>8}  {:>6}  {pending:>8}  {oldest:>10}  {:>8}",
                it.definition.name, it.counts.active, it.definition.cap, it.counts.lost_total
            ))
        }
    }
}

fn item(output: &mut Output, it: &ItemStatus) -> Result<(), Stop> {
    match output.format() {
        Format::Json => output.json(it),
        Format::Table => {
            output.head(format_args!(
                "{:<36}  {:<8}  {:<10}  {:<16}  {:<24}  {:>7}  WORKER",
                "ID", "STATE", "PRIORITY", "USER", "ENQUEUED", "ATTEMPT"
            ))?;
            let state = if it.state == ItemState::Active { "active" } else { "pending" };
            let user = if it.user.is_empty() { "-" } else { &*it.user };
            let (enqueued, worker) = (it.enqueued_at.to_string(), it.worker.as_deref().unwrap_or("-"));
            output.text(format_args!(
                "{:<36}  {state:<8}  {:<10}  {user:<16}  {enqueued:<24}  {:>7}  {worker}",
                it.id,
                it.priority.as_str(),
                it.attempt
            ))
        }
    }
}
