//! Registered upcasters: steps that convert the data of a generation to the next one.

use bson::{Bson, Document};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::condition::valid_path;
use crate::{Code, Data, Invalid};

/// The maximum number of steps of an upcaster.
const STEPS_MAX: usize = 100;

/// One step of an upcaster. Steps are applied in order; a path that does not exist is not an error.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum UpcastStep {
    /// Moves the value at one path to another.
    Rename {
        /// The old path.
        from: String,
        /// The new path.
        to: String,
    },
    /// Sets the value at a path.
    Set {
        /// The path.
        path: String,
        /// The value.
        value: Value,
    },
    /// Removes the value at a path.
    Remove(String),
}

impl UpcastStep {
    /// Checks the paths of an upcaster.
    ///
    /// # Errors
    /// `invalid_type` with the index of the step.
    pub fn validate_all(steps: &[Self]) -> Result<(), Invalid> {
        let invalid = |path: String, message: String| Err(Invalid::new(Code::InvalidType, path, message));
        if steps.len() > STEPS_MAX {
            return invalid(
                "upcaster".to_owned(),
                format!("has {} steps; at most {STEPS_MAX} are allowed", steps.len()),
            );
        }
        for (at, step) in steps.iter().enumerate() {
            for path in step.paths() {
                if let Err(why) = valid_path(path) {
                    return invalid(format!("upcaster[{at}]"), format!("the path {path:?} {why}"));
                }
            }
        }
        Ok(())
    }

    fn paths(&self) -> Vec<&str> {
        match self {
            Self::Rename { from, to } => vec![from, to],
            Self::Set { path, .. } | Self::Remove(path) => vec![path],
        }
    }

    /// Applies the steps of an upcaster.
    ///
    /// # Errors
    /// A sentence, if the result cannot be event data.
    pub fn apply_all(steps: &[Self], data: &Data) -> Result<Data, String> {
        let mut document = Document::try_from(data.as_raw()).map_err(|error| error.to_string())?;
        for step in steps {
            match step {
                Self::Rename { from, to } => {
                    if let Some(value) = remove(&mut document, from) {
                        set(&mut document, to, value);
                    }
                }
                Self::Set { path, value } => set(&mut document, path, bson_of(value)?),
                Self::Remove(path) => drop(remove(&mut document, path)),
            }
        }
        Data::from_document(&document)
    }
}

fn bson_of(value: &Value) -> Result<Bson, String> {
    let data = Data::from_value(&serde_json::json!({ "value": value }))?;
    let mut document = Document::try_from(data.as_raw()).map_err(|error| error.to_string())?;
    document.remove("value").ok_or_else(|| "the value cannot be represented as BSON".to_owned())
}

fn remove(document: &mut Document, path: &str) -> Option<Bson> {
    match path.split_once('.') {
        None => document.remove(path),
        Some((name, rest)) => match document.get_mut(name) {
            Some(Bson::Document(inner)) => remove(inner, rest),
            _ => None,
        },
    }
}

fn set(document: &mut Document, path: &str, value: Bson) {
    match path.split_once('.') {
        None => drop(document.insert(path, value)),
        Some((name, rest)) => {
            if !matches!(document.get(name), Some(Bson::Document(_))) {
                document.insert(name, Document::new());
            }
            if let Some(Bson::Document(inner)) = document.get_mut(name) {
                set(inner, rest, value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn steps(json: Value) -> Vec<UpcastStep> {
        serde_json::from_value(json).expect("steps")
    }

    #[test]
    fn steps_are_taken_in_order_and_a_path_that_is_not_there_is_no_error() {
        let steps = steps(json!([
            {"rename": {"from": "euros", "to": "amount.cents"}},
            {"set": {"path": "amount.currency", "value": "EUR"}},
            {"remove": "note.internal"},
            {"remove": "nothing.here"},
            {"rename": {"from": "nowhere", "to": "somewhere"}},
        ]));
        assert_eq!(UpcastStep::validate_all(&steps), Ok(()));
        let data = Data::from_value(&json!({"euros": 3, "note": {"internal": 1, "text": "x"}})).expect("data");
        let upcast = UpcastStep::apply_all(&steps, &data).expect("data");
        let shown = serde_json::to_value(&upcast).expect("JSON");
        assert_eq!(shown, json!({"note": {"text": "x"}, "amount": {"cents": 3, "currency": "EUR"}}));
    }

    #[test]
    fn a_step_without_a_path_is_refused_with_its_place() {
        let steps = steps(json!([{"remove": "a"}, {"set": {"path": "", "value": 1}}]));
        assert_eq!(UpcastStep::validate_all(&steps).expect_err("refused").path, "upcaster[1]");
        assert!(serde_json::from_value::<UpcastStep>(json!({"explode": "a"})).is_err());
    }
}
