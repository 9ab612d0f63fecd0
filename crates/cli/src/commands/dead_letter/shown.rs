//! Prints dead letters, their statistics and their policies.

use annals::dead_letters::{LetterView, PolicyStatus, Statistics};
use serde_json::json;

use crate::cli::Format;
use crate::failure::Stop;
use crate::output::Output;

pub(super) fn print(output: &mut Output, letter: &LetterView) -> Result<(), Stop> {
    match output.format() {
        Format::Json => output.json(letter),
        Format::Table => {
            output.head(format_args!(
                "{:<36}  {:<10}  {:<24}  {:>7}  {:<24}  ERROR",
                "ID", "STATUS", "TOPIC", "RETRIES", "NEXT_RETRY"
            ))?;
            let next = letter.next_retry_at.map_or_else(|| "-".to_owned(), |at| at.to_string());
            output.text(format_args!(
                "{:<36}  {:<10}  {:<24}  {:>7}  {next:<24}  {}",
                letter.id,
                letter.status.name(),
                letter.original_topic,
                letter.retry_count,
                letter.last_error.as_deref().unwrap_or(&letter.error)
            ))
        }
    }
}

pub(super) fn print_statistics(output: &mut Output, statistics: &Statistics) -> Result<(), Stop> {
    match output.format() {
        Format::Json => output.json(statistics),
        Format::Table => {
            output.head(format_args!(
                "{:<32}  {:>8}  {:>8}  {:>9}  {:>8}  {:>9}  {:>11}",
                "TOPIC", "TOTAL", "PENDING", "SCHEDULED", "RETRIED", "DISCARDED", "AVG_RETRIES"
            ))?;
            for topic in &statistics.topics {
                let of = |status: &str| topic.status_breakdown.get(status).copied().unwrap_or(0);
                output.text(format_args!(
                    "{:<32}  {:>8}  {:>8}  {:>9}  {:>8}  {:>9}  {:>11.2}",
                    topic.topic,
                    topic.total_messages,
                    of("pending"),
                    of("scheduled"),
                    of("retried"),
                    of("discarded"),
                    topic.avg_retry_count
                ))?;
            }
            let (open, level) = (statistics.open, statistics.level.name());
            output.text(format_args!("{:<32}  {open:>8}  open, {level}", ""))
        }
    }
}

pub(super) fn print_policy(output: &mut Output, status: &PolicyStatus) -> Result<(), Stop> {
    match output.format() {
        Format::Json => output.json(status),
        Format::Table => {
            output.head(format_args!(
                "{:<32}  {:<12}  {:<20}  {:>7}  {:>10}  {:>10}  FACTOR",
                "TOPIC", "CATEGORY", "STRATEGY", "RETRIES", "FIRST_MS", "LONGEST_MS"
            ))?;
            let (policy, strategy) = (&status.policy, json!(status.policy.strategy));
            output.text(format_args!(
                "{:<32}  {:<12}  {:<20}  {:>7}  {:>10}  {:>10}  {}",
                status.topic,
                if status.is_override { "(its own)" } else { &status.category },
                strategy.as_str().unwrap_or_default(),
                policy.max_retries,
                policy.base_delay_ms,
                policy.max_delay_ms,
                policy.multiplier
            ))
        }
    }
}
