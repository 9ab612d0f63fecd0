//! Points in time, and the ports they and random numbers come from.

use std::fmt;

/// A point in time in whole milliseconds since 1970-01-01 UTC; RFC 3339 in text.
///
/// It says when something happened and is never used for order: that is what sequence numbers are for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Timestamp(i64);

impl Timestamp {
    /// The point that many milliseconds after 1970-01-01 UTC.
    pub const fn from_millis(millis: i64) -> Self {
        Self(millis)
    }

    /// Milliseconds since 1970-01-01 UTC.
    pub const fn as_millis(self) -> i64 {
        self.0
    }

    /// Whether RFC 3339 can write it. Events have no other times.
    pub fn is_writable(self) -> bool {
        const FIRST: i64 = -377_705_023_201_000;
        const LAST: i64 = 253_402_207_199_999;
        (FIRST..=LAST).contains(&self.0)
    }

    /// Reads RFC 3339, for example `2026-03-01T12:00:00.123Z`; digits below a millisecond are cut off.
    ///
    /// # Errors
    /// A sentence that says what is wrong with the text.
    pub fn parse(text: &str) -> Result<Self, String> {
        let time: jiff::Timestamp =
            text.parse().map_err(|_| format!("{text:?} is not an RFC 3339 time such as 2026-03-01T12:00:00.123Z"))?;
        Ok(Self(time.as_millisecond()))
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match jiff::Timestamp::from_millisecond(self.0) {
            Ok(time) => write!(f, "{time:.3}"),
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

/// Where the current time comes from. Only an implementation of this trait reads the system's clock.
pub trait Clock: Send + Sync + 'static {
    /// The time now.
    fn now(&self) -> Timestamp;
}

/// Where random bits come from. Only an implementation of this trait asks the system for them.
pub trait Randomness: Send + Sync + 'static {
    /// 128 fresh random bits.
    fn bits(&self) -> u128;
}

/// A new UUIDv7 (RFC 9562): 48 bits of time, then random bits.
pub fn new_uuid(time: Timestamp, random: &dyn Randomness) -> uuid::Uuid {
    let millis = (time.as_millis().max(0) as u128) & 0xffff_ffff_ffff;
    let rest = random.bits() & 0x0fff_3fff_ffff_ffff_ffff;
    uuid::Uuid::from_u128((millis << 80) | (0x7 << 76) | (0x2 << 62) | rest)
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
        assert!(Timestamp::parse("yesterday").is_err());
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
