//! Conversion between the serialized form of a condition and its meaning, shared by JSON, BSON and typed conditions.

use bson::{Bson, Document};

use super::json::{Operand, Written, WrittenOptions};
use super::operator::Operator;
use super::{Condition, Days, Deletion, Fragment, Test, TimeOfDay, Window};
use crate::limits;

impl Written {
    /// Returns the serialized form of a condition.
    pub(super) fn of(condition: &Condition) -> Self {
        let joined = |operator, children: &[Condition]| Self {
            operator: Some(operator),
            children: children.to_vec(),
            ..Self::default()
        };
        let valued =
            |operator, value: Bson| Self { operator: Some(operator), value: Some(Operand(value)), ..Self::default() };
        match condition {
            Condition::All => joined(Operator::All, &[]),
            Condition::And(children) => joined(Operator::And, children),
            Condition::Or(children) => joined(Operator::Or, children),
            Condition::Nor(children) => joined(Operator::Nor, children),
            Condition::Deleted(which) => valued(Operator::Deleted, which.written().into()),
            Condition::Match(words) => valued(Operator::Match, words.as_str().into()),
            Condition::Raw(filter) => valued(Operator::Raw, filter.clone().into()),
            Condition::Field { path, test } => Self { field: path.clone(), ..written_test(test) },
        }
    }

    /// Returns the condition that this form stands for.
    pub(super) fn read(self) -> Result<Condition, String> {
        let Self { field, operator, value, children, options } = self;
        let value = value.map(|Operand(value)| value);
        let says_nothing = field.is_empty() && value.is_none() && children.is_empty() && options.is_empty();
        let operator = match operator {
            Some(operator) => operator,
            None if says_nothing => Operator::All,
            None => {
                return Err("has no operator; give one such as EQ, AND or TODAY".to_owned());
            }
        };
        taken(operator, &children, &options)?;
        let or_empty = |value: Option<Bson>| value.unwrap_or_else(|| Bson::from(""));
        let text = |value: Option<Bson>| match or_empty(value) {
            Bson::String(text) => Ok(text),
            other => Err(format!("operator {operator} needs a string, not {other}")),
        };
        let list = |value: Option<Bson>| match value {
            Some(Bson::Array(values)) => Ok(values),
            Some(other) => Err(format!("operator {operator} needs a list of values, not {other}")),
            None => Err(format!("operator {operator} needs a list of values")),
        };
        Ok(match operator {
            Operator::All => Condition::All,
            Operator::And => Condition::And(children),
            Operator::Or => Condition::Or(children),
            Operator::Nor => Condition::Nor(children),
            Operator::Id => Condition::id(or_empty(value)),
            Operator::Ids => Condition::ids(list(value)?),
            Operator::AggregateId => Condition::aggregate_id(or_empty(value)),
            Operator::AggregateIds => Condition::aggregate_ids(list(value)?),
            Operator::TenantId => Condition::tenant_id(or_empty(value)),
            Operator::OwnerId => Condition::owner_id(or_empty(value)),
            Operator::SpaceId => Condition::space_id(or_empty(value)),
            Operator::Deleted => Condition::Deleted(Deletion::read(value)?),
            Operator::Match => Condition::Match(text(value)?),
            Operator::Raw => Condition::Raw(filter(value)?),
            _ => Condition::Field { path: field, test: test(operator, value, children, options)? },
        })
    }
}

/// Checks that children and options are only given to operators that use them.
fn taken(operator: Operator, children: &[Condition], options: &WrittenOptions) -> Result<(), String> {
    match (operator.joins(), children.len()) {
        (true, 0) => return Err(format!("operator {operator} needs children")),
        (true, 2..) if operator == Operator::ElemMatch => {
            return Err(format!("operator {operator} takes one child; join several with AND"));
        }
        (false, 1..) => return Err(format!("operator {operator} takes no children")),
        _ => {}
    }
    if options.ignore_case.is_some() && !operator.is_of_text() {
        return Err(format!("operator {operator} takes no case options"));
    }
    if (options.zone_id.is_some() || options.date_pattern.is_some()) && !operator.is_of_time() {
        return Err(format!("operator {operator} takes no time options"));
    }
    Ok(())
}

