//! `annals events archive|delete|restore`.

use annals::archive::Archive;
use annals::browse::{BrowseQuery, EventSummary};
use annals::handlers::Reason;
use clap::Args;

use super::{Selection, Why, print};
use crate::cli::Format;
use crate::failure::Stop;
use crate::output::Output;

/// Which archived events.
#[derive(Debug, Args)]
pub struct Archived {
    #[command(flatten)]
    selection: Selection,
    /// List the files of the archive instead of events
    #[arg(long)]
    files: bool,
    /// Most events or files
    #[arg(long, value_name = "NUMBER", default_value_t = 100)]
    limit: u64,
}

/// An event, and why it is deleted.
#[derive(Debug, Args)]
pub struct Delete {
    /// The event's id
    id: String,
    /// Print the event that would be deleted, and delete nothing
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    why: Why,
}

/// An event, and why it is restored.
#[derive(Debug, Args)]
pub struct Restore {
    /// The event's id
    id: String,
    #[command(flatten)]
    why: Why,
}

fn reason(why: &Why) -> Reason {
    Reason { reason: why.reason.clone(), by: why.by.clone() }
}

/// How long the next page is.
fn page(left: u64) -> usize {
    usize::try_from(left).unwrap_or(1_000).min(1_000)
}

impl Archived {
    pub async fn list(&self, archive: &dyn Archive, output: &mut Output) -> Result<(), Stop> {
        match self.files {
            true => self.files(archive, output).await,
            false => self.events(archive, output).await,
        }
    }

    async fn events(&self, archive: &dyn Archive, output: &mut Output) -> Result<(), Stop> {
        let mut query = BrowseQuery { filter: self.selection.filter(), ..BrowseQuery::default() };
        let mut left = self.limit;
        while left > 0 {
            query.limit = page(left);
            let found = archive.page(query.clone()).await?;
            left -= (found.items.len() as u64).min(left);
            for event in &found.items {
                match output.format() {
                    Format::Json => output.json(event)?,
                    Format::Table => print(output, &summed(event))?,
                }
            }
            query.cursor = found.cursor;
            if query.cursor.is_none() {
                break;
            }
        }
        Ok(())
    }

    async fn files(&self, archive: &dyn Archive, output: &mut Output) -> Result<(), Stop> {
        let (mut after, mut left) = (None::<String>, self.limit);
        while left > 0 {
            let found = archive.files(after.as_deref(), page(left)).await?;
            left -= (found.items.len() as u64).min(left);
            for file in &found.items {
                output.json(file)?;
            }
            after = found.cursor;
            if after.is_none() {
                break;
            }
        }
        Ok(())
    }
}

/// An event of the archive in a few words.
fn summed(event: &serde_json::Value) -> EventSummary {
    serde_json::from_value(event.clone()).unwrap_or_else(|_| EventSummary {
        event_id: event["document"]["event_id"].as_str().unwrap_or("-").to_owned(),
        event_type: "-".to_owned(),
        timestamp: None,
        aggregate_id: None,
        sequence_number: None,
    })
}

impl Delete {
    pub async fn run(
        &self,
        archive: &dyn Archive,
        browse: &dyn annals::browse::Browse,
        output: &mut Output,
    ) -> Result<(), Stop> {
        match self.dry_run {
            true => output.json(&browse.event(&self.id).await?.event),
            false => output.json(&archive.delete(&self.id, reason(&self.why)).await?),
        }
    }
}

impl Restore {
    pub async fn run(&self, archive: &dyn Archive, output: &mut Output) -> Result<(), Stop> {
        output.json(&archive.restore(&self.id, reason(&self.why)).await?)
    }
}
