//! The definition of a saga.

use std::sync::Arc;

use bson::{Bson, Document};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::expression::{Expression, Scope};
use super::locate::line_of;
use super::step::{Step, StepBody};
use crate::handlers::HandlerDefinition;
use crate::{ByteString, Code, Condition, Invalid, Matcher, RecordedEvent, event_document, valid_id, valid_name};

/// The body of `PUT /v1/saga-definitions/{name}`, with the name.
///
/// ```json
/// {"start": {"on": ["order_placed"]}, "correlate": "$data.order_id",
///  "steps": [{"name": "reserve", "publish": {"type": "reserve_stock", "data": {"sku": "$context.sku"}},
///             "await": {"on": ["stock_reserved"], "fail_on": ["stock_missing"]}, "limit_ms": 60000,
///             "compensation": {"name": "release", "publish": {"type": "release_stock", "data": {"sku": "$context.sku"}}}}]}
/// ```
#[derive(Debug, Clone)]
pub struct SagaDefinition {
    /// Its name, like that of an event type.
    pub name: ByteString,
    body: Body,
    read: Arc<Read>,
}

/// The parsed body.
#[derive(Debug)]
struct Read {
    matcher: Option<Matcher>,
    /// By event type; `*` stands for any type without an entry of its own.
    correlate: Vec<(String, Expression)>,
    context: Option<Vec<(String, Expression)>>,
    steps: Vec<Step>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Body {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    version: Option<u32>,
    start: StartBody,
    #[serde(default = "aggregate_id")]
    correlate: Value,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    context: Option<Map<String, Value>>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    cancel_on: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    limit_ms: Option<u64>,
    steps: Vec<StepBody>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StartBody {
    on: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    condition: Option<Condition>,
    #[serde(default, skip_serializing_if = "SagaStart::is_beginning")]
    from: SagaStart,
}

/// Where a new definition starts to read the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SagaStart {
    /// At the first event: sagas start for past events, too.
    #[default]
    Beginning,
    /// After the newest event.
    Latest,
}

impl SagaStart {
    fn is_beginning(&self) -> bool {
        *self == Self::Beginning
    }
}

fn aggregate_id() -> Value {
    Value::String("$aggregate.id".to_owned())
}

/// The longest name, in bytes.
const NAME_BYTES_MAX: usize = 64;
/// The maximum number of steps.
const STEPS_MAX: usize = 100;
/// The longest time limit: 10 years.
pub(super) const LIMIT_MS_MAX: u64 = 10 * 365 * 24 * 60 * 60 * 1_000;

pub(super) fn invalid(path: impl Into<String>, message: impl Into<String>) -> Invalid {
    Invalid::new(Code::InvalidSaga, path, message)
}

impl PartialEq for SagaDefinition {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name && self.body == other.body
    }
}

impl SagaDefinition {
    /// Parses a declarative definition of this name from JSON.
    ///
    /// # Errors
    /// `not_json`, `invalid_body`, `invalid_name`, `invalid_condition` or `invalid_saga`, with the path, and the line in the message.
    pub fn read(name: &str, json: &[u8]) -> Result<Self, Invalid> {
        let definition = Self::read_any(name, json)?;
        match definition.program_step() {
            None => Ok(definition),
            Some(at) => {
                let message =
                    "is a function, which only the program that has it can register; publish a command instead";
                Err(located(json, invalid(at, message)))
            }
        }
    }

