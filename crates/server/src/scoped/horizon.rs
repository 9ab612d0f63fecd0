//! The event horizon of a tenant: the subscriptions that a caller may see, and the consents, which concern the default scope.

use std::sync::Arc;

use annals_core::handlers::Reason;
use annals_core::horizon::{
    Consent, ConsentPage, Horizon, HorizonError, SubscriptionDefinition, SubscriptionPage, SubscriptionStatus,
};
use annals_core::{Code, Invalid};

use super::Scopes;
use super::visible::Visible;
use crate::caller::Caller;
use crate::problem::Problem;
use crate::state::Server;

/// The event horizon of a tenant, with the subscriptions that a caller may see. The methods are those of [`Horizon`].
pub(crate) struct ScopedHorizon {
    horizon: Arc<dyn Horizon>,
    scopes: Scopes,
}

impl ScopedHorizon {
    pub fn of(server: &Server, caller: &Caller) -> Result<Self, Problem> {
        Ok(Self { horizon: server.host.horizon(&caller.tenant)?, scopes: Scopes::of(server, caller) })
    }

    pub async fn put_consent(&self, consent: Consent) -> Result<bool, HorizonError> {
        self.horizon.put_consent(consent).await
    }

    pub async fn consents(&self, after: Option<&str>, limit: usize) -> Result<ConsentPage, HorizonError> {
        self.horizon.consents(after, limit).await
    }

    pub async fn consent(&self, id: &str) -> Result<Consent, HorizonError> {
        self.horizon.consent(id).await
    }

    pub async fn revoke_consent(&self, id: &str, reason: Reason) -> Result<(), HorizonError> {
        self.horizon.revoke_consent(id, reason).await
    }

    pub async fn put_subscription(&self, definition: SubscriptionDefinition) -> Result<bool, HorizonError> {
        self.scopes.check(&definition.scope)?;
        // The scope of a subscription can be changed. Without this check the caller could take over a subscription of another scope,
        // which would stop receiving.
        if !self.scopes.are_all() {
            match self.horizon.subscription(&definition.name).await {
                Ok(status) if !self.scopes.has(&status.scope) => {
                    let message =
                        "is taken by a subscription of a scope that the credential does not cover; choose another name";
                    return Err(Invalid::new(Code::InvalidSubscription, "name", message).into());
                }
                Ok(_) | Err(HorizonError::UnknownSubscription(_)) => {}
                Err(error) => return Err(error),
            }
        }
        self.horizon.put_subscription(definition).await
    }

    pub async fn subscriptions(&self, after: Option<&str>, limit: usize) -> Result<SubscriptionPage, HorizonError> {
        if self.scopes.are_all() {
            return self.horizon.subscriptions(after, limit).await;
        }
        let mut visible = Visible::new(after, limit);
        while let Some((after, limit)) = visible.wanted() {
            let page = self.horizon.subscriptions(after, limit).await?;
            visible.add(page.items, page.cursor, |subscription| self.scopes.has(&subscription.scope));
        }
        let (items, cursor) = visible.into_page();
        Ok(SubscriptionPage { items, cursor })
    }

    pub async fn subscription(&self, name: &str) -> Result<SubscriptionStatus, HorizonError> {
        let status = self.horizon.subscription(name).await?;
        match self.scopes.has(&status.scope) {
            true => Ok(status),
            false => Err(HorizonError::UnknownSubscription(name.to_owned())),
        }
    }

    pub async fn delete_subscription(&self, name: &str, reason: Reason) -> Result<(), HorizonError> {
        if !self.scopes.are_all() {
            self.subscription(name).await?;
        }
        self.horizon.delete_subscription(name, reason).await
    }
}
