//! The wait that a response asks for with `Retry-After`.

use std::time::Duration;

use annals_core::Timestamp;
use hyper::header::{DATE, HeaderMap, HeaderName, RETRY_AFTER};

/// The names of months in dates of HTTP.
const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/// Returns the wait that a response asks for: a number of seconds, or the time until a date. It is counted from the date of the response
/// if there is one, and from `now` otherwise, because the clock of the sender may differ from this one.
pub(super) fn retry_after(headers: &HeaderMap, now: Timestamp) -> Option<Duration> {
    let asked = text(headers, RETRY_AFTER)?;
    if let Ok(seconds) = asked.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let from = text(headers, DATE).and_then(time_of).unwrap_or(now);
    Some(time_of(asked)?.since(from))
}

fn text(headers: &HeaderMap, name: HeaderName) -> Option<&str> {
    headers.get(name)?.to_str().ok().map(str::trim)
}

/// Returns the time of a date such as `Sun, 06 Nov 1994 08:49:37 GMT`. The two other forms have been obsolete since 1997 and are not read.
fn time_of(date: &str) -> Option<Timestamp> {
    let (_, date) = date.split_once(", ")?;
    let parts: Vec<&str> = date.split(' ').collect();
    let [day, month, year, time, "GMT"] = parts[..] else { return None };
    let month = 1 + MONTHS.iter().position(|known| *known == month)?;
    Timestamp::parse(&format!("{year}-{month:02}-{day}T{time}Z")).ok()
}

#[cfg(test)]
mod tests {
    use hyper::header::HeaderValue;

    use super::*;

    fn asked(retry_after: &'static str, date: &'static str) -> Option<u64> {
        let mut headers = HeaderMap::new();
        headers.insert(RETRY_AFTER, HeaderValue::from_static(retry_after));
        headers.insert(DATE, HeaderValue::from_static(date));
        let now = Timestamp::parse("2026-10-21T07:00:00Z").expect("a time");
        super::retry_after(&headers, now).map(|wait| wait.as_secs())
    }

    #[test]
    fn a_wait_is_a_number_of_seconds_or_lasts_until_a_date() {
        let date = "Wed, 21 Oct 2026 07:28:00 GMT";
        for (retry_after, of_response, due) in [
            ("120", date, Some(120)),
            (" 7 ", "", Some(7)),
            ("Wed, 21 Oct 2026 07:30:00 GMT", date, Some(120)),
            ("Thu, 01 Jan 2026 00:00:00 GMT", date, Some(0)),
            // Counted from now.
            (date, "", Some(28 * 60)),
            (date, "yesterday", Some(28 * 60)),
            ("-1", date, None),
            ("soon", date, None),
            ("Wed, 21 Okt 2026 07:30:00 GMT", date, None),
            ("Wed, 21 Oct 2026 07:30:00 CET", date, None),
            ("Wed, 41 Oct 2026 07:30:00 GMT", date, None),
        ] {
            assert_eq!(asked(retry_after, of_response), due, "{retry_after}, {of_response}");
        }
        assert_eq!(super::retry_after(&HeaderMap::new(), Timestamp::default()), None);
    }
}