fn test(
    operator: Operator,
    value: Option<Bson>,
    mut children: Vec<Condition>,
    options: WrittenOptions,
) -> Result<Test, String> {
    if operator.is_of_time() {
        let days = days(operator, value)?;
        return Ok(Test::Within(Window { days, zone: options.zone_id, pattern: options.date_pattern }));
    }
    if operator.is_of_text() {
        let fragment = match value.unwrap_or_else(|| "".into()) {
            Bson::String(text) => Fragment { text, ignore_case: options.ignore_case.unwrap_or(false) },
            other => return Err(format!("operator {operator} needs a string, not {other}")),
        };
        return Ok(match operator {
            Operator::Contains => Test::Contains(fragment),
            Operator::StartsWith => Test::StartsWith(fragment),
            _ => Test::EndsWith(fragment),
        });
    }
    let list = |value: Option<Bson>| match value {
        Some(Bson::Array(values)) => Ok(values),
        Some(other) => Err(format!("operator {operator} needs a list of values, not {other}")),
        None => Err(format!("operator {operator} needs a list of values")),
    };
    let one = |value: Option<Bson>| value.unwrap_or_else(|| "".into());
    Ok(match operator {
        Operator::Eq => Test::Eq(one(value)),
        Operator::Ne => Test::Ne(one(value)),
        Operator::Gt => Test::Gt(one(value)),
        Operator::Gte => Test::Gte(one(value)),
        Operator::Lt => Test::Lt(one(value)),
        Operator::Lte => Test::Lte(one(value)),
        Operator::In => Test::In(list(value)?),
        Operator::NotIn => Test::NotIn(list(value)?),
        Operator::AllIn => Test::AllIn(list(value)?),
        Operator::Between => match <[Bson; 2]>::try_from(list(value)?) {
            Ok([low, high]) => Test::Between(low, high),
            Err(_) => return Err("operator BETWEEN needs a list of two values".to_owned()),
        },
        Operator::Null => Test::Eq(Bson::Null),
        Operator::NotNull => Test::Ne(Bson::Null),
        Operator::True => Test::Eq(true.into()),
        Operator::False => Test::Eq(false.into()),
        Operator::Exists => match value {
            None => Test::Exists(true),
            Some(Bson::Boolean(there)) => Test::Exists(there),
            Some(other) => return Err(format!("operator EXISTS needs true or false, not {other}")),
        },
        Operator::ElemMatch => Test::ElemMatch(Box::new(children.pop().unwrap_or_default())),
        other => return Err(format!("operator {other} does not test a field")),
    })
}

fn days(operator: Operator, value: Option<Bson>) -> Result<Days, String> {
    let number = |value: Option<Bson>| {
        let number = match value {
            Some(Bson::Int32(days)) => u32::try_from(days).ok(),
            Some(Bson::Int64(days)) => u32::try_from(days).ok(),
            _ => None,
        };
        let most = limits::WINDOW_DAYS_MAX;
        let fits = number.filter(|days| *days <= most);
        fits.ok_or_else(|| format!("operator {operator} needs a whole number of days from 0 to {most}"))
    };
    Ok(match operator {
        Operator::Tomorrow => Days::Tomorrow,
        Operator::ThisWeek => Days::ThisWeek,
        Operator::NextWeek => Days::NextWeek,
        Operator::LastWeek => Days::LastWeek,
        Operator::ThisMonth => Days::ThisMonth,
        Operator::LastMonth => Days::LastMonth,
        Operator::RecentDays => Days::Recent(number(value)?),
        Operator::EarlierDays => Days::Earlier(number(value)?),
        Operator::BeforeToday => Days::BeforeToday(time_of_day(value)?),
        _ => Days::Today,
    })
}

