//! Conditions as BSON documents: the fields of the JSON form, with values of any BSON type.

use bson::raw::{RawArrayBuf, RawDocument, RawDocumentBuf, cstr};
use bson::{Bson, RawBson, RawBsonRef};

use super::Condition;
use super::json::{Operand, Written, WrittenOptions};
use super::operator::Operator;
use crate::fields::{body, boolean, elements, fields, nested, text, unknown};
use crate::records::readable_value;
use crate::{Code, Invalid, limits};

/// Converts the value at a path.
pub(crate) type Values<'a> = &'a dyn Fn(&str, RawBsonRef<'_>) -> Result<Bson, Invalid>;

impl Condition {
    /// Reads a condition from untrusted BSON.
    ///
    /// # Errors
    /// `invalid_condition`, with the place inside the condition. Except for the size, it does not check what [`validate`](Self::validate)
    /// does.
    pub fn from_bson(document: &RawDocument) -> Result<Self, Invalid> {
        read(document, "condition", &as_it_is)
    }

    /// Writes a condition as BSON.
    ///
    /// # Errors
    /// `invalid_condition` for values that BSON does not allow, which [`validate`](Self::validate) finds too.
    pub fn to_bson(&self) -> Result<RawDocumentBuf, Invalid> {
        let written = Written::of(self);
        let mut document = RawDocumentBuf::new();
        if !written.field.is_empty() {
            document.append(cstr!("field"), written.field.as_str());
        }
        document.append(cstr!("operator"), written.operator.unwrap_or_default().to_string());
        if let Some(Operand(value)) = written.value {
            let value =
                RawBson::try_from(value).map_err(|error| invalid("value", format!("cannot be stored: {error}")))?;
            document.append(cstr!("value"), value);
        }
        if !written.children.is_empty() {
            let mut children = RawArrayBuf::new();
            for child in &written.children {
                children.push(child.to_bson()?);
            }
            document.append(cstr!("children"), children);
        }
        if !written.options.is_empty() {
            document.append(cstr!("options"), options(&written.options));
        }
        Ok(document)
    }
}

/// Converts a BSON value, if all of it can be read.
pub(crate) fn as_it_is(path: &str, value: RawBsonRef<'_>) -> Result<Bson, Invalid> {
    readable_value(value, 0).map_err(|error| body(path, error.message))?;
    Bson::try_from(value).map_err(|error| body(path, error))
}

/// Reads the condition at this path of a body.
pub(crate) fn read(document: &RawDocument, at: &str, values: Values<'_>) -> Result<Condition, Invalid> {
    let read = Reader { values, parts: 0 }.condition(document, at, 0);
    read.map_err(|error| Invalid { code: Code::InvalidCondition, ..error })
}

/// Reads a condition part by part, up to the maximum number of parts.
struct Reader<'a> {
    values: Values<'a>,
    parts: usize,
}

impl Reader<'_> {
    fn condition(&mut self, document: &RawDocument, at: &str, depth: usize) -> Result<Condition, Invalid> {
        self.parts += 1;
        if depth > limits::DATA_DEPTH_MAX || self.parts > limits::CONDITION_NODES_MAX {
            let (deep, many) = (limits::DATA_DEPTH_MAX, limits::CONDITION_NODES_MAX);
            let message = format!(
                "has more than {many} parts or is nested deeper than {deep}; simplify it, or split it into several queries"
            );
            return Err(invalid(at, message));
        }
        let mut written = Written::default();
        fields(document, at, |name, path, value| {
            match name {
                "field" => written.field = text(path, value)?.to_string(),
                "operator" => written.operator = Some(operator(path, &text(path, value)?)?),
                "value" => written.value = Some(Operand((self.values)(path, value)?)),
                "children" => elements(path, value, |path, child| {
                    written.children.push(self.condition(nested(path, child)?, path, depth + 1)?);
                    Ok(())
                })?,
                "options" => written.options = read_options(path, nested(path, value)?)?,
                _ => return Err(unknown(path)),
            }
            Ok(())
        })?;
        written.read().map_err(|message| invalid(at, message))
    }
}

fn operator(path: &str, name: &str) -> Result<Operator, Invalid> {
    Operator::of(name)
        .ok_or_else(|| invalid(path, format!("{name:?} is not an operator; use one such as EQ, AND or TODAY")))
}

fn options(options: &WrittenOptions) -> RawDocumentBuf {
    let mut document = RawDocumentBuf::new();
    if let Some(ignore_case) = options.ignore_case {
        document.append(cstr!("ignoreCase"), ignore_case);
    }
    if let Some(zone) = &options.zone_id {
        document.append(cstr!("zoneId"), zone.as_str());
    }
    if let Some(pattern) = &options.date_pattern {
        document.append(cstr!("datePattern"), pattern.as_str());
    }
    document
}

fn read_options(at: &str, document: &RawDocument) -> Result<WrittenOptions, Invalid> {
    let mut options = WrittenOptions::default();
    fields(document, at, |name, path, value| {
        match name {
            "ignoreCase" => options.ignore_case = Some(boolean(path, value)?),
            "zoneId" => options.zone_id = Some(text(path, value)?.to_string()),
            "datePattern" => options.date_pattern = Some(text(path, value)?.to_string()),
            _ => return Err(unknown(path)),
        }
        Ok(())
    })?;
    Ok(options)
}

fn invalid(path: &str, message: String) -> Invalid {
    Invalid::new(Code::InvalidCondition, path, message)
}
