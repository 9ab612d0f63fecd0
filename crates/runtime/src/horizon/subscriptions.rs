//! Defining, listing and deleting subscriptions.

use std::sync::Arc;

use annals_core::handlers::Reason;
use annals_core::horizon::{
    CredentialRecord, HorizonError, LOCAL_PRODUCER, Offering, SUBSCRIPTION_CREDENTIALS, SUBSCRIPTIONS,
    SubscriptionDefinition, SubscriptionPage, SubscriptionRecord,
};
use annals_core::{Code, Condition, Expected, Invalid, RecordChange, RecordError, RecordQuery, TypedRecords, limits};

use super::{TenantHorizon, absent, whatever};
use crate::definitions::readable;

impl TenantHorizon {
    fn typed_subscriptions(&self) -> TypedRecords<SubscriptionRecord> {
        TypedRecords::declared(Arc::clone(&self.records))
    }

    /// Returns the definition with its credential, and its record.
    pub(super) async fn definition(
        &self,
        name: &str,
    ) -> Result<(SubscriptionDefinition, SubscriptionRecord), HorizonError> {
        let found = absent(self.typed_subscriptions().get(name).await)?;
        let record = found.ok_or_else(|| HorizonError::UnknownSubscription(name.to_owned()))?.value;
        let credentials = TypedRecords::<CredentialRecord>::declared(Arc::clone(&self.records));
        let credential = absent(credentials.get(name).await)?.map(|found| found.value.credential.into());
        Ok((SubscriptionDefinition { credential, ..record.read()? }, record))
    }

    /// Returns the offering of the definition's producer.
    pub(super) fn offering(&self, definition: &SubscriptionDefinition) -> Result<Arc<dyn Offering>, HorizonError> {
        let SubscriptionDefinition { producer, tenant, credential, .. } = definition;
        if **producer == *LOCAL_PRODUCER {
            return Ok(self.peer(tenant)?);
        }
        let found = self.shared.options.producers.producer(producer, tenant, credential.as_deref());
        Ok(found.map_err(|message| Invalid::new(Code::InvalidSubscription, "producer", message))?)
    }

    pub(super) async fn define(&self, definition: SubscriptionDefinition) -> Result<bool, HorizonError> {
        self.open()?;
        definition.validate()?;
        definition.validate_secrets()?;
        let scope = self.store().scope_name(&definition.scope).into_owned().into();
        let definition = SubscriptionDefinition { scope, ..definition };
        self.store().receiving(&self.tenant, &definition.scope)?;
        self.offering(&definition)?;
        self.declare().await?;
        let name = &*definition.name;
        let found = match self.definition(name).await {
            Err(HorizonError::UnknownSubscription(_)) => None,
            found => Some(found?),
        };
        let slot = self.slot(name);
        if found.as_ref().is_none_or(|(before, _)| *before != definition) {
            let defined = found.as_ref().map(|(_, record)| record.defined);
            let record = SubscriptionRecord::of(&definition, defined, self.clock().now());
            let credential = match &definition.credential {
                Some(credential) => {
                    let credential = CredentialRecord { name: name.to_owned(), credential: credential.to_string() };
                    TypedRecords::replacement(&credential, whatever())?
                }
                None => RecordChange::delete_if(SUBSCRIPTION_CREDENTIALS, name, whatever()),
            };
            self.records.write(vec![credential, TypedRecords::replacement(&record, whatever())?]).await?;
        }
        // An owner that pauses before its next attempt begins at once, even if nothing changed.
        slot.changed.send_modify(|count| *count += 1);
        self.start(name);
        Ok(found.is_none())
    }

    pub(super) async fn list_subscriptions(
        &self,
        after: Option<&str>,
        limit: usize,
    ) -> Result<SubscriptionPage, HorizonError> {
        self.open()?;
        let condition = after.map_or(Condition::All, |after| Condition::gt("_id", after));
        let query = RecordQuery::new(SUBSCRIPTIONS).matching(condition).limit(limit.clamp(1, limits::PAGE_MAX));
        let (found, next) = match self.typed_subscriptions().find(query).await {
            Err(RecordError::UnknownCollection(_)) => (Vec::new(), None),
            found => found?,
        };
        let mut items = Vec::with_capacity(found.len());
        for record in &found {
            match self.definition(&record.value.name).await {
                // It was deleted meanwhile.
                Err(HorizonError::UnknownSubscription(_)) => {}
                found => items.push(self.status(found?.0).await?),
            }
        }
        let cursor = next.and(found.last()).map(|last| last.value.name.as_str().into());
        Ok(SubscriptionPage { items, cursor })
    }

    /// Returns the names of all subscriptions.
    pub(super) async fn defined(&self) -> Result<Vec<String>, HorizonError> {
        Ok(readable(&self.typed_subscriptions()).await?.into_iter().map(|found| found.value.name).collect())
    }

    pub(super) async fn remove(&self, name: &str, reason: Reason) -> Result<(), HorizonError> {
        self.open()?;
        reason.validate()?;
        self.definition(name).await?;
        self.declare().await?;
        let act = self.act(&format!("subscription/{name}"), "delete", reason);
        let changes = vec![
            RecordChange::delete_if(SUBSCRIPTIONS, name, Expected::Present),
            RecordChange::delete_if(SUBSCRIPTION_CREDENTIALS, name, whatever()),
            TypedRecords::replacement(&act, whatever())?,
        ];
        match self.records.write(changes).await {
            Err(RecordError::NotAsExpected { .. }) => return Err(HorizonError::UnknownSubscription(name.to_owned())),
            written => written?,
        };
        self.slot(name).changed.send_modify(|count| *count += 1);
        Ok(())
    }
}
