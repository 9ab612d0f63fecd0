//! The broker that events are published to.

use std::collections::BTreeMap;
use std::sync::Arc;

use annals::relay::{MessageFormat, MessageKey, MessageOptions, RelayTopics};
use annals::runtime::RelayOptions;
use annals::{Broker, CategoryNumbers, DEFAULT_TENANT, Invalid, TopicSettings, server};
use serde::{Deserialize, Serialize};

use crate::failure::Failure;

/// A broker, and how events are published to it.
pub type Published = (Arc<dyn Broker>, RelayOptions);

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BrokerSection {
    /// `embedded`, or a Kafka cluster.
    pub url: String,
    /// The event types that have topics.
    pub types: TypesWithTopics,
    /// The form of headers and body.
    pub format: MessageFormat,
    /// The source of a message's key.
    pub key: String,
    /// A file with the password of the cluster's user; empty for none.
    pub password_file: String,
    /// Clusters and prefixes of individual tenants.
    pub tenants: BTreeMap<String, TenantBroker>,
    /// Partitions and retention of categories of topics, which add to or override those that are built in.
    pub categories: BTreeMap<String, CategoryOfTopics>,
}

/// The broker and the topic prefix of a tenant.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TenantBroker {
    /// The tenant's own broker; by default, that of the section.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// The prefix of its topics; by default, the tenant's name and a dot, and nothing for `default`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prefix: Option<String>,
}

/// Partitions and retention of the topics of a category.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CategoryOfTopics {
    /// The number of partitions with which topics are created.
    pub partitions: u32,
    /// The number of days that messages are kept; by default, forever.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retention_days: Option<u32>,
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
            password_file: String::new(),
            tenants: BTreeMap::new(),
            categories: BTreeMap::new(),
        }
    }
}

impl BrokerSection {
    /// Returns the relays that publish the events of these tenants.
    ///
    /// # Errors
    /// `invalid_config` if the URL or the message key is not valid, and if tenants would share topics.
    pub fn relays(&self, tenants: &[String]) -> Result<server::Relays, Failure> {
        let mut relays = server::Relays::default();
        if let Some(other) = self.tenants.keys().find(|name| !tenants.contains(name)) {
            let message =
                format!("broker.tenants.{other}: the tenant does not exist; the tenants are {}", tenants.join(", "));
            return Err(Failure::config(message));
        }
        let mut clusters: BTreeMap<&str, Vec<(&str, TopicSettings)>> = BTreeMap::new();
        for tenant in tenants {
            let Some((broker, options)) = self.relay_of(tenant, tenants)? else { continue };
            let cluster = self.cluster_of(tenant);
            clusters.entry(cluster).or_default().push((tenant.as_str(), options.topics.settings.clone()));
            relays.add(tenant, broker, options);
        }
        for tenants in clusters.values() {
            let together = annals::separate_tenants(tenants.iter().map(|(tenant, settings)| (*tenant, settings)));
            together.map_err(|invalid| Failure::config(format!("broker.tenants: {}", invalid.message)))?;
        }
        Ok(relays)
    }

    /// Returns the broker to which the events of one of these tenants are published, and how; `None` if its topics are views of the log.
    /// Topics of a tenant other than `default` are prefixed with its name. A tenant without a prefix has no topics that begin with that of
    /// another one.
    ///
    /// # Errors
    /// `invalid_config` if the URL or the message key is not valid.
    pub fn relay_of(&self, tenant: &str, all: &[String]) -> Result<Option<Published>, Failure> {
        let key = MessageKey::try_from(self.key.clone());
        let key = key.map_err(|invalid| Failure::config(format!("broker.key: {}", invalid.message)))?;
        let messages = MessageOptions { format: self.format, key };
        let prefix = self.prefix_of(tenant);
        let mut settings = TopicSettings { prefix: prefix.clone(), ..self.topics()? };
        if prefix.is_empty() {
            let beside = all.iter().filter(|other| self.cluster_of(other) == self.cluster_of(tenant));
            settings.reserved = beside.map(|other| self.prefix_of(other)).filter(|other| !other.is_empty()).collect();
        }
        let url = with_password(self.url_of(tenant), self.password()?.as_deref());
        let Some(broker) = annals::open_broker(&url, settings.clone())? else { return Ok(None) };
        let refused = |invalid: Invalid| Failure::config(format!("tenant {tenant:?}: {}", invalid.message));
        settings.validate().map_err(refused)?;
        let topics = match self.types {
            TypesWithTopics::All => RelayTopics::all(settings),
            TypesWithTopics::Registered => RelayTopics { settings, ..RelayTopics::default() },
        };
        Ok(Some((broker, RelayOptions { topics, messages })))
    }

    fn url_of(&self, tenant: &str) -> &str {
        self.tenants.get(tenant).and_then(|own| own.url.as_deref()).unwrap_or(&self.url)
    }

    /// Returns the addresses of a tenant's cluster. Different lists of one cluster count as two clusters.
    fn cluster_of(&self, tenant: &str) -> &str {
        let url = self.url_of(tenant);
        url.split_once('?').map_or(url, |(hosts, _)| hosts)
    }

    fn prefix_of(&self, tenant: &str) -> String {
        let configured = self.tenants.get(tenant).and_then(|own| own.prefix.clone());
        configured.unwrap_or_else(|| if tenant == DEFAULT_TENANT { String::new() } else { format!("{tenant}.") })
    }