    /// Parses a definition whose steps may be functions of a program.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn read_any(name: &str, json: &[u8]) -> Result<Self, Invalid> {
        Self::read_unlocated(name, json).map_err(|error| located(json, error))
    }

    fn read_unlocated(name: &str, json: &[u8]) -> Result<Self, Invalid> {
        let body: Body = crate::wire::parse_json(json)?;
        valid_name("name", name)?;
        if name.len() > NAME_BYTES_MAX {
            let message = format!("has {} bytes; at most {NAME_BYTES_MAX} are allowed", name.len());
            return Err(invalid("name", message));
        }
        let read = Read {
            matcher: body.start.condition.as_ref().map(Matcher::new),
            correlate: read_correlate(&body.correlate)?,
            context: body.context.as_ref().map(|context| read_fields("context", context, Scope::Event)).transpose()?,
            steps: read_steps(&body.steps)?,
        };
        let definition = Self { name: name.into(), body, read: Arc::new(read) };
        definition.validate()?;
        Ok(definition)
    }

    fn validate(&self) -> Result<(), Invalid> {
        let body = &self.body;
        if body.version == Some(0) {
            return Err(invalid("version", "is 0; the first version is 1"));
        }
        if body.start.on.is_empty() {
            return Err(invalid("start.on", "is empty; name the event types that start the saga"));
        }
        let lists = [("start.on", &body.start.on), ("cancel_on", &body.cancel_on)];
        for (path, types) in lists {
            for (n, name) in types.iter().enumerate() {
                valid_name(&format!("{path}[{n}]"), name)?;
            }
        }
        if let Some(condition) = &body.start.condition {
            condition.validate().and_then(|()| condition.judgeable()).map_err(|error| error.inside("start"))?;
        }
        valid_limit("limit_ms", body.limit_ms)?;
        if body.steps.is_empty() || body.steps.len() > STEPS_MAX {
            return Err(invalid("steps", format!("are {}; a saga has 1 to {STEPS_MAX}", body.steps.len())));
        }
        let mut names: Vec<&str> = Vec::new();
        for (n, step) in self.read.steps.iter().enumerate() {
            let own =
                [("name", Some(&step.name)), ("compensation.name", step.compensation.as_ref().map(|it| &it.name))];
            for (field, name) in own.into_iter().filter_map(|(field, name)| Some((field, name?))) {
                if names.contains(&name.as_str()) {
                    return Err(invalid(format!("steps[{n}].{field}"), format!("{name:?} is the name of two steps")));
                }
                names.push(name);
            }
        }
        Ok(())
    }

    /// Writes the definition as JSON, without its name.
    pub fn write(&self) -> String {
        // Strings and finite numbers always serialise to JSON.
        serde_json::to_string(&self.body).unwrap_or_default()
    }

    /// Returns the definition as a value, as the API shows it.
    pub fn shown(&self) -> Value {
        serde_json::to_value(&self.body).unwrap_or_default()
    }

    /// Returns the version that its author set, or `None` if it is to be assigned the next one.
    pub fn version(&self) -> Option<u32> {
        self.body.version
    }

    /// Sets the version.
    #[must_use]
    pub fn with_version(mut self, version: u32) -> Self {
        self.body.version = Some(version);
        self
    }

    /// Returns whether it differs from another one in more than its version.
    pub fn differs(&self, other: &Self) -> bool {
        let body = Body { version: other.body.version, ..self.body.clone() };
        body != other.body
    }

    /// Returns where it starts to read the log when it is defined.
    pub fn start(&self) -> SagaStart {
        self.body.start.from
    }

    /// Returns the path of the first step or compensation that is a function of a program.
    pub fn program_step(&self) -> Option<String> {
        self.read.steps.iter().enumerate().find_map(|(n, step)| match &step.compensation {
            _ if step.is_program => Some(format!("steps[{n}].action")),
            Some(compensation) if compensation.is_program => Some(format!("steps[{n}].compensation.action")),
            _ => None,
        })
    }

    /// Returns the names of steps and compensations that are functions of a program.
    pub fn functions(&self) -> Vec<&str> {
        let own = self.read.steps.iter().filter(|step| step.is_program).map(|step| &*step.name);
        let undone = self.read.steps.iter().filter_map(|step| step.compensation.as_ref());
        own.chain(undone.filter(|it| it.is_program).map(|it| &*it.name)).collect()
    }

    /// Returns the event types that it reads.
    pub fn event_types(&self) -> Vec<&str> {
        let awaited = self.read.steps.iter().flat_map(|step| step.awaited());
        let all = self.body.start.on.iter().chain(&self.body.cancel_on).map(String::as_str).chain(awaited);
        let mut types: Vec<_> = all.collect();
        types.sort_unstable();
        types.dedup();
        types
    }

    /// Returns the handler definition by which several versions together follow the log.
    pub fn source<'d>(versions: impl IntoIterator<Item = &'d Self>, name: &str) -> HandlerDefinition {
        let mut types: Vec<_> = versions.into_iter().flat_map(Self::event_types).collect();
        types.sort_unstable();
        types.dedup();
        HandlerDefinition::new(name).types(types.into_iter().map(ByteString::from))
    }

    /// Returns whether an event starts a saga of this definition.
    pub fn is_started_by(&self, event: &RecordedEvent) -> bool {
        self.body.start.on.iter().any(|name| **name == *event.event_type)
            && self.read.matcher.as_ref().is_none_or(|matcher| matcher.matches(&event_document(event)))
    }

    /// Returns the correlation of an event: the value that it shares with the other events of its saga.
    ///
    /// # Errors
    /// A sentence that says why it has none.
    pub fn correlation(&self, event: &RecordedEvent) -> Result<String, String> {
        let of = |wanted: &str| self.read.correlate.iter().find(|(name, _)| name == wanted).map(|(_, it)| it);
        let expression = of(&event.event_type).or_else(|| of("*")).ok_or("no correlation is defined for its type")?;
        let text = expression.text(&document_of(event)?)?;
        valid_id("correlate", &text).map_err(|error| error.to_string())?;
        Ok(text)
    }

    /// Returns the initial context of a saga that this event starts.
    pub(super) fn context(&self, event: &RecordedEvent) -> Result<Document, String> {
        match &self.read.context {
            None => Document::try_from(event.data.as_raw()).map_err(|error| error.to_string()),
            Some(fields) => values(fields, &document_of(event)?).map_err(|why| format!("context: {why}")),
        }
    }

    pub(super) fn is_cancelled_by(&self, event_type: &str) -> bool {
        self.body.cancel_on.iter().any(|name| name == event_type)
    }

    pub(super) fn limit_ms(&self) -> Option<u64> {
        self.body.limit_ms
    }

    pub(super) fn steps(&self) -> &[Step] {
        &self.read.steps
    }
}

