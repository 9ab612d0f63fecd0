//! Prints records and the outcomes of writing them.

use annals::bson::{Bson, RawDocumentBuf};
use annals::wire::queries::write_paged;
use annals::wire::records as wire;
use annals::{
    Collection, DocumentView, Explained, Group, GroupQuery, Invalid, Paged, Record, RecordedChange, Revision,
};

use super::Output;
use crate::cli::Format;
use crate::failure::Stop;

impl Output {
    pub fn record(&mut self, record: &Record) -> Result<(), Stop> {
        match self.format {
            Format::Json => self.document(&wire::record(record)),
            Format::Table => {
                self.head(format_args!("{:>10}  {:<24}  DOCUMENT", "REVISION", "ID"))?;
                let id = record.document.get("_id").ok().flatten().and_then(|id| Bson::try_from(id).ok());
                let document = serde_json::to_string(&DocumentView(&record.document)).unwrap_or_default();
                self.text(format_args!("{:>10}  {:<24}  {document}", record.revision, text(id.unwrap_or(Bson::Null))))
            }
        }
    }

    /// Prints the id and the revision of a record that was written.
    pub fn written(&mut self, id: Bson, revision: Revision) -> Result<(), Stop> {
        match self.format {
            Format::Json => {
                let id = id.into_relaxed_extjson();
                self.json(&serde_json::json!({ "id": id, "revision": revision }))
            }
            Format::Table => {
                self.head(format_args!("{:>10}  ID", "REVISION"))?;
                self.text(format_args!("{revision:>10}  {}", text(id)))
            }
        }
    }

    pub fn collection(&mut self, collection: &Collection) -> Result<(), Stop> {
        match self.format {
            Format::Json => self.document(&made(wire::collection(collection))?),
            Format::Table => {
                self.head(format_args!("{:<40}  INDEXES", "NAME"))?;
                let indexes: Vec<_> = collection.indexes.iter().map(annals::Index::name).collect();
                self.text(format_args!("{:<40}  {}", collection.name, indexes.join(", ")))
            }
        }
    }

    pub fn count(&mut self, count: u64) -> Result<(), Stop> {
        match self.format {
            Format::Json => self.document(&wire::count(count)),
            Format::Table => self.text(format_args!("{count}")),
        }
    }

    pub fn group(&mut self, query: &GroupQuery, group: &Group) -> Result<(), Stop> {
        match self.format {
            Format::Json => self.document(&made(wire::group(query, group))?),
            Format::Table => {
                let names: String = query.figures.iter().map(|figure| format!("  {:>16}", figure.name)).collect();
                self.head(format_args!("{:<32}  {:>10}{names}", "KEY", "COUNT"))?;
                let figures: String = group.figures.iter().map(|one| format!("  {:>16}", text(one.clone()))).collect();
                self.text(format_args!("{:<32}  {:>10}{figures}", text(group.key.clone()), group.count))
            }
        }
    }

    pub fn explained(&mut self, explained: &Explained) -> Result<(), Stop> {
        match self.format {
            Format::Json => self.document(&wire::explained(explained)),
            Format::Table => {
                self.text(format_args!("index               {}", explained.index.as_deref().unwrap_or("-")))?;
                self.text(format_args!("entries examined    {}", explained.entries_examined))?;
                self.text(format_args!("documents examined  {}", explained.documents_examined))?;
                self.text(format_args!("found               {}", explained.found))?;
                self.text(format_args!("sorted              {}", if explained.sorted { "yes" } else { "no" }))
            }
        }
    }

    pub fn change(&mut self, change: &RecordedChange) -> Result<(), Stop> {
        match self.format {
            Format::Json => self.document(&made(wire::change(change))?),
            Format::Table => {
                self.head(format_args!("{:>10}  {:<24}  {:<9}  ID", "NUMBER", "COLLECTION", "WHAT"))?;
                let what = format!("{:?}", change.what).to_lowercase();
                let id = text(change.id.clone());
                self.text(format_args!("{:>10}  {:<24}  {what:<9}  {id}", change.number, change.collection))
            }
        }
    }

    /// Prints a document that a query found.
    pub fn queried(&mut self, document: &RawDocumentBuf) -> Result<(), Stop> {
        match self.format {
            Format::Json => self.document(document),
            Format::Table => {
                self.head(format_args!("{:<24}  {:>8}  DOCUMENT", "AGGREGATE", "VERSION"))?;
                let id = document.get_str("aggregateId").unwrap_or("-");
                let version = document.get("version").ok().flatten().and_then(|version| Bson::try_from(version).ok());
                let version = version.map_or_else(|| "-".to_owned(), text);
                let shown = serde_json::to_string(&DocumentView(document)).unwrap_or_default();
                self.text(format_args!("{id:<24}  {version:>8}  {shown}"))
            }
        }
    }

    /// Prints a page of a query's documents.
    pub fn queried_page(&mut self, page: &Paged<RawDocumentBuf>) -> Result<(), Stop> {
        match self.format {
            Format::Json => self.document(&write_paged(page)),
            Format::Table => {
                page.list.iter().try_for_each(|document| self.queried(document))?;
                self.text(format_args!("{} of {}", page.list.len(), page.total))
            }
        }
    }

    fn document(&mut self, document: &RawDocumentBuf) -> Result<(), Stop> {
        self.json(&DocumentView(document))
    }
}

fn made(document: Result<RawDocumentBuf, Invalid>) -> Result<RawDocumentBuf, Stop> {
    Ok(document?)
}

/// Returns an id in its form for people: a text has no quotes.
fn text(id: Bson) -> String {
    match id {
        Bson::String(text) => text,
        other => other.into_relaxed_extjson().to_string(),
    }
}
