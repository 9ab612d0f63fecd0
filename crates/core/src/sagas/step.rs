//! The steps of a definition: what each step does, awaits and compensates.

use bson::Document;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::definition::{invalid, read_fields, valid_limit, values};
use super::expression::{Expression, Scope};
use crate::processing::ProcessingRetry;
use crate::{Condition, Invalid, Matcher, valid_name};

/// A step as written in the definition.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct StepBody {
    name: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    require: Vec<RequireBody>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    publish: Option<Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    action: Option<String>,
    #[serde(default, rename = "await", skip_serializing_if = "Option::is_none")]
    awaits: Option<AwaitBody>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    delay_ms: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    limit_ms: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    on_limit: Option<OnLimit>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    retry: Option<ProcessingRetry>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    compensation: Option<CompensationBody>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RequireBody {
    condition: Condition,
    message: String,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct AwaitBody {
    on: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    fail_on: Vec<String>,
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    set: Map<String, Value>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct CompensationBody {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    publish: Option<Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    action: Option<String>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    always: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    retry: Option<ProcessingRetry>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct PublishBody {
    #[serde(rename = "type")]
    event_type: String,
    #[serde(default)]
    data: Map<String, Value>,
    #[serde(default)]
    aggregate: Option<AggregateBody>,
    #[serde(default)]
    tags: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct AggregateBody {
    name: String,
    id: Value,
}

/// What happens when a step exceeds its time limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum OnLimit {
    /// The saga compensates and ends as `timeout`.
    #[default]
    Fail,
    /// The saga continues with the next step.
    Continue,
}

/// A parsed step.
#[derive(Debug)]
pub(super) struct Step {
    pub name: String,
    require: Vec<(Matcher, String)>,
    publish: Vec<Publish>,
    /// Whether a function of a program runs it.
    pub is_program: bool,
    pub awaits: Option<Awaits>,
    pub limit_ms: Option<u64>,
    pub on_limit: OnLimit,
    pub retry: ProcessingRetry,
    pub compensation: Option<Compensation>,
}

/// The events that end a step.
#[derive(Debug)]
pub(super) struct Awaits {
    on: Vec<String>,
    fail_on: Vec<String>,
    set: Vec<(String, Expression)>,
}

/// The compensation of a step.
#[derive(Debug)]
pub(super) struct Compensation {
    pub name: String,
    publish: Vec<Publish>,
    pub is_program: bool,
    /// Whether it also runs when the saga completes, to release what the step holds.
    pub always: bool,
    pub retry: ProcessingRetry,
}

#[derive(Debug)]
struct Publish {
    event_type: String,
    data: Vec<(String, Expression)>,
    aggregate: Option<(String, Expression)>,
    tags: Vec<String>,
}

/// A command that a step publishes.
#[derive(Debug, Clone, PartialEq)]
pub struct SagaCommand {
    /// The type of the event that carries it.
    pub event_type: String,
    /// Its data.
    pub data: Document,
    /// The name and id of the aggregate that it is committed to; the saga's own aggregate if absent.
    pub aggregate: Option<(String, String)>,
    /// Its tags.
    pub tags: Vec<String>,
}

impl SagaCommand {
    /// Creates a command that is committed to the aggregate of the saga.
    pub fn new(event_type: impl Into<String>, data: Document) -> Self {
        Self { event_type: event_type.into(), data, aggregate: None, tags: Vec::new() }
    }

    /// Sets the aggregate that it is committed to.
    #[must_use]
    pub fn to(mut self, name: impl Into<String>, id: impl Into<String>) -> Self {
        self.aggregate = Some((name.into(), id.into()));
        self
    }
}

/// The maximum number of attempts of a compensation, by default.
const ATTEMPTS: u32 = 5;
/// The maximum number of commands of a step.
const COMMANDS_MAX: usize = 100;
const PROGRAM: &str = "program";

fn once() -> ProcessingRetry {
    ProcessingRetry { attempts: Some(1), ..ProcessingRetry::default() }
}

fn several() -> ProcessingRetry {
    ProcessingRetry { attempts: Some(ATTEMPTS), ..ProcessingRetry::default() }
}

impl StepBody {
    pub(super) fn read(&self, at: &str) -> Result<Step, Invalid> {
        valid_name(&format!("{at}.name"), &self.name)?;
        for (field, limit) in [("limit_ms", self.limit_ms), ("delay_ms", self.delay_ms)] {
            valid_limit(&format!("{at}.{field}"), limit)?;
        }
        let beside = self.awaits.is_some() || self.limit_ms.is_some();
        if self.delay_ms.is_some() && beside {
            return Err(invalid(
                format!("{at}.delay_ms"),
                "cannot be combined with await or limit_ms; give the delay its own step",
            ));
        }
        if self.on_limit.is_some() && self.limit_ms.is_none() {
            return Err(invalid(
                format!("{at}.on_limit"),
                "has no effect without limit_ms; give both, or leave it out",
            ));
        }
        let is_delay = self.delay_ms.is_some();
        Ok(Step {
            name: self.name.clone(),
            require: self.read_require(at)?,
            publish: read_publish(&format!("{at}.publish"), self.publish.as_ref())?,
            is_program: is_program(at, self.action.as_deref())?,
            awaits: match &self.awaits {
                Some(awaits) => Some(awaits.read(&format!("{at}.await"))?),
                None => is_delay.then(|| Awaits { on: Vec::new(), fail_on: Vec::new(), set: Vec::new() }),
            },
            limit_ms: self.limit_ms.or(self.delay_ms),
            on_limit: if is_delay { OnLimit::Continue } else { self.on_limit.unwrap_or_default() },
            retry: valid_retry(at, self.retry)?.unwrap_or_else(once),
            compensation: self.compensation.as_ref().map(|it| it.read(at, &self.name)).transpose()?,
        })
    }

    fn read_require(&self, at: &str) -> Result<Vec<(Matcher, String)>, Invalid> {
        let read = |(n, require): (usize, &RequireBody)| {
            let checked = require.condition.validate().and_then(|()| require.condition.judgeable());
            checked.map_err(|error| error.inside(&format!("{at}.require[{n}]")))?;
            Ok((Matcher::new(&require.condition), require.message.clone()))
        };
        self.require.iter().enumerate().map(read).collect()
    }
}

fn is_program(at: &str, action: Option<&str>) -> Result<bool, Invalid> {
    match action {
        None => Ok(false),
        Some(PROGRAM) => Ok(true),
        Some(other) => Err(invalid(format!("{at}.action"), format!("{other:?} is not {PROGRAM:?}"))),
    }
}

fn valid_retry(at: &str, retry: Option<ProcessingRetry>) -> Result<Option<ProcessingRetry>, Invalid> {
    let Some(policy) = retry else { return Ok(None) };
    policy.validate().map_err(|error| invalid(format!("{at}.{}", error.path), error.message))?;
    Ok(Some(policy))
}

fn read_publish(at: &str, value: Option<&Value>) -> Result<Vec<Publish>, Invalid> {
    match value {
        None => Ok(Vec::new()),
        Some(Value::Array(commands)) if commands.len() > COMMANDS_MAX => {
            Err(invalid(at, format!("has {} commands; at most {COMMANDS_MAX} are allowed", commands.len())))
        }
        Some(Value::Array(commands)) => {
            commands.iter().enumerate().map(|(n, command)| read_command(&format!("{at}[{n}]"), command)).collect()
        }
        Some(command) => Ok(vec![read_command(at, command)?]),
    }
}

fn read_command(at: &str, value: &Value) -> Result<Publish, Invalid> {
    let body = serde_json::from_value::<PublishBody>(value.clone()).map_err(|error| invalid(at, error.to_string()))?;
    valid_name(&format!("{at}.type"), &body.event_type)?;
    let aggregate = body.aggregate.map(|AggregateBody { name, id }| {
        valid_name(&format!("{at}.aggregate.name"), &name)?;
        let path = format!("{at}.aggregate.id");
        Ok::<_, Invalid>((name, Expression::read(&id, Scope::Saga).map_err(|why| invalid(path, why))?))
    });
    Ok(Publish {
        data: read_fields(&format!("{at}.data"), &body.data, Scope::Saga)?,
        aggregate: aggregate.transpose()?,
        event_type: body.event_type,
        tags: body.tags,
    })
}

impl AwaitBody {
    fn read(&self, at: &str) -> Result<Awaits, Invalid> {
        for (field, types) in [("on", &self.on), ("fail_on", &self.fail_on)] {
            for (n, name) in types.iter().enumerate() {
                valid_name(&format!("{at}.{field}[{n}]"), name)?;
            }
        }
        if self.on.is_empty() {
            return Err(invalid(format!("{at}.on"), "is empty; name the event types that end the step"));
        }
        if let Some(both) = self.on.iter().find(|name| self.fail_on.contains(name)) {
            return Err(invalid(format!("{at}.fail_on"), format!("{both:?} is in `on` as well")));
        }
        let set = read_fields(&format!("{at}.set"), &self.set, Scope::Event)?;
        Ok(Awaits { on: self.on.clone(), fail_on: self.fail_on.clone(), set })
    }
}

impl CompensationBody {
    fn read(&self, step: &str, step_name: &str) -> Result<Compensation, Invalid> {
        let at = format!("{step}.compensation");
        let name = self.name.clone().unwrap_or_else(|| format!("undo_{step_name}"));
        valid_name(&format!("{at}.name"), &name)?;
        let compensation = Compensation {
            name,
            publish: read_publish(&format!("{at}.publish"), self.publish.as_ref())?,
            is_program: is_program(&at, self.action.as_deref())?,
            always: self.always,
            retry: valid_retry(&at, self.retry)?.unwrap_or_else(several),
        };
        if compensation.publish.is_empty() && !compensation.is_program {
            return Err(invalid(at, "does nothing; give it a command to publish"));
        }
        Ok(compensation)
    }
}

impl Step {
    /// Returns the event types that it awaits.
    pub fn awaited(&self) -> impl Iterator<Item = &str> {
        self.awaits.iter().flat_map(|it| it.on.iter().chain(&it.fail_on)).map(String::as_str)
    }

    /// Runs a declarative step: checks its requirements and builds its commands.
    pub fn declared(&self, scope: &Document) -> Result<Vec<SagaCommand>, String> {
        if !self.require.is_empty() {
            let document = bson::serialize_to_raw_document_buf(scope).map_err(|error| error.to_string())?;
            if let Some((_, message)) = self.require.iter().find(|(matcher, _)| !matcher.matches(&document)) {
                return Err(message.clone());
            }
        }
        commands(&self.publish, scope)
    }
}

impl Compensation {
    pub fn declared(&self, scope: &Document) -> Result<Vec<SagaCommand>, String> {
        commands(&self.publish, scope)
    }
}

impl Awaits {
    pub fn ends(&self, event_type: &str) -> bool {
        self.on.iter().any(|name| name == event_type)
    }

    pub fn fails(&self, event_type: &str) -> bool {
        self.fail_on.iter().any(|name| name == event_type)
    }

    /// Returns the fields of the context that an event sets. Fields that the event lacks stay unchanged.
    pub fn changes(&self, event: &Document) -> Document {
        let field = |(name, field): &(String, Expression)| Some((name.clone(), field.value(event).ok()?));
        self.set.iter().filter_map(field).collect()
    }
}

fn commands(publish: &[Publish], scope: &Document) -> Result<Vec<SagaCommand>, String> {
    let command = |publish: &Publish| {
        let aggregate = match &publish.aggregate {
            Some((name, id)) => Some((name.clone(), id.text(scope)?)),
            None => None,
        };
        let data = values(&publish.data, scope)?;
        Ok(SagaCommand { event_type: publish.event_type.clone(), data, aggregate, tags: publish.tags.clone() })
    };
    publish.iter().map(command).collect()
}
