//! Giving, listing and revoking consents.

use std::sync::Arc;

use annals_core::handlers::Reason;
use annals_core::horizon::{CONSENTS, Consent, ConsentPage, ConsentRecord, HorizonError, OfferRequest};
use annals_core::{Condition, Expected, RecordChange, RecordError, RecordQuery, Stored, TypedRecords, limits};

use super::{TenantHorizon, absent, whatever};

impl TenantHorizon {
    fn typed_consents(&self) -> TypedRecords<ConsentRecord> {
        TypedRecords::declared(Arc::clone(&self.records))
    }

    async fn stored_consent(&self, id: &str) -> Result<Option<Stored<ConsentRecord>>, HorizonError> {
        Ok(absent(self.typed_consents().get(id).await)?)
    }

    pub(super) async fn give(&self, consent: Consent) -> Result<bool, HorizonError> {
        self.open()?;
        consent.validate()?;
        self.declare().await?;
        let found = self.stored_consent(&consent.id).await?.map(|found| found.value);
        if found.clone().is_some_and(|found| found.read() == consent) {
            return Ok(false);
        }
        let record = ConsentRecord::of(&consent, found.as_ref().map(|found| found.given), self.clock().now());
        self.typed_consents().replace_if(&record, whatever()).await?;
        self.consented.send_modify(|count| *count += 1);
        Ok(found.is_none())
    }

    pub(super) async fn find_consent(&self, id: &str) -> Result<Consent, HorizonError> {
        self.open()?;
        let found = self.stored_consent(id).await?;
        Ok(found.ok_or_else(|| HorizonError::UnknownConsent(id.to_owned()))?.value.read())
    }

    pub(super) async fn list_consents(&self, after: Option<&str>, limit: usize) -> Result<ConsentPage, HorizonError> {
        self.open()?;
        let condition = after.map_or(Condition::All, |after| Condition::gt("_id", after));
        let query = RecordQuery::new(CONSENTS).matching(condition).limit(limit.clamp(1, limits::PAGE_MAX));
        let (found, next) = match self.typed_consents().find(query).await {
            Err(RecordError::UnknownCollection(_)) => (Vec::new(), None),
            found => found?,
        };
        let cursor = next.and(found.last()).map(|last| last.value.id.as_str().into());
        Ok(ConsentPage { items: found.into_iter().map(|found| found.value.read()).collect(), cursor })
    }

    pub(super) async fn revoke(&self, id: &str, reason: Reason) -> Result<(), HorizonError> {
        self.open()?;
        reason.validate()?;
        let unknown = || HorizonError::UnknownConsent(id.to_owned());
        self.stored_consent(id).await?.ok_or_else(unknown)?;
        self.declare().await?;
        let act = self.act(&format!("consent/{id}"), "revoke", reason);
        let deleted = RecordChange::delete_if(CONSENTS, id, Expected::Present);
        match self.records.write(vec![deleted, TypedRecords::replacement(&act, whatever())?]).await {
            Err(RecordError::NotAsExpected { .. }) => return Err(unknown()),
            written => written?,
        };
        self.consented.send_modify(|count| *count += 1);
        Ok(())
    }

    /// Returns the consent for a request: the first one by id if there are several.
    pub(super) async fn consent_for(&self, request: &OfferRequest) -> Result<Consent, HorizonError> {
        let is = |field: &str, value: &str| Condition::eq(field, value);
        let condition = Condition::and([
            is("stream", &request.stream),
            is("partition", &request.partition),
            is("microservice", &request.microservice),
            is("tenant", &request.tenant),
        ]);
        let query = RecordQuery::new(CONSENTS).matching(condition).limit(1);
        let found = match self.typed_consents().find(query).await {
            Err(RecordError::UnknownCollection(_)) => None,
            found => found?.0.into_iter().next(),
        };
        // The store compares by the semantics of conditions; a consent requires exact equality.
        let found = found.map(|found| found.value.read()).filter(|consent| consent.admits(request));
        found.ok_or_else(|| HorizonError::MissingConsent {
            microservice: request.microservice.to_string(),
            tenant: request.tenant.to_string(),
            stream: request.stream.to_string(),
            partition: request.partition.to_string(),
        })
    }
}
