//! Topics: where a broker carries the events of one type, and the settings that they take from their categories.

mod status;
mod stored;

use std::collections::{BTreeMap, BTreeSet};

use bytestring::ByteString;
use serde::{Deserialize, Serialize};

use crate::{Code, Invalid, limits, valid_name};

pub use status::{TopicGroup, TopicPage, TopicStatus, Topics};
pub use stored::{TOPICS, TopicRecord};

/// The category of event types that do not name one.
pub const DEFAULT_CATEGORY: &str = "default";
/// Milliseconds per day.
const DAY_MS: u64 = 24 * 60 * 60 * 1_000;
/// The maximum number of partitions of a topic.
const PARTITIONS_MAX: u32 = 1_000;
/// The longest topic name that Kafka allows, in bytes.
const TOPIC_BYTES_MAX: usize = 249;

/// The desired state of a topic. Each event type has one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TopicDefinition {
    /// Its name: the event type, after the tenant's prefix if it has one.
    pub name: ByteString,
    /// The category that its settings come from.
    pub category: ByteString,
    /// The number of its partitions.
    pub partitions: u32,
    /// How long its messages are kept, in milliseconds; `None` means forever.
    pub retention_ms: Option<u64>,
}

/// The settings of a category.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CategoryNumbers {
    /// The number of partitions of each topic.
    pub partitions: u32,
    /// How long messages are kept, in milliseconds; `None` means forever.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retention_ms: Option<u64>,
}

/// The settings that determine the topics of a tenant: its prefix, its categories, and settings for single topics.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TopicSettings {
    /// The prefix of each topic name, before the event type; empty for the default tenant.
    pub prefix: String,
    /// The categories by name.
    pub categories: BTreeMap<String, CategoryNumbers>,
    /// Settings for the topics of single event types, which override those of their categories.
    pub topics: BTreeMap<String, CategoryNumbers>,
    /// The prefixes of other tenants on the same cluster. No topic of this tenant begins with one.
    pub reserved: BTreeSet<String>,
}

impl Default for TopicSettings {
    /// Returns the categories of Integr8sCode. Execution has 6 partitions for 7 days, pod and command 3 for 1 day, user and security 3 for
    /// 30 days; results and everything else have 3 for 7 days.
    fn default() -> Self {
        let numbers = |partitions, days: u64| CategoryNumbers { partitions, retention_ms: Some(days * DAY_MS) };
        let categories = [
            ("execution", numbers(6, 7)),
            ("pod", numbers(3, 1)),
            ("command", numbers(3, 1)),
            ("user", numbers(3, 30)),
            ("security", numbers(3, 30)),
            ("result", numbers(3, 7)),
            (DEFAULT_CATEGORY, numbers(3, 7)),
        ];
        let categories = categories.map(|(name, numbers)| (name.to_owned(), numbers)).into();
        Self { prefix: String::new(), categories, topics: BTreeMap::new(), reserved: BTreeSet::new() }
    }
}

impl TopicSettings {
    /// Returns the name of the topic of an event type.
    pub fn topic_of(&self, event_type: &str) -> ByteString {
        if self.prefix.is_empty() { event_type.into() } else { format!("{}{event_type}", self.prefix).into() }
    }

