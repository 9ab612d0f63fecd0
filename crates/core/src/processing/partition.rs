//! The partition of an event.

use bson::RawBsonRef;
use bytestring::ByteString;
use highway::{HighwayHash, HighwayHasher};

use crate::commit::valid_id;
use crate::condition::valid_path;
use crate::{Code, Invalid, RecordedEvent, limits};

/// The partition of events that have no value to partition by, and the only one of a processor without partitions.
pub const NO_PARTITION: &str = "(none)";

/// Determines the partition of an event. Events of one partition are handled in order; different partitions are independent.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum PartitionBy {
    /// All events belong to one partition.
    #[default]
    None,
    /// The aggregate, as `name/id`.
    Aggregate,
    /// The value at this path of the data: a string, number, boolean, ObjectId or UUID. Other values count as missing.
    Data(String),
}

impl PartitionBy {
    /// Returns whether events can have different partitions.
    pub fn is_partitioned(&self) -> bool {
        *self != Self::None
    }

    /// Returns its text in the API: `none`, `aggregate` or `data.PATH`.
    pub fn text(&self) -> String {
        match self {
            Self::None => "none".to_owned(),
            Self::Aggregate => "aggregate".to_owned(),
            Self::Data(path) => format!("data.{path}"),
        }
    }

    /// Parses its text.
    ///
    /// # Errors
    /// `invalid_handler` at `partition_by`.
    pub fn parse(text: &str) -> Result<Self, Invalid> {
        let invalid = |message: String| Invalid::new(Code::InvalidHandler, "partition_by", message);
        match text {
            "none" => Ok(Self::None),
            "aggregate" => Ok(Self::Aggregate),
            _ => match text.strip_prefix("data.") {
                Some(path) => {
                    valid_path(path).map_err(|why| invalid(format!("the path {path:?} {why}")))?;
                    Ok(Self::Data(path.to_owned()))
                }
                None => Err(invalid(format!("{text:?} is not \"none\", \"aggregate\" or \"data.PATH\""))),
            },
        }
    }

    /// Returns the partition of an event. A value that is too long is replaced by its digest.
    pub fn of(&self, event: &RecordedEvent) -> ByteString {
        match self.value_of(event) {
            None => ByteString::from_static(NO_PARTITION),
            Some(text) if text.len() > limits::ID_BYTES_MAX + limits::NAME_BYTES_MAX + 1 => digest(&text).into(),
            Some(text) => text.into(),
        }
    }

    /// Returns the partition of an event as an entry of a stream; `None` if the event has no value to partition by.
    pub fn of_entry(&self, event: &RecordedEvent) -> Option<ByteString> {
        Self::entry_partition(&self.value_of(event)?)
    }

    /// Returns the partition of an entry with this value. A value that is not valid as a stream's partition is replaced by its digest. The
    /// nil UUID means no partition, as in the Dolittle Runtime's layout.
    pub fn entry_partition(value: &str) -> Option<ByteString> {
        match valid_id("partition", value) {
            Ok(()) if value == NIL => None,
            Ok(()) => Some(value.into()),
            Err(_) => Some(digest(value).into()),
        }
    }

    fn value_of(&self, event: &RecordedEvent) -> Option<String> {
        match self {
            Self::None => None,
            Self::Aggregate => Some(event.commit.aggregate.to_string()),
            Self::Data(path) => at_path(event, path),
        }
    }
}

/// The value with which the Dolittle Runtime's layout marks an entry without a partition.
const NIL: &str = "00000000-0000-0000-0000-000000000000";

fn digest(text: &str) -> String {
    let [high, low] = HighwayHasher::default().hash128(text.as_bytes());
    format!("digest:{high:016x}{low:016x}")
}

fn at_path(event: &RecordedEvent, path: &str) -> Option<String> {
    let mut names = path.split('.');
    let mut document = event.data.as_raw();
    let last = names.next_back()?;
    for name in names {
        document = match document.get(name).ok()?? {
            RawBsonRef::Document(inner) => inner,
            _ => return None,
        };
    }
    match document.get(last).ok()?? {
        RawBsonRef::String(text) => Some(text.to_owned()),
        RawBsonRef::Int32(number) => Some(number.to_string()),
        RawBsonRef::Int64(number) => Some(number.to_string()),
        RawBsonRef::Double(number) => Some(number.to_string()),
        RawBsonRef::Decimal128(number) => Some(number.to_string()),
        RawBsonRef::Boolean(value) => Some(value.to_string()),
        RawBsonRef::ObjectId(id) => Some(id.to_hex()),
        RawBsonRef::Binary(binary) if binary.bytes.len() == 16 => {
            uuid::Uuid::from_slice(binary.bytes).ok().map(|id| id.to_string())
        }
        _ => None,
    }
}
