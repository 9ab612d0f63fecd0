//! How a query finds its records: the index it uses and what it reads.

/// What a store read for one page. A document counts once for each time that it is read and evaluated.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Explained {
    /// The index that was used, `_id_` for the ids; several with commas between them; `None` if all documents were read.
    pub index: Option<String>,
    /// The number of index entries that were read. The embedded store keeps documents in the order of their ids, so `_id_` has no entries
    /// there.
    pub entries_examined: u64,
    /// The number of documents that were read and evaluated.
    pub documents_examined: u64,
    /// The number of records on the page.
    pub found: u64,
    /// Whether the results had to be sorted: all of them, or those that are equal in the first fields of the sort.
    pub sorted: bool,
}
