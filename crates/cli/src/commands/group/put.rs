//! `annals group put`.

use std::path::PathBuf;

use annals::groups::GroupDefinition;
use clap::Args;
use serde_json::{Map, Value, json};

use crate::failure::Failure;
use crate::lines;

#[derive(Debug, Args)]
pub(super) struct Put {
    /// The group's name
    name: String,
    /// A file with the definition, the body of PUT /v1/groups/NAME; - for standard input
    #[arg(long, value_name = "FILE", conflicts_with_all = ["topics", "start", "in_flight", "guard", "attempts"])]
    file: Option<PathBuf>,
    /// A topic of the group; may be repeated
    #[arg(long = "topic", value_name = "TOPIC", required_unless_present = "file")]
    topics: Vec<String>,
    /// Where to start: earliest or latest
    #[arg(long, value_name = "WHERE")]
    start: Option<String>,
    /// The maximum number of keys in flight
    #[arg(long, value_name = "COUNT")]
    in_flight: Option<u32>,
    /// Deliver only one of the messages that agree in this: event_id, content or data.PATH
    #[arg(long, value_name = "WHAT")]
    guard: Option<String>,
    /// The number of attempts after which a message becomes a dead letter
    #[arg(long, value_name = "COUNT")]
    attempts: Option<u32>,
}

impl Put {
    /// Returns the definition. Flags and files are parsed by the same rules.
    pub(super) fn definition(&self) -> Result<GroupDefinition, Failure> {
        let text = match &self.file {
            Some(file) => lines::text(file)?,
            None => self.body().to_string(),
        };
        Ok(GroupDefinition::read(&self.name, text.as_bytes())?)
    }

    fn body(&self) -> Value {
        let mut body = Map::new();
        body.insert("topics".to_owned(), json!(self.topics));
        body.extend(self.start.iter().map(|start| ("start".to_owned(), json!(start))));
        body.extend(self.in_flight.map(|count| ("in_flight".to_owned(), json!(count))));
        if let Some(guard) = &self.guard {
            let is_path = guard.starts_with("data.");
            let guard = if is_path { json!({ "field": guard }) } else { json!(guard) };
            body.insert("guard".to_owned(), guard);
        }
        let retry = |attempts| ("retry".to_owned(), json!({ "attempts": attempts, "then": "park" }));
        body.extend(self.attempts.map(retry));
        Value::Object(body)
    }
}