/// Reads a time of day as seconds since midnight or as a string.
fn time_of_day(value: Option<Bson>) -> Result<TimeOfDay, String> {
    let seconds = |seconds: i64| u32::try_from(seconds).ok().and_then(TimeOfDay::from_seconds);
    let wrong = || "operator BEFORE_TODAY needs a time: 12:00 as a string, or the seconds since midnight".to_owned();
    match value {
        Some(Bson::String(text)) => TimeOfDay::parse(&text),
        Some(Bson::Int32(number)) => seconds(number.into()).ok_or_else(wrong),
        Some(Bson::Int64(number)) => seconds(number).ok_or_else(wrong),
        _ => Err(wrong()),
    }
}

/// Reads a MongoDB filter document, or a string that contains one.
fn filter(value: Option<Bson>) -> Result<Document, String> {
    match value {
        Some(Bson::Document(filter)) => Ok(filter),
        Some(Bson::String(text)) => match super::query_text::relaxed_value(&text)? {
            Bson::Document(filter) => Ok(filter),
            other => Err(format!("operator RAW needs a filter document, not {other}")),
        },
        _ => Err("operator RAW needs a filter document".to_owned()),
    }
}

impl Deletion {
    fn written(self) -> &'static str {
        match self {
            Self::Active => "ACTIVE",
            Self::Deleted => "DELETED",
            Self::All => "ALL",
        }
    }

    fn read(value: Option<Bson>) -> Result<Self, String> {
        let all = [Self::Active, Self::Deleted, Self::All];
        let named = |text: &str| all.into_iter().find(|which| which.written().eq_ignore_ascii_case(text));
        match &value {
            Some(Bson::Boolean(true)) => Some(Self::Deleted),
            Some(Bson::Boolean(false)) => Some(Self::Active),
            Some(Bson::String(text)) => named(text),
            _ => None,
        }
        .ok_or_else(|| "operator DELETED needs ACTIVE, DELETED, ALL, true or false".to_owned())
    }
}

fn written_test(test: &Test) -> Written {
    let written =
        |operator, value: Bson| Written { operator: Some(operator), value: Some(Operand(value)), ..Written::default() };
    let list = |operator, values: &[Bson]| written(operator, Bson::Array(values.to_vec()));
    match test {
        Test::Eq(value) => written(Operator::Eq, value.clone()),
        Test::Ne(value) => written(Operator::Ne, value.clone()),
        Test::Gt(value) => written(Operator::Gt, value.clone()),
        Test::Gte(value) => written(Operator::Gte, value.clone()),
        Test::Lt(value) => written(Operator::Lt, value.clone()),
        Test::Lte(value) => written(Operator::Lte, value.clone()),
        Test::In(values) => list(Operator::In, values),
        Test::NotIn(values) => list(Operator::NotIn, values),
        Test::AllIn(values) => list(Operator::AllIn, values),
        Test::Between(low, high) => list(Operator::Between, &[low.clone(), high.clone()]),
        Test::Exists(there) => written(Operator::Exists, (*there).into()),
        Test::ElemMatch(inner) => {
            Written { operator: Some(Operator::ElemMatch), children: vec![(**inner).clone()], ..Written::default() }
        }
        Test::Contains(fragment) => written_fragment(Operator::Contains, fragment),
        Test::StartsWith(fragment) => written_fragment(Operator::StartsWith, fragment),
        Test::EndsWith(fragment) => written_fragment(Operator::EndsWith, fragment),
        Test::Within(window) => written_window(window),
    }
}

fn written_fragment(operator: Operator, fragment: &Fragment) -> Written {
    let options = WrittenOptions { ignore_case: fragment.ignore_case.then_some(true), ..WrittenOptions::default() };
    Written {
        operator: Some(operator),
        value: Some(Operand(fragment.text.as_str().into())),
        options,
        ..Written::default()
    }
}

fn written_window(window: &Window) -> Written {
    let value = match window.days {
        Days::Recent(days) | Days::Earlier(days) => Some(Bson::Int64(days.into())),
        Days::BeforeToday(time) => Some(time.to_string().into()),
        _ => None,
    };
    let options = WrittenOptions {
        zone_id: window.zone.clone(),
        date_pattern: window.pattern.clone(),
        ..WrittenOptions::default()
    };
    Written { operator: Some(window.days.operator()), value: value.map(Operand), options, ..Written::default() }
}
