//! The broker that events are published to.

use annals::relay::{MessageFormat, MessageKey, MessageOptions, RelayTopics};
use annals::runtime::RelayOptions;
use annals::{DEFAULT_TENANT, Invalid, TopicSettings, server};
use serde::{Deserialize, Serialize};

use crate::failure::Failure;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BrokerSection {
    /// `embedded`, or a Kafka cluster.
    pub url: String,
    /// Which event types have topics.
    pub types: TypesWithTopics,
    /// The form of headers and body.
    pub format: MessageFormat,
    /// What the key of a message is taken from.
    pub key: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TypesWithTopics {
    All,
    Registered,
}

impl Default for BrokerSection {
    fn default() -> Self {
        Self {
            url: "embedded".to_owned(),
            types: TypesWithTopics::All,
            format: MessageFormat::default(),
            key: MessageKey::default().into(),
        }
    }
}

impl BrokerSection {
    /// What publishes the events of these tenants. Topics of a tenant other than `default` have its name before theirs.
    ///
    /// # Errors
    /// `invalid_config` if the URL or the message key is not valid.
    pub fn relays(&self, tenants: &[String]) -> Result<server::Relays, Failure> {
        let key = MessageKey::try_from(self.key.clone());
        let key = key.map_err(|invalid| Failure::config(format!("broker.key: {}", invalid.message)))?;
        let messages = MessageOptions { format: self.format, key };
        let mut relays = server::Relays::default();
        let mut all = Vec::new();
        for tenant in tenants {
            let prefix = if tenant == DEFAULT_TENANT { String::new() } else { format!("{tenant}.") };
            let settings = TopicSettings { prefix, ..TopicSettings::default() };
            let topics = match self.types {
                TypesWithTopics::All => RelayTopics::all(settings.clone()),
                TypesWithTopics::Registered => RelayTopics { settings: settings.clone(), ..RelayTopics::default() },
            };
            if let Some(broker) = annals::open_broker(&self.url, settings.clone())? {
                let refused = |invalid: Invalid| Failure::config(format!("tenant {tenant:?}: {}", invalid.message));
                settings.validate().map_err(refused)?;
                relays.add(tenant, broker, RelayOptions { topics, messages: messages.clone() });
                all.push((tenant.as_str(), settings));
            }
        }
        let together = annals::separate_tenants(all.iter().map(|(tenant, settings)| (*tenant, settings)));
        together.map_err(|invalid| Failure::config(invalid.message))?;
        Ok(relays)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_broker_and_no_key_is_refused_before_anything_is_served() {
        let refused = |url: &str, key: &str| {
            let section = BrokerSection { url: url.to_owned(), key: key.to_owned(), ..BrokerSection::default() };
            section.relays(&[DEFAULT_TENANT.to_owned()]).err().map(|failure| failure.message)
        };
        assert_eq!(refused("embedded", "aggregate_id"), None);
        assert!(refused("rabbit://a", "aggregate_id").is_some_and(|message| message.contains("kafka://HOST:PORT")));
        assert!(refused("embedded", "customer").is_some_and(|message| message.contains("broker.key")));
    }
}
