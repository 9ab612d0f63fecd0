//! Standard output: JSON lines for programs, columns for people. Both are written item by item, so nothing accumulates.

mod records;

use std::io::{self, BufWriter, IsTerminal, Stdout, Write};

use annals::wire::{CommitAnswer, CommitView, EventView, StreamEventView};
use annals::{Aggregate, KnownAggregate, RecordedCommit, RecordedEvent, StreamEvent, StreamInfo};

use crate::cli::Format;
use crate::failure::{Failure, Stop, written};
use crate::printable;
use crate::target::Target;

/// The writer of results.
pub struct Output {
    format: Format,
    out: BufWriter<Stdout>,
    headed: bool,
}

impl Output {
    /// Uses the requested format; by default, a table on a terminal and JSON elsewhere.
    pub fn new(format: Option<Format>) -> Self {
        let usual = if io::stdout().is_terminal() { Format::Table } else { Format::Json };
        Self { format: format.unwrap_or(usual), out: BufWriter::new(io::stdout()), headed: false }
    }

    pub fn format(&self) -> Format {
        self.format
    }

    /// Prints the items of all pages. `page` reads the page after a cursor, and returns its items and the next cursor.
    pub async fn pages<T, C>(
        &mut self,
        mut page: impl AsyncFnMut(Option<C>) -> Result<(Vec<T>, Option<C>), Stop>,
        mut print: impl FnMut(&mut Self, &T) -> Result<(), Stop>,
    ) -> Result<(), Stop> {
        let mut after = None;
        loop {
            let (items, next) = page(after).await?;
            items.iter().try_for_each(|item| print(self, item))?;
            if next.is_none() {
                return Ok(());
            }
            after = next;
        }
    }

    /// Prints the items of pages up to a limit. `page` reads the page after a cursor, with at most the given number of items.
    pub async fn limited<T, C>(
        &mut self,
        limit: u64,
        mut page: impl AsyncFnMut(Option<C>, usize) -> Result<(Vec<T>, Option<C>), Stop>,
        mut print: impl FnMut(&mut Self, &T) -> Result<(), Stop>,
    ) -> Result<(), Stop> {
        let (mut after, mut left) = (None, limit);
        while left > 0 {
            let (items, next) = page(after, usize::try_from(left).unwrap_or(1_000).min(1_000)).await?;
            items.iter().try_for_each(|item| print(self, item))?;
            left = left.saturating_sub(items.len() as u64);
            if next.is_none() {
                return Ok(());
            }
            after = next;
        }
        Ok(())
    }

    /// Reports a deletion. In a table, the line is `done`.
    pub fn deleted(&mut self, done: &str) -> Result<(), Stop> {
        match self.format {
            Format::Json => self.json(&serde_json::json!({ "deleted": true })),
            Format::Table => self.text(format_args!("{done}")),
        }
    }

    /// Writes what is still buffered.
    pub fn flush(&mut self) -> Result<(), Stop> {
        written(self.out.flush())
    }

    pub fn event(&mut self, event: &RecordedEvent, target: &Target) -> Result<(), Stop> {
        match self.format {
            Format::Json => self.json(&EventView { event, tenant: &target.tenant, scope: &target.scope }),
            Format::Table => {
                self.head(format_args!("{:>10}  {:<24}  {:<24}  {:<28}  DATA", "NUMBER", "TIME", "TYPE", "AGGREGATE"))?;
                let aggregate = format!("{} v{}", event.commit.aggregate, event.commit.version);
                self.text(format_args!(
                    "{:>10}  {:<24}  {:<24}  {:<28}  {:?}",
                    event.sequence_number, event.time, event.event_type, aggregate, event.data
                ))
            }
        }
    }

    /// Returns an event as it is printed within another document.
    pub fn event_value(&self, event: &RecordedEvent, target: &Target) -> serde_json::Value {
        // A stored event always serialises.
        serde_json::to_value(EventView { event, tenant: &target.tenant, scope: &target.scope }).unwrap_or_default()
    }

