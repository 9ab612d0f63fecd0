//! How a query finds its records.

/// What a store looked at for one page. A document counts once for each time that it is read to be judged.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Explained {
    /// The index by which records were looked up, `_id_` for their ids; none when all documents were read.
    pub index: Option<String>,
    /// Entries of that index that were read. On the embedded store documents stand in the order of their ids, and `_id_` has none.
    pub entries_examined: u64,
    /// Documents that were read and judged.
    pub documents_examined: u64,
    /// Records of the page.
    pub found: u64,
    /// What was found had to be sorted, all of it or what is equal in the first fields of the sort.
    pub sorted: bool,
}
