//! Formats parts of JSON documents as text for people.

use serde_json::Value;

/// The number of characters of a value that a table shows.
const SHOWN_CHARS_MAX: usize = 160;

/// Returns the value at a dotted path as text: strings as they are, nothing for null or a missing value, and JSON for the rest.
pub(crate) fn text(value: &Value, path: &str) -> String {
    shown(at(value, path))
}

/// Returns a value as text.
pub(crate) fn shown(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// Returns the value at a dotted path, or null if it is missing.
pub(crate) fn at<'a>(value: &'a Value, path: &str) -> &'a Value {
    path.split('.').fold(value, |value, part| value.get(part).unwrap_or(&Value::Null))
}

/// Returns the number at a path, or 0 if it is missing.
pub(crate) fn number(value: &Value, path: &str) -> u64 {
    at(value, path).as_u64().unwrap_or(0)
}

/// Returns the elements of the array at a path.
pub(crate) fn items<'a>(value: &'a Value, path: &str) -> &'a [Value] {
    at(value, path).as_array().map_or(&[], Vec::as_slice)
}

/// Returns the array at a path as words separated by commas.
pub(crate) fn list(value: &Value, path: &str) -> String {
    items(value, path).iter().map(shown).collect::<Vec<_>>().join(", ")
}

/// Returns JSON for people, over several lines.
pub(crate) fn pretty(value: &Value) -> String {
    serde_json::to_string_pretty(value).unwrap_or_default()
}

/// Returns the beginning of a text.
pub(crate) fn cut(text: &str) -> String {
    match text.char_indices().nth(SHOWN_CHARS_MAX) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// Formats a number of bytes for people.
pub(crate) fn bytes(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut amount = bytes as f64 / 1024.0;
    let mut unit = 0;
    while amount >= 1024.0 && unit + 1 < UNITS.len() {
        amount /= 1024.0;
        unit += 1;
    }
    format!("{amount:.1} {}", UNITS[unit])
}

/// Formats a number with thin spaces between groups of three digits.
pub(crate) fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push('\u{202f}');
        }
        text.push(digit);
    }
    text
}

/// Returns the CSS class of a state.
pub(crate) fn tone(state: &str) -> &'static str {
    match state {
        "running" | "active" | "ready" | "done" | "completed" | "retried" | "success" | "SUCCESS" | "normal" => "good",
        "paused" | "connecting" | "catching_up" | "retrying" | "expired" | "compensating" | "scheduled" | "pending"
        | "warning" | "awaiting" | "PROCESSING" => "warn",
        "blocked" | "failing" | "refused" | "failed" | "revoked" | "degraded" | "timeout" | "parked" | "critical"
        | "exhausted" | "FAILED" => "bad",
        _ => "soft",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_are_shown_as_people_write_them() {
        let value = json!({"a": {"b": "x", "n": 7}, "list": ["p", 2]});
        assert_eq!(
            (text(&value, "a.b"), text(&value, "a.n"), text(&value, "a.z")),
            ("x".into(), "7".into(), String::new())
        );
        assert_eq!(list(&value, "list"), "p, 2");
        assert_eq!((bytes(1023), bytes(1536), bytes(5 << 30)), ("1023 B".into(), "1.5 KiB".into(), "5.0 GiB".into()));
        assert_eq!(count(1234567).split('\u{202f}').collect::<Vec<_>>(), ["1", "234", "567"]);
        assert_eq!(cut(&"ž".repeat(200)).chars().count(), SHOWN_CHARS_MAX + 1);
    }
}