    /// Returns the event type of a topic, or `None` for a topic of another tenant.
    pub fn type_of<'t>(&self, topic: &'t str) -> Option<&'t str> {
        let own = Some(topic).filter(|topic| !self.is_reserved(topic));
        own?.strip_prefix(&*self.prefix).filter(|name| valid_name("topic", name).is_ok())
    }

    /// Returns whether a topic, or a group, is that of another tenant on the same cluster.
    pub fn is_reserved(&self, name: &str) -> bool {
        self.reserved.iter().any(|prefix| name.starts_with(&**prefix))
    }

    /// Returns the topic of an event type of this category. A category that is not configured has the numbers of the default one.
    ///
    /// # Errors
    /// `invalid_name` or `invalid_topic` for an event type that can have no topic of this tenant.
    pub fn topic_in(&self, event_type: &str, category: &str) -> Result<TopicDefinition, Invalid> {
        let configured = if self.categories.contains_key(category) { category } else { DEFAULT_CATEGORY };
        Ok(TopicDefinition { category: category.into(), ..self.definition(event_type, configured)? })
    }

    /// Returns the topic of an event type of this category.
    ///
    /// # Errors
    /// `invalid_name` for a name that no event type can have; `invalid_topic` for an unknown category, and for a topic of another tenant.
    pub fn definition(&self, event_type: &str, category: &str) -> Result<TopicDefinition, Invalid> {
        valid_name("topic", event_type)?;
        let name = self.topic_of(event_type);
        if self.is_reserved(&name) {
            let message =
                format!("{:?} is a topic of another tenant on the same cluster; rename the event type", &*name);
            return Err(Invalid::new(Code::InvalidTopic, "topic", message));
        }
        let of_category = self.categories.get(category).ok_or_else(|| {
            let known = self.categories.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
            let message = format!("{category:?} is not a category; choose one of {known}, or configure it");
            Invalid::new(Code::InvalidTopic, "category", message)
        })?;
        let numbers = self.topics.get(event_type).unwrap_or(of_category);
        Ok(TopicDefinition {
            name,
            category: category.into(),
            partitions: numbers.partitions,
            retention_ms: numbers.retention_ms,
        })
    }

    /// Checks the prefix and the numbers.
    ///
    /// # Errors
    /// `invalid_topic` with the path.
    pub fn validate(&self) -> Result<(), Invalid> {
        let invalid = |path: String, message: String| Err(Invalid::new(Code::InvalidTopic, path, message));
        if !self.prefix.is_empty() && valid_name("prefix", &self.prefix).is_err() {
            return invalid(
                "prefix".to_owned(),
                "must consist of A-Z a-z 0-9 _ . - and begin with a letter or digit".to_owned(),
            );
        }
        if self.prefix.len() + limits::NAME_BYTES_MAX > TOPIC_BYTES_MAX {
            let most = TOPIC_BYTES_MAX - limits::NAME_BYTES_MAX;
            return invalid("prefix".to_owned(), format!("is longer than {most} bytes"));
        }
        let all = self.categories.iter().map(|(name, numbers)| ("categories", name, numbers));
        for (of, name, numbers) in all.chain(self.topics.iter().map(|(name, numbers)| ("topics", name, numbers))) {
            if !(1..=PARTITIONS_MAX).contains(&numbers.partitions) {
                let message = format!("{} is not between 1 and {PARTITIONS_MAX}", numbers.partitions);
                return invalid(format!("{of}.{name}.partitions"), message);
            }
            if numbers.retention_ms == Some(0) {
                return invalid(format!("{of}.{name}.retention_ms"), "0 would keep nothing".to_owned());
            }
        }
        if !self.categories.contains_key(DEFAULT_CATEGORY) {
            return invalid("categories".to_owned(), format!("{DEFAULT_CATEGORY:?} is missing"));
        }
        Ok(())
    }
}

/// Checks that no two tenants on one cluster share topics: at most one of them has no prefix, and no prefix is the beginning of another.
///
/// # Errors
/// `invalid_topic`, which names both tenants.
pub fn separate_tenants<'t>(tenants: impl IntoIterator<Item = (&'t str, &'t TopicSettings)>) -> Result<(), Invalid> {
    let tenants: Vec<_> = tenants.into_iter().collect();
    for (at, (one, settings)) in tenants.iter().enumerate() {
        let clashes = |prefix: &str, other: &str| {
            prefix.is_empty() && other.is_empty() || {
                !prefix.is_empty() && !other.is_empty() && (prefix.starts_with(other) || other.starts_with(prefix))
            }
        };
        if let Some((other, _)) = tenants[..at].iter().find(|(_, other)| clashes(&settings.prefix, &other.prefix)) {
            let message = format!(
                "tenants {other:?} and {one:?} would share topics; give one of them a prefix or a cluster of its own"
            );
            return Err(Invalid::new(Code::InvalidTopic, "prefix", message));
        }
    }
    Ok(())
}

/// A setting in which a topic differs from its configuration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TopicDifference {
    /// `partitions` or `retention_ms`.
    pub setting: String,
    /// The topic's value; `None` means unlimited.
    pub actual: Option<u64>,
    /// The configured value.
    pub wanted: Option<u64>,
    /// Why it cannot be applied, or the side effect of applying it; `None` if there is no side effect.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warning: Option<String>,
    /// Whether it can be applied.
    pub applicable: bool,
}

impl TopicDefinition {
    /// Returns how a topic with these settings differs from this definition. Nothing is changed until an operator applies it.
    pub fn differences(&self, partitions: u32, retention_ms: Option<u64>) -> Vec<TopicDifference> {
        let mut found = Vec::new();
        if partitions != self.partitions {
            let fewer = self.partitions < partitions;
            let warning = match fewer {
                true => "a topic cannot lose partitions; delete it, or configure the number that it has",
                false => {
                    "adding partitions moves keys: the events of a key are in order before the change and after it, but not across it"
                }
            };
            found.push(TopicDifference {
                setting: "partitions".to_owned(),
                actual: Some(partitions.into()),
                wanted: Some(self.partitions.into()),
                warning: Some(warning.to_owned()),
                applicable: !fewer,
            });
        }
        if retention_ms != self.retention_ms {
            found.push(TopicDifference {
                setting: "retention_ms".to_owned(),
                actual: retention_ms,
                wanted: self.retention_ms,
                warning: None,
                applicable: true,
            });
        }
        found
    }
}

/// Returns the partition of a key as Kafka computes it, so that producers in any language agree with it.
pub fn partition_of(key: &[u8], partitions: u32) -> u32 {
    (murmur2(key) & 0x7fff_ffff) % partitions.max(1)
}

