//! Points in time, and the ports that provide time and random numbers.

use std::fmt;
use std::pin::Pin;
use std::time::Duration;

use jiff::SignedDuration;
use jiff::civil::DateTime;
use jiff::fmt::temporal::Pieces;

/// A point in time in whole milliseconds since 1970-01-01 UTC; RFC 3339 in text.
///
/// It says when something happened and is never used for ordering; sequence numbers are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Timestamp(i64);

/// 1970-01-01T00:00:00, in UTC.
const EPOCH: DateTime = DateTime::constant(1970, 1, 1, 0, 0, 0, 0);
/// RFC 3339 counts the hours of an offset from 00 to 23.
const OFFSET_SECONDS_MAX: i32 = 24 * 60 * 60 - 1;

impl Timestamp {
    /// The earliest time that can be written as text: early in the year -9999.
    pub const FIRST_WRITABLE: Self = Self(-377_705_023_201_000);
    /// The latest time that can be written as text: `9999-12-31T23:59:59.999Z`.
    pub const LAST_WRITABLE: Self = Self(253_402_300_799_999);

    /// Returns the time this many milliseconds after 1970-01-01 UTC.
    pub const fn from_millis(millis: i64) -> Self {
        Self(millis)
    }

    /// Returns the milliseconds since 1970-01-01 UTC.
    pub const fn as_millis(self) -> i64 {
        self.0
    }

    /// Returns the time this much later, rounded up to whole milliseconds. Saturates at the latest possible time.
    pub fn plus(self, time: Duration) -> Self {
        let millis = time.as_nanos().div_ceil(1_000_000);
        Self(self.0.saturating_add(i64::try_from(millis).unwrap_or(i64::MAX)))
    }

    /// Returns the time from `earlier` to this point, or zero if `earlier` is later.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }

    /// Returns whether RFC 3339 can represent it. Events have no other times.
    pub fn is_writable(self) -> bool {
        (Self::FIRST_WRITABLE..=Self::LAST_WRITABLE).contains(&self)
    }

    /// Returns the nearest time that RFC 3339 can represent, so that a clock that is far off does not produce unreadable times.
    #[must_use]
    pub fn nearest_writable(self) -> Self {
        self.clamp(Self::FIRST_WRITABLE, Self::LAST_WRITABLE)
    }

    /// Parses RFC 3339, for example `2026-03-01T12:00:00.123Z`; digits below a millisecond are truncated.
    ///
    /// # Errors
    /// A sentence that says what is wrong with the text.
    pub fn parse(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} is not an RFC 3339 time such as 2026-03-01T12:00:00.123Z");
        let pieces = Pieces::parse(text).map_err(|_| wrong())?;
        let (Some(time), Some(offset)) = (pieces.time(), pieces.to_numeric_offset()) else { return Err(wrong()) };
        if offset.seconds().abs() > OFFSET_SECONDS_MAX {
            return Err(format!("{text:?} has an offset of a day or more; RFC 3339 has those from -23:59 to +23:59"));
        }
        let there = pieces.date().to_datetime(time).duration_since(EPOCH);
        let here = there - SignedDuration::from_secs(offset.seconds().into());
        let time = i64::try_from(here.as_millis()).map(Self).ok().filter(|time| time.is_writable());
        let (first, last) = (Self::FIRST_WRITABLE, Self::LAST_WRITABLE);
        time.ok_or_else(|| format!("{text:?} is not a time from {first} to {last}"))
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match EPOCH.checked_add(SignedDuration::from_millis(self.0)) {
            Ok(time) => write!(f, "{time:.3}Z"),
            Err(_) => write!(f, "{}ms", self.0),
        }
    }
}

impl serde::Serialize for Timestamp {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> serde::Deserialize<'de> for Timestamp {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = <std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
        Self::parse(&text).map_err(serde::de::Error::custom)
    }
}

