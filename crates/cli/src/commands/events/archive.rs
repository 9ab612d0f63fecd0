//! `annals events archive|delete|restore`.

use annals::archive::{Archive, ArchiveError};
use annals::browse::{Browse, BrowseQuery, EventSummary, ReplayFilter};
use clap::Args;

use super::{Selection, print};
use crate::cli::Format;
use crate::failure::Stop;
use crate::output::Output;
use crate::why::Why;

/// Which archived events.
#[derive(Debug, Args)]
pub struct Archived {
    #[command(flatten)]
    selection: Selection,
    /// List the files of the archive instead of events
    #[arg(long)]
    files: bool,
    /// The maximum number of events or files to print
    #[arg(long, value_name = "NUMBER", default_value_t = 100)]
    limit: u64,
}

/// An event, and why it is deleted.
#[derive(Debug, Args)]
pub struct Delete {
    /// The event's id
    id: String,
    /// Print the event without deleting it; refused, like the deletion, if a hold protects the event
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

impl Archived {
    pub async fn list(&self, archive: &dyn Archive, output: &mut Output) -> Result<(), Stop> {
        match self.files {
            true => self.files(archive, output).await,
            false => self.events(archive, output).await,
        }
    }

    async fn events(&self, archive: &dyn Archive, output: &mut Output) -> Result<(), Stop> {
        let query = BrowseQuery { filter: self.selection.filter(), ..BrowseQuery::default() };
        let page = async |cursor, limit| {
            let page = archive.page(BrowseQuery { cursor, limit, ..query.clone() }).await?;
            Ok((page.items, page.cursor))
        };
        let event = |output: &mut Output, event: &_| match output.format() {
            Format::Json => output.json(event),
            Format::Table => print(output, &summed(event)),
        };
        output.limited(self.limit, page, event).await
    }

    async fn files(&self, archive: &dyn Archive, output: &mut Output) -> Result<(), Stop> {
        let page = async |after: Option<String>, limit| {
            let page = archive.files(after.as_deref(), limit).await?;
            Ok((page.items, page.cursor))
        };
        output.limited(self.limit, page, Output::json).await
    }
}

/// Summarises an event of the archive.
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
    pub async fn run(&self, archive: &dyn Archive, browse: &dyn Browse, output: &mut Output) -> Result<(), Stop> {
        match self.dry_run {
            true => {
                let found = browse.event(&self.id).await?;
                if let Some(hold) = self.held_by(archive, browse).await? {
                    let (act, what) = ("delete".to_owned(), format!("event {:?}", self.id));
                    return Err(
                        ArchiveError::NotAllowed { act, what, state: format!("hold {hold:?} protects it") }.into()
                    );
                }
                output.json(&found.event)
            }
            false => output.json(&archive.delete(&self.id, self.why.reason()).await?),
        }
    }

    /// Returns the name of a hold that protects the event, if there is one.
    async fn held_by(&self, archive: &dyn Archive, browse: &dyn Browse) -> Result<Option<String>, Stop> {
        let mut after: Option<String> = None;
        loop {
            let page = archive.holds(after.as_deref(), 1_000).await?;
            for hold in page.items {
                if hold.filter.event_ids.as_ref().is_some_and(|ids| !ids.contains(&self.id)) {
                    continue;
                }
                let filter = ReplayFilter { event_ids: Some(vec![self.id.clone()]), ..hold.filter };
                let query = BrowseQuery { filter, limit: 1, ..BrowseQuery::default() };
                if !browse.page(query).await?.items.is_empty() {
                    return Ok(Some(hold.name));
                }
            }
            after = page.cursor;
            if after.is_none() {
                return Ok(None);
            }
        }
    }
}

impl Restore {
    pub async fn run(&self, archive: &dyn Archive, output: &mut Output) -> Result<(), Stop> {
        output.json(&archive.restore(&self.id, self.why.reason()).await?)
    }
}
