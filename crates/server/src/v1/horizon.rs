//! The event horizon: `/v1/consents`, `/v1/subscriptions`, and the public streams that consumers read at `/v1/horizon`.

use std::sync::Arc;
use std::time::Duration;

use annals_core::horizon::{
    Consent, HorizonError, OfferRequest, Offered, OfferedView, Offering, SubscriptionDefinition, write_offered,
};
use annals_core::{ByteString, Code, DEFAULT_TENANT};
use annals_system::Instant;
use axum::body::Body;
use axum::extract::{Path, Request, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use bytes::Bytes;
use futures_util::stream;
use serde::Deserialize;
use utoipa::IntoParams;

use super::lines::CHUNK_BYTES;
use super::managed::{self, ListQuery, definition, deleted, reason, while_serving};
use crate::accept::Accept;
use crate::answer::{json, not_written};
use crate::caller::Caller;
use crate::granted_streams;
use crate::media;
use crate::payload::Payload;
use crate::problem::Problem;
use crate::query::{Number, Query};
use crate::route::{self, Feature, Permission, get};
use crate::schemas;
use crate::scoped::ScopedHorizon;
use crate::state::Server;

const CONSENT: &str = "/v1/consents/{id}";
const SUBSCRIPTION: &str = "/v1/subscriptions/{name}";
/// How often the consent is checked while a page is being sent.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// Returns the operations of the event horizon.
pub(crate) fn feature() -> Feature {
    let consents = Payload::json::<schemas::ConsentPage>();
    let consent = Payload::json::<schemas::Consent>;
    let subscriptions = Payload::json::<schemas::SubscriptionPage>();
    let subscription = Payload::json::<schemas::SubscriptionStatus>;
    let deleted = Payload::json::<schemas::Deleted>;
    let operations = [
        get("/v1/consents", Permission::Reader, list_consents).described("listConsents", "Lists consents.", consents),
        get(CONSENT, Permission::Reader, one_consent)
            .described("getConsent", "Returns a consent.", consent())
            .refuses(&[Code::UnknownConsent]),
        route::put(CONSENT, Permission::Operator, put_consent)
            .described(
                "putConsent",
                "Gives a consumer consent to receive a partition of a public stream, or changes the consent.",
                consent().created(),
            )
            .takes(Payload::body::<schemas::NewConsent>())
            .refuses(&[Code::InvalidConsent]),
        route::delete(CONSENT, Permission::Operator, revoke)
            .described("revokeConsent", "Revokes a consent. Its events stop within a second.", deleted())
            .takes(Payload::body::<schemas::Reason>())
            .refuses(&[Code::UnknownConsent]),
        get("/v1/subscriptions", Permission::Reader, list_subscriptions).described(
            "listSubscriptions",
            "Lists subscriptions and their state.",
            subscriptions,
        )
        .with_scope_in_definition(),
        get(SUBSCRIPTION, Permission::Reader, one_subscription)
            .described("getSubscription", "Returns the state of a subscription.", subscription())
            .refuses(&[Code::UnknownSubscription])
            .with_scope_in_definition(),
        route::put(SUBSCRIPTION, Permission::Operator, put_subscription)
            .described(
                "putSubscription",
                "Defines or changes what a scope receives from a producer, and attempts to receive immediately.",
                subscription().created(),
            )
            .takes(Payload::body::<schemas::NewSubscription>())
            .refuses(&[Code::InvalidSubscription, Code::UnknownScope])
            .with_scope_in_definition(),
        route::delete(SUBSCRIPTION, Permission::Operator, delete_subscription)
            .described(
                "deleteSubscription",
                "Deletes a subscription. The received events and the position are kept.",
                deleted(),
            )
            .takes(Payload::body::<schemas::Reason>())
            .refuses(&[Code::UnknownSubscription])
            .with_scope_in_definition(),
        get("/v1/horizon/{stream}", Permission::Reader, offer)
            .described(
                "readPublicStream",
                "Returns events of a partition of a public stream to a consumer that has a consent, at most as many as it has credits for.",
                Payload::raw(media::LINES, "One line per event, then one with the producer and the start of the next page.")
                    .or(media::BSON, "One document per event, then one with the producer and the start of the next page."),
            )
            .refuses(&[Code::MissingConsent, Code::StreamNotPublic])
            .checking_streams(),
    ];
    Feature::new("Event horizon", operations)
}

/// The parameters of a page of a public stream.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
struct OfferQuery {
    /// The consumer's microservice; `default` when absent.
    microservice: Option<String>,
    /// The consumer's tenant; `default` when absent. The producer's tenant is that of the request.
    tenant: Option<String>,
    /// The partition; entries without a partition when absent.
    partition: Option<String>,
    /// The position of the first event; 0 when absent.
    #[param(inline)]
    from: Option<Number>,
    /// The number of events that the consumer accepts: 0 to 1,000, 100 when absent. With 0 the response only identifies the producer.
    #[param(inline)]
    credits: Option<Number>,
    /// How long to wait for the first event, in milliseconds: at most 50,000, 0 when absent.
    #[param(inline)]
    wait_ms: Option<Number>,
    /// The incarnation of the producer's store that the consumer knows. `incarnation_start` of the answer is the number up to which the log
    /// agrees with it.
    #[param(inline)]
    incarnation: Option<Number>,
}

fn horizon(server: &Server, caller: &Caller) -> Result<ScopedHorizon, Problem> {
    ScopedHorizon::of(server, caller)
}

/// `GET /v1/consents`.
async fn list_consents(
    State(server): State<Arc<Server>>,
    Query(query): Query<ListQuery>,
    caller: Caller,
) -> Result<Response, Problem> {
    let (after, limit) = query.page()?;
    json(StatusCode::OK, &horizon(&server, &caller)?.consents(after, limit).await?)
}

/// `GET /v1/consents/{id}`.
async fn one_consent(
    State(server): State<Arc<Server>>,
    Path(id): Path<String>,
    caller: Caller,
) -> Result<Response, Problem> {
    json(StatusCode::OK, &horizon(&server, &caller)?.consent(&id).await?)
}

/// `PUT /v1/consents/{id}`.
async fn put_consent(
    State(server): State<Arc<Server>>,
    Path(id): Path<String>,
    caller: Caller,
    request: Request,
) -> Result<Response, Problem> {
    let horizon = horizon(&server, &caller)?;
    let held = definition(&server, request).await?;
    let new = horizon.put_consent(Consent::read(&id, &held.bytes)?).await?;
    managed::put(new, &horizon.consent(&id).await?)
}

/// `DELETE /v1/consents/{id}`.
async fn revoke(
    State(server): State<Arc<Server>>,
    Path(id): Path<String>,
    caller: Caller,
    request: Request,
) -> Result<Response, Problem> {
    let horizon = horizon(&server, &caller)?;
    horizon.revoke_consent(&id, reason(&server, request).await?).await?;
    deleted()
}

/// `GET /v1/subscriptions`.
async fn list_subscriptions(
    State(server): State<Arc<Server>>,
    Query(query): Query<ListQuery>,
    caller: Caller,
) -> Result<Response, Problem> {
    let (after, limit) = query.page()?;
    json(StatusCode::OK, &horizon(&server, &caller)?.subscriptions(after, limit).await?)
}

/// `GET /v1/subscriptions/{name}`.
async fn one_subscription(
    State(server): State<Arc<Server>>,
    Path(name): Path<String>,
    caller: Caller,
) -> Result<Response, Problem> {
    json(StatusCode::OK, &horizon(&server, &caller)?.subscription(&name).await?)
}

/// `PUT /v1/subscriptions/{name}`.
async fn put_subscription(
    State(server): State<Arc<Server>>,
    Path(name): Path<String>,
    caller: Caller,
    request: Request,
) -> Result<Response, Problem> {
    let horizon = horizon(&server, &caller)?;
    let held = definition(&server, request).await?;
    let new = horizon.put_subscription(SubscriptionDefinition::read(&name, &held.bytes)?).await?;
    managed::put(new, &horizon.subscription(&name).await?)
}

/// `DELETE /v1/subscriptions/{name}`.
async fn delete_subscription(
    State(server): State<Arc<Server>>,
    Path(name): Path<String>,
    caller: Caller,
    request: Request,
) -> Result<Response, Problem> {
    let horizon = horizon(&server, &caller)?;
    horizon.delete_subscription(&name, reason(&server, request).await?).await?;
    deleted()
}

/// `GET /v1/horizon/{stream}`.
async fn offer(
    State(server): State<Arc<Server>>,
    Path(stream): Path<String>,
    Query(query): Query<OfferQuery>,
    caller: Caller,
    accept: Accept,
) -> Result<Response, Problem> {
    granted_streams::may_use(&caller.principal, &stream)?;
    let request = requested(stream, query)?;
    let offering = server.host.offering(&caller.tenant)?;
    let offered = while_serving(&server, offering.offer(request.clone()), "ask").await?;
    let (media_type, page) = match accept.bson {
        true => (media::BSON, write_offered(&offered)),
        false => (media::LINES, lines(offered).await?),
    };
    let greeting = OfferRequest { credits: 0, wait_ms: 0, ..request };
    let mut response = Response::new(sent_under_consent(page.into(), offering, greeting, LOOK_EVERY));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(media_type));
    Ok(response)
}

