//! Windows of time that move with the clock: `today`, `lastWeek`, `recentDays`.
//!
//! A day begins at the first moment that the zone's rules give it, and ends one millisecond before the next one begins. So a week in which
//! the clocks change is an hour longer or shorter, as people there have it.

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

/// A window of time. Fields hold milliseconds since 1970-01-01 UTC, or texts in a pattern whose texts sort as their times do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Window {
    /// Which days.
    pub days: Days,
    /// The zone whose days they are, for example `Europe/Berlin`; without one, the one it is resolved with.
    pub zone: Option<String>,
    /// How the field's times are written, for example `yyyy-MM-dd HH:mm:ss`.
    pub pattern: Option<String>,
}

/// Which days a window holds. Weeks begin on Monday.
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
    /// The last so many, today included.
    Recent(u32),
    /// All before the last so many.
    Earlier(u32),
    /// All before today at this time.
    BeforeToday(TimeOfDay),
}

/// A time of the day, in whole milliseconds since midnight.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct TimeOfDay(u32);

impl From<Days> for Window {
    fn from(days: Days) -> Self {
        Self { days, zone: None, pattern: None }
    }
}

impl Window {
    /// The days of this zone, named as in the IANA database.
    pub fn in_zone(self, zone: impl Into<String>) -> Self {
        Self { zone: Some(zone.into()), ..self }
    }

    /// The field holds texts of this pattern.
    pub fn written_as(self, pattern: impl Into<String>) -> Self {
        Self { pattern: Some(pattern.into()), ..self }
    }

    /// What a field must pass to lie in it now.
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
        let bounds = Bounds::of(self.days, now, &zone).ok_or_else(|| format!("{} is out of time", self.days))?;
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

/// The zone of a name.
pub(super) fn zone(name: &str) -> Result<TimeZone, String> {
    TimeZone::get(name).map_err(|_| format!("zone {name:?} is not known; name one as Europe/Berlin or UTC"))
}

enum Bounds {
    Before(Zoned),
    /// Both ends are in it.
    Within(Zoned, Zoned),
}

impl Bounds {
    /// None past the years that can be written.
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
            Days::BeforeToday(time) => Some(Self::Before(today.at_time(time)?.to_zoned(zone.clone()).ok()?)),
        }
    }
}

trait AtTime {
    fn at_time(self, time: TimeOfDay) -> Option<jiff::civil::DateTime>;
}

impl AtTime for Date {
    fn at_time(self, time: TimeOfDay) -> Option<jiff::civil::DateTime> {
        let [hours, minutes, seconds, millis] = time.parts();
        let time = jiff::civil::Time::new(hours as i8, minutes as i8, seconds as i8, millis as i32 * 1_000_000).ok()?;
        Some(self.to_datetime(time))
    }
}

impl TimeOfDay {
    /// So many seconds after midnight; none from a whole day on.
    pub const fn from_seconds(seconds: u32) -> Option<Self> {
        if seconds < 86_400 { Some(Self(seconds * 1_000)) } else { None }
    }

    /// Reads `12:00`, `12:00:30` or `12:00:30.5`; what is below a millisecond is cut off.
    ///
    /// # Errors
    /// A sentence that says what is wrong.
    pub fn parse(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} is no time of the day; write it as 12:00 or 12:00:30");
        let time: jiff::civil::Time = text.parse().map_err(|_| wrong())?;
        let begins_as_time = text.as_bytes().get(2) == Some(&b':');
        if !begins_as_time {
            return Err(wrong());
        }
        let seconds = (time.hour() as u32 * 60 + time.minute() as u32) * 60 + time.second() as u32;
        Ok(Self(seconds * 1_000 + time.millisecond() as u32))
    }

    /// Hours, minutes, seconds, milliseconds.
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
