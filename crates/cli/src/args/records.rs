//! `annals record …`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

#[derive(Debug, Subcommand)]
pub enum Record {
    /// Print the collections, each with its indexes
    #[command(after_help = "Example:\n  annals record list")]
    List,
    /// Declare a collection and indexes of it; what is there stays
    #[command(
        after_help = "An index is {\"name\", \"fields\": [{\"field\", \"direction\"}], \"unique\", \"hashed\", \"text\", \"sparse\", \"partial\", \"expires_after_seconds\"}; all but the fields may be left out. One with \"text\": true is for `match`: a collection has one, on all fields whose words are looked for, without directions. Indexes are not changed or dropped: for another one, declare another collection.\n\nExample:\n  annals record declare customers --indexes '[{\"fields\": [{\"field\": \"email\"}], \"unique\": true}]'"
    )]
    Declare(RecordDeclare),
    /// Print the record of an id
    #[command(after_help = "Example:\n  annals record get customers c-9\n  annals record get orders 7 --ejson")]
    Get(RecordGet),
    /// Print the records for which a condition holds
    #[command(
        after_help = "A condition is typed, or is JSON. Typed: FIELD TEST, joined by and, or, ( ) and nor(…, …). Tests: = != > >= < <= VALUE; contains, startsWith, endsWith TEXT [ignoreCase]; isIn, notIn, allIn, between [VALUE, …]; elemMatch (CONDITION); isNull notNull isTrue isFalse; exists [false]; today tomorrow thisWeek nextWeek lastWeek thisMonth lastMonth, recentDays and earlierDays DAYS, beforeToday '12:00', each [zone 'Europe/Berlin'] [pattern 'yyyy-MM-dd']. Of the whole document: id, ids, tenantId, ownerId, spaceId, deleted, match, raw. Texts stand in quotes.\n\nExample:\n  annals record find orders --condition \"total >= 100 and state isIn ['open', 'paid']\" --sort -total,_id --limit 10\n  annals record find orders --condition '{\"field\": \"total\", \"operator\": \"GTE\", \"value\": 100}'"
    )]
    Find(RecordFind),
    /// Print how a page of the same records is found: by which index, and how much was read
    #[command(after_help = "Example:\n  annals record explain orders --condition \"state = 'open'\" --sort -total")]
    Explain(RecordFind),
    /// Print how many records there are for which a condition holds
    #[command(after_help = "Example:\n  annals record count orders --condition \"state = 'open'\"")]
    Count(RecordCount),
    /// Insert documents that are not there yet: one by --document, or one a line
    #[command(
        after_help = "Documents are Extended JSON, with an _id. A refused line is reported and the others go on; the exit code is that of the first refusal.\n\nExample:\n  annals record insert orders --document '{\"_id\": \"o-1\", \"total\": 12.5}'\n  annals record insert orders < orders.jsonl"
    )]
    Insert(RecordInsert),
    /// Put documents in the place of those with the same _id, if they are as expected
    #[command(
        after_help = "Documents are Extended JSON. Without a flag the record must be there, whatever it holds.\n\nExample:\n  annals record replace orders --document '{\"_id\": \"o-1\", \"total\": 13}' --revision 7\n  annals record replace orders --or-insert < orders.jsonl"
    )]
    Replace(RecordReplace),
    /// Delete the record of an id, if it is as expected
    #[command(after_help = "Example:\n  annals record delete orders o-1 --revision 7")]
    Delete(RecordDelete),
    /// Print what has happened to records, and then what happens, until Ctrl-C
    #[command(
        after_help = "A store that this command opens has no other writer; use --server to see what others change.\n\nExample:\n  annals record watch orders --new --server http://127.0.0.1:4000"
    )]
    Watch(RecordWatch),
}

#[derive(Debug, Args)]
pub struct RecordDeclare {
    /// The collection
    pub collection: String,
    /// Indexes, as a JSON list
    #[arg(long, value_name = "JSON")]
    pub indexes: Option<String>,
}

#[derive(Debug, Args)]
pub struct RecordGet {
    /// The collection
    pub collection: String,
    #[command(flatten)]
    pub id: Id,
}

/// Which record is meant.
#[derive(Debug, Args)]
pub struct Id {
    /// The record's _id
    #[arg(allow_hyphen_values = true)]
    pub id: String,
    /// The id is Extended JSON, such as 7 or {"$oid": "…"}; without it, it is a text
    #[arg(long)]
    pub ejson: bool,
}

#[derive(Debug, Args)]
pub struct RecordFind {
    /// The collection
    pub collection: String,
    /// What must hold, typed or as JSON (`annals query` calls these --where and --condition); every record when absent
    #[arg(long, value_name = "CONDITION")]
    pub condition: Option<String>,
    /// In what order, - for highest first; by _id when absent
    #[arg(long, value_name = "FIELD,…", value_delimiter = ',', allow_hyphen_values = true)]
    pub sort: Vec<String>,
    /// Only these fields, and _id
    #[arg(long, value_name = "FIELD,…", value_delimiter = ',', conflicts_with = "exclude")]
    pub include: Vec<String>,
    /// All fields but these
    #[arg(long, value_name = "FIELD,…", value_delimiter = ',')]
    pub exclude: Vec<String>,
    /// Most records to print
    #[arg(long, value_name = "COUNT")]
    pub limit: Option<u64>,
}

#[derive(Debug, Args)]
pub struct RecordCount {
    /// The collection
    pub collection: String,
    /// What must hold, typed or as JSON (`annals query` calls these --where and --condition); every record when absent
    #[arg(long, value_name = "CONDITION")]
    pub condition: Option<String>,
}

/// Where documents come from.
#[derive(Debug, Args)]
pub struct Documents {
    /// The document, a JSON object
    #[arg(long, value_name = "JSON")]
    pub document: Option<String>,
    /// A file of documents, one a line; standard input when neither it nor --document is given
    #[arg(long, value_name = "FILE", conflicts_with = "document")]
    pub file: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub struct RecordInsert {
    /// The collection
    pub collection: String,
    #[command(flatten)]
    pub documents: Documents,
}

#[derive(Debug, Args)]
pub struct RecordReplace {
    /// The collection
    pub collection: String,
    #[command(flatten)]
    pub documents: Documents,
    #[command(flatten)]
    pub expectation: Expectation,
    /// Insert it where there is none
    #[arg(long, conflicts_with = "revision")]
    pub or_insert: bool,
}

#[derive(Debug, Args)]
pub struct RecordDelete {
    /// The collection
    pub collection: String,
    #[command(flatten)]
    pub id: Id,
    #[command(flatten)]
    pub expectation: Expectation,
}

/// What must be there.
#[derive(Debug, Args)]
pub struct Expectation {
    /// The record as this change left it
    #[arg(long, value_name = "NUMBER", conflicts_with = "matching")]
    pub revision: Option<u64>,
    /// A record for which this condition holds
    #[arg(long, value_name = "JSON")]
    pub matching: Option<String>,
}

#[derive(Debug, Args)]
pub struct RecordWatch {
    /// Only changes of this collection
    pub collection: Option<String>,
    /// Only changes after this number [default: 0]
    #[arg(long, value_name = "NUMBER")]
    pub after: Option<u64>,
    /// Only what comes from now on
    #[arg(long, conflicts_with = "after")]
    pub new: bool,
}
