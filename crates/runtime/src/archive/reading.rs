//! Reading the archive.

use annals_core::archive::{
    ArchiveError, ArchiveFile, ArchiveFilePage, ArchiveFileRecord, ArchivePage, EVENTS_ARCHIVE, shown_archived,
};
use annals_core::browse::BrowseQuery;
use annals_core::bson::Document;
use annals_core::{Code, Condition, Invalid, RecordError, RecordQuery, TypedRecords};

use super::TenantArchive;
use crate::browse::paging::{Found, asked};

impl TenantArchive {
    async fn find_archived(&self, query: RecordQuery) -> Result<Found<Document>, RecordError> {
        let page = match self.records.find(query).await {
            Err(RecordError::UnknownCollection(_)) => return Ok((Vec::new(), None)),
            page => page?,
        };
        // A document that cannot be read is shown as an empty one, which is marked as damaged.
        let documents = page.records.iter().map(|it| Document::try_from(&*it.document).unwrap_or_default());
        Ok((documents.collect(), page.next))
    }

    pub(super) async fn archived_page(&self, query: BrowseQuery) -> Result<ArchivePage, ArchiveError> {
        query.validate()?;
        if query.search.is_some() {
            let message = "is a parameter of the browse view only, because the archive has no text index; leave it out";
            return Err(Invalid::new(Code::InvalidQuery, "search", message).into());
        }
        let (found, next) = asked(&query, EVENTS_ARCHIVE, |query| self.find_archived(query)).await?;
        let at_most = query.count_up_to.unwrap_or(u64::MAX);
        let counted = match self.records.count_up_to(EVENTS_ARCHIVE, &query.condition(), at_most).await {
            Err(RecordError::UnknownCollection(_)) => 0,
            counted => counted?,
        };
        Ok(ArchivePage {
            items: found.iter().map(shown_archived).collect(),
            // Count at least what is on the page.
            total: counted.max(query.skip.min(counted) + found.len() as u64),
            total_is_bound: counted == at_most,
            has_more: next.is_some(),
            cursor: next.map(|cursor| cursor.to_string()),
        })
    }

    pub(super) async fn listed_files(
        &self,
        after: Option<&str>,
        limit: usize,
    ) -> Result<ArchiveFilePage, ArchiveError> {
        let condition = after.map_or(Condition::All, |after| Condition::gt("_id", after));
        let query = TypedRecords::<ArchiveFileRecord>::query().matching(condition).limit(limit);
        let (found, next) = match self.file_records().find(query).await {
            Err(RecordError::UnknownCollection(_)) => (Vec::new(), None),
            found => found?,
        };
        let items: Vec<_> = found.iter().map(|found| ArchiveFile::of(&found.value)).collect();
        let cursor = items.last().filter(|_| next.is_some()).map(|last| last.path.clone());
        Ok(ArchiveFilePage { items, cursor })
    }
}
