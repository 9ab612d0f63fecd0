//! Windows of time relative to the clock: `today`, `lastWeek`, `recentDays`.
//!
//! A day begins at its first instant in the time zone, and ends one millisecond before the next day begins. A week with a change to or
//! from daylight-saving time is therefore an hour shorter or longer.

mod pattern;

use std::fmt;

use bson::Bson;
use jiff::civil::Date;
use jiff::tz::TimeZone;
use jiff::{ToSpan, Zoned};

use self::pattern::Pattern;
use super::operator::Operator;
use super::{Now, Test};
use crate::limits;

/// A window of time. Fields hold milliseconds since 1970-01-01 UTC, or strings in a pattern that sorts chronologically.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Window {
    /// The days of the window.
    pub days: Days,
    /// The time zone of the days, for example `Europe/Berlin`; if absent, that of the caller who resolves the window.
    pub zone: Option<String>,
    /// The pattern of the field's times, for example `yyyy-MM-dd HH:mm:ss`.
    pub pattern: Option<String>,
}

/// The days of a window. Weeks begin on Monday.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
#[allow(missing_docs, reason = "most of them say it")]
pub enum Days {
    Today,
    Tomorrow,
    ThisWeek,
    NextWeek,
    LastWeek,
    ThisMonth,
    LastMonth,
    /// This many days up to and including today.
    Recent(u32),
    /// All days before the last this many.
    Earlier(u32),
    /// All time before today at this time of day.
    BeforeToday(TimeOfDay),
}

/// A time of day, in whole milliseconds since midnight.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct TimeOfDay(u32);

impl From<Days> for Window {
    fn from(days: Days) -> Self {
        Self { days, zone: None, pattern: None }
    }
}

impl Window {
    /// Sets the time zone, by its name in the IANA database.
    pub fn in_zone(self, zone: impl Into<String>) -> Self {
        Self { zone: Some(zone.into()), ..self }
    }

    /// Sets the pattern of the strings that the field holds.
    pub fn written_as(self, pattern: impl Into<String>) -> Self {
        Self { pattern: Some(pattern.into()), ..self }
    }

    /// Returns the test that a field passes if it is in the window now.
    pub(super) fn resolved(&self, now: &Now) -> Result<Test, String> {
        let zone = match &self.zone {
            Some(name) => zone(name)?,
            None => now.zone.clone(),
        };
        let pattern = self.pattern.as_deref().map(Pattern::parse).transpose()?;
        let value = |time: Zoned| match &pattern {
            Some(pattern) => Bson::String(pattern.format(&time)),
            None => Bson::Int64(time.timestamp().as_millisecond()),
        };
        let bounds = Bounds::of(self.days, now, &zone)
            .ok_or_else(|| format!("{} days reach outside the range of times", self.days))?;
        Ok(match bounds {
            Bounds::Before(time) => Test::Lt(value(time)),
            Bounds::Within(first, last) => Test::Between(value(first), value(last)),
        })
    }

    pub(super) fn validate(&self) -> Result<(), String> {
        match self.days {
            Days::Recent(days) | Days::Earlier(days) if days > limits::WINDOW_DAYS_MAX => {
                Err(format!("{} reaches back more than {} days", self.days, limits::WINDOW_DAYS_MAX))
            }
            _ => Ok(()),
        }
    }
}

/// Returns the time zone of this name.
pub(super) fn zone(name: &str) -> Result<TimeZone, String> {
    TimeZone::get(name).map_err(|_| format!("time zone {name:?} is unknown; give one such as Europe/Berlin or UTC"))
}

enum Bounds {
    Before(Zoned),
    /// Both ends are included.
    Within(Zoned, Zoned),
}

