//! Conditions as a person types them: `state.status = 'PAID' and (state.total > 50 or tags contains 'new')`.
//!
//! ```text
//! condition = every { "or" every }
//! every     = part { "and" part }
//! part      = "(" condition ")"
//!           | "nor" "(" condition { "," condition } ")"
//!           | "all" | about value                    about: id ids aggregateId aggregateIds tenantId ownerId spaceId deleted match raw
//!           | path test
//! test      = compare value                          compare: eq ne gt lt gte lte, or = != > < >= <=
//!           | ( "contains" | "startsWith" | "endsWith" ) value [ "ignoreCase" ]
//!           | ( "isIn" | "notIn" | "allIn" | "between" ) list
//!           | "elemMatch" "(" condition ")"
//!           | "isNull" | "notNull" | "isTrue" | "isFalse" | "exists" [ "true" | "false" ]
//!           | window [ value ] [ "zone" value ] [ "pattern" value ]
//!                                                    window: today beforeToday tomorrow thisWeek … recentDays earlierDays
//! path      = letters, digits and _ - . of any alphabet, or anything between backticks
//! value     = JSON, where texts may stand in single quotes ('it''s') and names of fields without any; objects such as
//!             {$date: '2026-01-01T00:00:00Z'} are Extended JSON
//! ```

mod scan;

use bson::Bson;

use self::scan::Scan;
use super::Condition;
use super::json::{Operand, Written};
use super::operator::Operator;
use crate::{Code, Invalid, limits};

/// A result, or what is wrong and at which byte.
type Found<T> = Result<T, (usize, String)>;

impl Condition {
    /// Parses a condition as a person types it, for example `state.status = 'PAID' and tags isIn ['a', 'b']`; an empty text selects every
    /// document. The documentation of the command line has the grammar.
    ///
    /// # Errors
    /// `invalid_condition`, with the position of the error in characters.
    pub fn parse(text: &str) -> Result<Self, Invalid> {
        let mut scan = Scan::new(text);
        let read = match scan.is_at_end() {
            true => Ok(Self::All),
            false => Parser { scan: &mut scan, depth: 0 }.whole(),
        };
        read.map_err(|(at, message)| {
            let rest: String = text[at..].chars().take(20).collect();
            let place = if rest.is_empty() { "the end".to_owned() } else { format!("{rest:?}") };
            let character = character_at(text, at);
            Invalid::new(Code::InvalidCondition, "condition", format!("{message} at character {character}, {place}"))
        })
    }
}

/// Reads a value in its relaxed spelling, for example the text of a filter document.
pub(super) fn relaxed_value(text: &str) -> Result<Bson, String> {
    let mut scan = Scan::new(text);
    let value = scan.value().map_err(|(at, message)| format!("{message} at character {}", character_at(text, at)))?;
    match scan.is_at_end() {
        true => Ok(value),
        false => Err("is not one value".to_owned()),
    }
}

/// Returns the number of the character at this byte, from 1.
fn character_at(text: &str, at: usize) -> usize {
    text[..at].chars().count() + 1
}

struct Parser<'s, 't> {
    scan: &'s mut Scan<'t>,
    depth: usize,
}

impl Parser<'_, '_> {
    fn whole(&mut self) -> Found<Condition> {
        let condition = self.condition()?;
        match self.scan.is_at_end() {
            true => Ok(condition),
            false => Err((self.scan.at(), "and, or, or the end is expected".to_owned())),
        }
    }

    fn condition(&mut self) -> Found<Condition> {
        self.depth += 1;
        if self.depth > limits::DATA_DEPTH_MAX {
            return Err((self.scan.at(), "parentheses are nested too deeply".to_owned()));
        }
        let condition = self.joined(Operator::Or, |this| this.joined(Operator::And, Self::part));
        self.depth -= 1;
        condition
    }

    /// Parses one or more parts, joined by the operator's name.
    fn joined(&mut self, operator: Operator, part: impl Fn(&mut Self) -> Found<Condition>) -> Found<Condition> {
        let mut parts = vec![part(self)?];
        let name = if operator == Operator::Or { "or" } else { "and" };
        while self.scan.takes_word(name) {
            parts.push(part(self)?);
        }
        Ok(match (parts.len(), operator) {
            (1, _) => parts.remove(0),
            (_, Operator::Or) => Condition::Or(parts),
            _ => Condition::And(parts),
        })
    }

    fn part(&mut self) -> Found<Condition> {
        if self.scan.takes("(") {
            let condition = self.condition()?;
            self.scan.needs(")")?;
            return Ok(condition);
        }
        let start = self.scan.at();
        if let Some(path) = self.scan.quoted_path()? {
            return self.test(start, path);
        }
        let Some(word) = self.scan.word() else {
            return Err((start, "a field or ( is expected".to_owned()));
        };
        match Operator::of(word).filter(|_| word.starts_with(|first: char| first.is_ascii_lowercase())) {
            Some(Operator::All) => Ok(Condition::All),
            Some(Operator::Nor) => self.nor(),
            Some(operator) if operator.is_about_the_document() => {
                if self.scan.comparison().is_some() {
                    let message = "is an operator that takes its value directly, without a sign";
                    return Err((
                        start,
                        format!("{word} {message}: {word} VALUE. Put a field of that name in backticks"),
                    ));
                }
                let value = self.scan.value()?;
                finished(start, Written { operator: Some(operator), value: Some(Operand(value)), ..Written::default() })
            }
            Some(_) => {
                Err((start, format!("{word} is an operator, and a field is expected (in backticks if it is one)")))
            }
            None => self.test(start, word.to_owned()),
        }
    }

    fn nor(&mut self) -> Found<Condition> {
        self.scan.needs("(")?;
        let mut children = vec![self.condition()?];
        while self.scan.takes(",") {
            children.push(self.condition()?);
        }
        self.scan.needs(")")?;
        Ok(Condition::Nor(children))
    }

    fn test(&mut self, start: usize, field: String) -> Found<Condition> {
        let at = self.scan.at();
        let operator = match self.scan.comparison() {
            Some(operator) => operator,
            None => {
                let known = Operator::of_word(self.scan.word().unwrap_or_default());
                known.ok_or_else(|| (at, "an operator such as =, isIn or startsWith is expected".to_owned()))?
            }
        };
        let mut written = Written { field, operator: Some(operator), ..Written::default() };
        match operator {
            Operator::Null | Operator::NotNull | Operator::True | Operator::False => {}
            Operator::ElemMatch => {
                self.scan.needs("(")?;
                written.children.push(self.condition()?);
                self.scan.needs(")")?;
            }
            Operator::Exists => {
                let there = [("true", true), ("false", false)].into_iter().find(|(word, _)| self.scan.takes_word(word));
                written.value = there.map(|(_, there)| Operand(there.into()));
            }
            operator if operator.is_of_time() => {
                if matches!(operator, Operator::RecentDays | Operator::EarlierDays | Operator::BeforeToday) {
                    written.value = Some(Operand(self.scan.value()?));
                }
                if self.scan.takes_word("zone") {
                    written.options.zone_id = Some(self.scan.text()?);
                }
                if self.scan.takes_word("pattern") {
                    written.options.date_pattern = Some(self.scan.text()?);
                }
            }
            operator => {
                written.value = Some(Operand(self.scan.value()?));
                if operator.is_of_text() && self.scan.takes_word("ignoreCase") {
                    written.options.ignore_case = Some(true);
                }
            }
        }
        finished(start, written)
    }
}

fn finished(start: usize, written: Written) -> Found<Condition> {
    written.read().map_err(|message| (start, message))
}

#[cfg(test)]
mod tests;