fn located(json: &[u8], error: Invalid) -> Invalid {
    if error.path.is_empty() || error.path == "name" {
        return error;
    }
    let line = line_of(&String::from_utf8_lossy(json), &error.path);
    let message = format!("{} (line {line})", error.message);
    Invalid { message, ..error }
}

pub(super) fn valid_limit(path: &str, limit_ms: Option<u64>) -> Result<(), Invalid> {
    match limit_ms {
        Some(limit) if !(1..=LIMIT_MS_MAX).contains(&limit) => {
            Err(invalid(path, format!("{limit} is not between 1 and {LIMIT_MS_MAX} ms (10 years)")))
        }
        _ => Ok(()),
    }
}

/// Evaluates fields, each of which must have a value.
pub(super) fn values(fields: &[(String, Expression)], scope: &Document) -> Result<Document, String> {
    let field = |(name, field): &(String, Expression)| Ok((name.clone(), field.value(scope)?));
    fields.iter().map(field).collect()
}

pub(super) fn document_of(event: &RecordedEvent) -> Result<Document, String> {
    Document::try_from(&*event_document(event)).map_err(|error| error.to_string())
}

pub(super) fn read_fields(
    path: &str,
    fields: &Map<String, Value>,
    scope: Scope,
) -> Result<Vec<(String, Expression)>, Invalid> {
    let field = |(name, value): (&String, &Value)| {
        let at = format!("{path}.{name}");
        if name.contains(['.', '$']) || name.is_empty() {
            return Err(invalid(at, "is not a name without . and $"));
        }
        Ok((name.clone(), Expression::read(value, scope).map_err(|why| invalid(at, why))?))
    };
    fields.iter().map(field).collect()
}

fn read_correlate(value: &Value) -> Result<Vec<(String, Expression)>, Invalid> {
    let read = |path: &str, value: &Value| Expression::read(value, Scope::Event).map_err(|why| invalid(path, why));
    match value {
        Value::String(_) => Ok(vec![("*".to_owned(), read("correlate", value)?)]),
        Value::Object(by_type) => {
            let of = |(name, value): (&String, &Value)| Ok((name.clone(), read(&format!("correlate.{name}"), value)?));
            by_type.iter().map(of).collect()
        }
        _ => Err(invalid("correlate", "is neither a path such as \"$data.order_id\" nor an object of them by type")),
    }
}

fn read_steps(steps: &[StepBody]) -> Result<Vec<Step>, Invalid> {
    steps.iter().enumerate().map(|(n, step)| step.read(&format!("steps[{n}]"))).collect()
}

/// Returns the document against which the expressions of steps are evaluated.
pub(super) fn scope_of(context: &Document, saga: Document) -> Document {
    let mut scope = Document::new();
    scope.insert("context", Bson::Document(context.clone()));
    scope.insert("saga", Bson::Document(saga));
    scope
}
