//! Parses SPDX licence expressions: `MIT OR (Apache-2.0 AND ISC)`, also with the old `/` for OR.

use std::collections::BTreeSet;

/// Returns whether the allowed licences permit the use of what is under `expression`. An expression that cannot be parsed is not allowed.
pub fn allowed(expression: &str, allow: &BTreeSet<String>) -> bool {
    let spaced = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut rest = words.as_slice();
    any_of(&mut rest, allow) == Some(true) && rest.is_empty()
}

/// `all_of OR all_of …`
fn any_of(rest: &mut &[&str], allow: &BTreeSet<String>) -> Option<bool> {
    let mut allowed = all_of(rest, allow)?;
    while take(rest, "OR") {
        allowed |= all_of(rest, allow)?;
    }
    Some(allowed)
}

/// `one AND one …`
fn all_of(rest: &mut &[&str], allow: &BTreeSet<String>) -> Option<bool> {
    let mut allowed = one(rest, allow)?;
    while take(rest, "AND") {
        allowed &= one(rest, allow)?;
    }
    Some(allowed)
}

/// Parses a licence, possibly with an exception, or an expression in parentheses.
fn one(rest: &mut &[&str], allow: &BTreeSet<String>) -> Option<bool> {
    if take(rest, "(") {
        let allowed = any_of(rest, allow);
        return if take(rest, ")") { allowed } else { None };
    }
    let (licence, behind) = rest.split_first()?;
    *rest = behind;
    if take(rest, "WITH") {
        let (exception, behind) = rest.split_first()?;
        *rest = behind;
        return Some(allow.contains(&format!("{licence} WITH {exception}")) || allow.contains(*licence));
    }
    Some(allow.contains(*licence))
}

fn take(rest: &mut &[&str], word: &str) -> bool {
    match rest.split_first() {
        Some((first, behind)) if *first == word => {
            *rest = behind;
            true
        }
        _ => false,
    }
}
