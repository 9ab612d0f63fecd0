//! `annals query`.

use clap::{Args, ValueEnum};

#[derive(Debug, Args)]
pub struct Query {
    /// The aggregates' name
    pub aggregate: String,
    /// What is asked
    #[arg(value_enum)]
    pub source: Source,
    /// How much of it
    #[arg(value_enum)]
    pub how: How,
    /// What must hold, typed: a condition as `annals record find --help` explains it; every document when absent
    #[arg(long = "where", value_name = "CONDITION", conflicts_with = "condition")]
    pub typed: Option<String>,
    /// What must hold, as JSON: {"field", "operator", "value"}, the condition of Wow's queries
    #[arg(long, value_name = "JSON")]
    pub condition: Option<String>,
    /// In what order, - for highest first; by the ids when absent
    #[arg(long, value_name = "FIELD,…", value_delimiter = ',', allow_hyphen_values = true)]
    pub sort: Vec<String>,
    /// Only these fields, and the id
    #[arg(long, value_name = "FIELD,…", value_delimiter = ',', conflicts_with = "without")]
    pub fields: Vec<String>,
    /// All fields but these
    #[arg(long, value_name = "FIELD,…", value_delimiter = ',')]
    pub without: Vec<String>,
    /// Most documents of a list; all when absent
    #[arg(long, value_name = "COUNT")]
    pub limit: Option<u64>,
    /// Which page, from 1 [default: 1]
    #[arg(long, value_name = "NUMBER")]
    pub page: Option<u64>,
    /// How many documents a page has [default: 10]
    #[arg(long, value_name = "COUNT")]
    pub size: Option<u64>,
    /// Print how they are found instead: by which index, and how much is read
    #[arg(long)]
    pub explain: bool,
}

/// What can be asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Source {
    /// The state of aggregates, as they were saved
    Snapshots,
    /// What happened
    Commits,
}

/// How much is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum How {
    /// The first
    Single,
    /// All, or --limit of them
    List,
    /// A page, and how many there are
    Paged,
    /// How many there are
    Count,
}
