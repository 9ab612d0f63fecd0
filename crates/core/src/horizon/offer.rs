//! The request of a consumer to a producer, and the page that answers it.

use uuid::Uuid;

use crate::{
    ByteString, Code, Identity, IncomingEvent, Invalid, Partitions, StreamPosition, StreamQuery, limits, valid_id,
    valid_name,
};

/// The maximum number of events that a consumer can take at once.
pub const CREDITS_MAX: usize = limits::RECEIVED_MAX;
/// The longest wait for the first event, in milliseconds.
pub const OFFER_WAIT_MAX_MS: u64 = 50_000;

/// A request for the next page of a partition of a public stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OfferRequest {
    /// The consumer's microservice.
    pub microservice: ByteString,
    /// The consumer's tenant.
    pub tenant: ByteString,
    /// The public stream.
    pub stream: ByteString,
    /// The partition; empty for entries without a partition.
    pub partition: ByteString,
    /// The position from which the consumer wants events.
    pub from: StreamPosition,
    /// The number of events that it takes, at most 1,000. With 0 it only learns the producer's identity and whether there is a consent.
    pub credits: usize,
    /// How long to wait for the first event, in milliseconds.
    pub wait_ms: u64,
    /// The incarnation of the producer's store that the consumer knows.
    pub incarnation: Option<u32>,
}

/// A page of a partition of a public stream.
#[derive(Debug, Clone, PartialEq)]
pub struct Offered {
    /// The consent under which it is sent.
    pub consent: Uuid,
    /// The producer's microservice.
    pub microservice: ByteString,
    /// The producer's store. `incarnation_start` is the number up to which its log agrees with the incarnation that the consumer knows.
    pub identity: Identity,
    /// The events, at most as many as the request has credits for, in ascending order of position.
    pub events: Vec<IncomingEvent>,
    /// The position from which the next page begins.
    pub next: StreamPosition,
    /// The number of entries of the stream, in all partitions.
    pub head: StreamPosition,
}

impl OfferRequest {
    /// Checks names and limits.
    ///
    /// # Errors
    /// `invalid_name`, `invalid_id` or `invalid_query`, with the path.
    pub fn validate(&self) -> Result<(), Invalid> {
        let invalid = |path: &str, message: String| Err(Invalid::new(Code::InvalidQuery, path, message));
        valid_id("microservice", &self.microservice)?;
        valid_id("tenant", &self.tenant)?;
        valid_name("stream", &self.stream)?;
        if !self.partition.is_empty() {
            valid_id("partition", &self.partition)?;
        }
        if self.credits > CREDITS_MAX {
            return invalid("credits", format!("{} is more than {CREDITS_MAX}", self.credits));
        }
        if self.wait_ms > OFFER_WAIT_MAX_MS {
            return invalid(
                "wait_ms",
                format!("{} is more than {OFFER_WAIT_MAX_MS}; send another request instead", self.wait_ms),
            );
        }
        Ok(())
    }

    /// Returns the query for the page.
    pub fn query(&self) -> StreamQuery {
        let partitions = match self.partition.is_empty() {
            true => Partitions::Without,
            false => Partitions::One(self.partition.clone()),
        };
        StreamQuery { from: self.from, limit: self.credits.max(1), partitions, ..StreamQuery::new(self.stream.clone()) }
    }
}