/// Provides the current time and timers. Only its implementations read the system's clock or sleep on it, so that a test runs thirty days
/// of retries in milliseconds. Waits for a server, a socket or another process use `annals_system::Instant`, the time of the process,
/// because a test's clock does not affect those.
pub trait Clock: Send + Sync + 'static {
    /// Returns the current time.
    fn now(&self) -> Timestamp;

    /// Waits until [`now`](Self::now) has reached `at`; returns immediately if `at` is in the past. Cancelling is safe.
    fn sleep_until(&self, at: Timestamp) -> Sleep<'_>;

    /// Waits for this duration. Cancelling is safe.
    fn sleep(&self, time: Duration) -> Sleep<'_> {
        self.sleep_until(self.now().plus(time))
    }
}

/// The future of a sleep.
pub type Sleep<'a> = Pin<Box<dyn Future<Output = ()> + Send + 'a>>;

/// A source of random bits. Only its implementations ask the system for them.
pub trait Randomness: Send + Sync + 'static {
    /// Returns 128 fresh random bits.
    fn bits(&self) -> u128;
}

/// Creates a UUIDv7 (RFC 9562): 48 bits of time, then random bits.
pub fn new_uuid(time: Timestamp, random: &dyn Randomness) -> uuid::Uuid {
    let millis = (time.as_millis().max(0) as u128) & 0xffff_ffff_ffff;
    let rest = random.bits() & 0x0fff_3fff_ffff_ffff_ffff;
    uuid::Uuid::from_u128((millis << 80) | (0x7 << 76) | (0x2 << 62) | rest)
}

/// Returns the id of the event with this ordinal, for a commit that sets no event ids. It is derived from the commit's id, so it need not
/// be stored.
pub fn event_uuid(commit_id: uuid::Uuid, ordinal: u32) -> uuid::Uuid {
    const LOW: u128 = (1 << 62) - 1;
    let id = commit_id.as_u128();
    uuid::Uuid::from_u128((id & !LOW) | (id.wrapping_add(u128::from(ordinal) + 1) & LOW))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_written_with_milliseconds_and_read_back() {
        let time = Timestamp::from_millis(1_772_366_400_007);
        assert_eq!(time.to_string(), "2026-03-01T12:00:00.007Z");
        assert_eq!(Timestamp::parse("2026-03-01T12:00:00.007999Z"), Ok(time));
        assert_eq!(Timestamp::parse("2026-03-01T13:00:00.007+01:00"), Ok(time));
        for wrong in ["yesterday", "2026-03-01", "2026-03-01T12:00:00", "2026-03-01T12:00:00[UTC]", "12:00:00Z"] {
            assert!(Timestamp::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn every_time_of_the_year_9999_is_a_time_and_an_offset_of_a_day_is_none() {
        for last in ["9999-12-31T23:59:59.999Z", "9999-12-31T23:59:59.999+00:00", "9999-12-31T00:59:59.999-23:00"] {
            let time = Timestamp::parse(last).expect(last);
            assert_eq!((time, &*time.to_string()), (Timestamp::LAST_WRITABLE, "9999-12-31T23:59:59.999Z"));
        }
        let first = Timestamp::FIRST_WRITABLE;
        assert_eq!(Timestamp::parse(&first.to_string()), Ok(first));
        let late = Timestamp::parse("9999-12-31T23:59:59-00:01").expect_err("it is in the year 10000");
        assert!(late.contains("9999-12-31T23:59:59.999Z"), "{late}");
        for far in ["2026-03-01T12:00:00+25:00", "2026-03-01T12:00:00-24:00"] {
            assert!(Timestamp::parse(far).expect_err(far).contains("offset"));
        }
    }

    #[test]
    fn a_new_uuid_is_version_7_and_carries_its_time() {
        struct Ones;
        impl Randomness for Ones {
            fn bits(&self) -> u128 {
                u128::MAX
            }
        }
        let id = new_uuid(Timestamp::from_millis(0x0123_4567_89ab), &Ones);
        assert_eq!(id.to_string(), "01234567-89ab-7fff-bfff-ffffffffffff");
        assert_eq!(id.get_version_num(), 7);
    }
}
