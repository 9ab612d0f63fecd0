//! The event horizon of a server's tenant, over HTTP: its consents and subscriptions behind the same port as in this process, and the
//! events that it offers to consumers.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use annals_core::handlers::{ActBody, Reason};
use annals_core::horizon::{
    Consent, ConsentPage, Horizon, HorizonError, OfferRequest, Offered, Offering, Producers, SubscriptionDefinition,
    SubscriptionPage, SubscriptionStatus, read_offered,
};
use annals_core::{Code, Invalid, ReadError, StoreError, limits};
use async_trait::async_trait;
use bytes::Bytes;
use hyper::{Method, StatusCode};
use serde::de::DeserializeOwned;

use super::address::is_of_metadata;
use super::answers::{self, problem, unknown};
use super::http::{Answer, Http};
use super::{Client, ClientOptions, Path};

/// Time limit for a producer's answer, in addition to the wait that was requested. It detects a network that drops all packets.
const ANSWER_MAX: Duration = Duration::from_secs(15);
/// The largest answer of a producer: a page and its last event, with what surrounds a thousand events. A producer is not trusted to keep to
/// the limits of a page, and each subscription may hold one answer in memory.
const ANSWER_BYTES_MAX: usize = limits::PAGE_BYTES_MAX + limits::EVENT_BYTES_MAX + 4 * 1024 * 1024;
/// The largest answer to a request for no events.
const NO_EVENTS_BYTES_MAX: usize = 64 * 1024;

/// The event horizon of one tenant of a server. It keeps the contract of [`Horizon`].
#[derive(Clone)]
pub struct HorizonClient(Client);

impl Client {
    /// Returns the event horizon of the same tenant, over the same connections.
    pub fn horizon(&self) -> HorizonClient {
        HorizonClient(self.clone())
    }
}

impl HorizonClient {
    async fn send(&self, method: Method, path: Path, body: String) -> Result<Answer, HorizonError> {
        let json = "application/json";
        let answer = self.0.http.ask(method, &path.done(), Bytes::from(body), json, json).await;
        Ok(answer.map_err(StoreError::Unreachable)?)
    }

    async fn get<T: DeserializeOwned>(&self, path: Path) -> Result<T, HorizonError> {
        let answer = self.send(Method::GET, path, String::new()).await?;
        if answer.status.is_success() { Ok(answers::parse(&answer)?) } else { Err(refused(&answer)) }
    }

    async fn put(&self, path: Path, body: String) -> Result<bool, HorizonError> {
        let answer = self.send(Method::PUT, path, body).await?;
        if answer.status.is_success() { Ok(answer.status == StatusCode::CREATED) } else { Err(refused(&answer)) }
    }

    async fn delete(&self, path: Path, reason: Reason) -> Result<(), HorizonError> {
        let Reason { reason, by } = reason;
        let body = ActBody { reason, by, position: None, to: None, from: None };
        // Strings always serialise to JSON.
        let body = serde_json::to_string(&body).unwrap_or_default();
        let answer = self.send(Method::DELETE, path, body).await?;
        if answer.status.is_success() { Ok(()) } else { Err(refused(&answer)) }
    }
}

fn refused(answer: &Answer) -> HorizonError {
    let (code, problem) = match problem(answer) {
        Ok(problem) => problem,
        Err(unknown) => return unknown.into(),
    };
    let text = |field: &Option<String>| field.clone().unwrap_or_default();
    match code {
        Code::UnknownConsent => HorizonError::UnknownConsent(text(&problem.name)),
        Code::UnknownSubscription => HorizonError::UnknownSubscription(text(&problem.name)),
        Code::MissingConsent => HorizonError::MissingConsent {
            microservice: text(&problem.microservice),
            tenant: text(&problem.tenant),
            stream: text(&problem.stream),
            partition: text(&problem.partition),
        },
        Code::StreamNotPublic => HorizonError::NotPublic(text(&problem.stream)),
        code => match answers::other::<ReadError>(code, problem) {
            ReadError::Store(error) => error.into(),
            ReadError::Invalid(invalid) => invalid.into(),
            other => Invalid::new(code, "", other.to_string()).into(),
        },
    }
}

