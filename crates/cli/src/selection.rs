//! The flags that select documents, shared by `annals query` and `annals record`: which documents, in what order, which fields, how many.

use annals::wire::records::{Encoding, read_condition};
use annals::{Condition, DocumentKind, Invalid, Now, Projection, Timestamp};
use clap::Args;

use crate::failure::Failure;

/// Which documents are wanted.
#[derive(Debug, Args)]
pub struct Matching {
    /// The condition to match, typed or as JSON; every document when absent. `annals record find --help` explains both forms
    #[arg(long = "where", value_name = "CONDITION", conflicts_with = "condition")]
    pub typed: Option<String>,
    /// The same as --where
    #[arg(long, value_name = "CONDITION")]
    pub condition: Option<String>,
}

/// Which documents are wanted, in what order, and how much of them.
#[derive(Debug, Args)]
pub struct Selection {
    #[command(flatten)]
    pub matching: Matching,
    /// The fields to sort by, with - before a field for descending order; by id when absent
    #[arg(long, value_name = "FIELD,…", value_delimiter = ',', allow_hyphen_values = true)]
    pub sort: Vec<String>,
    /// Print only these fields and the id
    #[arg(long, alias = "include", value_name = "FIELD,…", value_delimiter = ',', conflicts_with = "without")]
    pub fields: Vec<String>,
    /// Print all fields but these
    #[arg(long, alias = "exclude", value_name = "FIELD,…", value_delimiter = ',')]
    pub without: Vec<String>,
    /// The maximum number of documents to print; all when absent
    #[arg(long, value_name = "COUNT")]
    pub limit: Option<u64>,
}

impl Matching {
    /// Parses the condition of the flags. Without one, every document matches.
    pub fn condition(&self) -> Result<Condition, Failure> {
        match &self.typed {
            Some(typed) => condition("--where", Some(typed)),
            None => condition("--condition", self.condition.as_deref()),
        }
    }
}

impl Selection {
    /// Returns the fields to sort by, each with whether it is descending.
    pub fn sort(&self) -> impl Iterator<Item = (&str, bool)> {
        self.sort.iter().map(|field| match field.strip_prefix('-') {
            Some(field) => (field, true),
            None => (field.as_str(), false),
        })
    }

    /// Returns the fields to print.
    pub fn projection(&self) -> Projection {
        match (&self.fields[..], &self.without[..]) {
            ([], []) => Projection::Whole,
            (fields, []) => Projection::Only(fields.to_vec()),
            (_, without) => Projection::Without(without.to_vec()),
        }
    }
}

/// Parses the condition of a flag, typed or as JSON. Without one, every document matches.
pub fn condition(flag: &str, text: Option<&str>) -> Result<Condition, Failure> {
    let Some(text) = text else { return Ok(Condition::All) };
    let read = match text.trim_start().starts_with('{') {
        true => read_condition(format!("{{\"condition\":{text}}}").as_bytes(), Encoding::ExtendedJson),
        false => Condition::parse(text),
    };
    let read = read.map_err(|error| at_flag(flag, error))?;
    read.resolved(DocumentKind::Record, &any_time())?.validate()?;
    Ok(read)
}

/// Returns a time for validating windows of time. Their validity does not depend on it, and the store resolves them.
pub fn any_time() -> Now {
    Now::utc(Timestamp::from_millis(0))
}

/// Returns the same refusal, naming the flag.
pub fn at_flag(flag: &str, error: Invalid) -> Failure {
    Failure::new(error.code, format!("{flag}: {}", Failure::from(error.clone()).message))
}