fn requested(stream: String, query: OfferQuery) -> Result<OfferRequest, Problem> {
    let name = |text: Option<String>| text.map_or(ByteString::from_static(DEFAULT_TENANT), Into::into);
    let incarnation = match query.incarnation {
        None => None,
        Some(Number(number)) => {
            let number = u32::try_from(number);
            Some(number.map_err(|_| Problem::query("incarnation", "is not the incarnation of a store"))?)
        }
    };
    Ok(OfferRequest {
        microservice: name(query.microservice),
        tenant: name(query.tenant),
        stream: stream.into(),
        partition: query.partition.unwrap_or_default().into(),
        from: query.from.map_or(0, |from| from.0),
        credits: usize::try_from(query.credits.map_or(100, |credits| credits.0)).unwrap_or(usize::MAX),
        wait_ms: query.wait_ms.map_or(0, |wait| wait.0),
        incarnation,
    })
}

/// Writes the page as lines of JSON, on a blocking thread.
async fn lines(offered: Offered) -> Result<Vec<u8>, Problem> {
    let lines = tokio::task::spawn_blocking(move || OfferedView(&offered).lines()).await;
    let lines =
        lines.map_err(|error| Problem::new(Code::Internal, format!("the response could not be written: {error}")))?;
    lines.map_err(not_written)
}

