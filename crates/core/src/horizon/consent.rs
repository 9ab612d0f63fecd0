//! A consent: which consumer may receive which events.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::names::uuid_of;
use crate::{ByteString, Code, DEFAULT_TENANT, Invalid, valid_id, valid_name};

use super::OfferRequest;

/// Lets one tenant of a consumer receive one partition of a public stream.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Consent {
    /// Its id. A UUID is stored with the events as it is; any other id is stored as the UUID that is derived from it.
    pub id: ByteString,
    /// The consumer's microservice.
    pub microservice: ByteString,
    /// The consumer's tenant.
    pub tenant: ByteString,
    /// The public stream.
    pub stream: ByteString,
    /// The partition of that stream; empty for entries without a partition.
    pub partition: ByteString,
}

/// A page of consents.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConsentPage {
    /// The consents, by id.
    pub items: Vec<Consent>,
    /// The cursor of the next page; absent on the last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<ByteString>,
}

/// The body of `PUT /v1/consents/{id}`.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Body {
    #[serde(default = "usual")]
    microservice: ByteString,
    #[serde(default = "usual")]
    tenant: ByteString,
    stream: ByteString,
    #[serde(default)]
    partition: ByteString,
}

fn usual() -> ByteString {
    ByteString::from_static(DEFAULT_TENANT)
}

impl Consent {
    /// Returns a consent for the consumer with the default microservice and tenant, and for entries without a partition.
    pub fn new(id: impl Into<ByteString>, stream: impl Into<ByteString>) -> Self {
        let (microservice, tenant) = (usual(), usual());
        Self { id: id.into(), microservice, tenant, stream: stream.into(), partition: ByteString::new() }
    }

    /// Sets the consumer.
    #[must_use]
    pub fn to(self, microservice: impl Into<ByteString>, tenant: impl Into<ByteString>) -> Self {
        Self { microservice: microservice.into(), tenant: tenant.into(), ..self }
    }

    /// Sets the partition.
    #[must_use]
    pub fn of_partition(self, partition: impl Into<ByteString>) -> Self {
        Self { partition: partition.into(), ..self }
    }

    /// Reads a consent from JSON.
    ///
    /// # Errors
    /// `not_json`, `invalid_body`, or as [`validate`](Self::validate).
    pub fn read(id: &str, json: &[u8]) -> Result<Self, Invalid> {
        let Body { microservice, tenant, stream, partition } = crate::wire::parse_json(json)?;
        let consent = Self { id: id.into(), microservice, tenant, stream, partition };
        consent.validate()?;
        Ok(consent)
    }

    /// Writes the consent as JSON, without its id.
    pub fn write(&self) -> String {
        let Self { microservice, tenant, stream, partition, .. } = self.clone();
        // Strings always serialize to JSON.
        serde_json::to_string(&Body { microservice, tenant, stream, partition }).unwrap_or_default()
    }

    /// Checks the names.
    ///
    /// # Errors
    /// `invalid_name` or `invalid_id`, with the path; `invalid_consent` for the event log.
    pub fn validate(&self) -> Result<(), Invalid> {
        valid_name("id", &self.id)?;
        valid_id("microservice", &self.microservice)?;
        valid_id("tenant", &self.tenant)?;
        valid_name("stream", &self.stream)?;
        if Uuid::try_parse(&self.stream).is_ok_and(|id| id.is_nil()) {
            let message = "is the nil UUID, which is the event log; name a public stream";
            return Err(Invalid::new(Code::InvalidConsent, "stream", message));
        }
        if self.partition.is_empty() { Ok(()) } else { valid_id("partition", &self.partition) }
    }

    /// Returns the UUID of the consent that events are sent with.
    pub fn uuid(&self) -> Uuid {
        uuid_of("consent", &self.id)
    }

    /// Returns whether the consent allows this request. Every part must be equal.
    pub fn admits(&self, request: &OfferRequest) -> bool {
        self.microservice == request.microservice
            && self.tenant == request.tenant
            && self.stream == request.stream
            && self.partition == request.partition
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_consent_is_read_as_it_is_written() {
        let consent = Consent::new("c-1", "orders").to("shipping", "acme").of_partition("north");
        assert_eq!(Consent::read("c-1", consent.write().as_bytes()), Ok(consent));
        let usual = Consent::read("c-1", br#"{"stream":"orders"}"#).expect("valid");
        assert_eq!((&*usual.microservice, &*usual.tenant, &*usual.partition), ("default", "default", ""));
        let id = "323bcdb2-5bbd-4f13-a7c3-b19bc2cc2452";
        assert_eq!(Consent::new(id, "orders").uuid().to_string(), id);
    }

    #[test]
    fn a_consent_that_cannot_work_is_refused_with_its_path() {
        for (json, path) in [
            // A field that is missing is named in the message; the path is that of the object.
            ("{}", ""),
            (r#"{"stream":"a b"}"#, "stream"),
            (r#"{"stream":"00000000-0000-0000-0000-000000000000"}"#, "stream"),
            (r#"{"stream":"s","microservice":""}"#, "microservice"),
            (r#"{"stream":"s","partition":"\u0000"}"#, "partition"),
            (r#"{"stream":"s","scope":"x"}"#, "scope"),
        ] {
            assert_eq!(Consent::read("c", json.as_bytes()).expect_err(json).path, path, "{json}");
        }
        assert_eq!(Consent::read("a/b", br#"{"stream":"s"}"#).expect_err("no name").path, "id");
    }
}