#[async_trait]
impl Horizon for HorizonClient {
    async fn put_consent(&self, consent: Consent) -> Result<bool, HorizonError> {
        consent.validate()?;
        self.put(Path::below(&["consents", &consent.id]), consent.write()).await
    }

    async fn consents(&self, after: Option<&str>, limit: usize) -> Result<ConsentPage, HorizonError> {
        self.get(Path::below(&["consents"]).maybe("cursor", after).number("limit", limit)).await
    }

    async fn consent(&self, id: &str) -> Result<Consent, HorizonError> {
        self.get(Path::below(&["consents", id])).await
    }

    async fn revoke_consent(&self, id: &str, reason: Reason) -> Result<(), HorizonError> {
        self.delete(Path::below(&["consents", id]), reason).await
    }

    async fn put_subscription(&self, definition: SubscriptionDefinition) -> Result<bool, HorizonError> {
        definition.validate()?;
        self.put(Path::below(&["subscriptions", &definition.name]), definition.write()).await
    }

    async fn subscriptions(&self, after: Option<&str>, limit: usize) -> Result<SubscriptionPage, HorizonError> {
        self.get(Path::below(&["subscriptions"]).maybe("cursor", after).number("limit", limit)).await
    }

    async fn subscription(&self, name: &str) -> Result<SubscriptionStatus, HorizonError> {
        self.get(Path::below(&["subscriptions", name])).await
    }

    async fn delete_subscription(&self, name: &str, reason: Reason) -> Result<(), HorizonError> {
        self.delete(Path::below(&["subscriptions", name]), reason).await
    }
}

/// Connects to the producers of subscriptions over HTTP. Pass it to a task host as `HostOptions::producers`, as `annals serve` does.
///
/// Nothing is sent to link-local addresses, nor to others at which a cloud tells a machine its secrets.
#[derive(Debug, Clone, Default)]
pub struct HttpProducers {
    /// A PEM file with the authorities that may sign the producers' certificates. If absent, the system's authorities are trusted.
    pub authorities: Option<PathBuf>,
}

impl Producers for HttpProducers {
    fn producer(&self, url: &str, tenant: &str, credential: Option<&str>) -> Result<Arc<dyn Offering>, String> {
        let options =
            ClientOptions { credential: credential.map(str::to_owned), authorities: self.authorities.clone() };
        Ok(Arc::new(Producer { http: Http::refusing(url, tenant, &options, is_of_metadata)? }))
    }
}

/// A tenant of a producer's server.
struct Producer {
    http: Http,
}

#[async_trait]
impl Offering for Producer {
    async fn offer(&self, request: OfferRequest) -> Result<Offered, HorizonError> {
        request.validate()?;
        let path = Path::below(&["horizon", &request.stream])
            .with("microservice", &request.microservice)
            .with("tenant", &request.tenant)
            .maybe("partition", Some(&request.partition).filter(|partition| !partition.is_empty()))
            .number("from", request.from)
            .number("credits", request.credits)
            .number("wait_ms", request.wait_ms)
            .maybe("incarnation", request.incarnation);
        let at_most = ANSWER_MAX + Duration::from_millis(request.wait_ms);
        let bytes_max = if request.credits == 0 { NO_EVENTS_BYTES_MAX } else { ANSWER_BYTES_MAX };
        let answer = self.http.get_within(&path.done(), "application/bson", (at_most, bytes_max)).await;
        let answer = answer.map_err(StoreError::Unreachable)?;
        if !answer.status.is_success() {
            return Err(refused(&answer));
        }
        Ok(read_offered(&answer.body).map_err(|error| unknown(&error))?)
    }
}
