//! Rows of an export. A spreadsheet never interprets a cell as a formula.

use std::fmt::Write;

use bson::raw::RawDocument;

use super::ShownDocument;
use crate::{Code, Invalid, Timestamp};

/// The first line of a CSV export.
pub const CSV_HEADER: &str = "Event ID,Event Type,Timestamp,Aggregate ID,User ID,Service,Status,Error\r\n";

/// The format of an export.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExportFormat {
    /// Comma-separated values with a header, for spreadsheets.
    Csv,
    /// One JSON document per line, with all fields.
    JsonLines,
}

impl ExportFormat {
    /// Parses the name of a format.
    ///
    /// # Errors
    /// `invalid_query` at `format`.
    pub fn parse(name: &str) -> Result<Self, Invalid> {
        match name {
            "csv" => Ok(Self::Csv),
            "jsonl" => Ok(Self::JsonLines),
            other => Err(Invalid::new(Code::InvalidQuery, "format", format!("{other:?} is neither csv nor jsonl"))),
        }
    }

    /// Formats a document as one row.
    pub fn row(self, document: &RawDocument) -> String {
        match self {
            Self::Csv => csv_line(document),
            Self::JsonLines => json_line(document),
        }
    }
}

/// Formats a document as one line of JSON.
pub fn json_line(document: &RawDocument) -> String {
    let mut line = ShownDocument::new(document).text();
    line.push('\n');
    line
}

/// Formats a document as one line of CSV.
pub fn csv_line(document: &RawDocument) -> String {
    let text = |document: Option<&RawDocument>, name: &str| {
        document.and_then(|it| it.get_str(name).ok()).unwrap_or_default().to_owned()
    };
    let whole = Some(document);
    let metadata = document.get_document("metadata").ok();
    let time = document.get_datetime("timestamp").ok().map(|date| Timestamp::from_millis(date.timestamp_millis()));
    let error = ["error", "message"].iter().map(|name| text(whole, name)).find(|text| !text.is_empty());
    let cells = [
        text(whole, "event_id"),
        text(whole, "event_type"),
        time.map(|time| time.nearest_writable().to_string()).unwrap_or_default(),
        text(whole, "aggregate_id"),
        text(metadata, "user_id"),
        text(metadata, "service_name"),
        text(whole, "status"),
        error.unwrap_or_default(),
    ];
    let mut line = String::with_capacity(200);
    for (n, cell) in cells.iter().enumerate() {
        let comma = if n == 0 { "" } else { "," };
        // Writing to a string cannot fail.
        let _ = write!(line, "{comma}{}", cell_of(cell));
    }
    line.push_str("\r\n");
    line
}

/// Formats a cell. It is quoted if necessary, and an apostrophe precedes content that a spreadsheet would evaluate.
fn cell_of(text: &str) -> String {
    let guard = if text.starts_with(['=', '+', '-', '@', '\t', '\r']) { "'" } else { "" };
    match text.contains([',', '"', '\n', '\r']) {
        true => format!("\"{guard}{}\"", text.replace('"', "\"\"")),
        false => format!("{guard}{text}"),
    }
}