    /// Returns the topic settings, without a prefix.
    ///
    /// # Errors
    /// `invalid_config` for numbers that no topic can have.
    pub fn topics(&self) -> Result<TopicSettings, Failure> {
        const DAY_MS: u64 = 24 * 60 * 60 * 1_000;
        let mut settings = TopicSettings::default();
        for (name, CategoryOfTopics { partitions, retention_days }) in &self.categories {
            let retention_ms = retention_days.map(|days| u64::from(days) * DAY_MS);
            settings.categories.insert(name.clone(), CategoryNumbers { partitions: *partitions, retention_ms });
        }
        let refused = |invalid: Invalid| Failure::config(format!("broker.{}: {}", invalid.path, invalid.message));
        settings.validate().map_err(refused)?;
        Ok(settings)
    }

    fn password(&self) -> Result<Option<String>, Failure> {
        if self.password_file.is_empty() {
            return Ok(None);
        }
        let read = std::fs::read_to_string(&self.password_file);
        let text =
            read.map_err(|error| Failure::config(format!("broker.password_file: {}: {error}", self.password_file)))?;
        Ok(Some(text.trim_end_matches(['\r', '\n']).to_owned()))
    }
}

/// Adds the password to the URL of a cluster, like its other settings.
fn with_password(url: &str, password: Option<&str>) -> String {
    match password {
        Some(password) if url.starts_with("kafka://") => {
            let separator = if url.contains('?') { '&' } else { '?' };
            let encoded: String = password.bytes().map(|byte| format!("%{byte:02X}")).collect();
            format!("{url}{separator}sasl.password={encoded}")
        }
        _ => url.to_owned(),
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

    #[cfg(feature = "kafka")]
    fn tenants_of(tenants: &[(&str, Option<&str>, &str)]) -> Result<(), String> {
        let of = |(name, url, prefix): &(&str, Option<&str>, &str)| {
            let own = TenantBroker { url: url.map(str::to_owned), prefix: Some((*prefix).to_owned()) };
            ((*name).to_owned(), own)
        };
        let url = "kafka://127.0.0.1:1".to_owned();
        let section = BrokerSection { url, tenants: tenants.iter().map(of).collect(), ..BrokerSection::default() };
        let names: Vec<String> = ["default", "acme"].map(str::to_owned).into();
        section.relays(&names).map(drop).map_err(|failure| failure.message)
    }

    #[test]
    #[cfg(feature = "kafka")]
    fn two_tenants_on_one_cluster_need_prefixes_or_a_cluster_of_their_own() {
        assert_eq!(tenants_of(&[]), Ok(()), "the name of a tenant is its prefix");
        let together = tenants_of(&[("acme", None, "")]).expect_err("they would share topics");
        assert!(together.contains("\"default\" and \"acme\"") && together.contains("cluster of its own"), "{together}");
        assert_eq!(tenants_of(&[("acme", Some("kafka://127.0.0.1:2"), "")]), Ok(()));
        assert_eq!(tenants_of(&[("acme", Some("embedded"), "")]), Ok(()));
        let unknown = tenants_of(&[("umbrella", None, "u.")]).expect_err("no such tenant");
        assert!(unknown.contains("broker.tenants.umbrella") && unknown.contains("default, acme"), "{unknown}");
        let invalid = tenants_of(&[("acme", None, "a b")]).expect_err("no topic can have this name");
        assert!(invalid.contains("acme"), "{invalid}");
    }

    #[test]
    #[cfg(feature = "kafka")]
    fn a_tenant_without_a_prefix_has_no_topics_of_another_one_on_its_cluster() {
        let names: Vec<String> = ["default", "acme", "umbrella"].map(str::to_owned).into();
        let elsewhere = TenantBroker { url: Some("kafka://127.0.0.1:2".to_owned()), prefix: None };
        let tenants = [("umbrella".to_owned(), elsewhere)].into();
        let section =
            BrokerSection { url: "kafka://127.0.0.1:1?client.id=a".to_owned(), tenants, ..Default::default() };
        let settings = |tenant: &str| {
            let (_, options) = section.relay_of(tenant, &names).expect("valid").expect("a broker");
            options.topics.settings
        };
        assert_eq!(settings("default").reserved.into_iter().collect::<Vec<_>>(), ["acme."]);
        assert_eq!((settings("acme").reserved.len(), &*settings("acme").prefix), (0, "acme."));
    }

    #[test]
    fn categories_add_to_those_that_are_built_in_and_are_checked() {
        let of = |name: &str, partitions: u32, retention_days: Option<u32>| {
            let categories = [(name.to_owned(), CategoryOfTopics { partitions, retention_days })].into();
            BrokerSection { categories, ..BrokerSection::default() }.topics()
        };
        let settings = of("reports", 2, None).expect("valid");
        assert_eq!(settings.categories["reports"], CategoryNumbers { partitions: 2, retention_ms: None });
        assert_eq!(settings.categories["execution"].partitions, 6);
        assert_eq!(of("pod", 12, Some(2)).expect("valid").categories["pod"].retention_ms, Some(2 * 86_400_000));
        let refused = of("pod", 0, None).expect_err("a topic has a partition").message;
        assert!(refused.contains("broker.categories.pod.partitions"), "{refused}");
    }

    #[test]
    fn a_password_is_read_from_its_file_and_encoded_as_a_setting() {
        assert_eq!(with_password("kafka://a:1", Some("p&=")), "kafka://a:1?sasl.password=%70%26%3D");
        assert_eq!(with_password("kafka://a:1?x=y", Some("p")), "kafka://a:1?x=y&sasl.password=%70");
        assert_eq!(with_password("embedded", Some("p")), "embedded");
        let section = BrokerSection { password_file: "/no/such/file".to_owned(), ..BrokerSection::default() };
        let refused = section.relays(&[DEFAULT_TENANT.to_owned()]).expect_err("it is missing").message;
        assert!(refused.contains("broker.password_file") && refused.contains("/no/such/file"), "{refused}");
    }
}