/// The hash by which Kafka's Java client selects partitions.
fn murmur2(data: &[u8]) -> u32 {
    const M: u32 = 0x5bd1_e995;
    let mut hash = 0x9747_b28c_u32 ^ data.len() as u32;
    let (words, rest) = data.as_chunks::<4>();
    for word in words {
        let mut k = u32::from_le_bytes(*word).wrapping_mul(M);
        k ^= k >> 24;
        hash = hash.wrapping_mul(M) ^ k.wrapping_mul(M);
    }
    if !rest.is_empty() {
        for (at, byte) in rest.iter().enumerate() {
            hash ^= u32::from(*byte) << (8 * at);
        }
        hash = hash.wrapping_mul(M);
    }
    hash ^= hash >> 13;
    hash = hash.wrapping_mul(M);
    hash ^ (hash >> 15)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_has_the_partition_that_kafka_s_own_client_gives_it() {
        // Test vectors of Kafka's own tests.
        for (key, hash) in [
            ("21", -973_932_308_i32),
            ("foobar", -790_332_482),
            ("a-little-bit-long-string", -985_981_536),
            ("a-little-bit-longer-string", -1_486_304_829),
            ("lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58_897_971),
            ("abc", 479_470_107),
        ] {
            assert_eq!(murmur2(key.as_bytes()).cast_signed(), hash, "{key}");
        }
        assert!((0..100).all(|n: u32| partition_of(&n.to_be_bytes(), 6) < 6));
    }

    #[test]
    fn every_category_gives_its_topics_the_numbers_of_the_table_and_a_topic_may_have_its_own() {
        let settings = TopicSettings::default();
        let numbers = |category: &str| {
            let topic = settings.definition("some_type", category).expect(category);
            (&*topic.name == "some_type", topic.partitions, topic.retention_ms.map(|ms| ms / DAY_MS))
        };
        assert_eq!(numbers("execution"), (true, 6, Some(7)));
        assert_eq!([numbers("pod"), numbers("command")], [(true, 3, Some(1)); 2]);
        assert_eq!([numbers("user"), numbers("security")], [(true, 3, Some(30)); 2]);
        assert_eq!([numbers("default"), numbers("result")], [(true, 3, Some(7)); 2]);
        let unknown = settings.definition("some_type", "pods").expect_err("no such category");
        assert_eq!((unknown.code, &*unknown.path), (Code::InvalidTopic, "category"));
        let topic = settings.topic_in("some_type", "pods").expect("as in the default category");
        assert_eq!((topic.partitions, &*topic.category), (3, "pods"));
        assert_eq!(settings.topic_in("some_type", "execution").expect("a category").partitions, 6);
        let own = CategoryNumbers { partitions: 12, retention_ms: None };
        let settings = TopicSettings { topics: [("some_type".to_owned(), own)].into(), ..settings };
        let topic = settings.definition("some_type", "pod").expect("a category");
        assert_eq!((topic.partitions, topic.retention_ms, &*topic.category), (12, None, "pod"));
    }

    #[test]
    fn two_tenants_of_one_cluster_without_different_prefixes_are_refused() {
        let of = |prefix: &str| TopicSettings { prefix: prefix.to_owned(), ..TopicSettings::default() };
        let [none, a, ab, b] = ["", "a.", "a.b.", "b."].map(of);
        assert!(separate_tenants([("one", &none), ("two", &a), ("three", &b)]).is_ok());
        for (one, two) in [(&none, &none), (&a, &ab), (&ab, &a), (&b, &b)] {
            let refused = separate_tenants([("one", one), ("two", two)]).expect_err("they share topics");
            assert!(refused.to_string().contains("\"one\" and \"two\""), "{refused}");
        }
        assert_eq!(&*a.topic_of("order_placed"), "a.order_placed");
        assert_eq!((a.type_of("a.order_placed"), a.type_of("b.order_placed")), (Some("order_placed"), None));
    }

    #[test]
    fn a_tenant_without_a_prefix_has_no_topic_that_begins_with_the_prefix_of_another() {
        let none = TopicSettings { reserved: ["a.".to_owned()].into(), ..TopicSettings::default() };
        assert_eq!([none.type_of("a.order_placed"), none.type_of("ab")], [None, Some("ab")]);
        let refused = none.topic_in("a.order_placed", DEFAULT_CATEGORY).expect_err("it is another tenant's");
        assert_eq!(refused.code, Code::InvalidTopic);
        assert_eq!(&*none.topic_in("ab", DEFAULT_CATEGORY).expect("its own").name, "ab");
    }

    #[test]
    fn a_difference_is_reported_with_what_applying_it_does() {
        let topic = TopicSettings::default().definition("pod_created", "pod").expect("a category");
        assert_eq!(topic.differences(3, Some(DAY_MS)), []);
        let more = topic.differences(2, Some(7));
        assert_eq!(
            more.iter().map(|it| (&*it.setting, it.applicable)).collect::<Vec<_>>(),
            [("partitions", true), ("retention_ms", true)]
        );
        assert!(!topic.differences(4, Some(DAY_MS))[0].applicable);
    }
}
