//! Prints handlers, failing partitions and acts.

use annals::handlers::{ActEntry, HandlerStatus, PartitionStatus};
use serde_json::json;

use crate::cli::Format;
use crate::failure::Stop;
use crate::output::Output;

pub(super) fn print(output: &mut Output, status: &HandlerStatus) -> Result<(), Stop> {
    match output.format() {
        Format::Json => output.json(status),
        Format::Table => {
            output.head(format_args!(
                "{:<24}  {:<8}  {:>12}  {:>10}  {:>8}  {:>8}  REASON",
                "NAME", "STATE", "POSITION", "LAG", "FAILING", "PARKED"
            ))?;
            let state = json!(status.state);
            output.text(format_args!(
                "{:<24}  {:<8}  {:>12}  {:>10}  {:>8}  {:>8}  {}",
                status.name,
                state.as_str().unwrap_or_default(),
                status.position,
                status.lag,
                status.failing,
                status.parked,
                status.degraded.as_deref().or(status.last_reason.as_deref()).unwrap_or("-")
            ))
        }
    }
}

pub(in crate::commands) fn print_partition(output: &mut Output, failing: &PartitionStatus) -> Result<(), Stop> {
    match output.format() {
        Format::Json => output.json(failing),
        Format::Table => {
            output.head(format_args!(
                "{:<32}  {:>10}  {:>8}  {:<24}  REASON",
                "PARTITION", "NUMBER", "ATTEMPTS", "RETRY_AT"
            ))?;
            let retry_at = failing.retry_at.map_or_else(|| "-".to_owned(), |at| at.to_string());
            output.text(format_args!(
                "{:<32}  {:>10}  {:>8}  {:<24}  {}",
                failing.partition, failing.sequence_number, failing.attempts, retry_at, failing.reason
            ))
        }
    }
}

pub(in crate::commands) fn print_act(output: &mut Output, act: &ActEntry) -> Result<(), Stop> {
    match output.format() {
        Format::Json => output.json(act),
        Format::Table => {
            output.head(format_args!("{:<24}  {:<8}  {:<32}  {:<16}  REASON", "AT", "ACT", "ON", "BY"))?;
            let on = match (&act.partition, act.from, act.to) {
                (Some(partition), ..) => partition.to_string(),
                (None, Some(from), Some(to)) => format!("{from} to {to}"),
                _ => "-".to_owned(),
            };
            let (at, by) = (act.at.to_string(), act.by.as_deref().unwrap_or("-"));
            output.text(format_args!("{at:<24}  {:<8}  {on:<32}  {by:<16}  {}", act.act, act.reason))
        }
    }
}