/// Sends a page to a consumer that may read it slowly. If the consent is revoked meanwhile, the connection is cut. A page without its
/// last line is not valid.
fn sent_under_consent(page: Bytes, offering: Arc<dyn Offering>, greeting: OfferRequest, look_every: Duration) -> Body {
    if page.len() <= CHUNK_BYTES {
        return Body::from(page);
    }
    let sending = (page, Instant::now(), offering, greeting);
    let chunks = stream::try_unfold(sending, move |(mut page, mut looked, offering, greeting)| async move {
        if page.is_empty() {
            return Ok(None);
        }
        if looked.elapsed() >= look_every {
            if let Err(error) = offering.offer(greeting.clone()).await {
                tracing::debug!(%error, "stopped sending a page of a public stream");
                return Err(std::io::Error::other("the consumer may no longer receive the stream"));
            }
            looked = Instant::now();
        }
        let chunk = page.split_to(page.len().min(CHUNK_BYTES));
        Ok(Some((chunk, (page, looked, offering, greeting))))
    });
    Body::from_stream(chunks)
}

impl From<HorizonError> for Problem {
    fn from(error: HorizonError) -> Self {
        let problem = Self::new(error.code(), error.to_string());
        match error {
            HorizonError::Invalid(invalid) => invalid.into(),
            HorizonError::Store(error) => annals_core::ReadError::Store(error).into(),
            HorizonError::UnknownConsent(name) | HorizonError::UnknownSubscription(name) => problem.fact("name", name),
            HorizonError::MissingConsent { microservice, tenant, stream, partition } => problem
                .fact("microservice", microservice)
                .fact("tenant", tenant)
                .fact("stream", stream)
                .fact("partition", partition),
            HorizonError::NotPublic(stream) => problem.fact("stream", stream),
            _ => problem,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use annals_core::{Identity, Uuid};
    use async_trait::async_trait;
    use futures_util::StreamExt;

    use super::*;

    /// A producer that revokes its consent after this many looks.
    struct Revoking(AtomicUsize);

    #[async_trait]
    impl Offering for Revoking {
        async fn offer(&self, request: OfferRequest) -> Result<Offered, HorizonError> {
            assert_eq!((request.credits, request.wait_ms), (0, 0), "a look takes no events and does not wait");
            let OfferRequest { microservice, tenant, stream, partition, from, .. } = request;
            let left = self.0.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
            if left.is_err() {
                let [microservice, tenant, stream, partition] =
                    [microservice, tenant, stream, partition].map(|name| name.to_string());
                return Err(HorizonError::MissingConsent { microservice, tenant, stream, partition });
            }
            let identity = Identity { store_id: Uuid::nil(), incarnation: 0, incarnation_start: 0 };
            Ok(Offered { consent: Uuid::nil(), microservice, identity, events: Vec::new(), next: from, head: 0 })
        }
    }

    /// Sends a page of this many full chunks. Returns the number of chunks that a consumer gets, and whether the page ends well.
    async fn sent(chunks: usize, consented: usize) -> (usize, bool) {
        let greeting = OfferRequest {
            microservice: "shipping".into(),
            tenant: DEFAULT_TENANT.into(),
            stream: "public-orders".into(),
            partition: "".into(),
            from: 0,
            credits: 0,
            wait_ms: 0,
            incarnation: None,
        };
        let page = Bytes::from(vec![b'x'; chunks * CHUNK_BYTES]);
        let producer = Arc::new(Revoking(AtomicUsize::new(consented)));
        let mut body = sent_under_consent(page, producer, greeting, Duration::ZERO).into_data_stream();
        let mut got = 0;
        while let Some(chunk) = body.next().await {
            if chunk.is_err() {
                return (got, false);
            }
            got += 1;
        }
        (got, true)
    }

    /// However slowly the consumer reads, it gets at most what was sent in less than a second.
    #[tokio::test]
    async fn a_page_that_is_being_sent_breaks_off_once_its_consent_is_revoked() {
        const { assert!(LOOK_EVERY.as_millis() < 1_000) };
        assert_eq!(sent(5, 2).await, (2, false));
        assert_eq!(sent(5, 5).await, (5, true));
    }
}
