//! The `Date` header of responses over HTTP/2, and which times of the machine's clock a `Date` can state.
//!
//! The HTTP library writes the header of HTTP/1 itself. On every poll of such a connection, with or without the header, it formats the
//! machine's time, and panics outside of the years 1970 to 9999.

use std::cell::RefCell;

use annals_core::Timestamp;
use axum::http::HeaderValue;

/// The earliest time that the header can state: 1970-01-01T00:00:00Z.
const FIRST: Timestamp = Timestamp::from_millis(0);
const SECOND_MILLIS: i64 = 1_000;
const DAY_MILLIS: i64 = 86_400 * SECOND_MILLIS;

const WEEKDAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

thread_local! {
    /// The second that was written last, and its header.
    static WRITTEN: RefCell<(i64, HeaderValue)> = const { RefCell::new((-1, HeaderValue::from_static(""))) };
}

/// Returns whether a `Date` can state this time of the machine's clock. The clock shows the latest writable time instead of later ones.
pub(crate) fn can_state(time: Timestamp) -> bool {
    (FIRST..Timestamp::LAST_WRITABLE).contains(&time)
}

/// Returns the header for this time, or for the nearest time that it can state.
pub(crate) fn header(time: Timestamp) -> HeaderValue {
    let time = time.clamp(FIRST, Timestamp::LAST_WRITABLE);
    let second = time.as_millis() / SECOND_MILLIS;
    WRITTEN.with_borrow_mut(|(written, header)| {
        if *written != second
            && let Ok(value) = HeaderValue::try_from(text(time))
        {
            (*written, *header) = (second, value);
        }
        header.clone()
    })
}

/// Writes a time between 1970 and 9999 as an IMF-fixdate (RFC 9110), for example `Sun, 06 Nov 1994 08:49:37 GMT`.
fn text(time: Timestamp) -> String {
    // 1970 began with a Thursday.
    let weekday = WEEKDAYS[(time.as_millis() / DAY_MILLIS).rem_euclid(7) as usize];
    let rfc3339 = time.to_string();
    let (year, day, clock) = (&rfc3339[..4], &rfc3339[8..10], &rfc3339[11..19]);
    let month = rfc3339[5..7].parse().ok().and_then(|month: usize| MONTHS.get(month.checked_sub(1)?));
    format!("{weekday}, {day} {} {year} {clock} GMT", month.unwrap_or(&MONTHS[0]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_written_as_http_does_and_what_it_cannot_state_as_the_nearest() {
        for (time, due) in [
            ("1994-11-06T08:49:37Z", "Sun, 06 Nov 1994 08:49:37 GMT"),
            ("1994-11-06T08:49:37.999Z", "Sun, 06 Nov 1994 08:49:37 GMT"),
            ("2000-02-29T23:59:59Z", "Tue, 29 Feb 2000 23:59:59 GMT"),
            ("1970-01-01T00:00:00Z", "Thu, 01 Jan 1970 00:00:00 GMT"),
            ("1969-12-31T23:59:59Z", "Thu, 01 Jan 1970 00:00:00 GMT"),
            ("9999-12-31T23:59:59.999Z", "Fri, 31 Dec 9999 23:59:59 GMT"),
        ] {
            assert_eq!(header(Timestamp::parse(time).expect("a time")), due);
        }
        assert_eq!(header(Timestamp::from_millis(i64::MAX)), "Fri, 31 Dec 9999 23:59:59 GMT");
    }

    #[test]
    fn times_before_1970_and_after_9999_cannot_be_stated() {
        let last = Timestamp::LAST_WRITABLE;
        let stated = [-1, 0, last.as_millis() - 1].map(|millis| can_state(Timestamp::from_millis(millis)));
        assert_eq!((stated, can_state(last)), ([false, true, true], false));
    }
}