    pub fn commit(&mut self, commit: &RecordedCommit, target: &Target) -> Result<(), Stop> {
        match self.format {
            Format::Json => self.json(&CommitView { commit, tenant: &target.tenant, scope: &target.scope }),
            Format::Table => {
                self.head(format_args!("{:>8}  {:<24}  {:>10}  {:<24}  DATA", "VERSION", "TIME", "NUMBER", "TYPE"))?;
                for event in &commit.events {
                    self.text(format_args!(
                        "{:>8}  {:<24}  {:>10}  {:<24}  {:?}",
                        commit.info.version, event.time, event.sequence_number, event.event_type, event.data
                    ))?;
                }
                Ok(())
            }
        }
    }

    pub fn answer(&mut self, aggregate: &Aggregate, answer: &CommitAnswer) -> Result<(), Stop> {
        match self.format {
            Format::Json => self.json(answer),
            Format::Table => {
                self.head(format_args!(
                    "{:<28}  {:>8}  {:>10}  {:>7}  OUTCOME",
                    "AGGREGATE", "VERSION", "NUMBER", "EVENTS"
                ))?;
                let number = answer.events.first().and_then(|event| event.sequence_number);
                let number = number.map_or_else(|| "-".to_owned(), |number| number.to_string());
                self.text(format_args!(
                    "{:<28}  {:>8}  {:>10}  {:>7}  {}",
                    aggregate.to_string(),
                    answer.version,
                    number,
                    answer.events.len(),
                    if answer.duplicate { "duplicate" } else { "committed" }
                ))
            }
        }
    }

    pub fn aggregate(&mut self, known: &KnownAggregate) -> Result<(), Stop> {
        match self.format {
            Format::Json => self.json(&serde_json::json!({ "id": known.id, "tenant_id": known.tenant_id })),
            Format::Table => {
                self.head(format_args!("{:<40}  TENANT_ID", "ID"))?;
                self.text(format_args!("{:<40}  {}", known.id, known.tenant_id))
            }
        }
    }

    pub fn stream(&mut self, info: &StreamInfo) -> Result<(), Stop> {
        match self.format {
            Format::Json => self.json(info),
            Format::Table => {
                self.head(format_args!("{:<40}  {:>12}  {:>12}", "NAME", "HEAD", "PROGRESS"))?;
                self.text(format_args!("{:<40}  {:>12}  {:>12}", info.name, info.head, info.progress))
            }
        }
    }

    pub fn stream_event(&mut self, event: &StreamEvent, target: &Target) -> Result<(), Stop> {
        match self.format {
            Format::Json => self.json(&StreamEventView { event, tenant: &target.tenant, scope: &target.scope }),
            Format::Table => {
                self.head(format_args!(
                    "{:>10}  {:<24}  {:>10}  {:<24}  {:<24}  DATA",
                    "POSITION", "PARTITION", "NUMBER", "TIME", "TYPE"
                ))?;
                let (partition, at) = (event.partition.as_deref().unwrap_or("-"), &event.event);
                self.text(format_args!(
                    "{:>10}  {:<24}  {:>10}  {:<24}  {:<24}  {:?}",
                    event.position, partition, at.sequence_number, at.time, at.event_type, at.data
                ))
            }
        }
    }

    /// Writes one JSON document on a line.
    pub fn json(&mut self, value: &impl serde::Serialize) -> Result<(), Stop> {
        match serde_json::to_writer(&mut self.out, value) {
            Ok(()) => written(self.out.write_all(b"\n")),
            Err(error) if error.is_io() => written(Err(error.into())),
            Err(error) => Err(Failure::internal(format!("a result cannot be written as JSON: {error}")).into()),
        }
    }

    /// Writes one line of text. Control characters in it are printed as escapes.
    pub fn text(&mut self, line: std::fmt::Arguments<'_>) -> Result<(), Stop> {
        self.verbatim(&printable::line(&line.to_string()))
    }

    /// Writes a line as it is, for a program that reads it.
    pub fn verbatim(&mut self, line: &str) -> Result<(), Stop> {
        written(writeln!(self.out, "{line}"))
    }

    pub fn head(&mut self, line: std::fmt::Arguments<'_>) -> Result<(), Stop> {
        if std::mem::replace(&mut self.headed, true) { Ok(()) } else { self.text(line) }
    }
}