impl Bounds {
    /// Returns `None` outside of the years that can be represented.
    fn of(days: Days, now: &Now, zone: &TimeZone) -> Option<Self> {
        let here = jiff::Timestamp::from_millisecond(now.at.as_millis()).ok()?.to_zoned(zone.clone());
        let today = here.date();
        let later = |date: Date, days: i64| date.checked_add(days.days()).ok();
        let start = |date: Date| date.to_zoned(zone.clone()).ok();
        let end = |date: Date| start(later(date, 1)?)?.checked_sub(1.millisecond()).ok();
        let days_from = |first: Date, last: Date| Some(Self::Within(start(first)?, end(last)?));
        let monday = later(today, -i64::from(today.weekday().to_monday_zero_offset()))?;
        let week = |first: Date| days_from(first, later(first, 6)?);
        match days {
            Days::Today => days_from(today, today),
            Days::Tomorrow => days_from(later(today, 1)?, later(today, 1)?),
            Days::ThisWeek => week(monday),
            Days::NextWeek => week(later(monday, 7)?),
            Days::LastWeek => week(later(monday, -7)?),
            Days::ThisMonth => days_from(today.first_of_month(), today.last_of_month()),
            Days::LastMonth => {
                let last = later(today.first_of_month(), -1)?;
                days_from(last.first_of_month(), last)
            }
            Days::Recent(days) => days_from(later(today, 1 - i64::from(days))?, today),
            Days::Earlier(days) => Some(Self::Before(start(later(today, 1 - i64::from(days))?)?)),
            Days::BeforeToday(time) => Some(Self::Before(at(today, time)?.to_zoned(zone.clone()).ok()?)),
        }
    }
}

fn at(date: Date, time: TimeOfDay) -> Option<jiff::civil::DateTime> {
    let [hours, minutes, seconds, millis] = time.parts();
    let time = jiff::civil::Time::new(hours as i8, minutes as i8, seconds as i8, millis as i32 * 1_000_000).ok()?;
    Some(date.to_datetime(time))
}

impl TimeOfDay {
    /// Returns the time this many seconds after midnight; `None` from 24 hours on.
    pub const fn from_seconds(seconds: u32) -> Option<Self> {
        if seconds < 86_400 { Some(Self(seconds * 1_000)) } else { None }
    }

    /// Reads `12:00`, `12:00:30` or `12:00:30.5`; digits below a millisecond are dropped.
    ///
    /// # Errors
    /// A sentence that says what is wrong.
    pub fn parse(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} is not a time of day; write it as 12:00 or 12:00:30");
        let time: jiff::civil::Time = text.parse().map_err(|_| wrong())?;
        let begins_as_time = text.as_bytes().get(2) == Some(&b':');
        if !begins_as_time {
            return Err(wrong());
        }
        let seconds = (time.hour() as u32 * 60 + time.minute() as u32) * 60 + time.second() as u32;
        Ok(Self(seconds * 1_000 + time.millisecond() as u32))
    }

    /// Returns hours, minutes, seconds and milliseconds.
    fn parts(self) -> [u32; 4] {
        let seconds = self.0 / 1_000;
        [seconds / 3_600, seconds / 60 % 60, seconds % 60, self.0 % 1_000]
    }
}

impl fmt::Display for TimeOfDay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [hours, minutes, seconds, millis] = self.parts();
        write!(f, "{hours:02}:{minutes:02}:{seconds:02}")?;
        if millis > 0 { write!(f, ".{millis:03}") } else { Ok(()) }
    }
}

impl Days {
    pub(super) fn operator(self) -> Operator {
        match self {
            Self::Today => Operator::Today,
            Self::Tomorrow => Operator::Tomorrow,
            Self::ThisWeek => Operator::ThisWeek,
            Self::NextWeek => Operator::NextWeek,
            Self::LastWeek => Operator::LastWeek,
            Self::ThisMonth => Operator::ThisMonth,
            Self::LastMonth => Operator::LastMonth,
            Self::Recent(_) => Operator::RecentDays,
            Self::Earlier(_) => Operator::EarlierDays,
            Self::BeforeToday(_) => Operator::BeforeToday,
        }
    }
}

impl fmt::Display for Days {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.operator().fmt(f)
    }
}
